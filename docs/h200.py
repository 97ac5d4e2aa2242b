"""Write docs/h200.md: what the runs kept in docs/data/h200-x2.db found. No figure of the page is typed in.

python docs/h200.py            write it
python docs/h200.py --check    exit 1 if it is not what would be written
"""

from __future__ import annotations

import io
import sys
import textwrap
from pathlib import Path
from typing import Any

from orchestrator.render.formats import render_rows
from orchestrator.render.values import human_bytes, human_seconds
from orchestrator.store import Store, open_store

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "h200.md"
DATABASE = DOCS / "data" / "h200-x2.db"

STAGES = """
SELECT zero_stage AS ZeRO, dtype, optimizer, freed_bytes AS freed, predicted_freed_bytes AS predicted,
       freed_bytes - predicted_freed_bytes AS difference, bytes_match AS agrees,
       device_freed_bytes AS device_gained, offload_s_median AS offload_s, reload_s_median AS reload_s
FROM job_summary
WHERE sweep = 'bytes-2' AND status = 'ok' AND included_state = 'all'
ORDER BY zero_stage DESC, job_id
"""

STATES = """
SELECT zero_stage AS ZeRO, included_state AS offloaded, freed_bytes AS freed, predicted_freed_bytes AS
       predicted,
       freed_bytes - predicted_freed_bytes AS difference, bytes_match AS agrees,
       offload_s_median AS offload_s, reload_s_median AS reload_s
FROM job_summary
WHERE sweep = 'bytes-2' AND status = 'ok' AND included_state <> 'all'
ORDER BY zero_stage DESC, job_id
"""

HOST = """
SELECT zero_stage AS ZeRO, dtype, pin_memory, non_blocking, included_state AS offloaded,
       MAX(copied_bytes) AS copied,
       MAX(predicted_copied_bytes) AS copied_predicted, MAX(pinned_bytes) AS pinned,
       MAX(predicted_pinned_bytes) AS pinned_predicted, MAX(cold_pinning_s) AS first_pinning_s
FROM job_summary
WHERE status = 'ok' AND sweep IN ('bytes-2', 'quickstart')
GROUP BY sweep, zero_stage, dtype, pin_memory, non_blocking, included_state
ORDER BY MAX(copied_bytes) DESC, pin_memory DESC, non_blocking DESC, zero_stage DESC, dtype, included_state
"""

FIRST_OFFLOAD = """
SELECT i.rank, i.iteration, i.freed_bytes AS freed, i.predicted_freed_bytes AS predicted,
       i.bytes_match AS agrees, i.copied_bytes AS copied
FROM iteration i
JOIN attempt a ON a.attempt_id = i.attempt_id
JOIN job j ON j.job_id = a.job_id
JOIN sweep s ON s.sweep_id = j.sweep_id
WHERE s.name = 'bytes-2' AND j.zero_stage = 2 AND j.included_state = 'optim_states'
ORDER BY i.rank, i.iteration
"""

SETTINGS = """
SELECT pin_memory, non_blocking, offload_s_median AS offload_s, reload_s_median AS reload_s,
       offload_cold_s AS first_offload_s, offload_link_share, reload_link_share, pinned_bytes
FROM job_summary
WHERE sweep = 'quickstart' AND status = 'ok'
ORDER BY pin_memory DESC, non_blocking DESC
"""

FAULTS = """
SELECT included_state AS offloaded, frozen_fraction, pin_memory, pin_memory_then, status, failure_kind,
       message
FROM job_summary
WHERE sweep = 'known_faults'
ORDER BY job_id
"""

LINK = """
SELECT pinned, direction, COUNT(*) AS probes, COUNT(DISTINCT device_uuid) AS devices, MIN(gbps) AS least_gbps,
       MAX(gbps) AS greatest_gbps, (MAX(gbps) - MIN(gbps)) / AVG(gbps) AS spread_share
FROM link_probe
GROUP BY pinned, direction
ORDER BY pinned DESC, direction
"""

STATUS = """
SELECT sweep, num_gpus AS GPUs, COUNT(*) AS jobs, SUM(CASE WHEN status = 'ok' THEN 1 ELSE 0 END) AS ok,
       SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) AS failed,
       SUM(CASE WHEN status NOT IN ('ok', 'failed') THEN 1 ELSE 0 END) AS not_run
FROM job_summary
GROUP BY sweep, num_gpus
ORDER BY MIN(job_id)
"""


class Numbers:
    """Reads of the database for the text."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def one(self, query: str) -> tuple[Any, ...]:
        """The only row."""
        [row] = self._store.sql(query)[1]
        return tuple(row)

    def table(self, query: str) -> str:
        """A markdown table: bytes exact, seconds and shares short."""
        columns, rows = self._store.sql(query)
        out = io.StringIO()
        texts = [[_text(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
        render_rows([name.replace("_", " ") for name in columns], texts, format="markdown", out=out)
        return out.getvalue().strip()


_FLAGS = {"agrees", "pin_memory", "pin_memory_then", "non_blocking", "pinned"}


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
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def page() -> str:
    """The whole page."""
    with open_store(str(DATABASE), readonly=True) as store:
        numbers = Numbers(store)
        parts = (_opening(numbers), _bytes(numbers), _surprises(numbers), _rest(numbers))
    return "\n\n".join(_filled(block) for part in parts for block in part.split("\n\n")) + "\n"


def _filled(block: str) -> str:
    """Prose wrapped anew, since figures have their own lengths; tables, headings and code as they are."""
    if block.startswith(("|", "#", "```", "<!--")):
        return block
    return textwrap.fill(" ".join(block.split()), 118, break_long_words=False, break_on_hyphens=False)


def _opening(numbers: Numbers) -> str:
    gpus, gpu, generation, width, driver, torch, deepspeed = numbers.one(
        "SELECT gpu_count, gpu_name, pcie_generation, pcie_width, driver, torch, deepspeed FROM environment"
    )
    (largest,) = numbers.one("SELECT MAX(copied_bytes) FROM job_summary WHERE status = 'ok'")
    return f"""# What was found on two H200

<!-- Made by `python docs/h200.py` from docs/data/h200-x2.db; do not edit. -->

One host, {gpus} × {gpu}, PCIe gen {generation} ×{width}, driver {driver}, torch {torch}, DeepSpeed
{deepspeed}. The database is
[data/h200-x2.db](data/h200-x2.db); ask it more with `orch sql --db docs/data/h200-x2.db "…"`.

{numbers.table(STATUS)}

**What these runs do not cover.** The largest copy is {human_bytes(largest)} a rank: nothing here says
how near a
large model comes to the link, and at these sizes most of an offload is not copying. DeepSpeed's own
benchmark at its size
(`sweeps/deepspeed_example.yaml`), copies of 30 GB and more, and `sweeps/full.yaml` were not run.
`bytes-2` was stopped
part-way: its remaining cells (transformers, parameter groups, frozen layers, pageable and other ways to
pin with two
ranks) have no figure. Every cell was run once, so differences of a few per cent between settings are not
told from chance."""


def _bytes(numbers: Numbers) -> str:
    checked, agree, worst = numbers.one(
        """SELECT COUNT(*), SUM(CASE WHEN bytes_match THEN 1 ELSE 0 END),
                  MAX(CASE WHEN bytes_match THEN ABS(freed_bytes - predicted_freed_bytes) END)
           FROM iteration WHERE bytes_match IS NOT NULL"""
    )
    (differing,) = numbers.one(
        """SELECT SUM(CASE WHEN copied_bytes <> predicted_copied_bytes THEN 1 ELSE 0 END)
           FROM job_summary WHERE status = 'ok'"""
    )
    most, least = numbers.one(
        """SELECT MAX(pinned_bytes - predicted_pinned_bytes), MIN(pinned_bytes - predicted_pinned_bytes)
           FROM job_summary WHERE status = 'ok'"""
    )
    return f"""## Freed bytes against the formula

`freed` is what torch's allocator gave up on the rank that gave up least, the median over warm
iterations; `agrees` means that *every*
iteration of every rank lay within max(1 MiB, 0.1 %) of the formula of `orch plan`. Of {checked} offloads
of a rank {agree} agree, by at most
{worst:,} bytes; the others are the [first
surprise](#the-first-offload-of-adams-states-alone-frees-nothing). `device gained` is the gain in
the device's own free memory, which is more: an offload also empties torch's cache.

Two GPUs, linear model of 4 layers of 4096, all states, pinned:

{numbers.table(STAGES)}

Each state alone, and all but the weights, bfloat16:

{numbers.table(STATES)}

## Copied and pinned bytes against the formula

Copied bytes differ from the prediction in {differing} jobs. torch rounds each pinned buffer up to a
power of two, as predicted; the {least} to {most}
bytes beyond are there without any pinned state, too. In a job with `pin_memory: false` and
`non_blocking: true` a part of the states is
pinned nevertheless.

{numbers.table(HOST)}"""


def _surprises(numbers: Numbers) -> str:
    cell, first, predicted, later = numbers.one(
        """SELECT SUBSTR(MIN(j.cell), 4, 6), MAX(CASE WHEN i.is_cold THEN i.freed_bytes END),
        MIN(i.predicted_freed_bytes),
                  MIN(CASE WHEN NOT i.is_cold THEN i.freed_bytes END)
           FROM iteration i JOIN attempt a ON a.attempt_id = i.attempt_id JOIN job j ON j.job_id = a.job_id
           JOIN sweep s ON s.sweep_id = j.sweep_id
           WHERE s.name = 'bytes-2' AND j.zero_stage = 2 AND j.included_state = 'optim_states'"""
    )
    stage = {
        zero: numbers.one(
            f"""SELECT MIN(offload_s_median), MAX(offload_s_median), MAX(copied_bytes) FROM job_summary
                WHERE sweep = 'bytes-2' AND status = 'ok' AND included_state = 'all' AND zero_stage {zero}"""
        )
        for zero in ("= 3", "< 3")
    }
    three, below = stage["= 3"], stage["< 3"]
    (pinning_s,) = numbers.one("SELECT MAX(pinning_s) FROM iteration WHERE NOT is_cold")
    return f"""## Surprises

### The first offload of Adam's states alone frees nothing

ZeRO-2, `include=[optim_states]` (cell `{cell}`): the first offload of the process copies everything and
frees {first:,} of {predicted:,} bytes,
the later ones {later:,}. DeepSpeed's mapping from the 16-bit to the 32-bit parameters still refers to
Adam's first
tensors, and only an offload that includes `hp_params` clears it (`_clear_hp_buffer_references` in its
`runtime/zero/stage_1_and_2.py`). Who sleeps once to make room gets none: include `hp_params`.

```sql
{FIRST_OFFLOAD.strip()}
```

{numbers.table(FIRST_OFFLOAD)}

The report shows it as the flag `bytes differ`:
`orch report bytes-2 --per iteration --metric freed_bytes,bytes_match`.

### ZeRO-1 and 2 take longer to offload the same bytes

All states of this model are {human_bytes(three[2])} a rank at most at either stage. ZeRO-3 offloads them
in {human_seconds(three[0])} to
{human_seconds(three[1])}, ZeRO-1 and 2 in {human_seconds(below[0])} to {human_seconds(below[1])}, with
{pinning_s:g} s of pinning in any iteration but
the first. What it is was not split here: add `instrumented: 2`."""


def _rest(numbers: Numbers) -> str:
    (planted, caught) = numbers.one(
        """SELECT COUNT(*), SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) FROM job_summary
           WHERE sweep = 'known_faults' AND (pin_memory_then IS NOT NULL
                 OR (frozen_fraction > 0 AND included_state = 'lp_params'))"""
    )
    passed, controls = numbers.one(
        """SELECT SUM(CASE WHEN status = 'ok' THEN 1 ELSE 0 END), COUNT(*) FROM job_summary
           WHERE sweep = 'known_faults' AND pin_memory_then IS NULL
                 AND NOT (frozen_fraction > 0 AND included_state = 'lp_params')"""
    )
    (size,) = numbers.one("SELECT MAX(copied_bytes) FROM job_summary WHERE sweep = 'quickstart'")
    return f"""## Planted faults

`sweeps/known_faults.yaml` offloads in ways that DeepSpeed gets wrong. {caught} of {planted} faults were
caught, {passed} of {controls} controls passed.

{numbers.table(FAULTS)}

## Four settings at {human_bytes(size)}

One GPU, `sweeps/quickstart.yaml`, one job a row. The setting hardly matters here: the copies are a small
part of the offload.

{numbers.table(SETTINGS)}

## The raw link

One device at a time, one direction at a time, in a process of its own, before and after `quickstart`.
Pageable copies scatter on an idle
host, which is why `link drifted` allows them 30 % and pinned ones 10 %.

{numbers.table(LINK)}"""


def main() -> int:
    """0 if the page is up to date or was written, else 1."""
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
