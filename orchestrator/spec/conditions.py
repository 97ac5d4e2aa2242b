"""Does a condition hold for a cell? Equal, any of, or compared; over axes, ds and env."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.spec.axes import AXIS_BY_NAME, AxisType
from orchestrator.spec.names import Named, named_axes
from orchestrator.spec.problems import Mark, Problems, did_you_mean
from orchestrator.spec.source import Node
from orchestrator.spec.values import DEFAULT, ValueRefused, described, read_value

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
OPERATORS = (*_COMPARE, "ne")


@dataclass(frozen=True, slots=True)
class Clause:
    """What is asked of one axis: the value is one of ``any_of``, and every comparison holds."""

    axis: str
    any_of: tuple[Any, ...] | None = None
    compared: tuple[tuple[str, Any], ...] = ()

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds; an axis that is inactive or absent meets no clause but an explicit null."""
        value = values.get(self.axis)
        if self.any_of is not None:
            return any(_equal(value, wanted) for wanted in self.any_of)
        if value is None:
            return False
        return all(_compares(value, name, wanted) for name, wanted in self.compared)


@dataclass(frozen=True, slots=True)
class Condition:
    """All of its clauses must hold. ``mark`` is its place in the file."""

    clauses: tuple[Clause, ...]
    mark: Mark

    @property
    def axes(self) -> frozenset[str]:
        return frozenset(clause.axis for clause in self.clauses)

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(clause.holds(values) for clause in self.clauses)


def read_condition(node: Node, known: Collection[str], problems: Problems, place: str) -> Condition | None:
    """The condition a mapping states; None, and problems added, if it states none.

    Args:
        known: ``ds.*`` and ``env.*`` names that the sweep sets anywhere; every axis is known.
    """
    named = named_axes(node, problems, _is_leaf, place)
    if node.is_mapping and not node.entries:
        problems.add(node.mark, f"an empty condition in {place} holds always", "name an axis")
    clauses = []
    for item in named:
        if item.axis.startswith(("ds.", "env.")) and not _is_known(item.axis, known):
            problems.add(item.key_mark, f"the sweep sets no '{item.axis}'", did_you_mean(item.axis, known))
            continue
        clause = _clause(item, problems)
        if clause is not None:
            clauses.append(clause)
    return Condition(tuple(clauses), node.mark) if clauses and len(clauses) == len(named) else None


def _is_known(name: str, known: Collection[str]) -> bool:
    return name in known or any(name.startswith(other + ".") for other in known)


def _is_leaf(node: Node) -> bool:
    return not node.is_mapping or not node.entries or any(key in OPERATORS for key in node.entries)


def _clause(named: Named, problems: Problems) -> Clause | None:
    node = named.node
    if node.is_mapping:
        return _comparison(named, problems)
    raws = node.items if node.is_list else [node]
    if not raws:
        problems.add(node.mark, f"{named.axis}: an empty list matches nothing", "name a value")
        return None
    wanted = [_value(named.axis, raw, problems) for raw in raws]
    return None if any(isinstance(item, _Bad) for item in wanted) else Clause(named.axis, tuple(wanted))


def _comparison(named: Named, problems: Problems) -> Clause | None:
    compared: list[tuple[str, Any]] = []
    is_good = bool(named.node.entries)
    if not is_good:
        problems.add(named.node.mark, f"{named.axis}: an empty comparison", f"use {', '.join(OPERATORS)}")
    for name, entry in named.node.entries.items():
        if name not in OPERATORS:
            problems.add(entry.key_mark, f"'{name}' compares nothing", did_you_mean(name, OPERATORS))
            is_good = False
            continue
        raws = entry.node.items if name == "ne" and entry.node.is_list else [entry.node]
        for raw in raws:
            value = _value(named.axis, raw, problems)
            if not isinstance(value, _Bad) and name != "ne" and not _is_number(named.axis, value):
                problems.add(raw.mark, f"{named.axis}: {name} compares numbers; {described(value)}", "use ne")
                value = _BAD
            is_good = is_good and not isinstance(value, _Bad)
            compared.append((name, value))
    return Clause(named.axis, None, tuple(compared)) if is_good else None


class _Bad:
    """A value that was refused; the reason is among the problems."""


_BAD = _Bad()


def _value(axis: str, node: Node, problems: Problems) -> Any:
    try:
        value = read_value(axis, node.plain())
    except ValueRefused as error:
        problems.add(node.mark, error.what, error.fix)
        return _BAD
    if value is DEFAULT:
        return AXIS_BY_NAME[axis].default if axis in AXIS_BY_NAME else None
    return value


def _is_number(axis: str, value: Any) -> bool:
    if axis in AXIS_BY_NAME and AXIS_BY_NAME[axis].type not in (AxisType.INTEGER, AxisType.NUMBER):
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equal(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _compares(value: Any, name: str, wanted: Any) -> bool:
    if name == "ne":
        return not _equal(value, wanted)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return _COMPARE[name](value, wanted)
