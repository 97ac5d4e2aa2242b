"""``schema.sql`` as data: what its comments say of every table, view and column."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.spec.axes import AXIS_BY_NAME
from orchestrator.store.schema import schema_sql

_TABLE = re.compile(r"CREATE TABLE (\w+) \(")
_VIEW = re.compile(r"CREATE VIEW (\w+) AS")
_COLUMN = re.compile(r"    (\w+) ((?:DOUBLE PRECISION|VARCHAR\(\d+\)|[A-Z]+)) ?([^,-]*)[^-]*(?:-- ?(.*))?$")
_UNITS = (("_bytes", "B"), ("_gbps", "GB/s"), ("_ns", "ns"), ("_share", ""), ("_hz", "1/s"))


@dataclass(frozen=True, slots=True)
class ColumnDoc:
    """A column: ``rules`` is what stands behind its type, ``text`` its comment."""

    name: str
    type: str
    rules: str
    text: str

    @property
    def unit(self) -> str:
        """Its unit, read off its name; empty if it has none."""
        return unit_of(self.name)


@dataclass(slots=True)
class TableDoc:
    """A table, or a view, whose columns are not listed."""

    name: str
    text: str
    is_view: bool
    columns: list[ColumnDoc] = field(default_factory=list)


def unit_of(name: str) -> str:
    """``s`` for ``offload_s_median``, ``B`` for ``freed_bytes``, else empty."""
    if name in ("seconds", "heartbeat") or re.search(r"_s(_median|_p95|_min|_max)?$", name):
        return "s"
    if name == "bytes":
        return "B"
    return next((unit for end, unit in _UNITS if name.endswith(end)), "")


def schema_docs(script: str | None = None) -> list[TableDoc]:
    """Every table and view in the order of the file."""
    docs: list[TableDoc] = []
    above: list[str] = []
    inside = False
    for line in (schema_sql() if script is None else script).splitlines():
        if not inside and line.startswith("--"):
            above.append(line[2:].strip())
            continue
        made = _TABLE.match(line) or _VIEW.match(line)
        if made:
            is_view = line.startswith("CREATE VIEW")
            docs.append(TableDoc(made[1], " ".join(above), is_view))
            inside = not is_view
        elif inside and (column := _COLUMN.match(line)) and column[1].islower():
            rules = column[3].strip().rstrip(",")
            text = (column[4] or "").strip()
            if not text and docs[-1].name == "job" and column[1] in AXIS_BY_NAME:
                text = AXIS_BY_NAME[column[1]].help
            docs[-1].columns.append(ColumnDoc(column[1], column[2], rules, text))
        elif line.startswith(");"):
            inside = False
        if not line.startswith("--"):
            above = []
    return docs
