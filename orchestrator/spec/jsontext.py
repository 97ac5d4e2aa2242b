"""What does a JSON file say, and where? A tree of values with their places, as a sweep file's."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.problems import Mark
from orchestrator.spec.source import MAX_DEPTH, Entry, Node

_BLANK = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^\s,\]}]+")


def parse_json(text: str, where: str) -> Node:
    """The value in ``text`` with the place of every key.

    Raises:
        SpecError: with the place: no JSON, a duplicate key, NaN or infinity, nested too deeply.
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        place = Mark(where, error.lineno, error.colno)
        raise SpecError(f"is not JSON: {error.msg}", str(place)) from error
    except RecursionError as error:
        raise SpecError("is nested too deeply", where) from error
    except ValueError as error:  # A number of more digits than Python reads.
        raise SpecError(f"is not JSON: {error}", where) from error
    return _Reader(text, where).value(_BLANK.match(text, 0).end(), 0)[0]  # type: ignore[union-attr]


class _Reader:
    """Walks a text that is known to be JSON; each step gives a node and where the text goes on."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def value(self, start: int, depth: int) -> tuple[Node, int]:
        mark = self._mark(start)
        if depth > MAX_DEPTH:
            raise SpecError(f"is nested more than {MAX_DEPTH} levels deep", str(mark))
        match self._text[start]:
            case "{":
                return self._mapping(start, mark, depth)
            case "[":
                return self._list(start, mark, depth)
            case '"':
                word, end = scanstring(self._text, start + 1, True)
                return Node(word, mark), end
        found = _SCALAR.match(self._text, start)
        assert found is not None
        if found[0].lstrip("-") in ("NaN", "Infinity"):
            raise SpecError(f"{found[0]} is not JSON", str(mark), "write a number")
        plain: Any = json.loads(found[0])
        return Node(plain, mark), found.end()

    def _mapping(self, start: int, mark: Mark, depth: int) -> tuple[Node, int]:
        entries: dict[str, Entry] = {}
        place = self._skip(start + 1)
        while self._text[place] != "}":
            key_mark = self._mark(place)
            key, place = scanstring(self._text, place + 1, True)
            node, place = self.value(self._skip(self._skip(place) + 1), depth + 1)
            if key in entries:
                line = entries[key].key_mark.line
                raise SpecError(f"duplicate key '{key}' (first at line {line})", str(key_mark), "remove one")
            entries[key] = Entry(key_mark, node)
            place = self._after_comma(place)
        return Node(entries, mark), place + 1

    def _list(self, start: int, mark: Mark, depth: int) -> tuple[Node, int]:
        items = []
        place = self._skip(start + 1)
        while self._text[place] != "]":
            node, place = self.value(place, depth + 1)
            items.append(node)
            place = self._after_comma(place)
        return Node(items, mark), place + 1

    def _after_comma(self, place: int) -> int:
        place = self._skip(place)
        return self._skip(place + 1) if self._text[place] == "," else place

    def _skip(self, place: int) -> int:
        blank = _BLANK.match(self._text, place)
        assert blank is not None
        return blank.end()

    def _mark(self, place: int) -> Mark:
        before = self._text.rfind("\n", 0, place)
        return Mark(self._where, self._text.count("\n", 0, place) + 1, place - before)
