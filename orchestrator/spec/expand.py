"""Which cells does a sweep have? The product, thinned by ``when`` and ``exclude``, and the extra cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXES, AXIS_BY_NAME
from orchestrator.spec.cell import Cell, make_cell
from orchestrator.spec.problems import Mark, Problems
from orchestrator.spec.sections import Row, Rule, Sections, overlay
from orchestrator.spec.values import DEFAULT

_BUILT_IN = {axis.name: axis.default for axis in AXES}


@dataclass(frozen=True, slots=True)
class Expansion:
    """Distinct cells in the file's order, and what is worth a warning."""

    cells: tuple[Cell, ...]
    warnings: tuple[str, ...]


def product_size(sections: Sections) -> int:
    """Cells before ``when`` and ``exclude``, extra cells included; nothing is built."""
    size = math.prod(len(dimension.rows) for dimension in sections.dimensions)
    extra = math.prod(len(dimension.rows) for dimension in sections.extra_dimensions)
    return (size if sections.has_product else 0) + len(sections.extras) * extra


def check_size(sections: Sections, repeats: int, max_jobs: int, where: str) -> None:
    """Refuse a product that is larger than any count of jobs allowed.

    Raises:
        SpecError: with the size of each axis.
    """
    size = product_size(sections)
    if size <= max_jobs:
        return
    factors = " × ".join(str(len(dimension.rows)) for dimension in sections.dimensions)
    raise SpecError(
        f"the sweep has {size} cells ({factors}) × {repeats} before when and exclude;"
        f" at most {max_jobs} jobs are allowed",
        where,
        "shorten a list, or raise --max-jobs",
    )


def expand(sections: Sections, problems: Problems) -> Expansion:
    """Every cell once: first the product, last axis fastest, then the extra cells."""
    rules = ordered_rules(sections.rules, problems)
    if rules is None:
        return Expansion((), ())
    cells: dict[str, Cell] = {}
    hits = [0] * len(sections.excludes)
    warnings: list[str] = []
    base = _BUILT_IN | sections.base
    for rows in _combinations(sections):
        flat = resolved(base, (*rows, sections.final), rules)
        matching = [index for index, exclude in enumerate(sections.excludes) if exclude.holds(flat)]
        for index in matching:
            hits[index] += 1
        if not matching:
            cell = _cell(flat)
            cells.setdefault(cell.key, cell)
    for row, mark, more in _extra_combinations(sections):
        flat = resolved(base, (row, *more, sections.final), rules)
        unused = [
            name for name, value in row if value is not None and value is not DEFAULT and _is_off(flat, name)
        ]
        if unused:
            warnings.append(f"{mark}: when makes {', '.join(unused)} inactive in this cell")
        cell = _cell(flat)
        if cell.key in cells:
            warnings.append(f"{mark}: this cell is already there as {cell.short}; the two are one")
        cells.setdefault(cell.key, cell)
    for exclude, count in zip(sections.excludes, hits, strict=True):
        if not count:
            warnings.append(f"{exclude.mark}: this exclude matches nothing")
    _check_cells(cells.values(), sections.marks, problems)
    return Expansion(tuple(cells.values()), tuple(warnings))


def _combinations(sections: Sections) -> Iterator[tuple[Row, ...]]:
    if sections.has_product:
        yield from itertools.product(*(dimension.rows for dimension in sections.dimensions))


def _extra_combinations(sections: Sections) -> Iterator[tuple[Row, Mark, tuple[Row, ...]]]:
    for row, mark in sections.extras:
        for more in itertools.product(*(dimension.rows for dimension in sections.extra_dimensions)):
            yield row, mark, more


def resolved(base: Mapping[str, Any], rows: Sequence[Row], rules: Sequence[Rule]) -> dict[str, Any]:
    """A flat mapping of every axis: the rows over the base, then made inactive by the rules."""
    flat = dict(base)
    for row in rows:
        for name, value in row:
            if value is not DEFAULT:
                overlay(flat, name, value)
    for rule in rules:
        if not rule.condition.holds(flat):
            _switch_off(flat, rule.axis)
    return flat


def _switch_off(flat: dict[str, Any], axis: str) -> None:
    if axis in AXIS_BY_NAME:
        flat[axis] = None
        return
    for name in [key for key in flat if key == axis or key.startswith(axis + ".")]:
        del flat[name]


def _is_off(flat: Mapping[str, Any], axis: str) -> bool:
    if axis in AXIS_BY_NAME:
        return flat[axis] is None
    return not any(name == axis or name.startswith(axis + ".") for name in flat)


def ordered_rules(rules: Sequence[Rule], problems: Problems) -> list[Rule] | None:
    """The rules such that an axis is settled before a condition asks for it; None for a circle."""
    waiting = list(rules)
    done: list[Rule] = []
    while waiting:
        open_axes = {rule.axis for rule in waiting}
        ready = [rule for rule in waiting if not _asks_for(rule, open_axes)]
        if not ready:
            circle = ", ".join(sorted(open_axes))
            problems.add(waiting[0].mark, f"when goes round in a circle: {circle}", "remove one of the rules")
            return None
        # An axis with several rules is settled only when the last of them is.
        unready = {rule.axis for rule in waiting if rule not in ready}
        now = [rule for rule in ready if rule.axis not in unready] or ready
        done.extend(now)
        waiting = [rule for rule in waiting if rule not in now]
    return done


def _asks_for(rule: Rule, open_axes: set[str]) -> bool:
    return any(
        asked == axis or asked.startswith(axis + ".") or axis.startswith(asked + ".")
        for asked in rule.condition.axes
        for axis in open_axes
    )


def _cell(flat: Mapping[str, Any]) -> Cell:
    values = {name: flat[name] for name in _BUILT_IN}
    ds: dict[str, Any] = {}
    env: dict[str, str] = {}
    for name, value in flat.items():
        if name.startswith("ds."):
            *sections, key = name.removeprefix("ds.").split(".")
            level = ds
            for section in sections:
                level = level.setdefault(section, {})
            level[key] = value
        elif name.startswith("env."):
            env[name.removeprefix("env.")] = value
    return make_cell(values, ds, env)


def _check_cells(cells: Any, marks: Mapping[str, Mark], problems: Problems) -> None:
    """What is certain to be wrong in a cell, each kind once."""
    for cell in cells:
        warmup, iteration = cell.effective("warmup"), cell.effective("iteration")
        if warmup >= iteration:
            mark = marks.get("warmup") or marks.get("iteration") or Mark("")
            what = f"warmup {warmup} leaves nothing of iteration {iteration} to measure"
            problems.add(mark, what, "warmup must be less than iteration")
        heads, hidden = cell.effective("num_heads"), cell.effective("hidden_dim")
        if cell.effective("model") == "transformer" and heads is not None and hidden % heads:
            mark = marks.get("num_heads") or Mark("")
            problems.add(
                mark, f"hidden_dim {hidden} is not a multiple of num_heads {heads}", "choose a divisor"
            )
