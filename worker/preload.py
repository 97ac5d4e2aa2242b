"""What a fork server imports before it forks, and how it learns what was missing.

DeepSpeed's first ``initialize`` pulls in about 190 further top modules. Nobody writes that list down: the
first rank forked reports which modules it had to import, the server imports those too, and keeps the list
on disk for the next server with the same versions.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from worker import nvml

_TORCH_WORKERS = ("worker.rank",)
"""Rank modules that need torch and DeepSpeed; any other is imported alone."""

_NEVER = ("orchestrator.store", "sqlalchemy", "psycopg", "pydantic", "pandas", "__main__", "__mp_main__")
"""Not before the loop: they must not be in the heap of a rank that measures."""

_MOST_ROUNDS = 3
"""Reports taken in by one server; later cells seldom need anything new."""


def load(module: str, accelerator: str, cache_folder: str) -> Learned | None:
    """Import what ranks of this worker need; None if there is nothing to learn (a torch-free worker)."""
    if module not in _TORCH_WORKERS:
        return None
    import torch  # noqa: F401

    with nvml.put_off():
        import deepspeed  # noqa: F401

    load_ops(str(Path(cache_folder)))
    from worker import environment

    environment.package_versions()
    learned = Learned(Path(cache_folder) / f"modules-{_versions_key(accelerator)}.json")
    learned.import_known()
    return learned


def _versions_key(accelerator: str) -> str:
    # Imported here: they bring threading and random, which every fork then pays for (hooks after a fork),
    # and a torch-free worker needs none of it.
    import hashlib
    import importlib.metadata

    parts = [sys.version, accelerator]
    for name in ("torch", "deepspeed", "offload-orch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts.append(f"{name}={importlib.metadata.version(name)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def thread_count() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def thread_names() -> list[str]:
    """What the kernel calls the threads of this process, the main one first."""
    names = []
    for task in sorted(os.listdir("/proc/self/task"), key=int):
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/self/task/{task}/comm").read_text().strip())
    return names


def load_ops(folder: str) -> None:
    """Load DeepSpeed's compiled ops so that no rank has to, and build them first if need be.

    Finding out what to build for, and the build, initialise CUDA and start threads: both happen in a
    child. Where an op cannot be had nothing is said here: the rank that needs it will say it better.
    """
    os.makedirs(folder, exist_ok=True)
    report = os.path.join(folder, f".ops-{os.getpid()}")
    pid = os.fork()
    if pid == 0:
        _build_and_report(report)
    os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        text = Path(report).read_text()
        os.unlink(report)
        for line in text.splitlines():
            with nvml.put_off():
                _load_library(*line.split("\t"))


def _build_and_report(report: str) -> NoReturn:
    with contextlib.suppress(BaseException):
        nvml.initialise()
        from deepspeed.accelerator import get_accelerator

        from worker.ops import load_comm_op, load_fused_adam

        accelerator = get_accelerator()
        for name, load_op in (("ShareMemCommBuilder", load_comm_op), ("FusedAdamBuilder", load_fused_adam)):
            with contextlib.suppress(Exception):
                load_op(accelerator)
                builder = accelerator.create_op_builder(name)
                module = None if builder is None else builder.load(verbose=False)
                if module is not None:
                    with open(report, "a", encoding="utf-8") as stream:
                        stream.write(f"{builder.name}\t{module.__name__}\t{module.__file__}\n")
    os._exit(0)


def _load_library(op: str, name: str, library: str) -> None:
    import importlib.util

    from deepspeed.ops.op_builder.builder import OpBuilder

    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        return
    with contextlib.suppress(ImportError):
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        OpBuilder._loaded_ops[op] = module


class Learned:
    """The list of modules that ranks turned out to need, in memory and on disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: list[str] = []
        self._harmful: list[str] = []
        self._rounds = 0
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(path.read_text())
            self._known = [str(name) for name in document["modules"]]
            self._harmful = [str(name) for name in document["harmful"]]

    @property
    def wants_more(self) -> bool:
        """Whether the next rank should report."""
        return self._rounds < _MOST_ROUNDS

    def import_known(self) -> None:
        """Import what is on the list."""
        self._import(self._known)

    def take(self, report: str) -> str | None:
        """Import what a rank reports and remember it; a line for a person if that did harm."""
        self._rounds += 1
        try:
            names = [str(name) for name in json.loads(Path(report).read_text())]
        except (OSError, ValueError):
            # The rank was killed before it could report; the next one may.
            self._rounds -= 1
            return None
        finally:
            with contextlib.suppress(OSError):
                os.unlink(report)
        news = [name for name in names if name not in self._known and name not in self._harmful]
        if not news:
            self._rounds = _MOST_ROUNDS
            return None
        harmful = self._import(news)
        self._known += [name for name in news if name != harmful]
        if harmful is not None:
            self._harmful.append(harmful)
        self._save()
        gc.collect()
        gc.freeze()
        if harmful is not None:
            return f"importing {harmful} made the fork server unsafe; the next one leaves it out"
        return None

    def _import(self, names: Iterable[str]) -> str | None:
        """Import modules in the order in which a rank did; the one that started a thread, if one did."""
        for name in names:
            if name in sys.modules or name in self._harmful:
                continue
            with contextlib.suppress(Exception), nvml.put_off():
                importlib.import_module(name)
            if thread_count() != 1:
                return name
        return None

    def _save(self) -> None:
        document = {"modules": self._known, "harmful": self._harmful}
        temporary = self._path.with_suffix(f".{os.getpid()}.new")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(document))
            os.replace(temporary, self._path)


def report_on_exit(path: str) -> None:
    """In a rank: when it leaves, write which modules it had to import since now.

    Ranks leave by ``os._exit``, which runs no hooks, so that is where the report is written.
    """
    before = set(sys.modules)
    leave = os._exit

    def report_and_leave(status: int) -> NoReturn:
        with contextlib.suppress(Exception):
            names = [name for name in list(sys.modules) if name not in before and _is_importable(name)]
            with open(path, "w", encoding="utf-8") as stream:
                json.dump(names, stream)
        leave(status)

    os._exit = report_and_leave


def _is_importable(name: str) -> bool:
    if any(name == entry or name.startswith(entry + ".") for entry in _NEVER):
        return False
    spec = getattr(sys.modules.get(name), "__spec__", None)
    # Extensions built by torch's loader have a spec but are found by no import.
    return spec is not None and spec.name == name and "torch_extensions" not in str(spec.origin)
