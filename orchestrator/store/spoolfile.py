"""A spool file as records: complete lines only, whatever else lies in the file. Streams; no SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_LINE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One complete line.

    Attributes:
        number: from 1.
        record: the object; None if the line is not a JSON object with a ``kind``.
        problem: why ``record`` is None.
    """

    number: int
    record: dict[str, Any] | None
    problem: str = ""


def spool_files(spool_dir: Path) -> list[Path]:
    """The spool's files in a steady order; none if there is no such folder."""
    try:
        return sorted(path for path in spool_dir.iterdir() if path.suffix == ".jsonl" and path.is_file())
    except OSError:
        return []


def rank_of(path: Path) -> int | None:
    """The rank in ``rank7.jsonl``."""
    digits = path.stem.removeprefix("rank")
    return int(digits) if path.stem.startswith("rank") and digits.isascii() and digits.isdigit() else None


def read_lines(path: Path) -> Iterator[Line]:
    """Every complete line. A last line without a newline was never acknowledged and is not there."""
    number = 0
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE_BYTES):
            number += 1
            if not line.endswith(b"\n"):
                if not _skip_rest(line, file):
                    return
                yield Line(number, None, "longer than 16 MiB")
            elif line.strip():
                yield _parsed(number, line)


def _skip_rest(line: bytes, file: Any) -> bool:
    """Read on to the end of a line that is too long; False if it has none."""
    while line and not line.endswith(b"\n"):
        line = file.readline(LONGEST_LINE_BYTES)
    return bool(line)


def _parsed(number: int, line: bytes) -> Line:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Line(number, None, "not JSON")
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return Line(number, None, "not an object with a kind")
    return Line(number, record)
