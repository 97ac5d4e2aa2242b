"""Reads the ``offload_states.log`` of DeepSpeed's example: rows ``pin,nb,offload,load``, no header.

A row is the mean of one run's warm iterations. What the log does not say (sizes, ranks) is unknown, that
is NULL, unless the caller tells it.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from orchestrator.errors import OrchError
from orchestrator.spec.axes import AXES, AXIS_BY_NAME, AxisType, AxisValue
from orchestrator.spec.cell import Cell, make_cell
from orchestrator.store.clock import format_utc
from orchestrator.store.ids import take_ids
from orchestrator.store.opening import open_store
from orchestrator.store.results import refresh_results
from orchestrator.store.rows import IMPORT_ENGINE
from orchestrator.store.store import Store
from orchestrator.store.sweeps import cell_columns
from orchestrator.store.tables import attempt, iteration, job, sweep

_TRUE, _FALSE = ("1", "true"), ("0", "false")
_KNOWN: dict[str, AxisValue] = {"model": "linear", "reload_non_blocking": False}
"""What holds for every run of the example."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the log; the seconds are means over the run's warm iterations."""

    pin_memory: bool
    non_blocking: bool
    offload_s: float
    load_s: float


def read_log(path: Path) -> list[Trial]:
    """The rows of the file.

    Raises:
        OrchError: it is not such a log, with the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise OrchError("it cannot be read as an offload_states.log", str(path)) from e
    trials = [_trial(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not trials:
        raise OrchError("it holds no trial", str(path))
    return trials


def _trial(line: str, where: str) -> Trial:
    fields = [field.strip() for field in line.split(",")]
    try:
        pin, blocking, offload, load = fields
        times = float(offload), float(load)
        flags = _flag(pin), _flag(blocking)
    except ValueError as e:
        raise OrchError("expected pin_memory,non_blocking,offload seconds,load seconds", where) from e
    if not all(math.isfinite(time) and time >= 0 for time in times):
        raise OrchError("seconds are finite and not negative", where)
    return Trial(*flags, *times)


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def axis_values(texts: Sequence[str]) -> dict[str, AxisValue]:
    """``["hidden_dim=4096"]`` as values of axes. Raises OrchError for anything else."""
    values: dict[str, AxisValue] = {}
    for text in texts:
        name, separator, word = text.partition("=")
        axis = AXIS_BY_NAME.get(name.strip())
        if axis is None or not separator:
            raise OrchError(f"'{text}' is not AXIS=VALUE", "--set", "for example --set hidden_dim=4096")
        try:
            values[axis.name] = _typed(axis.type, word.strip())
        except ValueError as e:
            raise OrchError(f"{axis.name} takes a {axis.type.value}, not '{word}'", "--set") from e
    return values


def _typed(kind: AxisType, word: str) -> AxisValue:
    if kind is AxisType.BOOLEAN:
        return _flag(word)
    if kind is AxisType.INTEGER:
        return int(word)
    return float(word) if kind is AxisType.NUMBER else word


@contextmanager
def log_as_store(path: Path, name: str, known: Mapping[str, AxisValue]) -> Iterator[Store]:
    """A database of its own that holds the log as a sweep; ``transfer`` takes it from there."""
    trials = read_log(path)
    at = format_utc(datetime.fromtimestamp(path.stat().st_mtime, UTC))
    with (
        tempfile.TemporaryDirectory(prefix="orch-import-") as folder,
        open_store(str(Path(folder) / "log.db"), create=True) as store,
    ):
        store.session.write(lambda c: _fill(c, trials, name, {**_KNOWN, **known}, at, str(path.absolute())))
        yield store


def _fill(
    connection: Connection,
    trials: Sequence[Trial],
    name: str,
    known: Mapping[str, AxisValue],
    at: str,
    source: str,
) -> None:
    sweep_id = take_ids(connection, "sweep")
    connection.execute(
        insert(sweep),
        {"sweep_id": sweep_id, "uid": _uid(name), "name": name, "spec": f"# imported from {source}\n",
         "spec_path": source, "created_at": at, "updated_at": at, "cancel_requested": False},
    )  # fmt: skip
    repeats: dict[str, int] = {}
    jobs, attempts, iterations = [], [], []
    first_job, first_attempt = (take_ids(connection, of, len(trials)) for of in ("job", "attempt"))
    for place, trial in enumerate(trials):
        cell = _cell(trial, known)
        repeats[cell.key] = repeat = repeats.get(cell.key, 0) + 1
        # The same log, imported again after it grew, adds its new rows alone.
        uid = _uid(name, cell.key, repeat, trial)
        job_id, attempt_id = first_job + place, first_attempt + place
        jobs.append(
            {"job_id": job_id, "uid": uid, "sweep_id": sweep_id, "repeat": repeat, "position": place + 1,
             "status": "ok", "in_spec": True, "created_at": at, "updated_at": at, **cell_columns(cell)}
        )  # fmt: skip
        attempts.append(
            {"attempt_id": attempt_id, "uid": _uid(uid), "job_id": job_id, "number": 1, "status": "ok",
             "message": "imported", "engine": IMPORT_ENGINE, "launcher": "deepspeed", "run_dir": "",
             "created_at": at, "ended_at": at}
        )  # fmt: skip
        iterations.append(_iteration(attempt_id, trial))
    for table, rows in ((job, jobs), (attempt, attempts), (iteration, iterations)):
        connection.execute(insert(table), rows)
    refresh_results(connection, [row["job_id"] for row in jobs])


def _cell(trial: Trial, known: Mapping[str, AxisValue]) -> Cell:
    unknown: dict[str, AxisValue] = {axis.name: None for axis in AXES}
    return make_cell({**unknown, **known, "pin_memory": trial.pin_memory, "non_blocking": trial.non_blocking})


def _iteration(attempt_id: int, trial: Trial) -> dict[str, Any]:
    return {
        "attempt_id": attempt_id,
        "rank": 0,
        "iteration": 0,
        "is_warmup": False,
        "is_cold": False,
        "is_instrumented": False,
        "offload_s": trial.offload_s,
        "reload_s": trial.load_s,
    }


def _uid(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, ("offload_states.log", *parts))).encode()).hexdigest()[:32]
