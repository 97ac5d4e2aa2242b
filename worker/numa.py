"""Which NUMA node does a rank run on, and can it be bound there?"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_NODES = Path("/sys/devices/system/node")
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
_MPOL_BIND = 2


def parse_cpu_list(text: str) -> set[int]:
    """``0-3,8`` as a set of numbers."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            cpus |= set(range(int(low), int(high or low) + 1))
    return cpus


def node_count() -> int:
    """NUMA nodes of this host, at least 1."""
    return max(1, len(list(_NODES.glob("node[0-9]*"))))


def node_of_pci(bus_id: str) -> int | None:
    """The node next to a PCI device such as ``00000000:1B:00.0``; None if the kernel does not say."""
    domain, _, rest = bus_id.lower().partition(":")
    path = Path("/sys/bus/pci/devices") / f"{domain[-4:]}:{rest}" / "numa_node"
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def bind(node: int) -> str | None:
    """Bind this process' threads and new memory to ``node``; what could not be done, in words, or None."""
    try:
        cpus = parse_cpu_list((_NODES / f"node{node}" / "cpulist").read_text())
        os.sched_setaffinity(0, cpus & os.sched_getaffinity(0) or cpus)
    except (OSError, ValueError) as error:
        return f"cannot bind to NUMA node {node}: {error}"
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is None:
        return f"bound to the CPUs of NUMA node {node}; memory policy unknown on {os.uname().machine}"
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.c_ulong(1 << node)
    if libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.sizeof(mask) * 8) != 0:
        reason = os.strerror(ctypes.get_errno())
        return f"bound to the CPUs of NUMA node {node}; memory policy refused: {reason}"
    return None


def chosen_node(axis: str, device_node: int | None) -> int | None:
    """The node that the ``numa`` axis asks for; None = do not bind."""
    if axis == "none":
        return None
    if axis == "device":
        return device_node
    return int(axis)
