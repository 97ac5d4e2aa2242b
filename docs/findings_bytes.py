"""Sections of docs/findings.md about bytes, faults and the published case."""

from __future__ import annotations

from findings_data import QUERIES, Data, Row, query_line, seconds, size, table
from findings_times import LEAST_COPY, not_yet

PUBLISHED: tuple[Row, ...] = (
    {"pin_memory": 0, "non_blocking": 0, "offload_s": 9.50, "reload_s": 3.28},
    {"pin_memory": 0, "non_blocking": 1, "offload_s": 6.69, "reload_s": 2.39},
    {"pin_memory": 1, "non_blocking": 0, "offload_s": 6.67, "reload_s": 2.40},
    {"pin_memory": 1, "non_blocking": 1, "offload_s": 6.35, "reload_s": 2.43},
)
"""Of the pull request that brought ``offload_states`` into DeepSpeed: four A100, hidden_dim 32768,
nlayers 4."""
README_S = (5.64, 2.41)
"""Offload and reload of the example's README, pinned and non-blocking, the same size."""
README_BYTES = (18_198_419_456, 17_763_840)
"""Allocated before and after the offload, same place."""
STALE = "states_changed"


def formula(data: Data) -> str:
    """Freed, copied and pinned bytes against the formula."""
    title = "Bytes against the formula"
    agreement = data.rows("agreement", lambda row: row["offloads"] > 0)
    if not agreement:
        return not_yet(title, "an offload on a GPU (`sweeps/bytes.yaml`)")
    told = [
        f"Of {row['offloads']:,} offloads of a rank in {row['database']} {row['agree']:,} agree, by at most"
        f" {row['largest_difference'] or 0:,} bytes."
        for row in agreement
    ]
    parts = [
        f"""## {title}

`freed` is what torch's allocator gave up on the rank that gave up least, the median over warm iterations;
`agrees` means that *every* iteration of every rank lay within max(1 MiB, 0.1 %) of the formula of `orch
plan`.
{" ".join(told)} `device gained` is the gain in the device's own free memory, which is more: an offload also
empties torch's cache.

{query_line("agreement")}"""
    ]
    if differing := data.rows("differing"):
        parts.append(f"Those that disagree:\n\n{table(differing)}\n\n{query_line('differing')}")
    for heading, query in (
        ("ZeRO stages and precisions, linear model of 4 layers of 4096, all states, pinned:", "stages"),
        ("Each state alone, and all but the weights, bfloat16:", "states"),
        ("Transformers, parameter groups, frozen layers, and DeepSpeed's settings:", "others"),
    ):
        rows = data.rows(query)
        if rows:
            parts.append(f"{heading}\n\n{table(rows)}\n\n{query_line(query)}")
        else:
            parts.append(f"{heading} *not measured yet (`sweeps/bytes.yaml`).*")
    return "\n\n".join([*parts, *_host(data)])


def _host(data: Data) -> list[str]:
    rows = data.rows("host")
    if not rows:
        return ["### Copied and pinned bytes\n\n*Not measured yet: pinned bytes of a job on a GPU.*"]
    told = " ".join(
        f"In {row['database']} copied bytes differ from the prediction in {row['copied_differ']} of"
        f" {row['jobs']} jobs; pinned bytes are {row['least_pinned_more']:,}"
        f" to {row['most_pinned_more']:,} more."
        for row in data.rows("host_agreement", lambda row: row["jobs"] > 0)
    )
    return [
        f"""### Copied and pinned bytes

{told} torch rounds each pinned buffer up to a power of two, as predicted; a few bytes beyond are there
without any
pinned state, too.

{table(rows)}

{query_line("host", "host_agreement")}"""
    ]


def surprises(data: Data) -> str:
    """What surprises a user."""
    told = (_first_offload(data), _stage_times(data), _small_offload(data), _unasked_pinning(data))
    parts = [part for part in told if part]
    if not parts:
        return not_yet("Surprises", "`sweeps/bytes.yaml` with two ranks, `sweeps/findings.yaml`")
    return "\n\n".join(["## Surprises", *parts])


def _first_offload(data: Data) -> str:
    rows = data.rows("first_offload")
    first = [row for row in rows if row["iteration"] == 0]
    later = [row for row in rows if row["iteration"] > 0]
    if not first or not later:
        return ""
    shown = (QUERIES / "first_offload.sql").read_text(encoding="utf-8").partition("*/")[2]
    return f"""### The first offload of Adam's states alone frees nothing

ZeRO-2, `include=[optim_states]` (cell `{rows[0]["cell"]}`): the first offload of the process copies
everything and
frees {max(row["freed"] for row in first):,} of {first[0]["predicted"]:,} bytes, the later ones
{min(row["freed"] for row in later):,}. DeepSpeed's mapping from the 16-bit to the 32-bit parameters still
refers to
Adam's first tensors, and only an offload that includes `hp_params` clears it
(`_clear_hp_buffer_references` in its
`runtime/zero/stage_1_and_2.py`). Who sleeps once to make room gets none: include `hp_params`.

```sql
{shown.strip()}
```

{table(rows, leave=("cell",))}

The report shows it as the flag `bytes differ`:
`orch report bytes-2 --per iteration --metric freed_bytes,bytes_match`."""


def _stage_times(data: Data) -> str:
    rows = data.rows("zero_times")
    three = next((row for row in rows if row["ZeRO"] == 3), None)
    below = [row for row in rows if row["ZeRO"] < 3 and three is not None and row["GPUs"] == three["GPUs"]]
    if three is None or not below or min(row["least_s"] for row in below) <= three["most_s"]:
        return ""
    [warm, *_] = [row for row in data.rows("warm_pinning") if row["database"] == three["database"]]
    # The collections are counted in DeepSpeed's source, release 0.19.8.
    what = """DeepSpeed collects garbage three times there, in `_clear_hp_buffer_references`, in
`_clear_lp_params_references` and at the end of `offload_states` (`runtime/zero/stage_1_and_2.py`), and once
under ZeRO-3."""
    alone = [row for row in data.rows("states") if row["ZeRO"] < 3 and row["offloaded"] == "optim_states"]
    if alone:
        what += f" Adam's states alone, which need the last one only, take {seconds(alone[0]['offload_s'])}."
    split = [row for row in data.rows("split") if row["ZeRO"] < 3 and row["gc_s"] is not None]
    if split:
        row = max(split, key=lambda one: one["copied"])
        what += (
            f" Split at {size(row['copied'])} under ZeRO-{row['ZeRO']}: {seconds(row['offload_s'])} in all,"
            f" of them {seconds(row['gc_s'])} collecting, {seconds(row['copy_s'] or 0)} copying,"
            f" {seconds(row['alloc_s'] or 0)} allocating."
        )
    return f"""### ZeRO-1 and 2 collect garbage three times an offload

All states of this model are {size(max(row["most_copied"] for row in [three, *below]))} a rank at most at
either
stage. ZeRO-3 offloads them in {seconds(three["least_s"])} to {seconds(three["most_s"])}, ZeRO-1 and 2 in
{seconds(min(row["least_s"] for row in below))} to {seconds(max(row["most_s"] for row in below))}, with
{warm["most_s"] or 0:.3g} s of pinning at most in any iteration but the first. {what}

{query_line("zero_times", "warm_pinning")}"""


def _unasked_pinning(data: Data) -> str:
    rows = data.rows("unasked_pinning", lambda row: row["copied"] >= LEAST_COPY)
    pairs = [row for row in rows if row["blocking_offload_s"] is not None]
    if not pairs:
        return ""
    most = max(pairs, key=lambda row: row["copied"])
    return f"""### `non_blocking` without `pin_memory` pins all the same

torch gives `Tensor.to("cpu", non_blocking=True)` pinned memory, and DeepSpeed moves the master and model
weights with it, under ZeRO-1 and 2 Adam's moments, too. Of {size(most["copied"])} copied at ZeRO
{most["ZeRO"]} {size(most["pinned"])} of host memory are pinned then, each buffer rounded up to a power of
two; the offload takes {seconds(most["non_blocking_offload_s"])} instead of
{seconds(most["blocking_offload_s"])}, the reload {seconds(most["after_non_blocking_reload_s"])} instead of
{seconds(most["after_blocking_reload_s"])}. Whoever turns pinning off to spare host memory has to leave
`non_blocking` off as well.

{table(rows)}

{query_line("unasked_pinning")}"""


def _small_offload(data: Data) -> str:
    pairs = data.rows("collection", lambda row: row["copied"] >= 100_000_000)
    if not pairs or max(row["difference_share"] for row in pairs) < 0.3:
        return ""
    row = max(pairs, key=lambda one: one["difference_share"])
    return f"""### A small model's offload is mostly Python's garbage collector

At {size(row["copied"])} it is {row["difference_share"]:.0%} of the time: {seconds(row["usual_s"])} with a
usual
heap, {seconds(row["frozen_s"])} with a frozen one. A program that sleeps often should call
`gc.collect(); gc.freeze()` once when it is set up."""


def faults(data: Data) -> str:
    """The planted faults."""
    rows = data.rows("faults")
    if not rows:
        return not_yet("Planted faults", "`sweeps/known_faults.yaml` on a GPU")
    planted = [row for row in rows if _is_planted(row)]
    controls = [row for row in rows if not _is_planted(row)]
    return f"""## Planted faults

`sweeps/known_faults.yaml` offloads in ways that DeepSpeed gets wrong.
{sum(row["status"] == "failed" for row in planted)} of {len(planted)} faults were caught,
{sum(row["status"] == "ok" for row in controls)} of {len(controls)} controls passed.

{table(rows)}

{query_line("faults")}

{_stranger(data)}"""


def _stranger(data: Data) -> str:
    rows = data.rows("stranger", lambda row: row["jobs"] > 0)
    if not rows:
        return "*Not measured yet: jobs beside a stranger on the device (`python -m benchmarks.stranger`).*"
    told = "; ".join(f"{row['noticed']} of {row['jobs']} ({row['note'] or 'no note'})" for row in rows)
    return f"""Jobs beside a process that is not theirs on the device (`python -m benchmarks.stranger`) which
were marked as overlapped: {told}.

{query_line("stranger")}"""


def _is_planted(row: Row) -> bool:
    frozen = bool(row["frozen_fraction"]) and row["offloaded"] == "lp_params"
    return row["pin_memory_then"] is not None or frozen


def published(data: Data) -> str:
    """The example's published case on four GPUs."""
    title = "The example's published case: four GPUs, 32768 × 4"
    rows = data.rows("published")
    if not rows:
        return not_yet(title, "`sweeps/deepspeed_example.yaml` as it is, on a host with four GPUs")
    beside = [
        {
            "pin_memory": theirs["pin_memory"], "non_blocking": theirs["non_blocking"], "trials":
row["trials"],
            "published_offload_s": theirs["offload_s"], "here_offload_s": row["offload_s"],
            "published_reload_s": theirs["reload_s"], "here_reload_s": row["reload_s"], "database":
row["database"],
        }
        for theirs in PUBLISHED
        for row in rows
        if (bool(row["pin_memory"]), bool(row["non_blocking"]))
        == (bool(theirs["pin_memory"]), bool(theirs["non_blocking"]))
    ]  # fmt: skip
    tables = "\n\n".join(
        data.report(file, name, "--layout", "example")
        for file, name in dict.fromkeys((row["database"], row["sweep"]) for row in rows)
    )
    freed = [(row["freed"], row["freed_most"]) for row in rows]
    pinned = [row for row in rows if row["pin_memory"]]
    speeds = ("pin_memory", "non_blocking", "offload_gbps_a_gpu", "offload_gbps_in_sum", "reload_gbps_a_gpu",
              "reload_gbps_in_sum", "offload_link_share", "reload_link_share", "database")  # fmt: skip
    pins = (
        f"Pinned host memory: {min(row['pinned'] for row in pinned):,} to"
        f" {max(row['pinned'] for row in pinned):,} bytes a rank,"
        f" predicted {pinned[0]['pinned_predicted']:,}."
        if pinned else ""
    )  # fmt: skip
    return f"""## {title}

The README of the example gives {README_S[0]} / {README_S[1]} s for pinned, non-blocking; the pull request
that added
the API has all four settings, on four A100:

{table(beside)}

The trials:

{tables}

Freed: {min(low for low, _ in freed):,} to {max(high for _, high in freed):,} bytes a rank, predicted
{rows[0]["predicted"]:,}; published {README_BYTES[0] - README_BYTES[1]:,} ({README_BYTES[0]:,} before,
{README_BYTES[1]:,} after). {pins}

GB/s of a GPU and of all four together; the link as four GPUs at once had it is in
[the raw link](#the-raw-link):

{table([{name: row[name] for name in speeds} for row in rows])}

{query_line("published")}"""


def scaling(data: Data) -> str:
    """The same bytes a rank on more ranks."""
    title = "More ranks at a fixed size a rank"
    rows = data.rows("scaling")
    if not rows:
        return not_yet(title, "`sweeps/scaling.yaml` on a host with two GPUs or more")
    most = max(row["GPUs"] for row in rows)
    missing = [str(count) for count in (1, 2, 4) if count not in {row["GPUs"] for row in rows}]
    absent = f" Not measured yet: {' and '.join(missing)} ranks." if missing else ""
    told = " ".join(
        f"{'Pinned' if row['pin_memory'] else 'Pageable'} on {row['GPUs']} GPUs: an offload takes"
        f" {row['offload_times']:.2f} times as long as on one, {row['offload_gbps_in_sum']:.1f} GB/s in sum."
        for row in rows if row["GPUs"] == most and most > 1
    )  # fmt: skip
    return f"""## {title}

One layer of 32768 a rank. {told}{absent}

{table(rows, leave=("environment_id",))}

{query_line("scaling")}"""


def drift(data: Data) -> str:
    """Drift and leaks over many cycles."""
    rows = data.rows("drift")
    if not rows:
        return not_yet("Drift and leaks over many cycles", "a job of 50 warm iterations or more")
    return f"## Drift and leaks over many cycles\n\n{table(rows)}\n\n{query_line('drift')}"
