"""What will an offload and a reload take at a size that was not measured?

Bytes come from the exact formula. Seconds come from a curve over the measured sizes of the same host,
stack and setting; where there is none, the answer says what was measured and what to run instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.analysis import measured
from orchestrator.analysis.estimate import METRICS, TimeEstimate, estimate, range_text, stretch_of
from orchestrator.analysis.fit import SAME_SIZE_SHARE, Point, points_of
from orchestrator.analysis.measured import CHOICES, SIZE, STACK
from orchestrator.analysis.payback import Payback, payback_of
from orchestrator.errors import SpecError
from orchestrator.render.values import human_bytes
from orchestrator.spec.bytes import Prediction, predict_values

if TYPE_CHECKING:
    from pandas import DataFrame

    from orchestrator.spec.axes import AxisValue
    from orchestrator.spec.cell import Cell
    from orchestrator.spec.models import ModelShape

MOST_SPREAD = 100.0
"""An interval whose ends differ by more than this factor says nothing: no prediction."""

_NO_CURVE = (
    "the {jobs} jobs of {sizes} sizes measured so far lie on no curve: the interval would span more than a "
    "factor of 100; measure more sizes, nearer to this one, or on a quieter host"
)

WIDEN_PER_DIFFERENCE = 1.5
"""What each axis that is not as measured widens the interval by."""


@dataclass(frozen=True, slots=True)
class SettingPrediction:
    """One setting at the asked size; times are None where ``refusal`` says why."""

    setting: str
    bytes: Prediction
    pinned_node_bytes: int | None
    offload: TimeEstimate | None = None
    reload: TimeEstimate | None = None
    payback: Payback | None = None
    refusal: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything that ``orch predict`` says.

    Attributes:
        subject: the question in words.
        host: where the times were measured; None = nowhere, bytes only.
        stack: its devices and versions, in words.
        ram_bytes: host memory there; None = not known.
        device_bytes: memory of one device there; None = not known.
        on_cpu: whether the measurements are of a host without a device, where nothing is moved.
        advice: what to do where nothing was measured.
    """

    subject: str
    settings: tuple[SettingPrediction, ...]
    host: str | None = None
    stack: str = ""
    ram_bytes: int | None = None
    device_bytes: int | None = None
    on_cpu: bool = False
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """The cell asked about; ``shape`` replaces its model, ``is_setting_given`` keeps to its choices.

    ``subject`` says it in words but for the ranks, which are GPUs only where there are any.
    """

    cell: Cell
    subject: str
    shape: ModelShape | None = None
    is_setting_given: bool = False
    host: str | None = None


def outlook(question: Question, jobs: DataFrame | None, this_host: str, database: str = "") -> Outlook:
    """Answer the question from the measured jobs (None: there is no database).

    Args:
        database: its name, to be named where it has nothing.

    Raises:
        SpecError: the host asked for was never measured, or several were and none is named; the model's
            parameters are not known.
    """
    values = {axis: question.cell.effective(axis) for axis in question.cell.values}
    frame = measured.prepared(jobs) if jobs is not None and len(jobs) else None
    if frame is None or not len(frame):
        if question.host:
            raise SpecError(f"nothing was measured on {question.host}", "--host", "leave it out for bytes")
        there_is_one = f" in {database}" if database else ""
        where = there_is_one if jobs is not None or not database else f": there is no {database}"
        alone = _bytes_only(question, values, f"nothing was measured yet{where}")
        return Outlook(
            _subject(question, False), (alone,), advice="for seconds measure this host: orch sweep SPEC"
        )
    stack = _one_stack(frame, question.host, this_host)
    # Of several machines of that name the one that ran so many ranks.
    alike = stack[stack["num_gpus"] == question.cell.num_gpus]
    row = (alike if len(alike) else stack).iloc[-1]
    on_cpu = row["accelerator"] == "cpu"
    words = [
        str(row[name]) if name == "gpu_name" else f"{name} {row[name]}" for name in STACK[2:] if row[name]
    ]
    return Outlook(
        _subject(question, on_cpu),
        _predictions(question, values, stack),
        host=str(row["node"]),
        stack=" · ".join(["CPU only"] * on_cpu + words),
        ram_bytes=_count(row["ram_bytes"]),
        device_bytes=_count(row["device_bytes"]),
        on_cpu=on_cpu,
    )


def _subject(question: Question, on_cpu: bool) -> str:
    ranks, nodes = question.cell.num_gpus, question.cell.num_nodes
    text = f"{ranks} {'rank' if on_cpu else 'GPU'}{'s' * (ranks != 1)}"
    return f"{question.subject} · {text}" + (f" each on {nodes} nodes" if nodes != 1 else "")


def _count(value: object) -> int | None:
    import pandas as pd

    return None if pd.isna(value) else int(value)  # type: ignore[call-overload]


def _one_stack(frame: DataFrame, host: str | None, this_host: str) -> DataFrame:
    """The jobs of one host, of the stack that was measured there last."""
    hosts = list(dict.fromkeys(frame["node"]))
    host = host or (this_host if this_host in hosts else None) or (hosts[0] if len(hosts) == 1 else None)
    if host not in hosts:
        what = f"nothing was measured on {host}" if host else "several hosts were measured, and not this one"
        raise SpecError(
            f"{what}; times of one host say nothing of another", "--host", "measured: " + ", ".join(hosts)
        )
    here = frame[frame["node"] == host]
    last = here.iloc[-1]
    return measured.matching(here, {name: last[name] for name in STACK}, STACK)


def _predictions(
    question: Question, values: Mapping[str, AxisValue], stack: DataFrame
) -> tuple[SettingPrediction, ...]:
    """The setting that was asked for, or each that was measured, the fastest first."""
    if question.is_setting_given:
        return (_predict_setting(question, values, stack),)
    same_kind = measured.matching(stack, values, [n for n in measured.SETTING if n not in CHOICES])
    choices = [{name: setting[name] for name in CHOICES} for setting in measured.settings_of(same_kind)]
    found = [_predict_setting(question, {**values, **chosen}, stack) for chosen in choices]
    if not found:
        return (_predict_setting(question, values, stack),)

    def total(prediction: SettingPrediction) -> float:
        both = (prediction.offload, prediction.reload)
        return sum(math.inf if time is None else time.seconds for time in both)

    return tuple(sorted(found, key=total))


def _bytes_only(question: Question, values: Mapping[str, AxisValue], refusal: str) -> SettingPrediction:
    sizes = predict_values(dict(values), question.cell.ds, question.shape)
    if sizes.copied_bytes is None:
        raise SpecError(
            f"the parameters of model {values['model']} are not known",
            "--model",
            "give their number instead: --params N",
        )
    ranks = int(values["num_gpus"] or 1)
    pinned = None if sizes.pinned_bytes is None else sizes.pinned_bytes * ranks
    return SettingPrediction(measured.setting_text(values), sizes, pinned, refusal=refusal)


def _predict_setting(
    question: Question, values: Mapping[str, AxisValue], stack: DataFrame
) -> SettingPrediction:
    blank = _bytes_only(question, values, "")
    size = float(blank.bytes.copied_bytes or 0)
    wanted = _wanted(question, values)
    chosen = measured.select(stack, wanted, size)
    if chosen.jobs.empty:
        known = [measured.setting_text(s) for s in measured.settings_of(stack)]
        return replace(blank, refusal="this setting was never measured here; measured: " + "; ".join(known))
    if size <= 0:
        return replace(blank, refusal="nothing is copied")
    points = points_of(chosen.jobs[SIZE].tolist(), [1.0] * len(chosen.jobs))
    refusal, stretch = stretch_of(size, points)
    if refusal:
        return replace(blank, refusal=refusal)
    widen = stretch * WIDEN_PER_DIFFERENCE ** len(chosen.differs)
    offload, reload = (estimate(chosen.jobs, call, size, widen) for call in METRICS)
    for time in (offload, reload):
        if time is not None and time.high_s > MOST_SPREAD * time.low_s:
            return replace(blank, refusal=_NO_CURVE.format(sizes=time.sizes, jobs=time.jobs))
    return replace(
        blank,
        offload=offload,
        reload=reload,
        payback=payback_of(stack, wanted, values, question.cell.ds, question.shape, size),
        warnings=_warnings(size, points, stretch, chosen.differs),
    )


def _wanted(question: Question, values: Mapping[str, AxisValue]) -> dict[str, object]:
    """What a measured job has to agree with."""
    from orchestrator.spec.cell import canonical_json

    cell = question.cell
    ds, env = (canonical_json(part) if part else "" for part in (cell.ds, cell.env))
    return {**values, "ds": ds, "env": env}


def _warnings(
    size: float, points: Sequence[Point], stretch: float, differs: Sequence[str]
) -> tuple[str, ...]:
    found = list(differs)
    if stretch > 1 + SAME_SIZE_SHARE:
        found.append(
            f"EXTRAPOLATED: {human_bytes(size)} copied lies outside the measured {range_text(points)};"
            f" the interval is {stretch:.1f} times as wide"
        )
    return tuple(found)
