"""Writes one job's story: what it is, how it went, what it gave, where its files lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO

from orchestrator.analysis.jobs import Value, axis_text
from orchestrator.analysis.story import Story
from orchestrator.render.formats import render_rows
from orchestrator.render.sentences import environment_text
from orchestrator.render.values import human, json_value, plain, visible


def write_story(story: Story, out: IO[str], *, as_json: bool) -> None:
    """Sections for a person, or one JSON object."""
    if as_json:
        out.write(json.dumps(_as_object(story), ensure_ascii=False, allow_nan=False, indent=1) + "\n")
        return
    for lines in (_what(story), _axes(story), _figures(story), _split(story)):
        _section(lines, out)
    if len(story.ranks) > 1:
        _table("ranks of the last attempt, all iterations", story.ranks, out)
    for attempt in story.attempts:
        _section(_attempt(attempt), out)
    _section(_where(story), out)
    names = ("at", "kind", "from_status", "to_status", "message")
    shown = [{name: event[name] for name in names} for event in story.events]
    if shown:
        _table("events", shown, out)
    if story.traceback:
        out.write("what the rank reported\n")
        out.write("".join(f" │ {visible(line)}\n" for line in story.traceback.splitlines()[-40:]) + "\n")
    if story.log_tail:
        out.write("the end of the log\n")
        out.write("".join(f" │ {visible(line)}\n" for line in story.log_tail.splitlines()) + "\n")
    if commands := _next(story):
        out.write(f"next: {' · '.join(commands)}\n")


def _next(story: Story) -> list[str]:
    """The commands that have something to say of this job."""
    if story.is_imported:
        return []
    return [f"orch {verb} {story.address}" for verb in (["logs"] if story.attempts else []) + ["repro"]]


def _section(lines: Sequence[str], out: IO[str]) -> None:
    if lines:
        out.write("".join(f"{visible(line)}\n" for line in lines) + "\n")


def _table(title: str, rows: Sequence[Mapping[str, Value]], out: IO[str]) -> None:
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    render_rows(
        columns, [[row[name] for name in columns] for row in rows], format="table", out=out, title=title
    )
    out.write("\n")


def _what(story: Story) -> list[str]:
    values = story.job.values
    lines = [
        f"job {values['job_id']} · {story.job.name} · sweep {values['sweep']} · {story.job.status}",
        f" uid {values['uid']} · cell {values['cell']}",
    ]
    reason = values.get("message") or values.get("reason")
    if reason and story.job.status != "ok":
        kind = f" ({values['failure_kind']})" if values.get("failure_kind") else ""
        lines.append(f" why{kind}: {reason}")
    if story.job.flags():
        lines.append(f" flags: {', '.join(story.job.flags())}")
    return lines


def _axes(story: Story) -> list[str]:
    texts = [axis_text(name, value) for name, value in story.axes.items()]
    return ["parameters", *(f" {', '.join(texts[start : start + 4])}" for start in range(0, len(texts), 4))]


def _figures(story: Story) -> list[str]:
    if not story.figures:
        return ["no figures"]
    lines = ["figures (slowest rank, warm iterations)"]
    lines += [
        f" {name.ljust(22)} {human(_unit_of(name), plain(value))}" for name, value in story.figures.items()
    ]
    return lines


def _split(story: Story) -> list[str]:
    """A line a call: its parts in the instrumented iterations, which are in no median."""
    lines = []
    for way in ("offload", "reload"):
        parts = [
            f"{name.removeprefix(way + '_').removesuffix('_s').replace('_', ' ')} {human(name, plain(value))}"
            for name, value in story.split.items()
            if name.startswith(way)
        ]
        if parts:
            lines.append(f" {way}: {' · '.join(parts)}")
    count = story.split.get("iterations")
    return (
        [f"where the time goes (means of {count} instrumented iterations of a rank)", *lines] if lines else []
    )


def _unit_of(name: str) -> str:
    for end in ("_median", "_p95", "_min", "_max"):
        name = name.removesuffix(end)
    return name


def _attempt(attempt: Mapping[str, Value]) -> list[str]:
    head = f"attempt {attempt['number']}: {attempt['status']}"
    if attempt.get("failure_kind"):
        head += f" ({attempt['failure_kind']})"
    lines = [f"{head} · {attempt['engine']} · {attempt.get('launch_mode') or attempt['launcher']}"]
    if attempt.get("message"):
        lines.append(f" {attempt['message']}")
    if attempt.get("launch_note"):
        lines.append(f" {attempt['launch_note']}")
    for names in (
        ("host", "device_uuids", "port", "engine_job"),
        ("started_at", "ended_at", "wall_s", "loop_s", "wait_s"),
        ("exit_status", "signal", "overlap_note", "alloc_conf", "numa_bound", "tracked_objects"),
    ):
        texts = [
            f"{name} {human(name, plain(attempt[name]))}" for name in names if attempt.get(name) is not None
        ]
        if texts:
            lines.append(f" {' · '.join(texts)}")
    lines.append(f" files: {attempt['run_dir']}")
    return lines


def _where(story: Story) -> list[str]:
    return ["ran on", f" {environment_text(story.environment)}"] if story.environment else []


def _as_object(story: Story) -> dict[str, object]:
    def safe(row: Mapping[str, Value]) -> dict[str, Value]:
        return {name: json_value(plain(value)) for name, value in row.items()}

    values = story.job.values
    identity = ("job_id", "uid", "sweep", "cell", "repeat", "status", "failure_kind", "message", "reason")
    return {
        **{name: json_value(values.get(name)) for name in identity},
        "parameters": safe(story.axes),
        "results": safe(story.figures),
        "time_split": safe(story.split),
        "flags": list(story.job.flags()),
        "attempts": [safe(attempt) for attempt in story.attempts],
        "ranks": [safe(rank) for rank in story.ranks],
        "events": [safe(event) for event in story.events],
        "environment": safe(story.environment) if story.environment else None,
        "files": list(story.files),
        "traceback": story.traceback,
        "log_tail": story.log_tail,
    }
