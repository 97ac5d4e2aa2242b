"""A rank whose iterations take turns: with all of the instrument, with a part of it, with nothing.

``launcher: {worker: "benchmarks.alternating_worker:main"}``. The same process, engine and pinned buffers,
so that what differs between the turns is the instrument alone. The cell must ask for checksums and for the
sampler, of one rank; see ``benchmarks.instrument_cost``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from worker import rank as measured_rank

if TYPE_CHECKING:
    from worker.loop import Loop


def _make_loop(**parts: Any) -> Loop:
    # Here, not above: it brings torch, which belongs behind the environment of the rank.
    from benchmarks.alternating_loop import AlternatingLoop

    return AlternatingLoop(**parts)


def main(job_path: str, rank: int) -> NoReturn:
    """Be rank ``rank`` of the job."""
    measured_rank.main(job_path, rank, _make_loop)
