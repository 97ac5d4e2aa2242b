"""What this host has for jobs: devices (through NVML, without torch or CUDA), processors, memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import EngineError


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of this host, in NVML's (PCI bus) order.

    Attributes:
        index: place in NVML's order; not an index into ``CUDA_VISIBLE_DEVICES``.
        uuid: ``GPU-...``.
        numa_node: NUMA node next to it; None if the host does not say.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    pci_bus_id: str
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a device is doing now."""

    free_bytes: int
    used_bytes: int
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The devices that jobs may use and the processors of this host."""

    accelerator: str
    devices: tuple[Device, ...]
    cpu_count: int
    ram_bytes: int


class _Nvml:
    """NVML opened for the length of a ``with`` block; ``handles`` is empty without a driver."""

    def __enter__(self) -> _Nvml:
        self.handles: list[object] = []
        try:
            import pynvml
        except ImportError:
            self.library = None
            return self
        self.library = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            self.library = None
            return self
        self.handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        return self

    def __exit__(self, *_exception: object) -> None:
        if self.library is not None:
            self.library.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def all_devices() -> tuple[Device, ...]:
    """Every GPU of the host in PCI bus order, whatever ``CUDA_VISIBLE_DEVICES`` says."""
    found = []
    with _Nvml() as nvml:
        for index, handle in enumerate(nvml.handles):
            library = nvml.library
            assert library is not None
            bus_id = _text(library.nvmlDeviceGetPciInfo(handle).busId)
            found.append(
                Device(
                    index=index,
                    uuid=_text(library.nvmlDeviceGetUUID(handle)),
                    name=_text(library.nvmlDeviceGetName(handle)),
                    total_bytes=int(library.nvmlDeviceGetMemoryInfo(handle).total),
                    pci_bus_id=bus_id,
                    numa_node=numa_node_of(bus_id),
                )
            )
    return tuple(found)


def numa_node_of(pci_bus_id: str, root: Path = Path("/sys/bus/pci/devices")) -> int | None:
    """NUMA node next to a PCI device; None if the host does not say (or says -1)."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    try:
        node = int((root / f"{domain[-4:].rjust(4, '0')}:{rest}" / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def select_visible(devices: Sequence[Device], variable: str | None) -> tuple[Device, ...]:
    """The devices that CUDA shows under this value of ``CUDA_VISIBLE_DEVICES``, in its order.

    None means all; an empty string means none. As CUDA does, reading stops at the first entry that
    names no device. EngineError for a device named twice and for MIG instances.
    """
    if variable is None:
        return tuple(devices)
    chosen: list[Device] = []
    for entry in (part.strip() for part in variable.split(",")):
        if entry.startswith("MIG-"):
            raise EngineError("MIG instances are not supported", "CUDA_VISIBLE_DEVICES", "name whole GPUs")
        match = _match(devices, entry)
        if match is None:
            break
        if match in chosen:
            raise EngineError(f"device {entry} is named twice", "CUDA_VISIBLE_DEVICES", "name it once")
        chosen.append(match)
    return tuple(chosen)


def _match(devices: Sequence[Device], entry: str) -> Device | None:
    if entry.isdigit():
        index = int(entry)
        return devices[index] if index < len(devices) else None
    if not entry.startswith("GPU-"):
        return None
    matches = [device for device in devices if device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def accelerator_of(devices: Sequence[Device], environment: Mapping[str, str]) -> str:
    """``cuda`` if a device is visible and ``DS_ACCELERATOR`` does not ask for the CPU, else ``cpu``."""
    return "cuda" if devices and environment.get("DS_ACCELERATOR", "cuda") == "cuda" else "cpu"


def inventory(environment: Mapping[str, str] | None = None) -> Inventory:
    """What jobs may use on this host, given this process's environment."""
    environment = os.environ if environment is None else environment
    # Asking for the CPU must not wait for a driver.
    wants_cpu = environment.get("DS_ACCELERATOR", "cuda") != "cuda"
    devices = () if wants_cpu else select_visible(all_devices(), environment.get("CUDA_VISIBLE_DEVICES"))
    return Inventory(accelerator_of(devices, environment), devices, cpu_count(), ram_bytes())


def use_of(uuids: Sequence[str]) -> dict[str, DeviceUse]:
    """Memory and processes of devices now, by UUID."""
    uses = {}
    with _Nvml() as nvml:
        library = nvml.library
        for handle in nvml.handles:
            assert library is not None
            uuid = _text(library.nvmlDeviceGetUUID(handle))
            if uuid not in uuids:
                continue
            memory = library.nvmlDeviceGetMemoryInfo(handle)
            try:
                processes = library.nvmlDeviceGetComputeRunningProcesses(handle)
            except library.NVMLError:
                processes = []
            uses[uuid] = DeviceUse(
                int(memory.free), int(memory.used), tuple(sorted(int(p.pid) for p in processes))
            )
    return uses


def foreign_processes(uuids: Sequence[str], own_pids: Sequence[int] = ()) -> dict[str, tuple[int, ...]]:
    """Pids of processes on the devices that are none of ours, by UUID; devices without any left out."""
    own = set(own_pids)
    strangers = {
        uuid: tuple(pid for pid in use.pids if pid not in own) for uuid, use in use_of(uuids).items()
    }
    return {uuid: pids for uuid, pids in strangers.items() if pids}


def cpu_count() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0))


def _cgroup_limits() -> list[int]:
    limits = []
    for line in _read_lines(Path("/proc/self/cgroup")):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            candidates = (
                Path("/sys/fs/cgroup") / group.lstrip("/") / "memory.max",
                Path("/sys/fs/cgroup/memory.max"),
            )
        elif "memory" in controllers.split(","):
            candidates = (
                Path("/sys/fs/cgroup/memory") / group.lstrip("/") / "memory.limit_in_bytes",
                Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
            )
        else:
            continue
        for candidate in candidates:
            text = "".join(_read_lines(candidate))
            if text.isdigit():
                limits.append(int(text))
    return limits


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _meminfo_bytes(key: str) -> int:
    for line in _read_lines(Path("/proc/meminfo")):
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def ram_bytes() -> int:
    """Host memory that jobs can have in all: the machine's, or the cgroup's limit if that is less."""
    return min([_meminfo_bytes("MemTotal"), *_cgroup_limits()])


def available_ram_bytes() -> int:
    """Host memory free now, not more than the cgroup's limit."""
    return min([_meminfo_bytes("MemAvailable"), *_cgroup_limits()])
