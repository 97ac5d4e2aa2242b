"""Ports, NUMA and disk of this host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, Settings, error, ok, size, warn
from orchestrator.launch.ports import is_free, port_range

_SAMPLED_PORTS = 64
_LOW_DISK_BYTES = 1_000_000_000
_FULL_DISK_BYTES = 50_000_000


def check_ports() -> list[Finding]:
    """There are free ports for the jobs' rendezvous."""
    ports = port_range()
    sample = ports[:: max(1, len(ports) // _SAMPLED_PORTS)]
    taken = [port for port in sample if not is_free(port)]
    evidence = f"{len(sample)} ports tried between {ports[0]} and {ports[-1]}"
    if len(taken) == len(sample):
        return [error("ports", "no free port for a job's rendezvous", evidence, "ss -ltnp")]
    if len(taken) > len(sample) // 2:
        return [warn("ports", f"{len(taken)} of {len(sample)} ports tried are taken", evidence, "ss -ltnp")]
    return [ok("ports", f"ports from {ports[0]} to {ports[-1]} are free to lease", evidence)]


def check_numa(settings: Settings, driver: Driver | str) -> list[Finding]:
    """Which NUMA nodes there are, and whether this process may use the ones next to the devices."""
    nodes = sorted(int(p.name[4:]) for p in (settings.sys / "devices/system/node").glob("node[0-9]*"))
    if len(nodes) <= 1 or isinstance(driver, str):
        return []
    findings = [ok("numa", f"{len(nodes)} NUMA nodes", "sysfs")]
    allowed = os.sched_getaffinity(0)
    for device in driver.devices:
        if device.numa_node is None:
            message = f"the host does not say which NUMA node GPU {device.index} is next to"
            findings.append(warn("numa", message, "sysfs", "set the axis numa to a node number, and compare"))
        elif not allowed & _cpus_of(settings, device.numa_node):
            message = f"GPU {device.index} is next to NUMA node {device.numa_node}, whose CPUs are barred"
            mend = "give the container or the job CPUs of that node (taskset, --cpuset-cpus)"
            findings.append(warn("numa", message, f"allowed CPUs: {len(allowed)}", mend))
    return findings


def _cpus_of(settings: Settings, node: int) -> set[int]:
    try:
        text = (settings.sys / f"devices/system/node/node{node}/cpulist").read_text().strip()
    except OSError:
        return set(os.sched_getaffinity(0))
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def check_disk(folder: Path) -> list[Finding]:
    """Room for the database, the jobs' logs and spools."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    mend = "free some space, or choose another place with --db"
    if free < _FULL_DISK_BYTES:
        message = f"{folder} has {size(free)} left: results cannot be recorded"
        return [error("disk", message, "statvfs", mend)]
    if free < _LOW_DISK_BYTES:
        return [warn("disk", f"{folder} has only {size(free)} left", "statvfs", mend)]
    if not os.access(folder, os.W_OK):
        return [error("disk", f"{folder} is not writable", "access", "choose another place with --db")]
    return [ok("disk", f"{size(free)} free for results in {folder}", "statvfs")]
