"""The jobs of a report: which there are, which of their axes vary, which flags they carry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.conditions import Condition, parse_conditions
from orchestrator.spec.axes import AXES, AXIS_BY_NAME
from orchestrator.spec.presets import states_label
from orchestrator.store import queries_report as queries
from orchestrator.store.figures import LINK_LIMIT_SHARE, drift_limit_share
from orchestrator.store.rows import SweepRow

Value = bool | int | float | str | None

SETTINGS = (
    "pin_memory",
    "pin_memory_then",
    "non_blocking",
    "reload_non_blocking",
    "gc_freeze",
    "pin_backend",
    "numa",
)
"""Axes that somebody who wants to sleep and wake may choose."""

MEASURING = ("iteration", "warmup", "instrumented", "checksums", "sampler_hz")
"""How it was measured, which changes no answer; every axis beside these and the settings is the question."""

_FIRST = (
    "model",
    "hidden_dim",
    "nlayers",
    "dtype",
    "zero_stage",
    "num_nodes",
    "num_gpus",
    "included_state",
)
AXIS_ORDER = tuple(dict.fromkeys((*_FIRST, *(a.name for a in AXES if a.is_size), *SETTINGS, *AXIS_BY_NAME)))
"""Axes in the order in which a reader wants them: size, question, setting, the rest."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job: every column of ``job_summary``, and each ``ds``/``env`` entry as a column of its own."""

    values: Mapping[str, Value]

    @property
    def cell6(self) -> str:
        """The short form of its cell, as commands take it."""
        return cell6(str(self.values["cell"]))

    @property
    def name(self) -> str:
        """``CELL6/REPEAT``."""
        return f"{self.cell6}/{self.values['repeat']}"

    @property
    def job_id(self) -> int:
        """Its number in this database."""
        return int(str(self.values["job_id"]))

    @property
    def status(self) -> str:
        """Its status."""
        return str(self.values["status"])

    @property
    def is_measured(self) -> bool:
        """Whether it ended well: its figures may be summarised."""
        return self.status == "ok" and self.has_result

    @property
    def has_result(self) -> bool:
        """Whether it left a row of results, whatever its status."""
        return self.values.get("attempt_id") is not None

    @property
    def is_valid(self) -> bool:
        """Whether no flag was raised: its figures may decide something."""
        return bool(self.values.get("is_valid"))

    def number(self, column: str) -> float | None:
        """A numeric column; None if missing."""
        value = self.values.get(column)
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def link_drifted(self) -> bool:
        """Whether the probes before and after differ by more than such probes do on an idle host."""
        drift = self.number("probe_drift_share")
        return drift is not None and abs(drift) > drift_limit_share(self.is_pinned)

    @property
    def is_pinned(self) -> bool:
        """Whether its warm offloads were asked to go to pinned memory."""
        then, at_first = self.values.get("pin_memory_then"), self.values.get("pin_memory")
        return bool(then if then is not None else at_first is not False)

    def flags(self) -> tuple[str, ...]:
        """Why its figures are not to be taken at face value; empty if nothing was found."""
        values, found = self.values, []
        if values.get("overlapped") and (self.number("contention") or 1) <= 1:
            found.append("overlapped")
        if values.get("states_intact") is False:
            found.append("states changed")
        if values.get("devices_ok") is False:
            found.append("wrong device")
        if values.get("bytes_match") is False:
            found.append("bytes differ")
        if self.link_drifted:
            found.append("link drifted")
        shares = (self.number("offload_link_share"), self.number("reload_link_share"))
        if any(share is not None and share > LINK_LIMIT_SHARE for share in shares):
            found.append("faster than the link")
        if values.get("in_spec") is False:
            found.append("not in spec")
        return tuple(found)


def cell6(cell: str) -> str:
    """The short form of a cell's key."""
    return cell.removeprefix("v1:")[:6]


@dataclass(frozen=True, slots=True)
class JobSet:
    """The jobs that a report is about, with what else it needs to know of the sweep."""

    sweep: SweepRow
    jobs: tuple[Job, ...]
    axes: tuple[str, ...]
    """Every axis, dotted ``ds.`` and ``env.`` names included."""
    columns: tuple[str, ...]
    """Every column that a job has."""
    environments: Mapping[int, Mapping[str, Value]]
    where: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    """Axes that vary over all jobs; no others can vary over some of them."""
    measured: tuple[Job, ...] = ()
    """The jobs with figures."""
    why_none: tuple[str, ...] = ()
    """Where no job satisfies the conditions: which of them none does, and what values there are."""

    def varying(self, jobs: Sequence[Job] | None = None) -> tuple[str, ...]:
        """Axes with more than one value among these jobs; inactive counts as a value."""
        chosen = self.jobs if jobs is None else jobs
        return varying_axes(self.candidates, chosen)

    def on_cpu(self, job: Job) -> bool:
        """Whether the job ran without a device, so that nothing can have left one."""
        environment = job.values.get("environment_id")
        known = self.environments.get(environment, {}) if isinstance(environment, int) else {}
        return known.get("accelerator") == "cpu"


def load_jobs(store: queries.Reads, sweep_name: str | None, where: Sequence[str] = ()) -> JobSet:
    """Every job of the sweep (None = the latest) for which all conditions hold.

    Raises:
        OrchError: no such sweep, or a condition that cannot be read.
    """
    sweep = store.sweep(sweep_name)
    rows = queries.job_rows(store, sweep.sweep_id)
    records = rows.dicts()
    dotted = _open_nested(records)
    columns = (*rows.columns, *dotted)
    conditions = parse_conditions(where, frozenset(columns))
    jobs = tuple(Job(r) for r in records if all(condition.holds(r) for condition in conditions))
    known = {int(str(e["environment_id"])): e for e in queries.environments(store, sweep.sweep_id)}
    axes = (*AXIS_ORDER, *dotted)
    measured = tuple(job for job in jobs if job.is_measured)
    varying = varying_axes(axes, jobs)
    reasons = () if jobs else _why_none(conditions, where, records)
    return JobSet(sweep, jobs, axes, columns, known, tuple(where), varying, measured, reasons)


def _why_none(
    conditions: Sequence[Condition], texts: Sequence[str], records: Sequence[Mapping[str, Value]]
) -> tuple[str, ...]:
    """Of each condition that no job of the sweep satisfies: which values there are."""
    reasons = []
    for condition, text in zip(conditions, texts, strict=True):
        if any(condition.holds(record) for record in records):
            continue
        found = {axis_value(condition.column, r.get(condition.column)) for r in records}
        known = [str(value) for value in sorted(found, key=_in_order)]
        values = [cell6(value) for value in known] if condition.column == "cell" else known
        shown = ", ".join("null" if value == "None" else value for value in values[:_MOST_VALUES])
        more = f" and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
        reasons.append(f"no job has {text}; there are: {shown}{more}")
    return tuple(reasons)


def _in_order(value: Value) -> tuple[bool, float, str]:
    """Numbers by their size, then words."""
    if isinstance(value, (int, float)):
        return False, float(value), ""
    return True, 0.0, str(value)


_MOST_VALUES = 8


def varying_axes(axes: Iterable[str], jobs: Sequence[Job]) -> tuple[str, ...]:
    """The axes with more than one value among the jobs."""
    records = [job.values for job in jobs]
    return tuple(name for name in axes if len({record.get(name) for record in records}) > 1)


def _open_nested(records: Iterable[dict[str, Value]]) -> tuple[str, ...]:
    """Add each entry of the ``ds`` and ``env`` JSON to the records as a dotted column; return their names."""
    names: dict[str, None] = {}
    for record in records:
        for column in ("ds", "env"):
            text = record.get(column)
            if text and text != "{}":
                for name, value in _leaves(column, json.loads(str(text))):
                    record[name] = value
                    names[name] = None
    return tuple(names)


def with_dotted(record: dict[str, Value]) -> tuple[dict[str, Value], tuple[str, ...]]:
    """A job's row with its ``ds`` and ``env`` entries as columns, and their names."""
    opened = dict(record)
    return opened, _open_nested([opened])


def _leaves(prefix: str, value: object) -> Iterable[tuple[str, Value]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}", inner)
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield prefix, value
    else:
        yield prefix, json.dumps(value, sort_keys=True)


def setting_text(job: Job, names: Sequence[str] = SETTINGS) -> str:
    """The settings that are on, as a person says them: ``pin_memory, non_blocking``."""
    words = []
    for name in names:
        value = job.values.get(name)
        if value is True:
            words.append(name)
        elif isinstance(value, str) and value != AXIS_BY_NAME[name].default:
            words.append(f"{name} {value}")
        elif name == "pin_memory_then" and value is False:
            words.append("pin_memory only at first")
    return ", ".join(words) or "nothing pinned, all blocking"


def axis_text(name: str, value: Value) -> str:
    """``name value`` for a caption: a boolean by yes or no, an inactive axis or a default by that word."""
    if value is None:
        axis = AXIS_BY_NAME.get(name)
        # An entry of ds or env that a job does not give is at its default, too.
        return f"{name} default" if axis is None or axis.default is None else f"{name} inactive"
    if isinstance(value, bool):
        return f"{name} {'yes' if value else 'no'}"
    return f"{name} {axis_value(name, value)}"


def axis_value(name: str, value: Value) -> Value:
    """An axis value as a person calls it: a state set by the preset of that name."""
    return states_label(value) if name == "included_state" and isinstance(value, str) else value
