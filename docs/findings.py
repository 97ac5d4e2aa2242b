"""Write docs/findings.md: what the databases in docs/data say. No figure of the page is typed in.

python docs/findings.py            write it
python docs/findings.py --check    exit 1 if it is not what would be written

A section whose measurements are not there says so in one line, and fills itself once a database with them
lies in docs/data.
"""

from __future__ import annotations

import sys
from pathlib import Path

import findings_bytes as of_bytes
import findings_times as of_times
import findings_tool as of_tool
from findings_data import Data, Row, filled, size, table

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "findings.md"
DATA = DOCS / "data"

SECTIONS = (
    of_times.best,
    of_times.trials,
    of_times.link,
    of_times.collection,
    of_times.pinning,
    of_times.sleep,
    of_bytes.surprises,
    of_bytes.formula,
    of_bytes.faults,
    of_tool.instrument,
    of_times.predicted,
    of_bytes.drift,
    of_bytes.published,
    of_bytes.scaling,
    of_tool.starting,
)


def page(folder: Path = DATA) -> str:
    """The whole page, from the databases in ``folder``."""
    with Data(folder) as data:
        parts = [opening(data), *(section(data) for section in SECTIONS)]
    return "\n\n".join(filled(block) for part in parts for block in part.split("\n\n")) + "\n"


def opening(data: Data) -> str:
    """What was run, where."""
    sweeps = data.rows("sweeps")
    files = ", ".join(f"[{path.name}](data/{path.name})" for path in data.paths)
    return f"""# Findings

<!-- Made by `python docs/findings.py` from docs/data; do not edit. -->

{_stacks(data.rows("stacks"))} The measurements: {files or "none yet"}; ask them more with
`orch sql --db docs/data/FILE "…"`. Every table below is the answer to a query that its
small print names, on each file by itself: `orch sql --db docs/data/FILE "$(cat docs/findings_sql/NAME.sql)"`;
seconds are medians over warm iterations of the slowest rank.

{table(sweeps) if sweeps else ""}

{_coverage(sweeps)}{_touched(data.saved("campaign.json"))}"""


def _stacks(rows: list[Row]) -> str:
    if not rows:
        return "No GPU host has been measured."
    told = [
        f"{row['gpus']} × {row['gpu_name']}, PCIe gen {row['pcie_generation']} ×{row['pcie_width']},"
        f" {row['cpu_count']} processors, {size(row['ram_bytes'] or 0)} of memory, driver {row['driver']},"
        f" torch {row['torch']}, DeepSpeed {row['deepspeed']} ({row['database']})"
        for row in rows
    ]
    return f"Measured on: {'; '.join(told)}."


def _coverage(rows: list[Row]) -> str:
    """What the largest copy is, and which sweeps are not whole."""
    largest = max((row["largest_copy"] or 0 for row in rows), default=0)
    cut = [f"`{row['sweep']}` ({row['not_run']} of {row['jobs']} jobs)" for row in rows if row["not_run"]]
    short = f" Not whole: {', '.join(cut)}." if cut else ""
    return f"The largest copy is {size(largest)} a rank.{short}" if rows else ""


def _touched(campaign: Row | None) -> str:
    """Memory that was used once before anything was timed: a growing machine is slower the first time."""
    touched = campaign and campaign.get("touched")
    if not touched:
        return ""
    return f" {touched['gigabytes']:.0f} GB of host memory were used once before anything was timed."


def main() -> int:
    """0 if the page is up to date or was written, else 1."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
