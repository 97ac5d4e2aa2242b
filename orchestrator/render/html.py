"""The HTML report: one file that needs no network.

Nothing from the database reaches the page as markup: the template engine escapes what it prints, the data
for the script lies in a JSON block without ``<``, and the script writes text nodes only.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from importlib import resources
from typing import IO

from orchestrator import __version__
from orchestrator.analysis.answers import Best
from orchestrator.analysis.page import page_data
from orchestrator.analysis.report import Report
from orchestrator.errors import OrchError
from orchestrator.render.sentences import (
    best_lines,
    best_title,
    caption_lines,
    environment_letter,
    environment_text,
    how_to_read,
    percent,
    size_text,
    trouble_lines,
    waiting_line,
)
from orchestrator.render.values import human_bytes, human_seconds, nonfinite_word
from orchestrator.store import queries_report as queries

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def write_html(store: queries.Reads, report: Report, out: IO[str]) -> None:
    """Write the page.

    Raises:
        OrchError: Jinja2 or plotly is not installed.
    """
    try:
        import jinja2

        plotly = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_text("utf-8")
    except (ImportError, FileNotFoundError) as e:
        fix = "pip install 'offload-orch[html]'"
        raise OrchError("the HTML report needs Jinja2 and plotly", "--format html", fix) from e
    folder = resources.files("orchestrator.render").joinpath("templates")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)  # fmt: skip
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    jobs = report.jobs
    # In pieces: the page is megabytes, and plotly's script is the most of it.
    for piece in template.generate(
        title=f"{jobs.sweep.name}: offload and reload",
        report=report,
        counts=sorted(Counter(job.status for job in jobs.jobs).items()),
        cards=[card for best in report.answers.largest for card in _cards(report, best)],
        best=best_lines(report),
        caption=caption_lines(report),
        how_to_read=how_to_read(report),
        things=[sentence for _, sentence in report.answers.things],
        troubles=trouble_lines(report),
        waiting=waiting_line(report),
        environments=[
            (environment_letter(jobs, number), environment_text(environment), _facts(environment))
            for number, environment in sorted(jobs.environments.items())
        ],
        probes=queries.probes(store, jobs.sweep.sweep_id)[:200],
        version=__version__,
        written_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=folder.joinpath("report.css").read_text("utf-8"),
        script=folder.joinpath("report.js").read_text("utf-8"),
        plotly=plotly,
        data=safe_json(page_data(store, report)),
    ):
        out.write(piece)


def safe_json(value: object) -> str:
    """JSON that may stand inside a script element; NaN and infinities are words."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _finite(value: object) -> object:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return nonfinite_word(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def _cards(report: Report, best: Best) -> list[tuple[str, str, str]]:
    """(label, figure, note) of the headline answers of one environment."""
    environment = report.jobs.environments.get(best.environment_id or -1, {})
    several = len(report.answers.largest) > 1
    where = f" · environment {environment_letter(report.jobs, best.environment_id)}" if several else ""
    on_cpu = environment.get("accelerator") == "cpu"
    size = size_text(best, on_cpu=on_cpu)
    cards = [
        (best_title(best) + where, best.setting, f"{size}, {best.jobs} job{'s' * (best.jobs != 1)}"),
        ("asleep in", human_seconds(best.offload_s), _share(best.offload_link_share)),
        ("awake in", human_seconds(best.reload_s), _share(best.reload_link_share)),
    ]
    if on_cpu:
        cards.append(("freed", "not applicable", "on a CPU nothing leaves the device"))
    elif best.freed_bytes is not None:
        cards.append(("freed on each GPU", human_bytes(best.freed_bytes), "as torch allocates it"))
    if best.pinned_bytes is not None:
        ram = environment.get("ram_bytes")
        whole = best.pinned_bytes * best.ranks_a_node
        note = f"a rank, {human_bytes(whole)} a host" if best.ranks_a_node > 1 else "a rank"
        note += f" of {human_bytes(ram)}" if isinstance(ram, (int, float)) else ""
        cards.append(("pinned host memory", human_bytes(best.pinned_bytes), note))
    return cards


def _share(share: float | None) -> str:
    return f"{percent(share)} % of the link" if share is not None else "no link probe"


def _facts(environment: object) -> list[tuple[str, str]]:
    """Every recorded fact of an environment, except its ids."""
    assert isinstance(environment, dict)
    return [
        (name.replace("_", " "), human_bytes(value) if name.endswith("_bytes") else str(value))
        for name, value in environment.items()
        if value is not None and name not in ("environment_id", "uid", "created_at")
    ]
