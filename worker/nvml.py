"""The driver in a fork server: left alone there, initialised in each rank.

DeepSpeed's CUDA accelerator calls ``nvmlInit`` when it is imported (``cuda_accelerator.py``,
``_init_pynvml``), torch does when it is asked whether there are devices (``torch.cuda.device_count``, on
the import of ``torch.utils.cpp_extension``), and NVML of driver 580 starts a thread that outlives
``nvmlShutdown``. A process with a second thread must not be forked, so the server puts both off and a
rank makes them up.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Inside, nobody initialises NVML: ``nvmlInit`` does nothing, and torch knows of a device already.

    How many there are does not matter to an import; a rank counts again.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            import pynvml

            stack.enter_context(_replaced(pynvml, "nvmlInit", lambda: None))
        cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
        if hasattr(cuda, "_cached_device_count") and not cuda.is_initialized():
            stack.enter_context(_replaced(cuda, "_cached_device_count", 1))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def initialise() -> None:
    """In a rank: what DeepSpeed takes for done since its import."""
    pynvml = sys.modules.get("pynvml")
    if pynvml is not None:
        with contextlib.suppress(Exception):
            pynvml.nvmlInit()
