"""What a launcher would have set, for one rank started by hand; imports no torch."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
"""Set by MPI's own launchers, whose ranks DeepSpeed finds by itself."""


def stand_alone(environ: MutableMapping[str, str] = os.environ, local_rank: int = -1) -> None:
    """Complete the variables of this rank, before DeepSpeed makes its process group."""
    # Set by the deepspeed command; DeepSpeed's CPU op then leaves 69 MB a rank in /dev/shm.
    environ.pop("LOCAL_SIZE", None)
    if "RANK" in environ and "WORLD_SIZE" in environ:
        if local_rank >= 0:
            environ.setdefault("LOCAL_RANK", str(local_rank))
        return
    if any(name in environ for name in _MPI):
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
