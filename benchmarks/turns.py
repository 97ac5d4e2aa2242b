"""Which part of the instrument an iteration has, in a process whose iterations take turns."""

from __future__ import annotations

import random
from enum import StrEnum


class Turn(StrEnum):
    """What observes an iteration."""

    BARE = "bare"
    """Nothing but the clock around the calls."""
    RECORDER = "recorder"
    """Memory at each phase, where every state lies, strangers on the device, a line on disk each."""
    CHECKSUMS = "checksums"
    """Of every state before offload and after reload."""
    SAMPLER = "sampler"
    """The process beside the rank that looks at its memory fifty times a second."""
    ALL = "all"


RECORDED = frozenset({Turn.RECORDER, Turn.ALL})
SUMMED = frozenset({Turn.CHECKSUMS, Turn.ALL})
SAMPLED = frozenset({Turn.SAMPLER, Turn.ALL})
WARMUP = 1 + len(Turn)
"""The cold iteration, whose bytes are checked, then each turn once."""


def iterations_of(blocks: int) -> int:
    """Iterations of a process with so many blocks."""
    return WARMUP + len(Turn) * blocks


def order(iterations: int) -> list[Turn]:
    """The turn of each iteration: behind the warm-up blocks of all turns, each shuffled by itself.

    So every turn meets the machine's drift alike, and follows every other about as often. The same for
    the rank and for whoever reads its records.
    """
    generator, turns = random.Random(0), [Turn.ALL, *Turn]
    while len(turns) < iterations:
        turns += generator.sample(list(Turn), len(Turn))
    return turns[:iterations]
