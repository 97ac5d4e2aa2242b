"""Memory of a rank at the boundaries of the loop's phases: one sample each, outside timed sections."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from worker.device import Device
from worker.host import cgroup_bytes, cgroup_memory_file, rss_bytes

PHASES = ("before_step", "after_step", "offloaded", "dwell", "reloaded")


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one instant, as the columns of ``memory_sample``, and two figures that are none:

    Attributes:
        pinning_s: spent pinning host memory since the process began.
        requested_bytes: bytes of live tensors as they were asked for, without the allocator's rounding;
            None where torch does not tell.
    """

    allocated_bytes: int
    reserved_bytes: int | None
    device_used_bytes: int | None
    device_free_bytes: int | None
    pinned_bytes: int | None
    rss_bytes: int
    cgroup_bytes: int | None
    pinning_s: float | None
    requested_bytes: int | None

    def columns(self) -> dict[str, int | float | None]:
        """The columns of ``memory_sample``."""
        columns = asdict(self)
        del columns["pinning_s"], columns["requested_bytes"]
        return columns


class Sampler:
    """Takes samples of this rank."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._cgroup_file = cgroup_memory_file()

    def take(self) -> Sample:
        """One sample, now."""
        free, total = self._device.free_and_total_bytes()
        pinned, pinning_s = self._device.pinned()
        return Sample(
            allocated_bytes=self._device.allocated_bytes(),
            reserved_bytes=self._device.reserved_bytes(),
            device_used_bytes=None if free is None or total is None else total - free,
            device_free_bytes=free,
            pinned_bytes=pinned,
            rss_bytes=rss_bytes(),
            cgroup_bytes=cgroup_bytes(self._cgroup_file),
            pinning_s=pinning_s,
            requested_bytes=self._device.requested_bytes(),
        )
