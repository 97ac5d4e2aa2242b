"""Reads the databases of docs/data for docs/findings.py; a query is a file of docs/findings_sql."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import dropwhile, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from click.testing import CliRunner

from orchestrator.analysis.leave_out import LeftOut, leave_largest_out
from orchestrator.cli.main import main
from orchestrator.render.formats import render_rows
from orchestrator.render.values import human_bytes, human_seconds
from orchestrator.store import Store, open_store
from orchestrator.store.queries_stats import measured_jobs

DOCS = Path(__file__).resolve().parent
QUERIES = DOCS / "findings_sql"
FILE = "database"
"""The column that says which database a row is from, where several have rows."""

Row = dict[str, Any]

_FLAGS = {"agrees", "pin_memory", "pin_memory_then", "non_blocking", "reload_non_blocking", "gc_freeze",
          "pinned_link", "checksums", "tied_embeddings"}  # fmt: skip
_NAMES = {"pinned_link": "pinned"}


class Data:
    """The databases of a folder, each asked the same question; their rows are never mixed.

    Args:
        folder: holds ``*.db``, and what the benchmarks saved as ``*.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = sorted(folder.glob("*.db"))
        self._open = ExitStack()
        self._stores: list[tuple[Path, Store]] = [
            (path, self._open.enter_context(open_store(str(path), readonly=True))) for path in self.paths
        ]

    def __enter__(self) -> Data:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def rows(self, query: str, keep: Callable[[Row], bool] = bool) -> list[Row]:
        """The rows of every database that ``keep`` wants, each with the name of its file."""
        text = (QUERIES / f"{query}.sql").read_text(encoding="utf-8")
        found = []
        for path, store in self._stores:
            columns, rows = store.sql(text)
            found += [{FILE: path.name, **dict(zip(columns, row, strict=True))} for row in rows]
        return [row for row in found if keep(row)]

    def report(self, file: str, *words: str) -> str:
        """The first table of ``orch report WORDS --format markdown`` on that database."""
        command = ["report", *words, "--format", "markdown", "--db", str(self.folder / file)]
        done = CliRunner().invoke(main, command)
        if done.exit_code:
            raise RuntimeError(f"orch {' '.join(command)}: {done.output}")
        lines = dropwhile(lambda line: not line.startswith("|"), done.stdout.splitlines())
        return "\n".join(takewhile(lambda line: line.startswith("|"), lines))

    def left_out(self) -> list[tuple[str, LeftOut]]:
        """File and curve: every largest size foretold from the smaller ones."""
        return [
            (path.name, found)
            for path, store in self._stores
            for found in leave_largest_out(measured_jobs(store))
        ]

    def saved(self, name: str) -> dict[str, Any] | None:
        """What a benchmark saved; None if it did not."""
        path = self.folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(rows: Sequence[Row], *, leave: Sequence[str] = ()) -> str:
    """A markdown table: bytes exact, seconds and shares short; constant file names are left out."""
    same_file = len({row.get(FILE) for row in rows}) == 1
    names = [name for name in rows[0] if name not in leave and not (name == FILE and same_file)]
    texts = [[_text(name, row[name]) for name in names] for row in rows]
    out = io.StringIO()
    heads = [_NAMES.get(name, name).removesuffix("_s").replace("_", " ") for name in names]
    render_rows(heads, texts, format="markdown", out=out)
    return out.getvalue().strip()


def query_line(*names: str) -> str:
    """Where the figures above come from."""
    files = ", ".join(f"[{name}.sql](findings_sql/{name}.sql)" for name in names)
    return f"<sub>{files}</sub>"


def _text(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in _FLAGS and value in (0, 1):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if name.endswith("_s"):
        return human_seconds(value)
    if name.endswith("_share"):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) and abs(value) > 999 else f"{value:.3g}"
    return str(value)


def seconds(value: float) -> str:
    """Seconds for a sentence."""
    return human_seconds(value)


def size(value: float) -> str:
    """Bytes for a sentence."""
    return human_bytes(value)


def filled(block: str) -> str:
    """Prose wrapped anew, since figures have their own lengths; tables, headings and code as they are."""
    if block.startswith(("|", "#", "```", "<")):
        return block
    return textwrap.fill(" ".join(block.split()), 118, break_long_words=False, break_on_hyphens=False)
