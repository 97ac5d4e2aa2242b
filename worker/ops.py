"""DeepSpeed's compiled optimizer, built before anything is timed and never waited for without end.

torch builds an extension once and lets everybody else wait for a ``lock`` file in its folder. A build that
was killed leaves the lock, and every later job would hang without a message. So: a lock that no process
has open is removed, a living build is waited for until a deadline, and the build itself has one too.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from worker.failures import RankError

BUILD_TIMEOUT_S = 900.0


def buildable_arch_list(text: str) -> str:
    """``TORCH_CUDA_ARCH_LIST`` as DeepSpeed's builder can read it: ``9.0a`` becomes ``9.0``."""
    return re.sub(r"(\d+\.\d+)[a-z]", r"\1", text)


def use_own_tools() -> None:
    """Put this Python's own scripts first in PATH, so that every rank builds with the same ninja.

    Another version of ninja finds that every object is out of date, and two of them taking turns build
    for minutes each time: one job from a shell with the environment active, the next from one without.
    """
    own = str(Path(sys.executable).parent)
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if entries[0] != own and (Path(own) / "ninja").exists():
        os.environ["PATH"] = os.pathsep.join([own, *(entry for entry in entries if entry != own)])


def load_comm_op(accelerator: Any, timeout_s: float = BUILD_TIMEOUT_S) -> list[str]:
    """Build or load the shared-memory op that DeepSpeed's process group wants on a CPU; notices.

    DeepSpeed does without it where it cannot be built, so only a build that never ends is an error.
    """
    if accelerator.device_name().startswith("cuda"):
        return []
    builder = accelerator.create_op_builder("ShareMemCommBuilder")
    if builder is None:
        return []
    use_own_tools()
    lock = _lock_of(builder.name)
    notices = []
    if lock is not None and clear_stale_lock(lock):
        notices.append(f"removed {lock}: the build that made it is dead")
    try:
        with _deadline(timeout_s, builder.name, lock):
            builder.load(verbose=False)
    except RankError:
        raise
    except Exception as error:  # Whatever a compiler may say.
        notices.append(f"{builder.name} cannot be built: {error}")
    return notices


def load_fused_adam(accelerator: Any, timeout_s: float = BUILD_TIMEOUT_S) -> list[str]:
    """Build or load FusedAdam for this accelerator; returns notices for the log.

    Raises:
        RankError: ``jit_build`` if the build fails or takes longer than ``timeout_s``; ``unsupported``
            if there is no such op here (no compiler, no nvcc).
    """
    use_own_tools()
    notices = []
    arch_list = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
    if arch_list and buildable_arch_list(arch_list) != arch_list:
        os.environ["TORCH_CUDA_ARCH_LIST"] = buildable_arch_list(arch_list)
        notices.append(
            f"TORCH_CUDA_ARCH_LIST={arch_list} stops DeepSpeed's builder; "
            f"built with {os.environ['TORCH_CUDA_ARCH_LIST']}"
        )
    builder = accelerator.create_op_builder("FusedAdamBuilder")
    if builder is None:
        raise RankError("unsupported", "this accelerator has no FusedAdam; use optimizer: torch_adam")
    lock = _lock_of(builder.name)
    if lock is not None and clear_stale_lock(lock):
        notices.append(f"removed {lock}: the build that made it is dead")
    try:
        with _deadline(timeout_s, builder.name, lock):
            builder.load(verbose=False)
    except RankError:
        raise
    except (OSError, RuntimeError, ImportError, ValueError, AssertionError) as error:
        text = str(error)
        missing = (
            "CUDA_HOME" in text or "not being compatible" in text or "ninja" in text.lower().split(":")[0]
        )
        kind = "unsupported" if missing else "jit_build"
        fix = "; ZeRO-1 and 2 run with optimizer: torch_adam" if missing else ""
        raise RankError(kind, f"FusedAdam cannot be built: {text}{fix}") from error
    return notices


def is_built(op: str) -> bool:
    """Whether torch has a library of the op; True where it does not tell where it builds."""
    lock = _lock_of(op)
    return lock is None or lock.with_name(f"{op}.so").exists()


def _lock_of(op: str) -> Path | None:
    """The lock file that torch would wait for; None if torch does not tell where it builds."""
    try:
        from torch.utils.cpp_extension import _get_build_directory

        return Path(_get_build_directory(op, False)) / "lock"
    except (ImportError, OSError, TypeError):
        return None


def clear_stale_lock(lock: Path) -> bool:
    """Remove the lock if no process of this host has it open; whether it was removed.

    The builder keeps the file open for the whole build. A lock of another user is left alone: whether
    he holds it cannot be seen.
    """
    try:
        status = lock.stat()
    except OSError:
        return False
    if os.geteuid() not in (0, status.st_uid) or _is_open((status.st_dev, status.st_ino)):
        return False
    lock.unlink(missing_ok=True)
    return True


def _is_open(identity: tuple[int, int]) -> bool:
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            for entry in (process / "fd").iterdir():
                try:
                    status = entry.stat()
                except OSError:
                    continue
                if (status.st_dev, status.st_ino) == identity:
                    return True
        except OSError:
            continue
    return False


@contextmanager
def _deadline(timeout_s: float, op: str, lock: Path | None) -> Iterator[None]:
    """Raise in the main thread when the time is up; a build in another thread has no deadline here."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise RankError("jit_build", f"building {op} took longer than {timeout_s:g} s (lock: {lock})")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
