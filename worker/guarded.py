"""Runs a rank, or replaces itself by a command, so that it cannot outlive who started it.

``python -m worker.guarded PARENT_PID --worker MODULE:FUNCTION --job FILE --rank R``
``python -m worker.guarded PARENT_PID --exec COMMAND ...``

Without ``--rank`` the rank is ``$RANK`` (under the ``deepspeed`` command, which also adds
``--local_rank``); PARENT_PID 0 means whoever started it. Nothing is imported here that a rank would not
have anyway.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, cast

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent(parent_pid: int) -> None:
    """This process gets KILL when its parent's thread ends; leaves at once if that has happened."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def resolve(worker: str) -> Callable[[str, int], object]:
    """The function that ``module:function`` names; ValueError if it names none."""
    module, separator, name = worker.partition(":")
    if not separator:
        raise ValueError(f"worker {worker!r} is not of the form module:function")
    return cast("Callable[[str, int], object]", getattr(importlib.import_module(module), name))


def main() -> NoReturn:
    """Parse the command line and become the rank or the command."""
    if "--exec" in sys.argv:
        split = sys.argv.index("--exec")
        die_with_parent(int(sys.argv[1]))
        command = sys.argv[split + 1 :]
        os.execvp(command[0], command)
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank")
    parser.add_argument("parent", type=int)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--rank", type=int)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent or os.getppid())
    # Set by the deepspeed command; DeepSpeed's shared-memory op then leaves files in /dev/shm.
    os.environ.pop("LOCAL_SIZE", None)
    rank = int(os.environ["RANK"]) if arguments.rank is None else arguments.rank
    resolve(arguments.worker)(arguments.job, rank)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
