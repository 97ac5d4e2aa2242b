"""Plots for papers, drawn by matplotlib: each as SVG and as PNG.

A curve joins cells that differ in size alone. Where the sweep varies more (states, dtype, stage, …), the
plots show the context of most cells and say which; ``--where`` chooses another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from orchestrator.analysis.contexts import RANKS, SIZE_AXES, USUAL, Contexts, commonest, raw_links
from orchestrator.analysis.jobs import setting_text
from orchestrator.analysis.report import Report
from orchestrator.analysis.summary import HEADLINE_METRICS, Summary, summarise
from orchestrator.errors import OrchError
from orchestrator.render.values import human_seconds

# Okabe and Ito's colours, told apart with any colour vision; markers tell them apart in print.
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00")
_MARKERS = "osD^Pxv*"
_FORMATS = ("svg", "png")


def write_plots(report: Report, folder: Path) -> list[Path]:
    """Write what the sweep has data for: time against size, cold against warm, scaling over ranks.

    Raises:
        OrchError: matplotlib is missing, or the folder cannot be written.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as e:
        raise OrchError("plots need matplotlib", "--plots", "pip install 'offload-orch[html]'") from e
    # The same file from the same data, and text that stays text.
    mpl.rcParams.update({"svg.hashsalt": "orch", "svg.fonttype": "none", "font.size": 9})
    title, cells = _one_context(report)
    written: list[Path] = []
    for name, draw in _PLOTS.items():
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        if draw(axes, cells):
            axes.set_title(fill(title, 100), fontsize=7)
            _legend_below(figure, axes)
            written += list(_save(figure, folder, name))
    return written


_SIZE_INCHES = (6.0, 3.7)


def _one_context(report: Report) -> tuple[str, list[Summary]]:
    """The cells of the commonest context, and its name where there are others."""
    contexts = Contexts(report.jobs)
    cells = summarise(report.jobs, (), per_cell=True, metrics=HEADLINE_METRICS)
    names = [contexts.text(cell.jobs[0]) for cell in cells]
    chosen = commonest(names)
    title = "" if len(set(names)) < 2 else chosen.replace(USUAL, contexts.usual)
    return title, [cell for cell, name in zip(cells, names, strict=True) if name == chosen]


def _legend_below(figure: Any, axes: Any) -> None:
    """The legend under the plot, which grows by as much: beside or in it names cover the curves."""
    handles, names = axes.get_legend_handles_labels()
    width, height = _SIZE_INCHES
    figure.set_size_inches(width, height + 0.16 * len(names))
    figure.legend(handles, names, loc="outside lower center", fontsize=7, frameon=False)


def _plain_log(axis: Any) -> None:
    """Ticks of a logarithmic axis as numbers, not as powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    least, most = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if most > 10 * least else (1, 1.5, 2, 3, 4, 5, 6, 8)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _save(figure: Any, folder: Path, name: str) -> Iterator[Path]:
    for ending in _FORMATS:
        path = folder / f"{name}.{ending}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=200, metadata={"Date": None} if ending == "svg" else None)
        except OSError as e:
            raise OrchError(f"cannot be written ({e.strerror})", str(path), "choose another folder") from e
        yield path


def _by_setting(cells: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for cell in cells:
        groups.setdefault(setting_text(cell.jobs[0]), []).append(cell)
    return groups


def _gb(cell: Summary) -> float:
    return (cell.metrics["copied_bytes"].median or 0.0) / 1e9


def _time_against_size(metric: str, way: int, title: str) -> Callable[[Any, Sequence[Summary]], bool]:
    def draw(axes: Any, cells: Sequence[Summary]) -> bool:
        known = [cell for cell in cells if cell.metrics[metric].median is not None and _gb(cell) > 0]
        for place, (setting, own) in enumerate(_by_setting(known).items()):
            own.sort(key=_gb)
            middle = [cell.metrics[metric].median or 0.0 for cell in own]
            below = [m - (c.metrics[metric].least or m) for m, c in zip(middle, own, strict=True)]
            above = [(c.metrics[metric].greatest or m) - m for m, c in zip(middle, own, strict=True)]
            axes.errorbar([_gb(cell) for cell in own], middle, yerr=[below, above], label=setting,
                          linestyle="none" if len(own) > 60 else "-", linewidth=1, capsize=2, markersize=4,
                          color=_COLORS[place % 8], marker=_MARKERS[place % 8])  # fmt: skip
        if not known:
            return False
        sizes = [_gb(cell) for cell in known]
        for kind, speeds in raw_links(job for cell in known for job in cell.jobs).items():
            gbps = speeds[way]
            # A line needs some length.
            ends = [min(sizes), max(sizes)] if max(sizes) > min(sizes) else [sizes[0] / 1.25, sizes[0] * 1.25]
            axes.plot(ends, [size / gbps for size in ends], color="0.45", linewidth=1.2,
                      linestyle=":" if kind == "pinned" else "-.",
                      label=f"link, {kind}: {gbps:.3g} GB/s")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="GB copied by a rank", ylabel=f"{title}, seconds")
        _plain_log(axes.yaxis)
        if max(sizes) > 1.01 * min(sizes):
            _plain_log(axes.xaxis)
        else:
            axes.set_xticks([sizes[0]], [f"{sizes[0]:.4g}"])
            axes.set_xticks([], minor=True)
        axes.grid(visible=True, which="major", alpha=0.3)
        return True

    return draw


def _cold_and_warm(axes: Any, cells: Sequence[Summary]) -> bool:
    """Cold against warm offload at the largest size, a pair of bars a setting."""
    known = [cell for cell in cells if cell.metrics["offload_cold_s"].median is not None and _gb(cell) > 0]
    largest = max((_gb(cell) for cell in known), default=0.0)
    # Of a setting that was measured in two ways the cell with more jobs.
    known.sort(key=lambda cell: len(cell.jobs))
    chosen = {setting_text(c.jobs[0]): c for c in known if _gb(c) > 0.99 * largest}
    for offset, metric, label in ((-0.2, "offload_cold_s", "cold"), (0.2, "offload_s_median", "warm")):
        values = [cell.metrics[metric].median or 0.0 for cell in chosen.values()]
        bars = axes.barh([place + offset for place in range(len(chosen))], values, height=0.38, label=label,
                         color=_COLORS[1 if metric == "offload_cold_s" else 0])  # fmt: skip
        axes.bar_label(bars, [human_seconds(value) for value in values], fontsize=7, padding=2)
    axes.set_yticks(range(len(chosen)), [name.replace(", ", ",\n") for name in chosen], fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(xlabel=f"offload of {largest:.3g} GB, seconds")
    return bool(chosen)


def _scaling(axes: Any, cells: Sequence[Summary]) -> bool:
    """GB/s of a rank against the number of ranks, for the same model."""
    groups: dict[tuple[object, ...], dict[int, Summary]] = {}
    for cell in cells:
        values = cell.jobs[0].values
        ranks = math.prod(int(str(values.get(name) or 1)) for name in RANKS)
        model = (setting_text(cell.jobs[0]), *(values.get(name) for name in SIZE_AXES))
        groups.setdefault(model, {}).setdefault(ranks, cell)
    lines = [(key, by_ranks) for key, by_ranks in groups.items() if len(by_ranks) > 1][:12]
    for place, (key, by_ranks) in enumerate(lines):
        ranks_in_order = sorted(by_ranks)
        for metric, style in (("offload_gbps", "-"), ("reload_gbps", ":")):
            values_in_order = [by_ranks[ranks].metrics[metric].median for ranks in ranks_in_order]
            axes.plot(ranks_in_order, values_in_order, style, marker=_MARKERS[place % 8],
                      color=_COLORS[place % 8],
                      label=f"{metric.partition('_')[0]}: {key[0]}, {key[1]} × {key[2]}")  # fmt: skip
    axes.set(xlabel="ranks", ylabel="GB/s of a rank")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    return bool(lines)


_PLOTS: dict[str, Callable[[Any, Sequence[Summary]], bool]] = {
    "offload_by_size": _time_against_size("offload_s_median", 0, "offload"),
    "reload_by_size": _time_against_size("reload_s_median", 1, "reload"),
    "cold_and_warm": _cold_and_warm,
    "scaling": _scaling,
}
