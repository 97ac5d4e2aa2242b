"""Sections of docs/findings.md about seconds."""

from __future__ import annotations

from statistics import median

from findings_data import Data, Row, query_line, seconds, size, table

SETTING = ("pin_memory", "non_blocking", "reload_non_blocking", "gc_freeze", "pin_backend")
LEAST_COPY = 100_000_000
"""Below this many bytes no copy is to be seen beside the rest of an offload."""


def not_yet(title: str, what: str) -> str:
    """The one line of a section whose data is not there."""
    return f"## {title}\n\n*Not measured yet: {what}.*"


def named(row: Row) -> str:
    """A setting in words."""
    by = "" if row["pin_backend"] in (None, "default") else f" by {row['pin_backend']}"
    words = [f"pinned{by}" if row["pin_memory"] else "pageable"]
    words.append("non-blocking" if row["non_blocking"] else "blocking")
    if row["gc_freeze"]:
        words.append("heap frozen")
    return ", ".join(words)


def best(data: Data) -> str:
    """Which setting is best, by size."""
    title = "Which setting is best"
    rows = data.rows("settings", lambda row: row["settings"] > 1)
    large = [row for row in rows if row["copied"] >= LEAST_COPY]
    if not large:
        return not_yet(title, "several settings at one size of 100 MB or more (`sweeps/findings.yaml`)")
    told = []
    for row in large:
        if row["times_best"] > 1:
            continue
        others = [
            other for other in large
            if all(other[n] == row[n] for n in ("database", "environment_id", "GPUs", "copied", "ds"))
        ]  # fmt: skip
        worst = max(others, key=lambda other: other["times_best"])
        told.append(
            f"{size(row['copied'])} on {row['GPUs']} GPU{'s' if row['GPUs'] > 1 else ''}: {named(row)},"
            f" {seconds(row['both_s'])} for both; the worst of {row['settings']} ({named(worst)})"
            f" takes {worst['times_best']:.1f} times as long."
        )
    lines = "\n\n".join(f"- {line}" for line in told)
    return f"""## {title}

Seconds of `offload_states()` and `reload_states()`, all states of the linear model, bfloat16, ZeRO-3. The
best
of each size, by offload and reload together:

{lines}

{table(large, leave=("environment_id", "settings", "ds"))}

{query_line("settings")}"""


def trials(data: Data) -> str:
    """The example's benchmark at 4096 × 8."""
    title = "DeepSpeed's example at 4096 × 8: trials of its four settings"
    rows = data.rows("example")
    if not rows:
        return not_yet(
            title, "`sweeps/deepspeed_example.yaml` with hidden_dim 4096, nlayers 8, one GPU, ten trials"
        )
    tables = "\n\n".join(
        f"{data.report(file, name, '--layout', 'example')}\n\n"
        f"{table([row for row in rows if (row['database'], row['sweep']) == (file, name)], leave=('sweep',))}"
        for file, name in dict.fromkeys((row["database"], row["sweep"]) for row in rows)
    )
    return f"""## {title}

The example's own table (`orch report --layout example`), then mean, least and greatest of the trials.

{tables}

{query_line("example")}"""


def link(data: Data) -> str:
    """How far copies are from the raw link."""
    title = "How far from the link"
    raw, rows = data.rows("link"), data.rows("link_share", lambda row: row["copied"] >= LEAST_COPY)
    if not raw:
        return not_yet(title, "a probe of the link (any sweep on a GPU without `--no-probe`)")
    if rows:
        top = max(rows, key=lambda row: row["offload_link_share"])
        told = f"""The nearest is {size(top["copied"])} a rank: offload {top["offload_gbps"]:.1f} GB/s,
that is
{top["offload_link_share"]:.0%} of the link, reload {top["reload_gbps"]:.1f} GB/s,
{top["reload_link_share"]:.0%}.
Pinned, non-blocking, all states, bfloat16, ZeRO-3:

{table(rows)}

{query_line("link_share")}"""
    else:
        told = (
            f"*Not measured yet: pinned, non-blocking copies of {size(LEAST_COPY)} or more beside a probe.*"
        )
    return f"""## {title}

{told}

### The raw link

In a process of its own, one direction at a time, before and after a sweep. `devices at once` copied together;
`sum` is theirs together. Pageable copies scatter on an idle host, which is why `link drifted` allows them
30 % and pinned ones 10 %.

{table(raw)}

{query_line("link")}{_sizes_of_copies(data)}"""


def _sizes_of_copies(data: Data) -> str:
    saved = data.saved("link_sizes.json")
    if saved is None:
        return ""
    return f"""

Raw copies of other sizes, `up, fresh` into device memory allocated just before, as a wake-up copies (`python
-m benchmarks.link_sizes`; the probe of a sweep copies 1 GiB):

{table(saved["rows"])}"""


def collection(data: Data) -> str:
    """What Python's garbage collector costs, and where the rest of the time goes."""
    title = "What garbage collection costs"
    pairs = data.rows("collection", lambda row: row["copied"] >= LEAST_COPY)
    split = data.rows("split")
    if not pairs and not split:
        return not_yet(title, "cells with `gc_freeze` beside the same without, or `instrumented` iterations")
    parts = [f"## {title}"]
    if pairs:
        least, most = min(pairs, key=_copied), max(pairs, key=_copied)
        parts.append(
            f"""`offload_states()` ends with a collection. The same cell with the heap frozen beforehand
(`gc_freeze`) shows what it adds: {seconds(least["difference_s"])} of {seconds(least["usual_s"])} at
{size(least["copied"])}, {seconds(most["difference_s"])} of {seconds(most["usual_s"])} at
{size(most["copied"])}."""
        )
        parts += [table(pairs), query_line("collection")]
    if split:
        parts.append(
            """Instrumented iterations wait for the device behind each part of a call, so that the parts are
exclusive; what is left of the total is DeepSpeed's own Python:"""
        )
        parts += [table(split), query_line("split")]
    return "\n\n".join(parts)


def _copied(row: Row) -> float:
    return float(row["copied"])


def pinning(data: Data) -> str:
    """What pinning costs, and after how many cycles it has paid."""
    title = "What pinning costs"
    rows = data.rows("pinning", lambda row: row["copied"] >= LEAST_COPY)
    if not rows:
        return not_yet(title, "pinned copies of 100 MB or more with the first offload of their process")
    largest = [row for row in rows if row["copied"] == max(other["copied"] for other in rows)]
    told = [
        f"{size(row['pinned'])} by {row['pin_backend']} takes {seconds(row['first_pinning_s'])}"
        f" ({row['pinning_gbps']:.1f} GB/s)"
        for row in largest
    ]
    rest = " and ".join(f"{seconds(row['rest_s'])} of {seconds(row['first_offload_s'])}" for row in largest)
    return f"""## {title}

Once in a process under ZeRO-3, all of it in the first offload: {"; ".join(told)}. `cycles to pay`:
after so many cycles, the first one counted, it is ahead of pageable memory, blocking.

A first offload is longer than pinning and a warm offload together; at {size(largest[0]["copied"])} the
rest is {rest}. DeepSpeed makes each pinned buffer as a copy of an empty pageable one
(`pin_memory(torch.empty_like(...))` in its `runtime/zero/stage3.py` and `offload_states.py`), so as much
memory again is allocated, read once and given back. {_ways_to_pin(data)}

{table(rows)}

{query_line("pinning")}"""


def _ways_to_pin(data: Data) -> str:
    saved = data.saved("pinning_ways.json")
    if saved is None:
        return "How much of the rest that is was not measured apart."
    return f"""Raw buffers made pinned that way
(`copied`) and as torch can make them (`direct`), each in a process of its own (`python -m
benchmarks.pinning_ways`):

{table(saved["rows"])}"""


def sleep(data: Data) -> str:
    """A 7B-class model on two GPUs."""
    title = "A sleep and a wake-up of a 7B-class model on two GPUs"
    rows = data.rows("sleep")
    if not rows:
        return not_yet(title, "`sweeps/rlhf_sleep.yaml` with model=qwen2.5-7b, num_gpus=2")
    row = max(rows, key=lambda one: (one["copied"], one["pin_backend"] != "default"))
    return f"""## {title}

{row["model"]}, {size(row["copied"])} copied by each rank: to sleep {seconds(row["sleep_s"])}, awake again
{seconds(row["wake_s"])}; the first sleep of the process {seconds(row["first_sleep_s"])}. Each GPU gains
{size(row["device_gained"])} for whoever runs meanwhile; {size(row["pinned_on_host"])} of host memory stay
pinned.

{table(rows)}

{query_line("sleep")}"""


def predicted(data: Data) -> str:
    """How well the largest size is foretold from the smaller ones."""
    title = "How well `orch predict` foretells"
    found = data.left_out()
    if not found:
        return not_yet(title, "a setting at four sizes or more (`sweeps/findings.yaml`)")
    rows: list[Row] = [
        {
            "database": file, "setting": one.setting, "metric": one.metric, "left_out": int(one.copied_bytes),
            "times_the_next": one.stretch, "predicted_s": one.predicted_s, "measured_s": one.measured_s,
            "error_share": one.error_share,
        }
        for file, one in found
    ]  # fmt: skip
    error = median(one.error_share for _, one in found)
    return f"""## {title}

The largest measured size of each setting, left out and foretold from the smaller ones: the median error is
{error:.1%} over {len(found)} curves (`python -m benchmarks.predict_error docs/data/*.db`).

{table(rows)}"""
