"""Did an attempt deliver? The hard rule of validity, on what its ranks recorded. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.store.status import FailureKind, JobStatus, Verdict


@dataclass(frozen=True, slots=True)
class Records:
    """What the ranks of an attempt delivered.

    Attributes:
        ranks: how many there are to be.
        final: those whose final record is there.
        changed: those that saw a state change between offload and reload.
        misplaced: those that saw a state on the wrong device.
    """

    ranks: int
    final: Collection[int]
    changed: Collection[int] = ()
    misplaced: Collection[int] = ()


def missing(records: Records) -> list[int]:
    """Ranks without a final record."""
    return [rank for rank in range(records.ranks) if rank not in records.final]


def verdict(records: Records) -> Verdict | None:
    """ok or failed, if every rank's final record is there; None if one is not."""
    if missing(records):
        return None
    if records.changed:
        return Verdict(
            JobStatus.failed,
            FailureKind.states_changed,
            f"states differ after reload (rank {_list(records.changed)})",
        )
    if records.misplaced:
        return Verdict(
            JobStatus.failed,
            FailureKind.wrong_device,
            f"states on the wrong device (rank {_list(records.misplaced)})",
        )
    return Verdict(JobStatus.ok)


def _list(ranks: Collection[int]) -> str:
    return ", ".join(str(rank) for rank in sorted(ranks))
