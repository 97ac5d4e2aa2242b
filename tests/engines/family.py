"""What a rank may have below it, in every way that is hard to find again; and a model that starts all of it.

``model: tests.engines.family:model`` makes a real DeepSpeed rank start its family while it builds the engine,
as a data loader or a compiler would be.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn


def start() -> None:
    """A child deaf to TERM, a daemon of two forks in a session of its own, and another program far away."""
    if os.fork() == 0:
        _stay()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        _stay()
    os.waitpid(middle, 0)
    if os.fork() == 0:
        os.setsid()
        os.chdir("/")
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)"])


def leave_shared_memory(port: int, rank: int) -> None:
    """Files as torch and DeepSpeed's CPU op name them."""
    for name in (f"torch_{os.getpid()}_{port}_0", f"deepspeed_allreduce_buffer_0_127.0.0.1_{port}_{rank}"):
        with open(f"/dev/shm/{name}", "wb") as file:
            file.write(bytes(4096))


def model(values: Mapping[str, Any]) -> Any:
    """The linear model, in a rank that has a family."""
    from worker.model import SimpleModel

    start()
    leave_shared_memory(int(os.environ["MASTER_PORT"]), int(os.environ["RANK"]))
    return SimpleModel(int(values["hidden_dim"]), nlayers=int(values["nlayers"]))


def _stay() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
    os._exit(0)
