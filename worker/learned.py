"""Which modules did a rank have to import, and how a fork server comes to have them before it forks.

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
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

from worker import nvml
from worker.threads import thread_count

_NEVER = ("orchestrator.store", "sqlalchemy", "psycopg", "pydantic", "pandas", "__main__", "__mp_main__")
"""Not before the loop: they must not be in the heap of a rank that measures."""

_MOST_ROUNDS = 3
"""Reports taken in by one server; later cells seldom need anything new."""


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
        if not self._unknown(names):
            self._rounds = _MOST_ROUNDS
            return None
        harmful = self.add(names)
        # Thawed, since an import may also have made garbage of what was frozen, and a rank does not look
        # there. Twice, since a tuple of tuples is let go by the collector a round later than they are.
        gc.unfreeze()
        gc.collect()
        gc.collect()
        gc.freeze()
        if harmful is not None:
            return f"importing {harmful} made the fork server unsafe; the next one leaves it out"
        return None

    def add(self, names: Iterable[str]) -> str | None:
        """Import the modules and remember them; the one that started a thread, if one did."""
        news = self._unknown(names)
        if not news:
            return None
        harmful = self._import(news)
        self._known += [name for name in news if name != harmful]
        if harmful is not None:
            self._harmful.append(harmful)
        self._save()
        return harmful

    def _unknown(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._known and name not in self._harmful]

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
            names = importable_since(before)
            with open(path, "w", encoding="utf-8") as stream:
                json.dump(names, stream)
        leave(status)

    os._exit = report_and_leave


def importable_since(before: Collection[str]) -> list[str]:
    """The modules that this process has imported since, in order, without those that nobody should."""
    return [name for name in list(sys.modules) if name not in before and _is_importable(name)]


def _is_importable(name: str) -> bool:
    if any(name == entry or name.startswith(entry + ".") for entry in _NEVER):
        return False
    spec = getattr(sys.modules.get(name), "__spec__", None)
    # Extensions built by torch's loader have a spec but are found by no import.
    return spec is not None and spec.name == name and "torch_extensions" not in str(spec.origin)
