"""Write docs/database.md from schema.sql and its comments.

python docs/database.py            write it
python docs/database.py --check    exit 1 if it is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.store.schemadoc import ColumnDoc, TableDoc, schema_docs

PAGE = Path(__file__).resolve().parent / "database.md"

_INTRODUCTION = """# Results database

<!-- Made by `python docs/database.py` from schema.sql; do not edit. -->

One `schema.sql` creates the database on SQLite and PostgreSQL. Names carry the unit: `*_s` seconds, `*_bytes`
bytes, `*_gbps` 10^9 bytes per second, `*_share` a fraction of 1, `*_at` ISO-8601 in UTC, so that they sort as
text. NULL means "not measured", for an axis of a job "inactive". NaN is stored as NULL and named in
`nonfinite` (`loss=nan`); infinities are stored; minus zero becomes zero. JSON is kept as text.

An id belongs to one database; `uid` stays the same when databases are merged. Jobs keep every attempt;
`job_result` is computed from the rows, and `orch db check` computes it again.

| to ask | read |
|---|---|
| what was measured, a row a job | `job_summary` |
| the fastest setting for each size | `best_setting` |
| the trial table of DeepSpeed's example | `example_table` |
| every iteration of every rank | `iteration`, joined by `attempt_id` to `attempt`, by `job_id` to `job` |

```
orch sql "SELECT hidden_dim, pin_memory, offload_s_median, reload_s_median FROM job_summary WHERE is_valid"
orch db metadata -o metadata.json && datasette orch.db --metadata metadata.json
```

`orch db check` looks for damage, `upgrade` takes an older database to this schema after a backup, `export`
and `import` move sweeps between SQLite and PostgreSQL and merge files of several hosts, `delete` removes one.
"""


def page() -> str:
    """The whole page."""
    docs = [doc for doc in schema_docs() if doc.name != "alembic_version"]
    tables = "\n".join(_table(doc) for doc in docs if not doc.is_view)
    views = "\n".join(_table(doc) for doc in docs if doc.is_view)
    return f"{_INTRODUCTION}\n# Tables\n\n{tables}\n# Views\n\n{views}"


def _table(doc: TableDoc) -> str:
    text = f"{doc.text}\n\n" if doc.text else ""
    if doc.is_view:
        return f"## {doc.name}\n\n{text}"
    rows = "\n".join(_row(column) for column in doc.columns)
    return f"## {doc.name}\n\n{text}| column | type | unit | meaning |\n|---|---|---|---|\n{rows}\n"


def _row(column: ColumnDoc) -> str:
    kind = column.type.lower() + (f", {column.rules.lower()}" if column.rules else "")
    text = column.text.replace("|", "\\|")
    return f"| `{column.name}` | {kind} | {column.unit} | {text} |"


def main() -> int:
    """0 if the page is up to date or was written, else 1."""
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text() == page() else 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
