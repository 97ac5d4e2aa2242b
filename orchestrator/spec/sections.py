"""What does a sweep file say, axis by axis? The typed sections that are expanded into cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.spec.cell import flatten
from orchestrator.spec.conditions import Condition
from orchestrator.spec.problems import Mark

Row = tuple[tuple[str, Any], ...]
"""Axes and their values, set together."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One factor of the product: a matrix axis, or a zip group. Each row sets the same axes."""

    axes: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """``axis`` is inactive where ``condition`` does not hold."""

    axis: str
    condition: Condition
    mark: Mark


@dataclass(slots=True)
class Sections:
    """The file, axis by axis.

    Attributes:
        base: what holds where nothing else is said; only what the file sets, flat.
        dimensions: the factors of the product.
        final: single values given by ``--set``, which lie over everything else.
        rules: of ``when``.
        excludes: of ``exclude``.
        extras: of ``cells``: each row and its place.
        extra_dimensions: lists given by ``--set``, which multiply the extra cells too.
        marks: where each axis is first set.
        warnings: each one line with its place.
        has_product: whether there is a matrix or a zip, or no ``cells`` that would replace it.
    """

    base: dict[str, Any] = field(default_factory=dict)
    dimensions: list[Dimension] = field(default_factory=list)
    final: Row = ()
    rules: list[Rule] = field(default_factory=list)
    excludes: list[Condition] = field(default_factory=list)
    extras: list[tuple[Row, Mark]] = field(default_factory=list)
    extra_dimensions: list[Dimension] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    has_product: bool = True

    @property
    def names(self) -> dict[str, None]:
        """Every axis that the file sets anywhere, in its order."""
        return self.set_axes | dict.fromkeys(self.base)

    @property
    def set_axes(self) -> dict[str, None]:
        """Every axis that the matrix, a zip group or an extra cell sets, in their order."""
        found = dict.fromkeys(name for dimension in self.dimensions for name in dimension.axes)
        for row, _ in self.extras:
            found.update(dict.fromkeys(name for name, _ in row))
        return found


def overlay(flat: dict[str, Any], axis: str, value: Any) -> None:
    """Set an axis in a flat mapping; a DeepSpeed section given as a mapping is set leaf by leaf."""
    if not axis.startswith("ds."):
        flat[axis] = value
        return
    leaves = flatten(value, f"{axis}.") if isinstance(value, dict) and value else [(axis, value)]
    for name, leaf in leaves:
        for other in [key for key in flat if key.startswith(name + ".") or name.startswith(key + ".")]:
            del flat[other]
        flat[name] = leaf
