"""A free rendezvous port for each job, shared correctly by every orch of the host."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import struct
from functools import cache
from pathlib import Path

from orchestrator.errors import EngineError
from orchestrator.launch.hoststate import state_dir

_LOWEST_PORT = 20000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EVERYBODYS_DEFAULTS = frozenset({29400, 29500})


class PortLease:
    """A port that no other orch of this host uses until it is released.

    One byte of one lock file stands for each port; the kernel frees it with its holder.
    """

    def __init__(self, port: int, descriptor: int) -> None:
        self.port = port
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the port back; harmless if it was already."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _lock_byte(descriptor: int, offset: int) -> bool:
    # struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for a lock of the open file).
    request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def port_range() -> range:
    """The ports that leases come from: below the range the kernel hands out by itself."""
    try:
        first_ephemeral = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = 32768
    if first_ephemeral <= _LOWEST_PORT + 100:
        return range(10000, max(first_ephemeral, 10100))
    return range(_LOWEST_PORT, first_ephemeral)


def is_free(port: int) -> bool:
    """Whether a server could listen on the port on every address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # torch's store sets the option too: a port in TIME_WAIT is usable for it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


@cache
def _candidates() -> tuple[int, ...]:
    return tuple(port for port in port_range() if port not in _EVERYBODYS_DEFAULTS)


def lease_port(folder: Path | None = None) -> PortLease:
    """Lease a free port; EngineError if there is none."""
    ports = _candidates()
    start = random.randrange(len(ports))
    path = (folder or state_dir()) / "ports.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for offset in range(len(ports)):
        port = ports[(start + offset) % len(ports)]
        if is_free(port) and _lock_byte(descriptor, port):
            return PortLease(port, descriptor)
    os.close(descriptor)
    raise EngineError(f"no free port between {ports[0]} and {ports[-1]} on this host")
