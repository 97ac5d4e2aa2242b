"""Sections of docs/findings.md about orch itself: what its instrument costs, and what its start costs."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, median

from findings_data import Data, Row, query_line, table
from findings_times import not_yet


def instrument(data: Data) -> str:
    """What recorder, checksums and the sampler do to the figures beside them."""
    parts = ["## What the instrument costs", _within_a_process(data.saved("instrument_cost.json"))]
    return "\n\n".join([*parts, *_between_jobs(data)])


def _within_a_process(found: Row | None) -> str:
    command = "`python -m benchmarks.instrument_cost`"
    if found is None or not found["costs"]:
        return f"*Not measured yet: the same process with and without each part ({command}).*"
    worst = max(found["costs"], key=lambda cost: abs(cost["difference_share"]))
    rows = [
        {
            "hidden_dim": cost["hidden_dim"], "with": cost["turn"], "call": cost["call"].removesuffix("_s"),
            "iterations": cost["iterations"], "bare_s": cost["bare_s"], "difference_s": cost["difference_s"],
            "share": f"{cost['difference_share']:+.2%}",
            "90 %": f"{cost['low_share']:+.2%} to {cost['high_share']:+.2%}",
            "within 1 %": "yes" if abs(cost["difference_share"]) <= found["limit_share"] else "no",
        }
        for cost in found["costs"]
    ]  # fmt: skip
    return f"""One process, whose iterations take turns: bare, with the recorder (memory, places of the
states, strangers, the record on disk), with checksums, with the sampler at 50 Hz, with all of it
({command}).
The heap is frozen, since Python's collector scatters more than any of this costs. The median of the
differences within a block of turns, and its 90 % interval: the largest is
{worst["difference_share"]:+.2%} ({worst["turn"]}, {worst["call"].removesuffix("_s")}, hidden_dim
{worst["hidden_dim"]}).

{table(rows)}"""


def _between_jobs(data: Data) -> list[str]:
    """Jobs with and without, and by how much jobs of one and the same cell differ."""
    rows = data.rows("instrument")
    kinds: dict[str, Callable[[Row], bool]] = {
        "checksums": lambda row: bool(row["checksums"]) and not row["sampler_hz"],
        "sampler at 50 Hz": lambda row: bool(row["sampler_hz"]),
    }
    found: list[Row] = []
    for file, hidden in dict.fromkeys((row["database"], row["hidden_dim"]) for row in rows):
        mine = [row for row in rows if (row["database"], row["hidden_dim"]) == (file, hidden)]
        bare = {row["repeat"]: row for row in mine if not row["checksums"] and not row["sampler_hz"]}
        for kind, wanted in kinds.items():
            for call in ("offload_s", "reload_s"):
                ratios = [
                    row[call] / bare[row["repeat"]][call] - 1
                    for row in mine if wanted(row) and row["repeat"] in bare
                ]  # fmt: skip
                if ratios:
                    usual = [row[call] for row in bare.values()]
                    found.append(
                        {
                            "database": file, "hidden_dim": hidden, "with": kind, "metric": call,
                            "repeats": len(ratios), "median_share": median(ratios),
                            "least_share": min(ratios), "most_share": max(ratios),
                            "bare_jobs_span_share": max(usual) / min(usual) - 1,
                        }
                    )  # fmt: skip
    if not found:
        return []
    widest = max(found, key=lambda row: float(row["bare_jobs_span_share"]))
    return [
        f"""Jobs with a part against jobs with neither (`sweeps/instrument.yaml`), repeat by repeat, do not
tell:
jobs of one and the same cell, without any of it, differ among themselves by up to
{widest["bare_jobs_span_share"]:.1%} ({widest["metric"].removesuffix("_s")}, {widest["repeats"]} jobs,
hidden_dim {widest["hidden_dim"]}), so a difference of that size says nothing of the instrument:""",
        table(found),
        query_line("instrument"),
    ]


def starting(data: Data) -> str:
    """What a job costs beyond its loop, and the launchers compared."""
    rows, loop, parity = data.rows("starting"), data.saved("example_loop.json"), data.saved("parity.json")
    with Data(data.folder / "parity") as launchers:
        rows += launchers.rows("starting")
    if not rows:
        return not_yet("What starting a job costs", "a job")
    parts = [
        f"""## What starting a job costs

Wall clock of a job beyond its loop, by how its ranks were started; the first job of each fork
server, which it learns from, is among them:

{table(rows)}

{query_line("starting")}"""
    ]
    if loop is not None and loop["times_faster"] is not None:
        parts.append(
            f"""Against the loop of DeepSpeed's example at the same sizes (`python -m
benchmarks.example_loop`):
{loop["example_s_per_job"]:.1f} s a job there, {loop["orch_s_per_job"]:.1f} s here,
{loop["times_faster"]:.1f} times
faster as a whole. {loop["orch_loop_s_per_job"]:.1f} s of it are the loop itself, which no launcher can
save: it
bounds the ratio at {loop["times_faster_at_most"]:.1f}. Outside the loops orch spends
{loop["orch_overhead_s_per_job"]:.2f} s a job over {loop["orch_jobs"]} jobs, its start included
({loop["orch_before_first_loop_s"]:.0f} s until the first loop), {loop["times_less_overhead"]:.0f} times
less than
the example.{_cut_short(loop)}"""
        )
    else:
        parts.append(
            "*Not measured yet: the example's own loop beside orch (`python -m benchmarks.example_loop`).*"
        )
    parts.append(_parity(parity))
    return "\n\n".join(parts)


def _parity(parity: Row | None) -> str:
    command = "`python -m benchmarks.parity`"
    if parity is None:
        return f"*Not measured yet: the launchers against each other ({command}).*"
    if not parity["ratios"]:
        return (
            f"*Not measured yet: the launchers against each other; {parity['missing_rounds']} rounds of"
            f" {command} are missing.*"
        )
    ratios = [dict(row) for row in [*parity["ratios"], *parity["cells"]]]
    for row in ratios:
        row["inside ±3%"] = "yes" if row.pop("inside") else "no"
    mean = fmean(row["ratio"] for row in parity["ratios"])
    return f"""The same cells through each launcher in {parity["rounds"]} rounds, against `deepspeed`
({command}): ratios of
median times with 90 % intervals, {mean:.3f} on average over all cells; {_problems(parity["problems"])}.

{table(ratios)}"""


def _cut_short(loop: Row) -> str:
    if not loop.get("cut_short"):
        return ""
    return (
        f" The run was cut short: {loop['example_jobs']} of {loop['example_jobs_asked']} commands of the"
        f" example and {loop['orch_jobs']} of {loop['orch_jobs_asked']} jobs of orch; each setting has the"
        " same weight."
    )


def _problems(found: list[str]) -> str:
    return f"{len(found)} differences: {'; '.join(found)}" if found else "losses, bytes and objects agree"
