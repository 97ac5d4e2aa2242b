"""Has any bit of any state changed between offload and reload?

Position-weighted integer sums, modulo 2^64, on the device. The bits are read as integers, so a NaN's
payload counts and -0 differs from 0; the weights make an exchange of two elements show. Three buffers
of one chunk each are allocated before the loop and every operation writes into them, element by
element and without a reduction kernel, so that a checksum allocates nothing: ``memory_reserved`` is the
same before and after, and the bytes that offload frees are not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

CHUNK = 1 << 20
"""Elements summed at a time, a power of two; the buffers take 3 x 8 x CHUNK bytes."""

_MULTIPLIER = 6364136223846793005  # Knuth's MMIX multiplier: odd, so no information is lost modulo 2^64.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Checksums:
    """Checksums of named groups of tensors, kept on the device until they are asked for.

    Args:
        names: the groups, in order.
        device: where the tensors are while they are summed.
    """

    def __init__(self, names: Iterable[str], device: Any, chunk: int = CHUNK) -> None:
        self.names = tuple(names)
        self._chunk = chunk
        generator = torch.Generator().manual_seed(0x5EED)
        weights = torch.randint(-(1 << 62), 1 << 62, (chunk,), generator=generator, dtype=torch.int64)
        self._weights = weights.mul_(2).add_(1).to(device)
        self._work = torch.zeros(chunk, dtype=torch.int64, device=device)
        self._sums = torch.zeros(chunk, dtype=torch.int64, device=device)
        self._results = torch.zeros(len(self.names), dtype=torch.int64, device=device)

    @torch.no_grad()
    def take(self, states: Mapping[str, list[Any]]) -> None:
        """Sum every group; the work is queued on the device, nothing is read back."""
        for index, name in enumerate(self.names):
            self._sums.zero_()
            for tensor in states[name]:
                self._add(tensor)
            self._fold()
            self._results[index : index + 1].copy_(self._sums[:1])

    def read(self) -> dict[str, int]:
        """Group → checksum; waits for the device."""
        return dict(zip(self.names, self._results.tolist(), strict=True))

    def _add(self, tensor: Any) -> None:
        bits = tensor.detach().reshape(-1).view(_INTEGERS[tensor.element_size()])
        for low in range(0, bits.numel(), self._chunk):
            part = bits[low : low + self._chunk]
            count = part.numel()
            torch.mul(part, self._weights[:count], out=self._work[:count])
            # Horner's scheme over the chunks: each chunk gets another power of the multiplier.
            self._sums.mul_(_MULTIPLIER)
            self._sums[:count].add_(self._work[:count])
        # An empty tensor and the length count too.
        self._sums.mul_(_MULTIPLIER).add_(bits.numel())

    def _fold(self) -> None:
        width = self._chunk
        while width > 1:
            width //= 2
            self._sums[:width].add_(self._sums[width : 2 * width])


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """The groups whose checksums differ."""
    return [name for name, value in before.items() if after.get(name) != value]
