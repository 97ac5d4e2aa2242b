"""``orch doctor``: findings as lines for people, one line in all, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

from orchestrator.render.terminal import console_for

if TYPE_CHECKING:
    from orchestrator.doctor.finding import Finding

_COLORS = {"ok": "green", "warn": "yellow", "error": "bold red"}


def render_findings(
    findings: Sequence[Finding],
    *,
    format: str,  # noqa: A002
    out: IO[str],
    verbose: bool = False,
) -> None:
    """Write the findings; ``verbose`` adds the evidence of those that are ok."""
    if format == "json":
        out.write(json.dumps([asdict(finding) for finding in findings], indent=2, ensure_ascii=False) + "\n")
        return
    from rich.text import Text

    console = console_for(out)
    for finding in findings:
        line = Text.assemble((f"{finding.severity:<6}", _COLORS[finding.severity]), finding.message)
        console.print(line, soft_wrap=True)
        if finding.evidence and (verbose or finding.severity != "ok"):
            console.print(Text(f"         seen: {finding.evidence}", style="dim"), soft_wrap=True)
        if finding.mend:
            console.print(Text(f"         mend: {finding.mend}"), soft_wrap=True)


def render_brief(findings: Sequence[Finding], *, out: IO[str]) -> None:
    """One line: devices, versions, build, and how many findings there are to read."""
    firsts: dict[str, str] = {}
    for finding in findings:
        firsts.setdefault(finding.check, finding.message)
    parts = [firsts[check] for check in ("devices", "versions", "build", "compiler") if check in firsts]
    bad = [finding for finding in findings if finding.severity != "ok"]
    counts = {kind: sum(finding.severity == kind for finding in bad) for kind in ("error", "warn")}
    verdict = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    out.write(f"orch doctor: {' · '.join(parts)} · {f'{verdict}: run orch doctor' if bad else 'ok'}\n")
