"""Which axis does a key name? Dotted and nested spellings of ds and env, unknown and reserved names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from orchestrator.spec.axes import AXIS_BY_NAME
from orchestrator.spec.dsconfig import OWNED_DS_KEYS
from orchestrator.spec.problems import Mark, Problems, did_you_mean
from orchestrator.spec.source import Entry, Node
from orchestrator.spec.values import ValueRefused, check_env_name

DS, ENV = "ds.", "env."
_COLUMN = re.compile(r"^    ([a-z_][a-z0-9_]*) (?:TEXT|INTEGER|BIGINT|DOUBLE|BOOLEAN|VARCHAR)", re.MULTILINE)
_ALIAS = re.compile(r"\bAS ([a-z_][a-z0-9_]*)")


@dataclass(frozen=True, slots=True)
class Named:
    """One axis named in a mapping: its canonical name, the place of its key, what stands there."""

    axis: str
    key_mark: Mark
    node: Node


@cache
def result_columns() -> frozenset[str]:
    """Columns of the results database that no axis may be named like."""
    # Through the top package: importing orchestrator.store would load SQLAlchemy.
    text = files("orchestrator").joinpath("store", "schema.sql").read_text(encoding="utf-8")
    names = {*_COLUMN.findall(text), *_ALIAS.findall(text)}
    return frozenset(names - AXIS_BY_NAME.keys())


def named_axes(node: Node, problems: Problems, is_leaf: Callable[[Node], bool], place: str) -> list[Named]:
    """Every axis that the mapping ``node`` names, each at most once.

    Args:
        is_leaf: whether a node below ``ds`` is what is said about one key, not a level of nesting.
        place: the section, for messages.
    """
    if not node.is_mapping:
        problems.add(node.mark, f"{place} must map axes to values", "write  axis: value  below it")
        return []
    found: dict[str, Named] = {}
    for named in _walk(node, problems, is_leaf):
        first = found.get(named.axis)
        if first is not None:
            line = first.key_mark.line
            problems.add(
                named.key_mark, f"'{named.axis}' is given twice (first at line {line})", "remove one"
            )
            continue
        found[named.axis] = named
    return list(found.values())


def _walk(node: Node, problems: Problems, is_leaf: Callable[[Node], bool]) -> Iterator[Named]:
    for key, entry in node.entries.items():
        if key in ("ds", "env"):
            if not entry.node.is_mapping:
                what = f"'{key}' holds {'DeepSpeed keys' if key == 'ds' else 'environment variables'}"
                problems.add(entry.node.mark, what, f"nest them below it, or write {key}.KEY")
                continue
            yield from _nested(f"{key}.", entry.node, problems, is_leaf)
        elif key.startswith((DS, ENV)):
            yield from _leaf_or_nested(key, entry, problems, is_leaf)
        elif check_axis(key, entry.key_mark, problems):
            yield Named(key, entry.key_mark, entry.node)


def _nested(prefix: str, node: Node, problems: Problems, is_leaf: Callable[[Node], bool]) -> Iterator[Named]:
    for key, entry in node.entries.items():
        yield from _leaf_or_nested(prefix + key, entry, problems, is_leaf)


def _leaf_or_nested(
    name: str, entry: Entry, problems: Problems, is_leaf: Callable[[Node], bool]
) -> Iterator[Named]:
    if not is_leaf(entry.node) and entry.node.is_mapping and entry.node.entries:
        yield from _nested(f"{name}.", entry.node, problems, is_leaf)
    elif check_axis(name, entry.key_mark, problems):
        yield Named(name, entry.key_mark, entry.node)


def check_axis(name: str, mark: Mark, problems: Problems) -> bool:
    """Whether ``name`` may be used as an axis; adds the reason if not."""
    if name.startswith(ENV):
        try:
            check_env_name(name.removeprefix(ENV))
        except ValueRefused as error:
            problems.add(mark, error.what, error.fix)
            return False
        return True
    if name.startswith(DS):
        return _check_ds_path(name.removeprefix(DS), mark, problems)
    if name in AXIS_BY_NAME:
        return True
    if name in result_columns():
        problems.add(mark, f"'{name}' is a reserved name: a column of the results", "it cannot be an axis")
    else:
        problems.add(mark, f"there is no axis '{name}'", did_you_mean(name, {*AXIS_BY_NAME, "ds", "env"}))
    return False


def _check_ds_path(path: str, mark: Mark, problems: Problems) -> bool:
    if not all(path.split(".")):
        problems.add(
            mark, f"'ds.{path}' is not a path into the DeepSpeed configuration", "write ds.section.key"
        )
        return False
    for owned, axis in OWNED_DS_KEYS.items():
        if path == owned or path.startswith(owned + "."):
            problems.add(mark, f"ds.{path} is decided by the axis {axis}", f"set {axis} instead")
            return False
    return True


def check_section(name: str, mark: Mark, problems: Problems) -> None:
    """Refuse a DeepSpeed section, given as one value, that holds a key owned by an axis."""
    path = name.removeprefix(DS)
    for owned, axis in OWNED_DS_KEYS.items():
        if owned.startswith(path + "."):
            what = f"{name} is a section that holds {owned}, decided by the axis {axis}"
            problems.add(mark, what, "give its keys one by one")
            return
