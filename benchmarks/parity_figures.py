"""What rounds through several launchers say: what differs, and the ratios of their times."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from statistics import median
from typing import Any

REFERENCE = "deepspeed"
LIMIT = 0.03
TRACKED_LIMIT = 0.005
RESAMPLES = 4000
FEWEST_ROUNDS = 4
"""With fewer the interval says nothing."""
METRICS = ("offload_s_median", "reload_s_median")
COLLECTION = "offload_gc_s"
"""Of iterations that are timed part by part, where a cell asks for them: told, not judged, since the
collector alone scatters by several per cent, and at large sizes hides behind the copies."""

Found = dict[str, dict[tuple[str, int], dict[str, Any]]]
"""Launcher → (cell, round) → figures."""


def whole_rounds(found: Found) -> list[int]:
    """The rounds of which every launcher has every cell, all on one device.

    The jobs of a round are compared with each other: a round that another machine has completed tells
    machines apart, not launchers.
    """
    rows = [row for by_key in found.values() for row in by_key.items()]
    cells = {cell for (cell, _), _ in rows}
    whole = []
    for number in sorted({number for (_, number), _ in rows}):
        mine = [row for (_, of), row in rows if of == number and row["status"] == "ok"]
        places = {(row["host"], row["device_uuids"]) for row in mine}
        if len(mine) == len(cells) * len(found) and len(places) == 1:
            whole.append(number)
    return whole


def differences(found: Found, rounds: Collection[int]) -> list[str]:
    """What is not equal across launchers in these rounds, and jobs that failed in any, a line each."""
    lines = []
    for launcher, rows in found.items():
        for (cell, number), row in rows.items():
            where = f"{launcher}, cell {cell[3:9]}, round {number}"
            if row["status"] in ("ok", "pending", "running", "cancelled", "lost"):
                if number in rounds:
                    lines += [
                        f"{where}: {what}"
                        for what in _different(row, found[REFERENCE][cell, number], launcher)
                    ]
            else:
                lines.append(f"{where}: {row['status']}")
    return lines


def _different(row: dict[str, Any], reference: dict[str, Any], launcher: str) -> list[str]:
    lines = []
    if row["launch_mode"] != launcher:
        lines.append(f"launched by {row['launch_mode']}")
    for name in ("loss", "copied_bytes", "freed_bytes"):
        # On a CPU "freed" is the process' resident memory: nothing to compare.
        if row[name] != reference[name] and not (name == "freed_bytes" and not on_gpu(reference)):
            lines.append(f"{name} {row[name]} instead of {reference[name]}")
    tracked, wanted = row["tracked_objects"], reference["tracked_objects"]
    if abs(tracked - wanted) > TRACKED_LIMIT * wanted:
        lines.append(f"{tracked} tracked objects instead of {wanted}")
    return lines


def on_gpu(row: dict[str, Any]) -> bool:
    """Whether a GPU gave memory back."""
    return (row["freed_bytes"] or 0) >= (row["copied_bytes"] or 0) > 0


def judged(found: Found, rounds: Collection[int]) -> list[dict[str, Any]]:
    """A row for each launcher and metric: all cells together, then each by itself where there are several."""
    rows = []
    for launcher in found:
        if launcher == REFERENCE:
            continue
        for metric in (*METRICS, COLLECTION):
            pairs = _pairs(found, launcher, metric, rounds)
            if not pairs:
                continue
            each = [(name, {name: pairs[name]}) for name in sorted(pairs)]
            for name, by_cell in (("all", pairs), *(each if len(each) > 1 else ())):
                middle, low, high, count = ratios(by_cell)
                rows.append(
                    {
                        "launcher": launcher, "metric": metric, "cell": name, "ratio": middle, "low": low,
                        "high": high, "pairs": count, "inside": low >= 1 - LIMIT and high <= 1 + LIMIT,
                    }
                )  # fmt: skip
    return rows


def _pairs(found: Found, launcher: str, metric: str, rounds: Collection[int]) -> dict[str, list[float]]:
    """Cell → the ratios to the reference, one a round."""
    pairs: dict[str, list[float]] = defaultdict(list)
    for (cell, number), reference in found[REFERENCE].items():
        if number in rounds:
            value, divisor = found[launcher][cell, number][metric], reference[metric]
            if value and divisor:
                pairs[_named(reference)].append(value / divisor)
    return dict(pairs)


def _named(row: dict[str, Any]) -> str:
    return (
        f"{'pinned' if row['pin_memory'] else 'pageable'}, {'heap frozen' if row['gc_freeze'] else 'plain'}"
    )


def ratios(pairs: dict[str, list[float]]) -> tuple[float, float, float, int]:
    """Median ratio to the reference, its 90 % interval, and the number of pairs."""
    every = [value for values in pairs.values() for value in values]
    generator = random.Random(0)
    # Resampled within each cell: cells differ in their scatter, rounds are what repeats.
    medians = sorted(
        median([generator.choice(values) for values in pairs.values() for _ in values])
        for _ in range(RESAMPLES)
    )
    return median(every), medians[RESAMPLES // 20], medians[-RESAMPLES // 20], len(every)
