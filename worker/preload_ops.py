"""DeepSpeed's compiled ops in a fork server: loaded there, so that no rank has to; built first if need be.

To find out what to build for, and to build, initialises CUDA and starts threads and compilers. A child
does that, beside the server's imports, and tells what the server can then load.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from worker import nvml
from worker.learned import importable_since
from worker.threads import thread_count


class OpsBuild:
    """A child that builds the ops, or finds them built. Where an op cannot be had nothing is said here:
    the rank that needs it will say it better."""

    def __init__(self, on_build: Callable[[], None] = lambda: None) -> None:
        """``on_build`` is called in the child, at most once, before the first op that must be built."""
        self._told, child_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._told)
            _build_and_tell(child_end, on_build)
        os.close(child_end)

    def load(self) -> list[str]:
        """Wait for the child and load what it has built; the modules that it imported to do so."""
        with open(self._told, "rb") as stream:
            text = stream.read()
        os.waitpid(self._pid, 0)
        try:
            told = json.loads(text)
        except ValueError:  # It was killed.
            return []
        for op, name, library in told["ops"]:
            with nvml.put_off():
                _load_library(op, name, library)
        if told["compatible"] is not None:
            # DeepSpeed finds out when it makes its process group, with a compiler, in every rank.
            vars(sys.modules["deepspeed.ops"])["__compatible_ops__"] = told["compatible"]
        return [str(name) for name in told["modules"]]


def _build_and_tell(descriptor: int, on_build: Callable[[], None]) -> NoReturn:
    before = set(sys.modules)
    ops: list[Sequence[str]] = []
    told: dict[str, object] = {"ops": ops, "compatible": None, "modules": []}
    with contextlib.suppress(BaseException):
        nvml.initialise()
        from deepspeed.accelerator import get_accelerator

        _ask_for_the_cpu_once()
        accelerator = get_accelerator()
        ops.extend(_build(accelerator, functools.cache(on_build)))
        told["compatible"] = _compatible(accelerator)
        if thread_count() == 1:
            # Otherwise one of them may have started a thread, which would spoil the server.
            told["modules"] = importable_since(before)
    with contextlib.suppress(OSError), open(descriptor, "w", encoding="utf-8") as stream:
        json.dump(told, stream)
    os._exit(0)


def _ask_for_the_cpu_once() -> None:
    """Each op asks anew what the CPU can do, which takes a second."""
    with contextlib.suppress(ImportError):
        import cpuinfo

        cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)


def _build(accelerator: Any, on_build: Callable[[], None]) -> Iterable[Sequence[str]]:
    """Op, module name and library of each op that there is."""
    from worker.ops import is_built, load_comm_op, load_fused_adam

    for name, load_op in (("ShareMemCommBuilder", load_comm_op), ("FusedAdamBuilder", load_fused_adam)):
        with contextlib.suppress(Exception):
            builder = accelerator.create_op_builder(name)
            if builder is not None and not is_built(builder.name):
                on_build()
            load_op(accelerator)
            module = None if builder is None else builder.load(verbose=False)
            if module is not None:
                yield builder.name, module.__name__, module.__file__


def _compatible(accelerator: Any) -> dict[str, bool] | None:
    """What DeepSpeed says of each op; None where no rank asks, or an older one asked when imported."""
    ops = sys.modules.get("deepspeed.ops")
    if ops is None or "__compatible_ops__" in vars(ops):
        return None
    if accelerator.device_name().startswith("cuda"):
        return None
    return dict(ops.__compatible_ops__)


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
