"""Which cells may share a curve: those in which everything but size, ranks and setting is equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from orchestrator.analysis.jobs import SETTINGS, Job, JobSet, Value, axis_text

SIZE_AXES = ("hidden_dim", "nlayers", "ffn_dim", "num_heads", "vocab_size", "tied_embeddings", "seq_len")
RANKS = ("num_gpus", "num_nodes")

_LENGTH = ("iteration", "warmup", "instrumented")
"""How long was measured; medians of many and of few iterations lie on one curve."""

_FEW_AXES = 3
"""So many axes are said of every context; of more, only what is otherwise than in most jobs."""

USUAL = "as most jobs"
ONLY = "all jobs"


class Contexts:
    """The contexts of a sweep's measured jobs, in words."""

    def __init__(self, jobs: JobSet) -> None:
        apart = (*SIZE_AXES, *RANKS, *SETTINGS, *_LENGTH)
        self._names = [name for name in jobs.varying(jobs.measured) if name not in apart]
        self._letters = {number: place for place, number in enumerate(sorted(jobs.environments))}
        self._usual: dict[str, Value] = {}
        for name in self._names if len(self._names) > _FEW_AXES else ():
            value, count = Counter(job.values.get(name) for job in jobs.measured).most_common(1)[0]
            if count * 2 > len(jobs.measured):
                self._usual[name] = value

    @property
    def usual(self) -> str:
        """The axis values that are not said, since most jobs have them; empty if all are said."""
        said = [(name, value) for name, value in self._usual.items() if value is not None or "." not in name]
        return ", ".join(axis_text(name, value) for name, value in said)

    def text(self, job: Job) -> str:
        """What else than size, ranks and setting the job is one of; equal for jobs of one context alone."""
        texts = [
            axis_text(name, value)
            for name in self._names
            if (value := job.values.get(name)) != self._usual.get(name, _NEVER)
        ]
        if not texts and self._usual:
            texts = [USUAL]
        if len(self._letters) > 1:
            place = self._letters.get(int(str(job.values.get("environment_id") or 0)))
            texts.append(f"environment {'?' if place is None else letter(place)}")
        return ", ".join(texts) or ONLY


_NEVER = "\0"
"""No axis has this value."""


def letter(place: int) -> str:
    """A, B, … for the first, second, … environment."""
    return chr(ord("A") + place) if place < 26 else str(place + 1)


def commonest(texts: Iterable[str]) -> str:
    """The context of most cells, the first of several; empty without a cell."""
    counts = Counter(texts)
    return max(counts, key=lambda text: counts[text]) if counts else ""


def raw_links(jobs: Iterable[Job]) -> dict[str, tuple[float, float]]:
    """Median GB/s down and up of the raw link as probed around the jobs, by kind of memory.

    Pageable jobs with ``non_blocking`` are left out: torch pins a part of their copies, so that what they
    are held to is a mixture of both kinds.
    """
    found: dict[str, list[tuple[float, float]]] = {"pinned": [], "pageable": []}
    for job in jobs:
        down, up = job.number("link_down_gbps"), job.number("link_up_gbps")
        if down and up and (job.is_pinned or not job.values.get("non_blocking")):
            found["pinned" if job.is_pinned else "pageable"].append((down, up))
    return {
        kind: (median(down for down, _ in speeds), median(up for _, up in speeds))
        for kind, speeds in found.items()
        if speeds
    }
