"""Writes where a sweep stands."""

from __future__ import annotations

import json
from typing import IO

from orchestrator.analysis.standing import Running, Standing
from orchestrator.render.terminal import wants_color
from orchestrator.render.values import counted, human_seconds, visible

_ORDER = (
    "ok",
    "running",
    "pending",
    "failed",
    "timeout",
    "oom_gpu",
    "oom_host",
    "lost",
    "cancelled",
    "skipped",
)
_COLORS = {"ok": "green", "running": "cyan", "pending": None, "skipped": "yellow", "cancelled": "yellow"}
_STALE_S = 60.0


def write_standing(standing: Standing, out: IO[str], *, as_json: bool) -> None:
    """A few lines for a person, or ``{"sweep": name, "counts": {status: n}}``."""
    if as_json:
        out.write(json.dumps({"sweep": standing.sweep.name, "counts": dict(standing.counts)}) + "\n")
        return
    from click import echo

    for line in _lines(standing):
        echo(line, file=out, color=wants_color(out, None))


def _lines(standing: Standing) -> list[str]:
    from click import style

    counts = standing.counts
    parts = [
        style(f"{counts[name]} {name}", fg=_COLORS.get(name, "red")) for name in _ORDER if counts.get(name)
    ]
    if standing.gone:
        parts.append(f"{standing.gone} no longer in the sweep file")
    lines = [f"{visible(standing.sweep.name)}: {counted(standing.jobs, 'job')} · {' · '.join(parts)}"]
    if standing.runner:
        lines.append(f"run by {standing.runner}")
    elif standing.sweep.owner and standing.is_unfinished:
        lines.append(f"nobody runs it now: {standing.sweep.owner} is gone; orch sweep continues it")
    if standing.is_stopping:
        lines.append("it is being stopped: orch cancel was called")
    lines += [f" {style('▶', fg='cyan')} {_running_text(one)}" for one in standing.running]
    for trouble in standing.troubles:
        kind = f" ({trouble.failure_kind})" if trouble.failure_kind else ""
        mark = style("–", fg="yellow") if trouble.status == "skipped" else style("✗", fg="red")
        lines.append(f" {mark} {trouble.name} {trouble.status}{kind}: {visible(trouble.reason)}")
    hidden = _gave_nothing(standing) - len(standing.troubles)
    if hidden > 0:
        lines.append(f"   and {hidden} more: orch report {standing.sweep.name}")
    lines.append(_next(standing))
    if standing.other_sweeps:
        lines.append(f"other sweeps: {', '.join(visible(name) for name in standing.other_sweeps[:10])}")
    return lines


def _gave_nothing(standing: Standing) -> int:
    quiet = ("ok", "running", "pending", "cancelled")
    return sum(count for status, count in standing.counts.items() if status not in quiet)


def _running_text(one: Running) -> str:
    parts = [f"{one.name} attempt {one.attempt}", f"on {one.host}" if one.host else one.engine]
    if one.age_s is not None:
        parts.append(f"for {human_seconds(max(one.age_s, 0.0))}")
    if one.is_timed:
        parts.append("timed section")
    if one.heartbeat_age_s is not None and one.heartbeat_age_s > _STALE_S:
        parts.append(f"no sign of life for {human_seconds(one.heartbeat_age_s)}")
    return " · ".join(parts)


def _next(standing: Standing) -> str:
    name = standing.sweep.name
    if standing.running:
        return f"next: orch logs {standing.address} --follow · orch cancel {name}"
    if standing.address:
        return f"next: orch show {standing.address} · orch report {name}"
    return f"next: orch report {name}"
