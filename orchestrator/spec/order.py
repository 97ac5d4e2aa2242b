"""In which order do the jobs run?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from orchestrator.spec.cell import Cell
from orchestrator.spec.options import Order


def running_order(cells: Sequence[Cell], repeats: int, order: Order, seed: int) -> list[tuple[Cell, int]]:
    """Cell and repeat of every job, in running order.

    ``interleave``: a round over all cells for each repeat, so that a drift of the host falls on all of
    them alike. ``sequential``: all repeats of a cell in a row. ``random``: shuffled by ``seed`` and each
    cell's key, so that a new cell does not move the others; a cell's repeats keep their order.
    """
    if order == "sequential":
        return [(cell, repeat) for cell in cells for repeat in range(1, repeats + 1)]
    if order == "interleave":
        return [(cell, repeat) for repeat in range(1, repeats + 1) for cell in cells]
    slots = sorted(
        ((_digest(seed, cell, slot), index) for index, cell in enumerate(cells) for slot in range(repeats))
    )
    taken = [0] * len(cells)
    jobs = []
    for _, index in slots:
        taken[index] += 1
        jobs.append((cells[index], taken[index]))
    return jobs


def _digest(seed: int, cell: Cell, slot: int) -> bytes:
    return hashlib.sha256(f"{seed}:{cell.key}:{slot}".encode()).digest()
