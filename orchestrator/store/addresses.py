"""What leads to one job wherever it is pasted: ``CELL6/REPEAT``, with ``--sweep`` where other sweeps have it.

Sweeps of one database share cells, and which of them was run last changes, so that a name that several have
means one job today and another tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.store.queries_report import Reads
from orchestrator.store.rows import addressed

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PREFIX = len("v1:")
SHORT = 6
"""Digits of a cell's key in names for people."""
_AT_ONCE = 500


def addresses(store: Reads, job_ids: Iterable[int]) -> dict[int, str]:
    """For each of the jobs: the argument of ``orch show``, ``logs`` and ``repro`` that means it alone.

    ``338a45/1``; ``338a45/1 --sweep f2`` where another sweep has such a job, too; more digits of the cell
    where another cell of the sweep begins alike.
    """
    wanted = sorted(set(job_ids))

    def work(connection: Connection) -> dict[int, str]:
        found: dict[int, str] = {}
        for start in range(0, len(wanted), _AT_ONCE):
            found |= _addresses(connection, wanted[start : start + _AT_ONCE])
        return found

    return store.read(work) if wanted else {}


def _addresses(connection: Connection, job_ids: list[int]) -> dict[int, str]:
    from sqlalchemy import func, select

    from orchestrator.store.tables import job, sweep

    chosen = select(job.c.job_id, job.c.sweep_id, job.c.cell, job.c.repeat, sweep.c.name).join(
        sweep, sweep.c.sweep_id == job.c.sweep_id
    )
    rows = connection.execute(chosen.where(job.c.job_id.in_(job_ids))).all()
    short = func.substr(job.c.cell, _PREFIX + 1, SHORT)
    alike = select(job.c.sweep_id, job.c.cell, job.c.repeat).where(
        short.in_({_digits(row.cell, SHORT) for row in rows})
    )
    sweeps_of: dict[tuple[str, int], set[int]] = {}
    cells_of: dict[tuple[str, int], set[str]] = {}
    for sweep_id, cell, repeat in connection.execute(alike):
        digits = _digits(cell, SHORT)
        sweeps_of.setdefault((digits, repeat), set()).add(sweep_id)
        cells_of.setdefault((digits, sweep_id), set()).add(cell)
    found = {}
    for row in rows:
        digits = _digits(row.cell, SHORT)
        name = f"{_unique(row.cell, cells_of[digits, row.sweep_id])}/{row.repeat}"
        is_shared = len(sweeps_of[digits, row.repeat]) > 1
        found[row.job_id] = addressed(name, row.name) if is_shared else name
    return found


def _digits(cell: str, many: int) -> str:
    return cell[_PREFIX : _PREFIX + many]


def _unique(cell: str, among: Iterable[str]) -> str:
    """The fewest digits, six at least, with which no other of these cells begins."""
    others = [other for other in among if other != cell]
    many = SHORT
    while many < len(cell) and any(_digits(other, many) == _digits(cell, many) for other in others):
        many += 1
    return _digits(cell, many)
