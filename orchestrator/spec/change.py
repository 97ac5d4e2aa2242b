"""Did a value change its type between the sweep as stored and the file as it is now?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.cell import Cell, canonical_json
from orchestrator.spec.load import parse_plan
from orchestrator.spec.plan import Plan

_ANY_SIZE = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A value of one axis that had another type before: ``8`` is now ``"8"``."""

    axis: str
    before: object
    now: object

    def __str__(self) -> str:
        before = f"{canonical_json(self.before)} was {_kind(self.before)}"
        return f"{self.axis}: {before}, now {canonical_json(self.now)} is {_kind(self.now)}"


def type_changes(old_source: str, plan: Plan) -> tuple[TypeChange, ...]:
    """Values whose type changed since ``old_source``, the text of the sweep file as stored.

    The type of a named axis is fixed; a DeepSpeed key takes what it is given, so ``8`` and ``"8"`` would
    silently become two cells. Whole and broken numbers are one type. A text that this version no longer
    reads says nothing.
    """
    try:
        old = parse_plan(
            old_source,
            where="<stored>",
            max_jobs=_ANY_SIZE,
            name=plan.name,
            path=Path(plan.path) if plan.path else None,
        )
    except SpecError:
        return ()
    return changed_types(old.cells, plan.cells)


def changed_types(before: Collection[Cell], now: Collection[Cell]) -> tuple[TypeChange, ...]:
    """Values of the same DeepSpeed key that are written alike but typed differently, or share no type."""
    old_values, new_values = _ds_values(before), _ds_values(now)
    changes = []
    for axis in sorted(old_values.keys() & new_values.keys()):
        old, new = old_values[axis], new_values[axis]
        pair = _same_writing(old, new) or _no_common_type(old, new)
        if pair is not None:
            changes.append(TypeChange(axis, *pair))
    return tuple(changes)


def check_types(old_source: str, plan: Plan) -> None:
    """Refuse a plan in which a value's type changed.

    Raises:
        SpecError: with each such value.
    """
    changes = type_changes(old_source, plan)
    if changes:
        raise SpecError(
            "; ".join(str(change) for change in changes),
            f"sweep {plan.name}",
            "write it as before, or begin another sweep with --name",
        )


def _ds_values(cells: Collection[Cell]) -> dict[str, list[object]]:
    """Distinct values of each ``ds.*`` key."""
    found: dict[str, dict[str, object]] = {}
    for cell in cells:
        for name, value in cell.parameters().items():
            if name.startswith("ds."):
                found.setdefault(name, {}).setdefault(canonical_json(value), value)
    return {name: list(values.values()) for name, values in found.items()}


def _same_writing(old: list[object], new: list[object]) -> tuple[object, object] | None:
    written = {_plain(value): value for value in old}
    for value in new:
        before = written.get(_plain(value), value)
        if _kind(before) != _kind(value):
            return before, value
    return None


def _no_common_type(old: list[object], new: list[object]) -> tuple[object, object] | None:
    # "auto" stands for a value of any type in a DeepSpeed configuration.
    before = [value for value in old if value != "auto"]
    now = [value for value in new if value != "auto"]
    if before and now and not {_kind(value) for value in before} & {_kind(value) for value in now}:
        return before[0], now[0]
    return None


def _plain(value: object) -> str:
    return (value if isinstance(value, str) else canonical_json(value)).lower()


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, (list, tuple)) else "a mapping"
