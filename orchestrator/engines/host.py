"""What can this host give to jobs? Its devices or processors as slots, its memory."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.engines.base import Capacity
from orchestrator.engines.slots import Slot
from orchestrator.errors import EngineError
from orchestrator.launch import devices

_HOST_SHARE = 0.9
"""Of the host's memory that jobs may fill; the rest is the system's and ours."""


def choose_devices(inventory: devices.Inventory, asked: Sequence[str] | None) -> tuple[devices.Device, ...]:
    """The devices that ``--gpus`` names, in its order; all of them if it names none.

    An entry is an index into what ``CUDA_VISIBLE_DEVICES`` leaves visible, or (the start of) a UUID.

    Raises:
        EngineError: an entry names no visible device, or two entries the same.
    """
    if asked is None:
        return inventory.devices
    chosen: list[devices.Device] = []
    for entry in asked:
        matches = (
            list(inventory.devices[int(entry) : int(entry) + 1])
            if entry.isdigit()
            else [device for device in inventory.devices if device.uuid.startswith(entry)]
        )
        if len(matches) != 1:
            there = ", ".join(str(index) for index in range(len(inventory.devices))) or "none"
            raise EngineError(f"there is no device {entry!r}; visible: {there}", "--gpus")
        if matches[0] in chosen:
            raise EngineError(f"device {entry!r} is named twice", "--gpus")
        chosen.append(matches[0])
    return tuple(chosen)


def make_slots(inventory: devices.Inventory, gpus: Sequence[str] | None, slots: int | None) -> list[Slot]:
    """A slot a device; on a CPU ``slots`` of them, a processor each unless told (two at least)."""
    if inventory.accelerator == "cuda" or gpus:
        chosen = choose_devices(inventory, gpus)
        return [Slot(device.uuid, device.index, device.uuid, device.numa_node) for device in chosen[:slots]]
    return [Slot(f"cpu-{number}") for number in range(slots or max(inventory.cpu_count, 2))]


def local_capacity(inventory: devices.Inventory, slots: Sequence[Slot]) -> Capacity:
    """What those slots of this host give."""
    mine = {slot.device_uuid for slot in slots}
    used = [device for device in inventory.devices if device.uuid in mine]
    names = sorted({device.name for device in used})
    count = "1 slot" if len(slots) == 1 else f"{len(slots)} slots"
    label = f"{len(used)} x {', '.join(names)}" if used else f"CPU, {count}"
    return Capacity(
        slots=len(slots),
        ranks_per_node=len(slots),
        nodes=1,
        accelerator="cuda" if used else "cpu",
        device_bytes=min((device.total_bytes for device in used), default=None),
        host_bytes=int(inventory.ram_bytes * _HOST_SHARE),
        label=label,
        probe_uuids=tuple(device.uuid for device in used),
    )
