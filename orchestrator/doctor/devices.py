"""The devices of this host: which, on what link, with which driver, and who else uses them."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.doctor.finding import Finding, Settings, error, ok, size, warn
from orchestrator.launch.devices import Device, DeviceUse, all_devices, use_of

_IDLE_BYTES = 1_000_000_000
"""More than this in use with no process to be seen: another container's, or a dead job's."""


@dataclass(frozen=True, slots=True)
class Link:
    """A device's PCIe link: what it runs at now, and what it could."""

    generation: int | None
    width: int | None
    width_max: int | None


@dataclass(frozen=True, slots=True)
class Driver:
    """The NVIDIA driver and its devices.

    Attributes:
        version: of the driver.
        cuda: the newest CUDA it supports, as ``(major, minor)``.
        devices: every device, whatever CUDA_VISIBLE_DEVICES says.
        links: by UUID.
        uses: by UUID, now.
    """

    version: str
    cuda: tuple[int, int]
    devices: tuple[Device, ...]
    links: dict[str, Link]
    uses: dict[str, DeviceUse]


def read_driver() -> Driver | str:
    """The driver and its devices, or why there are none."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as failure:
        return str(failure)
    try:
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
        devices = all_devices()
        return Driver(
            str(pynvml.nvmlSystemGetDriverVersion()),
            (cuda // 1000, cuda % 1000 // 10),
            devices,
            {device.uuid: _read_link(pynvml, device) for device in devices},
            use_of([device.uuid for device in devices]),
        )
    finally:
        pynvml.nvmlShutdown()


def _read_link(nvml: Any, device: Device) -> Link:
    handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)

    def ask(name: str) -> int | None:
        # A virtual or partitioned device refuses some questions; the rest still count.
        with contextlib.suppress(nvml.NVMLError):
            return int(getattr(nvml, name)(handle))
        return None

    return Link(
        ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        ask("nvmlDeviceGetCurrPcieLinkWidth"),
        ask("nvmlDeviceGetMaxPcieLinkWidth"),
    )


def check_devices(settings: Settings, driver: Driver | str) -> list[Finding]:
    """The summary line, then whatever is odd about a device."""
    if isinstance(driver, str):
        return [_no_device(settings, driver)]
    if not driver.devices:
        return [warn("devices", "a driver but no device", f"driver {driver.version}")]
    counted = Counter((device.name, device.total_bytes) for device in driver.devices)
    names = " + ".join(f"{n} × {name} ({size(total)})" for (name, total), n in counted.items())
    links = sorted({f"PCIe gen {link.generation} ×{link.width}" for link in driver.links.values()})
    nodes = sorted({str(device.numa_node) for device in driver.devices if device.numa_node is not None})
    numa = f" · NUMA {','.join(nodes)}" if nodes else ""
    summary = ok("devices", f"{names} · driver {driver.version} · {' / '.join(links)}{numa}", "NVML")
    return [summary, *_visible(settings), *_narrow_links(driver), *_busy(driver)]


def _no_device(settings: Settings, reason: str) -> Finding:
    cpus = os.cpu_count() or 1
    if (settings.proc / "driver/nvidia").exists():
        return error(
            "devices", "an NVIDIA driver is loaded but does not answer", f"NVML: {reason}", "run: nvidia-smi"
        )
    return ok("devices", f"1 CPU device ({cpus} cores; no GPU found)", f"NVML: {reason}")


def _visible(settings: Settings) -> Iterator[Finding]:
    visible = settings.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        shown = visible or "empty: no device at all"
        yield warn(
            "devices",
            f"CUDA_VISIBLE_DEVICES is set: jobs get these devices only ({shown})",
            mend="unset CUDA_VISIBLE_DEVICES, if that is not meant",
        )


def _narrow_links(driver: Driver) -> Iterator[Finding]:
    for device in driver.devices:
        # The generation falls when a device idles; the width does not.
        width, most = driver.links[device.uuid].width, driver.links[device.uuid].width_max
        if width is not None and most is not None and width < most:
            yield warn(
                "link",
                f"GPU {device.index} runs on {width} of {most} PCIe lanes: copies take longer in proportion",
                f"NVML, {device.uuid}",
                "reseat the card or use a wider slot; a riser or a shared slot halves the lanes",
            )


def _busy(driver: Driver) -> Iterator[Finding]:
    for device in driver.devices:
        use = driver.uses.get(device.uuid)
        if use is None:
            continue
        used = f"{size(use.used_bytes)} of {size(device.total_bytes)}"
        pids = ",".join(map(str, use.pids))
        if use.pids:
            message = f"GPU {device.index} is in use by other processes ({used}): timings will not hold"
            yield warn("busy", message, f"pid {pids}", f"ps -o pid,user,lstart,cmd -p {pids}")
        elif use.used_bytes > _IDLE_BYTES:
            yield warn(
                "busy",
                f"GPU {device.index} has {used} in use and no process to be seen",
                "another container's process, or memory of a dead one that the driver still holds",
                "nvidia-smi on the host itself; orch sweep --gpus with another device",
            )
