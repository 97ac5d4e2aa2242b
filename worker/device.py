"""The accelerator as the loop needs it: CUDA or CPU behind the same few calls.

On a CPU there is nothing to wait for, nothing is pinned, and "allocated" is the process' own memory.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch

from worker.host import rss_bytes


class Device:
    """One rank's device.

    Attributes:
        type: ``cuda`` or ``cpu``.
        torch_device: for tensors.
        index: index among the devices that this process sees; None on a CPU.
    """

    def __init__(self, accelerator: str, local_rank: int) -> None:
        self.type = accelerator
        self.index: int | None = None
        if accelerator == "cuda":
            # A launcher may show all the job's devices to each rank, or only its own.
            self.index = local_rank if torch.cuda.device_count() > local_rank else 0
            torch.cuda.set_device(self.index)
        self.torch_device = torch.device(accelerator, self.index) if self.is_cuda else torch.device("cpu")

    @property
    def is_cuda(self) -> bool:
        """Whether this is a CUDA device."""
        return self.type == "cuda"

    @property
    def uuid(self) -> str | None:
        """``GPU-...`` of the device in use; None on a CPU or if torch does not tell."""
        if not self.is_cuda:
            return None
        uuid = getattr(torch.cuda.get_device_properties(self.index), "uuid", None)
        text = str(uuid) if uuid is not None else ""
        return (text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}") if text else None

    def synchronize(self) -> None:
        """Wait until everything queued on the device is done."""
        if self.is_cuda:
            torch.cuda.synchronize(self.index)

    def allocated_bytes(self) -> int:
        """Bytes of live tensors; on a CPU the process' resident memory, as DeepSpeed counts it."""
        return int(torch.cuda.memory_allocated(self.index)) if self.is_cuda else rss_bytes()

    def requested_bytes(self) -> int | None:
        """Bytes of live tensors as asked for; None on a CPU or where torch does not tell.

        ``memory_allocated`` counts blocks: a remainder of up to 1 MiB of a fresh segment stays with its
        block (``should_split`` in torch's CUDACachingAllocator), so it exceeds this by as much a tensor.
        """
        if not self.is_cuda:
            return None
        stats = torch.cuda.memory_stats(self.index)
        return int(stats["requested_bytes.all.current"]) if "requested_bytes.all.current" in stats else None

    def reserved_bytes(self) -> int | None:
        """Bytes that the caching allocator holds; None on a CPU."""
        return int(torch.cuda.memory_reserved(self.index)) if self.is_cuda else None

    def free_and_total_bytes(self) -> tuple[int | None, int | None]:
        """The device's own free and total memory, all processes together; None on a CPU."""
        if not self.is_cuda:
            return None, None
        free, total = torch.cuda.mem_get_info(self.index)
        return int(free), int(total)

    def reset_peak(self) -> None:
        """Start a new peak."""
        if self.is_cuda:
            torch.cuda.reset_peak_memory_stats(self.index)

    def peak_bytes(self) -> int | None:
        """Most bytes of live tensors since ``reset_peak``; None on a CPU."""
        return int(torch.cuda.max_memory_allocated(self.index)) if self.is_cuda else None

    def pinned(self) -> tuple[int | None, float | None]:
        """Pinned host bytes of this process as torch rounded them, and seconds spent pinning so far."""
        if not self.is_cuda or not hasattr(torch.cuda, "host_memory_stats"):
            return None, None
        stats: dict[str, Any] = torch.cuda.host_memory_stats()
        held = stats.get("allocated_bytes.current", stats.get("allocated_bytes.allocated"))
        micros = stats.get("host_alloc_time.total")
        return (None if held is None else int(held)), (None if micros is None else float(micros) / 1e6)

    def allocator_settings(self) -> str | None:
        """The allocator's settings as it reports them, JSON; where torch cannot tell, the variable."""
        if not self.is_cuda:
            return None
        try:
            settings = torch.cuda.memory._snapshot()["allocator_settings"]
            return json.dumps(settings, sort_keys=True, default=str)
        except (AttributeError, KeyError, RuntimeError, TypeError):
            return os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
