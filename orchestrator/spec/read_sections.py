"""How is each section read? The document's nodes as typed values with their places, ``--set`` applied."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXIS_BY_NAME
from orchestrator.spec.cell import canonical_json, flatten
from orchestrator.spec.conditions import read_condition
from orchestrator.spec.document import Document
from orchestrator.spec.dsbase import read_base
from orchestrator.spec.names import Named, check_axis, check_section, named_axes
from orchestrator.spec.overrides import REPEATS, Override, replaces
from orchestrator.spec.problems import Mark, Problems
from orchestrator.spec.secret_names import looks_secret
from orchestrator.spec.sections import Dimension, Row, Rule, Sections, overlay
from orchestrator.spec.source import Entry, Node
from orchestrator.spec.values import DEFAULT, YAML_1_1_BOOLEANS, ValueRefused, read_value


def read_sections(
    document: Document, overrides: Mapping[str, Override], folder: Path, problems: Problems
) -> Sections:
    """Every section below axes, with ``--set`` applied."""
    return _Reader(document, dict(overrides), folder, problems).read()


class _Reader:
    def __init__(
        self, document: Document, overrides: dict[str, Override], folder: Path, problems: Problems
    ) -> None:
        self.document = document
        self.overrides = {name: item for name, item in overrides.items() if name != REPEATS}
        self.folder = folder
        self.problems = problems
        self.sections = Sections()
        self.secrets: set[str] = set()

    def read(self) -> Sections:
        self._constants()
        self._defaults()
        self._matrix()
        self._zip()
        self._check_one_place()
        self._extras()
        has_own = any(section and section.value for section in map(self.document.section, ("matrix", "zip")))
        self.sections.has_product = has_own or not self.sections.extras
        listed = {name for name, item in self.overrides.items() if item.is_matrix}
        self.sections.extra_dimensions = [item for item in self.sections.dimensions if listed & {*item.axes}]
        self._conditions()
        return self.sections

    def _constants(self) -> None:
        for kind in ("ds", "env"):
            node = self.document.section(kind)
            if node is None:
                continue
            if kind == "ds" and isinstance(node.value, str):
                self._ds_base(node)
                continue
            # Wrapped, so that the names come out as ds.* and env.* like those of any other section.
            wrapper = Node({kind: self.document.root.entries[kind]}, node.mark)
            self._set_base(named_axes(wrapper, self.problems, _is_value, kind))

    def _ds_base(self, node: Node) -> None:
        try:
            base = read_base(str(node.value), self.folder, node.mark)
        except SpecError as error:
            self.problems.add(Mark(error.where), error.what, error.fix)
            return
        wrapper = Node({"ds": Entry(node.mark, base)}, node.mark)
        self._set_base(named_axes(wrapper, self.problems, _is_value, "ds"))

    def _defaults(self) -> None:
        node = self.document.section("defaults")
        if node is not None:
            self._set_base(named_axes(node, self.problems, _is_value, "defaults"))
        for override in self.overrides.values():
            if not override.is_matrix:
                self._set(override.axis, override.node, override.mark)
        # Once more over the rest: a matrix axis may hold a whole section with this key in it.
        self.sections.final = tuple(
            (axis, self.sections.base[axis])
            for axis, override in self.overrides.items()
            if not override.is_matrix and axis in self.sections.base
        )

    def _set_base(self, found: list[Named]) -> None:
        for named in found:
            if not replaces(self.overrides, named.axis):
                self._set(named.axis, named.node, named.key_mark)

    def _set(self, axis: str, node: Node, mark: Mark) -> None:
        value = self._value(axis, node)
        if isinstance(value, _Refused):
            return
        self.sections.marks.setdefault(axis, mark if axis not in AXIS_BY_NAME else node.mark)
        if value is not DEFAULT:
            overlay(self.sections.base, axis, value)

    def _matrix(self) -> None:
        node = self.document.section("matrix")
        found = named_axes(node, self.problems, _is_list, "matrix") if node is not None else []
        waiting = {name: item for name, item in self.overrides.items() if item.is_matrix}
        for named in found:
            if named.axis in waiting:
                self._dimension(named.axis, waiting.pop(named.axis).node)
            elif not replaces(self.overrides, named.axis):
                self._dimension(named.axis, named.node)
        for override in waiting.values():
            self._dimension(override.axis, override.node)

    def _dimension(self, axis: str, node: Node) -> None:
        values = self._values(axis, node)
        if not values:
            return
        rows: dict[str, Row] = {}
        for value, mark in values:
            key = _key(value)
            if key in rows:
                self._warn(mark, f"{axis}: {_shown(value)} is given twice; the two are one")
            rows.setdefault(key, ((axis, value),))
        self.sections.dimensions.append(Dimension((axis,), tuple(rows.values())))

    def _values(self, axis: str, node: Node) -> list[tuple[Any, Mark]]:
        """The good values of a list; none if one is refused."""
        if not node.is_list:
            what = f"{axis}: the matrix takes a list of values"
            self.problems.add(node.mark, what, "write [value], or move it to defaults")
            return []
        if not node.items:
            self.problems.add(node.mark, f"{axis}: an empty list leaves no job", "name a value or remove it")
            return []
        self.sections.marks.setdefault(axis, node.mark)
        values = [(self._value(axis, item), item.mark) for item in node.items]
        return [] if any(isinstance(value, _Refused) for value, _ in values) else values

    def _zip(self) -> None:
        section = self.document.section("zip")
        for group in section.items if section is not None else ():
            found = named_axes(group, self.problems, _is_list, "zip")
            kept = [named for named in found if not replaces(self.overrides, named.axis)]
            columns = [(named, self._values(named.axis, named.node)) for named in kept]
            if columns and all(values for _, values in columns):
                self._zip_group(columns)

    def _zip_group(self, columns: list[tuple[Named, list[tuple[Any, Mark]]]]) -> None:
        lengths = {len(values) for _, values in columns}
        if len(lengths) > 1:
            shown = ", ".join(f"{named.axis} has {len(values)}" for named, values in columns)
            mark = columns[1][0].node.mark
            self.problems.add(mark, f"zip needs lists of equal length: {shown}", "make them as long")
            return
        axes = tuple(named.axis for named, _ in columns)
        rows: dict[str, Row] = {}
        for index in range(lengths.pop()):
            picked = [values[index] for _, values in columns]
            key = "\n".join(_key(value) for value, _ in picked)
            if key in rows:
                shown = ", ".join(_shown(value) for value, _ in picked)
                self._warn(picked[0][1], f"zip: the row {shown} is given twice; the two are one")
            rows.setdefault(key, tuple(zip(axes, (value for value, _ in picked), strict=True)))
        self.sections.dimensions.append(Dimension(axes, tuple(rows.values())))

    def _check_one_place(self) -> None:
        """No axis, and no part of one DeepSpeed section, may be varied twice."""
        seen: list[str] = []
        for dimension in self.sections.dimensions:
            for axis in dimension.axes:
                for other in seen:
                    if axis == other or axis.startswith(other + ".") or other.startswith(axis + "."):
                        what = (
                            f"'{axis}' is varied twice"
                            if axis == other
                            else f"'{axis}' lies within '{other}'"
                        )
                        mark = self.sections.marks[axis]
                        self.problems.add(mark, what, "vary it in one place: matrix or one zip group")
                seen.append(axis)

    def _extras(self) -> None:
        section = self.document.section("cells")
        for node in section.items if section is not None else ():
            row = []
            for named in named_axes(node, self.problems, _is_value, "cells"):
                if replaces(self.overrides, named.axis):
                    continue
                value = self._value(named.axis, named.node)
                self.sections.marks.setdefault(named.axis, named.node.mark)
                row.append((named.axis, value))
            self.sections.extras.append((tuple(row), node.mark))

    def _conditions(self) -> None:
        known = [name for name in self.sections.names if name not in AXIS_BY_NAME]
        known += [name for name in self.overrides if name not in AXIS_BY_NAME]
        section = self.document.section("when")
        for node in section.items if section is not None else ():
            condition = read_condition(node.entries["if"].node, known, self.problems, "when")
            axis_node = node.entries["axis"].node
            for item in axis_node.items if axis_node.is_list else [axis_node]:
                name = str(item.value)
                if not check_axis(name, item.mark, self.problems):
                    continue
                if name not in AXIS_BY_NAME and name not in known:
                    self.problems.add(item.mark, f"the sweep sets no '{name}'")
                elif condition is not None:
                    self.sections.rules.append(Rule(name, condition, item.mark))
        section = self.document.section("exclude")
        for node in section.items if section is not None else ():
            condition = read_condition(node, known, self.problems, "exclude")
            if condition is not None:
                self.sections.excludes.append(condition)

    def _value(self, axis: str, node: Node) -> Any:
        try:
            value = read_value(axis, node.plain())
        except ValueRefused as error:
            self.problems.add(_inner_mark(axis, node), error.what, error.fix)
            return _REFUSED
        if axis.startswith("ds.") and value is not DEFAULT:
            if isinstance(value, dict) and value:
                for path, _ in flatten(value):
                    check_axis(f"{axis}.{path}", node.mark, self.problems)
            else:
                check_section(axis, node.mark, self.problems)
        if axis.startswith("env.") and looks_secret(axis.removeprefix("env.")):
            self._warn_of_secret(axis, node.mark)
        if axis.startswith("ds.") and isinstance(value, str) and value.lower() in YAML_1_1_BOOLEANS:
            self._warn(
                node.mark, f"{axis}: '{value}' is a string in YAML 1.2; for a boolean write true or false"
            )
        return value

    def _warn_of_secret(self, axis: str, mark: Mark) -> None:
        if axis not in self.secrets:
            self.secrets.add(axis)
            self._warn(
                mark,
                f"{axis} looks like a secret, and the database, plans and reports keep its value in plain"
                " sight: export it in the shell instead, jobs inherit it",
            )

    def _warn(self, mark: Mark, text: str) -> None:
        self.sections.warnings.append(f"{mark}: {text}")


class _Refused:
    """A value that was refused; the reason is among the problems."""


_REFUSED = _Refused()


def _is_value(node: Node) -> bool:
    return not node.is_mapping or not node.entries


def _is_list(node: Node) -> bool:
    return not node.is_mapping


def _inner_mark(axis: str, node: Node) -> Mark:
    """The place of the first item that is refused on its own, for a set of states."""
    if axis in AXIS_BY_NAME and node.is_list:
        for item in node.items:
            try:
                read_value(axis, item.plain())
            except ValueRefused:
                return item.mark
    return node.mark


def _key(value: Any) -> str:
    return "default" if value is DEFAULT else canonical_json(value)


def _shown(value: Any) -> str:
    return "null" if value is DEFAULT else canonical_json(value).strip('"')
