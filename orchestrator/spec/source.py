"""What does the file say, and where? YAML 1.2 text in, a tree of values with their places out.

ruamel.yaml's round-trip scanner does the syntax; the nodes are built here, so that a duplicate key can
name both its lines, aliases are counted before they are followed, and nothing recurses without a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from orchestrator.errors import SpecError
from orchestrator.spec.problems import Mark
from orchestrator.spec.scalars import Scalar, ScalarRefused, plain_scalar

MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 40
MAX_NODES = 100_000
_STRING_TAG = "tag:yaml.org,2002:str"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place. ``value``: a scalar, a list of nodes, or a mapping of keys to entries."""

    value: Scalar | list[Node] | dict[str, Entry]
    mark: Mark
    anchored: bool = False

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    @property
    def is_list(self) -> bool:
        return isinstance(self.value, list)

    @property
    def entries(self) -> dict[str, Entry]:
        """The mapping's entries; empty if it is none."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The list's items; empty if it is none."""
        return self.value if isinstance(self.value, list) else []

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: entry.node.plain() for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping's entry: the place of its key, and its value."""

    key_mark: Mark
    node: Node


def read_text(path: Path) -> str:
    """The text of a sweep file; a SpecError says why it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise SpecError("there is no such file", str(path), "orch init writes a starter") from error
    except IsADirectoryError as error:
        raise SpecError("is a directory, not a sweep file", str(path), "name a .yaml file in it") from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", str(path)) from error
    if len(data) > MAX_TEXT_BYTES:
        raise SpecError(f"is {len(data)} bytes; a sweep file has at most {MAX_TEXT_BYTES}", str(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].split(b"\n")
        mark = Mark(str(path), len(before), len(before[-1]) + 1)
        byte = f"byte 0x{data[error.start]:02x}"
        raise SpecError(f"{byte} is not UTF-8", str(mark), "save the file as UTF-8") from error


def parse_yaml(text: str, where: str) -> Node | None:
    """The one document of ``text`` as a tree; None if there is nothing in it.

    Raises:
        SpecError: with the place, for bad syntax, duplicate keys, tags, several documents, too much.
    """
    text = text.removeprefix("\ufeff")
    try:
        facts = _check_events(text, where)
        root = YAML(typ="rt").compose(text)
    except MarkedYAMLError as error:
        raise _syntax_error(error, where, text) from error
    except ReaderError as error:
        before = text[: error.position].split("\n")
        place = Mark(where, len(before), len(before[-1]) + 1)
        raise SpecError("a control character", str(place), "write it as an escape in quotes") from error
    except (YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise SpecError(f"is not YAML: {_one_line(str(error))}", where) from error
    if root is None:
        return None
    if facts.aliases:
        _check_unfolded(root, where)
    return _Builder(where, facts).build(root)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the events say and composed nodes do not: aliases used, places of explicit strings."""

    aliases: set[str]
    strings: set[Mark]


def _check_events(text: str, where: str) -> _Facts:
    """Refuse by the flat stream of events what must not be composed."""
    depth, documents = 0, 0
    facts = _Facts(set(), set())
    for count, event in enumerate(_events(text)):
        mark = _mark(event.start_mark, where)
        if count > MAX_NODES:
            raise SpecError(f"holds more than {MAX_NODES} values", str(mark))
        if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise SpecError(f"is nested more than {MAX_DEPTH} levels deep", str(mark))
        elif type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1
        elif isinstance(event, AliasEvent):
            facts.aliases.add(str(event.anchor))
        elif isinstance(event, DocumentStartEvent):
            documents += 1
            _check_document_start(event, documents, mark)
        is_value = isinstance(event, (MappingStartEvent, SequenceStartEvent, ScalarEvent))
        if is_value and _has_string_tag(event, mark):
            facts.strings.add(mark)
    return facts


def _events(text: str) -> Iterator[Event]:
    yield from YAML(typ="rt").parse(text)


def _check_document_start(event: Any, documents: int, mark: Mark) -> None:
    if documents > 1:
        raise SpecError("a second document begins here", str(mark), "one sweep a file: split it")
    if event.version is not None and tuple(event.version) != (1, 2):
        version = ".".join(str(part) for part in event.version)
        raise SpecError(f"%YAML {version} is not read", str(mark), "sweep files are YAML 1.2: drop the line")


def _has_string_tag(event: Any, mark: Mark) -> bool:
    tag = str(event.tag or "")
    if tag and tag not in ("!", _STRING_TAG):
        raise SpecError(f"the tag {tag} is not read", str(mark), "write the value without it")
    return bool(tag)


def _check_unfolded(root: Any, where: str) -> None:
    """Refuse aliases that unfold to too much, counting each node once, before anything is unfolded."""
    sizes: dict[int, int] = {}

    def unfolded(node: Any, depth: int) -> int:
        mark = str(_mark(node.start_mark, where))
        if depth > MAX_DEPTH:
            raise SpecError(f"its aliases nest more than {MAX_DEPTH} levels deep", mark)
        if id(node) not in sizes:
            pairs = node.value if isinstance(node, MappingNode) else ()
            children = node.value if isinstance(node, SequenceNode) else [v for pair in pairs for v in pair]
            sizes[id(node)] = 1 + sum(unfolded(child, depth + 1) for child in children)
            if sizes[id(node)] > MAX_NODES:
                raise SpecError(f"its aliases unfold to more than {MAX_NODES} values", mark)
        return sizes[id(node)]

    unfolded(root, 0)


class _Builder:
    """Composed nodes into ``Node``."""

    def __init__(self, where: str, facts: _Facts) -> None:
        self.where = where
        self.facts = facts

    def build(self, node: Any) -> Node:
        mark = _mark(node.start_mark, self.where)
        anchored = node.anchor is not None and str(node.anchor) in self.facts.aliases
        if isinstance(node, MappingNode):
            return Node(self._mapping(node), mark, anchored)
        if isinstance(node, SequenceNode):
            return Node([self.build(item) for item in node.value], mark, anchored)
        return Node(self._scalar(node, mark), mark, anchored)

    def _scalar(self, node: ScalarNode, mark: Mark) -> Scalar:
        text = str(node.value)
        if node.style or mark in self.facts.strings:
            return text
        try:
            return plain_scalar(text)
        except ScalarRefused as error:
            raise SpecError(error.what, str(mark), error.fix) from error

    def _mapping(self, node: MappingNode) -> dict[str, Entry]:
        merged: dict[str, Entry] = {}
        own: dict[str, Entry] = {}
        merge_line = 0
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark, self.where)
            if _is_merge(key_node):
                if merge_line:
                    what = f"duplicate key '<<' (first at line {merge_line})"
                    raise SpecError(what, str(mark), "merge a list: <<: [*a, *b]")
                merge_line = mark.line
                for source in self._merge_sources(value_node):
                    for key, entry in source.items():
                        merged.setdefault(key, entry)
                continue
            key = self._key(key_node, mark)
            if key in own:
                first = own[key].key_mark.line
                raise SpecError(f"duplicate key '{key}' (first at line {first})", str(mark), "remove one")
            own[key] = Entry(mark, self.build(value_node))
        return {**own, **{key: entry for key, entry in merged.items() if key not in own}}

    def _merge_sources(self, value: Any) -> list[dict[str, Entry]]:
        nodes = value.value if isinstance(value, SequenceNode) else [value]
        sources = []
        for node in nodes:
            built = self.build(node)
            if not built.is_mapping:
                raise SpecError("'<<' merges a mapping or a list of them", str(built.mark), "alias a mapping")
            sources.append(built.entries)
        return sources

    def _key(self, node: Any, mark: Mark) -> str:
        if not isinstance(node, ScalarNode):
            raise SpecError("a key must be a word, not a list or a mapping", str(mark))
        key = self._scalar(node, mark)
        if not isinstance(key, str):
            raise SpecError(f"the key '{node.value}' is not a string", str(mark), f'quote it: "{node.value}"')
        return key


def _is_merge(node: Any) -> bool:
    return isinstance(node, ScalarNode) and node.value == "<<" and not node.style


def _mark(mark: Any, where: str) -> Mark:
    return Mark(where, mark.line + 1, mark.column + 1)


def _syntax_error(error: MarkedYAMLError, where: str, text: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    place = str(_mark(mark, where)) if mark is not None else where
    what = _one_line(error.problem or error.context or "is not YAML")
    lines = text.splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if "\t" in line[: mark.column + 1 if mark is not None else 0] or "'\\t'" in what:
        return SpecError("a tab where YAML wants spaces", place, "indent with spaces")
    return SpecError(what, place, "check the indentation, quotes and brackets here")


def _one_line(text: str) -> str:
    return " ".join(text.split())
