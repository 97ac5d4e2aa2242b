"""One job's whole story, from the database and, where they lie here, its logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.jobs import AXIS_ORDER, Job, Value, with_dotted
from orchestrator.analysis.logfiles import first_bytes, last_lines, log_files
from orchestrator.analysis.lognoise import Fold
from orchestrator.errors import OrchError
from orchestrator.store import queries_status as queries
from orchestrator.store.addresses import addresses
from orchestrator.store.queries_report import Reads, time_split
from orchestrator.store.rows import IMPORT_ENGINE

_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that is known of a job."""

    job: Job
    axes: Mapping[str, Value]
    """Active axes and dotted ``ds``/``env`` entries."""
    figures: Mapping[str, Value]
    """Its row of ``job_result`` without what is missing."""
    split: Mapping[str, Value]
    """Mean seconds of each part over the instrumented iterations; empty without such."""
    attempts: tuple[Mapping[str, Value], ...]
    events: tuple[Mapping[str, Value], ...]
    ranks: tuple[Mapping[str, Value], ...]
    traceback: str | None
    """What the first failing rank of the last attempt reported of itself."""
    environment: Mapping[str, Value] | None
    files: tuple[str, ...]
    """Files of the last attempt that lie on this host."""
    log_tail: str | None
    """The end of a failed attempt's log; None if it ended well or lies elsewhere."""
    address: str
    """What other commands take for this job alone."""
    is_imported: bool
    """It was taken from the log of DeepSpeed's example: no attempt of it, and no log, was orch's."""


def story(store: Reads, job_id: int) -> Story:
    """The story of the job."""
    row, dotted = with_dotted(queries.job_summary(store, job_id))
    job = Job(row)
    on_cpu = _ran_on_cpu(store, row.get("environment_id"))

    def applies(name: str) -> bool:
        return not (on_cpu and name in _OF_A_DEVICE)

    attempts = queries.attempts(store, job_id)
    last = attempts[-1] if attempts else None
    environment_id = last["environment_id"] if last else None
    return Story(
        job=job,
        axes={name: row[name] for name in (*AXIS_ORDER, *dotted) if row.get(name) is not None},
        figures={n: row[n] for n in _FIGURES if job.has_result and row.get(n) is not None and applies(n)},
        split=_split(store, row),
        attempts=tuple(attempts),
        events=tuple(queries.events(store, job_id)),
        ranks=tuple(queries.rank_records(store, int(str(last["attempt_id"])))) if last else (),
        traceback=_traceback(store, last),
        environment=queries.environment(store, environment_id) if isinstance(environment_id, int) else None,
        files=_files(last),
        log_tail=_tail(last) if last and last["status"] not in ("ok", "running") else None,
        address=addresses(store, [job_id])[job_id],
        is_imported=last is not None and last["engine"] == IMPORT_ENGINE,
    )


def _split(store: Reads, row: Mapping[str, Value]) -> dict[str, Value]:
    attempt_id = row.get("attempt_id")
    found = time_split(store, attempt_id) if isinstance(attempt_id, int) and row.get("instrumented") else None
    return {name: value for name, value in (found or {}).items() if value is not None}


def _ran_on_cpu(store: Reads, environment_id: Value) -> bool:
    """Whether nothing can have left a device."""
    found = queries.environment(store, environment_id) if isinstance(environment_id, int) else None
    return found is not None and found.get("accelerator") == "cpu"


def _files(attempt: Mapping[str, Value] | None) -> tuple[str, ...]:
    folder = Path(str(attempt["run_dir"])) if attempt and attempt["run_dir"] else None
    if folder is None or not folder.is_dir():
        return ()
    return tuple(sorted(str(path) for path in folder.rglob("*") if path.is_file()))[:40]


def _traceback(store: Reads, attempt: Mapping[str, Value] | None) -> str | None:
    for rank in queries.rank_errors(store, int(str(attempt["attempt_id"]))) if attempt else ():
        text = rank["traceback"] or rank["message"]
        if text:
            return f"rank {rank['rank']}: {str(text).strip()}"
    return None


def _tail(attempt: Mapping[str, Value]) -> str | None:
    try:
        logs = log_files(attempt)
    except OrchError:
        return None
    # The rank that was written to last is the likeliest to have said what went wrong.
    newest = max(logs, key=lambda log: log.path.stat().st_mtime)
    blocks = first_bytes(newest.path, newest.path.stat().st_size)
    return last_lines(Fold().through(blocks), _TAIL_LINES).decode("utf-8", "replace")


_OF_A_DEVICE = frozenset(
    "copied_bytes freed_bytes predicted_freed_bytes device_freed_bytes leak_bytes "
    "offload_gbps reload_gbps".split()
)
"""Figures of bytes that move: on a CPU none do."""

_FIGURES = tuple(
    "ranks warm_iterations step_s_median offload_s_median offload_s_p95 offload_s_min offload_s_max "
    "offload_host_s_median offload_all_s_median offload_cold_s offload_slowest_rank reload_s_median "
    "reload_s_p95 reload_s_min reload_s_max reload_host_s_median reload_all_s_median reload_cold_s "
    "reload_slowest_rank cold_pinning_s copied_bytes freed_bytes predicted_freed_bytes device_freed_bytes "
    "pinned_bytes peak_reload_bytes offload_gbps reload_gbps link_down_gbps link_up_gbps "
    "offload_link_share reload_link_share probe_drift_share offload_drift_s leak_bytes states_intact "
    "devices_ok bytes_match overlapped skipped_steps is_valid".split()
)
