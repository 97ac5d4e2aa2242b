"""Plots for papers, drawn by matplotlib: each as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orchestrator.analysis.jobs import setting_text
from orchestrator.analysis.report import Report
from orchestrator.analysis.summary import HEADLINE_METRICS, Summary, summarise
from orchestrator.errors import OrchError

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
    cells = summarise(report.jobs, (), per_cell=True, metrics=HEADLINE_METRICS)
    written: list[Path] = []
    for name, draw in _PLOTS.items():
        figure = Figure(figsize=(6.0, 3.7), layout="constrained")
        if draw(figure.add_subplot(), cells):
            written += list(_save(figure, folder, name))
    return written


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


def _time_against_size(metric: str, speed: str, title: str) -> Callable[[Any, Sequence[Summary]], bool]:
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
        links = {
            (bool(job.values.get("pin_memory")), value)
            for cell in known for job in cell.jobs if (value := job.number(speed)) is not None
        }  # fmt: skip
        sizes = [_gb(cell) for cell in known]
        for pinned in (True, False):
            speeds = sorted(value for kind, value in links if kind is pinned)
            if speeds:
                gbps = speeds[len(speeds) // 2]
                ends = [min(sizes), max(sizes)]
                axes.plot(ends, [size / gbps for size in ends], color="0.45", linewidth=1.2,
                          linestyle=":" if pinned else "-.",
                          label=f"link, {'pinned' if pinned else 'pageable'}: {gbps:.3g} GB/s")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="GB copied by a rank", ylabel=f"{title}, seconds")
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize=7)
        return bool(known)

    return draw


def _cold_and_warm(axes: Any, cells: Sequence[Summary]) -> bool:
    """Cold against warm offload at the largest size, a pair of bars a setting."""
    known = [cell for cell in cells if cell.metrics["offload_cold_s"].median is not None and _gb(cell) > 0]
    largest = max((_gb(cell) for cell in known), default=0.0)
    chosen = {setting_text(c.jobs[0]): c for c in known if _gb(c) == largest}
    for offset, metric, label in ((-0.2, "offload_cold_s", "cold"), (0.2, "offload_s_median", "warm")):
        values = [cell.metrics[metric].median or 0.0 for cell in chosen.values()]
        axes.barh([place + offset for place in range(len(chosen))], values, height=0.38, label=label,
                  color=_COLORS[1 if metric == "offload_cold_s" else 0])  # fmt: skip
    axes.set_yticks(range(len(chosen)), [name.replace(", ", ",\n") for name in chosen], fontsize=7)
    axes.invert_yaxis()
    axes.set(xscale="log", xlabel=f"offload of {largest:.3g} GB, seconds")
    axes.legend(fontsize=7)
    return bool(chosen)


def _scaling(axes: Any, cells: Sequence[Summary]) -> bool:
    """GB/s of a rank against the number of ranks, for the same model."""
    groups: dict[tuple[object, ...], dict[int, Summary]] = {}
    for cell in cells:
        values = cell.jobs[0].values
        ranks = int(str(values.get("num_gpus") or 1)) * int(str(values.get("num_nodes") or 1))
        model = (
            setting_text(cell.jobs[0]),
            values.get("model"),
            values.get("hidden_dim"),
            values.get("nlayers"),
        )
        groups.setdefault(model, {}).setdefault(ranks, cell)
    lines = [(key, by_ranks) for key, by_ranks in groups.items() if len(by_ranks) > 1][:12]
    for place, (key, by_ranks) in enumerate(lines):
        ranks_in_order = sorted(by_ranks)
        for metric, style in (("offload_gbps", "-"), ("reload_gbps", ":")):
            values_in_order = [by_ranks[ranks].metrics[metric].median for ranks in ranks_in_order]
            axes.plot(ranks_in_order, values_in_order, style, marker=_MARKERS[place % 8],
                      color=_COLORS[place % 8],
                      label=f"{metric.partition('_')[0]}: {key[0]}, {key[2]} × {key[3]}")  # fmt: skip
    axes.set(xlabel="ranks", ylabel="GB/s of a rank")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if lines:
        axes.legend(fontsize=7)
    return bool(lines)


_PLOTS: dict[str, Callable[[Any, Sequence[Summary]], bool]] = {
    "offload_by_size": _time_against_size("offload_s_median", "link_down_gbps", "offload"),
    "reload_by_size": _time_against_size("reload_s_median", "link_up_gbps", "reload"),
    "cold_and_warm": _cold_and_warm,
    "scaling": _scaling,
}
