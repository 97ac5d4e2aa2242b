"""Has the file the shape of a sweep? pydantic at the border, every error with its line and column."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from orchestrator.spec.options import (
    ENGINE_SETTINGS,
    EngineOptions,
    LauncherOptions,
    Limits,
    Order,
    PositiveCount,
)
from orchestrator.spec.problems import Mark, Problems, did_you_mean
from orchestrator.spec.source import Entry, Node

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
TEMPLATE_PREFIX = "x-"
T = TypeVar("T")
SECONDS = ("timeout", "grace", "start_timeout", "hang")
"""Keys of ``limits`` as they are documented; inside, and as an alias in a file, each ends in ``_s``."""


class WhenRule(BaseModel):
    """An axis, or several, that count only where a condition holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    axis: str | list[str]
    condition: dict[str, Any] = Field(alias="if")


class SweepFile(BaseModel):
    """The keys of a sweep file; what stands below axes is read elsewhere, axis by axis."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    defaults: dict[str, Any] = {}
    matrix: dict[str, Any] = {}
    zip: list[dict[str, Any]] = []
    when: list[WhenRule] = []
    exclude: list[dict[str, Any]] = []
    cells: list[dict[str, Any]] = []
    repeats: PositiveCount = 1
    order: Order = "interleave"
    seed: int = 0
    limits: Limits = Limits()
    engine: str | dict[str, Any] = "local"
    launcher: str | dict[str, Any] = "fork"
    ds: str | dict[str, Any] = {}
    env: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Document:
    """A checked file: its tree without templates, and the typed part of it."""

    root: Node
    file: SweepFile
    engine: EngineOptions
    launcher: LauncherOptions

    def section(self, name: str) -> Node | None:
        """The node below a top-level key; None if the key is not there or holds nothing."""
        entry = self.root.entries.get(name)
        return entry.node if entry is not None else None


def read_document(root: Node, problems: Problems) -> Document | None:
    """The document, or None with the reasons in ``problems``."""
    if not root.is_mapping:
        kind = "a list" if root.is_list else "a single value"
        problems.add(root.mark, f"the file holds {kind}, not a mapping", "begin with  name: my-sweep")
        return None
    root = _with_seconds(_without_templates(root), problems)
    file = _validated(SweepFile, root, problems)
    engine = _engine(root.entries.get("engine"), problems)
    launcher = _launcher(root.entries.get("launcher"), problems)
    if file is None or engine is None or launcher is None:
        return None
    return Document(root, file, engine, launcher)


def _without_templates(root: Node) -> Node:
    """Leave out keys with nothing below them, and keys that only hold an anchor for others."""
    known = SweepFile.model_fields.keys()
    kept: dict[str, Entry] = {}
    for key, entry in root.entries.items():
        is_template = key.startswith(TEMPLATE_PREFIX) or (
            key not in known and entry.node.anchored and "did you mean" not in did_you_mean(key, known)
        )
        if not is_template and entry.node.value is not None:
            kept[key] = entry
    return replace(root, value=kept)


def _with_seconds(root: Node, problems: Problems) -> Node:
    """``limits: {timeout: 60}`` as ``timeout_s``: that spelling is read, too."""
    limits = root.entries.get("limits")
    if limits is None or not limits.node.is_mapping:
        return root
    renamed: dict[str, Entry] = {}
    for key, entry in limits.node.entries.items():
        name = f"{key}_s" if key in SECONDS else key
        if name in renamed:
            what = f"'{as_documented(name)}' is given twice, once as '{name}'"
            problems.add(entry.key_mark, what, "remove one")
        renamed[name] = entry
    entry = replace(limits, node=replace(limits.node, value=renamed))
    return replace(root, value={**root.entries, "limits": entry})


def _engine(entry: Entry | None, problems: Problems) -> EngineOptions | None:
    if entry is None:
        return EngineOptions()
    name, options = _name_and_options(entry, "engine", tuple(ENGINE_SETTINGS), problems)
    for known, settings in ENGINE_SETTINGS.items():
        if known == name:
            checked = _validated(settings, options, problems)
            return None if checked is None else EngineOptions(known, checked)
    return None


def _launcher(entry: Entry | None, problems: Problems) -> LauncherOptions | None:
    if entry is None:
        return LauncherOptions()
    name, _ = _name_and_options(entry, "launcher", ("fork", "spawn", "deepspeed"), problems)
    if name is None:
        return None
    node = entry.node
    if not node.is_mapping:
        node = replace(node, value={"name": Entry(entry.key_mark, node)})
    return _validated(LauncherOptions, node, problems)


def _name_and_options(
    entry: Entry, what: str, known: Sequence[str], problems: Problems
) -> tuple[str | None, Node]:
    """The name in ``engine: NAME`` or ``engine: {name: NAME, ...}``, and the options beside it."""
    node = entry.node
    options = replace(node, value={key: item for key, item in node.entries.items() if key != "name"})
    name_node = node
    if node.is_mapping:
        if "name" not in node.entries:
            problems.add(node.mark, f"the {what} has no name", f"name: {' | '.join(known)}")
            return None, options
        name_node = node.entries["name"].node
    name = name_node.value
    if not isinstance(name, str) or name not in known:
        problems.add(
            name_node.mark, f"there is no {what} '{name_node.plain()}'", did_you_mean(str(name), known)
        )
        return None, options
    return name, options


def _validated(type_: type[T], node: Node, problems: Problems) -> T | None:
    """``node`` as ``type_``; None with every mistake added."""
    try:
        # By way of JSON: strict, and yet a YAML list may fill a tuple.
        return TypeAdapter(type_).validate_json(json.dumps(node.plain()), strict=True)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            _explain(item, node, _fields(type_), problems)
        return None


def _fields(type_: type[Any]) -> set[str]:
    if issubclass(type_, BaseModel):
        return {field.alias or name for name, field in type_.model_fields.items()}
    return {field.name for field in fields(type_)}


def _explain(item: Any, root: Node, known_keys: set[str], problems: Problems) -> None:
    """One pydantic error as place, what and fix."""
    path = _without_branches(item["loc"], root)
    mark, node = _place(root, path)
    said = [as_documented(str(part)) if path[0] == "limits" else str(part) for part in path]
    key = said[-1] if said else ""
    name = ".".join(said)
    if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = known_keys if len(path) == 1 else _nested_fields(path)
        problems.add(_key_mark(root, path), f"there is no key '{key}' here", did_you_mean(key, known))
    elif item["type"] == "missing":
        problems.add(mark, f"'{key}' is missing")
    elif item["type"] == "string_pattern_mismatch" and key == "name":
        what = f"the name '{node.plain()}' cannot be used in file names and commands"
        problems.add(mark, what, "letters, digits, dot, dash and underscore, at most 100")
    else:
        message = str(item["msg"]).removeprefix("Input ").replace("an object", "a mapping")
        problems.add(mark, f"{name}: {message}" if name else message, "")


def _nested_fields(path: Sequence[Any]) -> set[str]:
    if path[0] == "limits":
        return {as_documented(name) for name in _fields(Limits)}
    return {"axis", "if"} if path[0] == "when" else set()


def as_documented(key: str) -> str:
    """The spelling of a key of ``limits`` in messages."""
    short = key.removesuffix("_s")
    return short if short in SECONDS else key


def _without_branches(loc: Sequence[Any], root: Node) -> list[Any]:
    """The location without the tried member of a union (``str``, ``list[str]``) that pydantic adds."""
    path: list[Any] = []
    for part in loc:
        _, node = _place(root, path)
        is_branch = isinstance(part, str) and (part == "str" or "[" in part or "(" in part)
        if not is_branch or part in node.entries:
            path.append(part)
    return path


def _place(root: Node, path: Sequence[Any]) -> tuple[Mark, Node]:
    """The deepest node on the path that exists."""
    node = root
    for part in path:
        if isinstance(part, int) and node.is_list and part < len(node.items):
            node = node.items[part]
        elif str(part) in node.entries:
            node = node.entries[str(part)].node
        else:
            break
    return node.mark, node


def _key_mark(root: Node, path: Sequence[Any]) -> Mark:
    _, parent = _place(root, path[:-1])
    entry = parent.entries.get(str(path[-1]))
    return entry.key_mark if entry is not None else parent.mark
