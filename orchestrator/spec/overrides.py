"""What does ``--set axis=value`` replace? Parsed here, applied where the sections are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import SpecError
from orchestrator.spec.names import check_axis
from orchestrator.spec.problems import Mark, Problems
from orchestrator.spec.source import Node, parse_yaml

REPEATS = "repeats"

_OPTIONS = {
    name: f"it is an option of its own: --{name}"
    for name in ("name", "db", "engine", "launcher", "gpus", "slots", "timeout")
}
_SECTIONS = ("limits", "order", "seed", "matrix", "zip", "when", "exclude", "cells", "defaults")
"""Parts of a sweep file that somebody may take for an axis."""


@dataclass(frozen=True, slots=True)
class Override:
    """One ``--set``: a list becomes a matrix axis, anything else a default."""

    axis: str
    node: Node
    mark: Mark

    @property
    def is_matrix(self) -> bool:
        return self.node.is_list


def read_overrides(texts: Sequence[str], problems: Problems) -> dict[str, Override]:
    """The overrides by axis; the last one of an axis wins. ``repeats`` counts as one too."""
    overrides: dict[str, Override] = {}
    for text in texts:
        mark = Mark(f"--set {text}")
        axis, separator, value = text.partition("=")
        axis = axis.strip()
        if not separator or not axis:
            problems.add(mark, "is not AXIS=VALUE", "for instance --set hidden_dim=4096")
            continue
        if not value.strip():
            problems.add(mark, "has no value", "write null for the default")
            continue
        if axis in ("ds", "env"):
            problems.add(mark, f"'{axis}' is not one axis", f"name one: --set {axis}.KEY=VALUE")
            continue
        if axis in _OPTIONS or axis.partition(".")[0] in _SECTIONS:
            fix = _OPTIONS.get(axis, "write it into the sweep file")
            problems.add(mark, f"'{axis}' is no axis", fix)
            continue
        if axis != REPEATS and not check_axis(axis, mark, problems):
            continue
        overrides[axis] = Override(axis, _value_node(value, mark), mark)
    return overrides


def replaces(overrides: dict[str, Override], name: str) -> bool:
    """Whether an override takes the place of ``name``, or of the DeepSpeed section that holds it."""
    return name in overrides or any(name.startswith(axis + ".") for axis in overrides)


def _value_node(text: str, mark: Mark) -> Node:
    try:
        node = parse_yaml(text, mark.where)
    except SpecError as error:
        raise SpecError(error.what, mark.where, error.fix) from error
    return _moved(node, mark) if node is not None else Node(None, mark)


def _moved(node: Node, mark: Mark) -> Node:
    """The node with every place set to the option: line and column say nothing there."""
    if isinstance(node.value, list):
        return Node([_moved(item, mark) for item in node.value], mark)
    if isinstance(node.value, dict):
        entries = {key: type(entry)(mark, _moved(entry.node, mark)) for key, entry in node.value.items()}
        return Node(entries, mark)
    return Node(node.value, mark)
