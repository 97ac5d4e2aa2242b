"""What do the engines make of a job in the same way? The draft of an attempt and what is ordered for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from orchestrator.engines.admission import need_of
from orchestrator.engines.base import EngineEvent, EngineSetting, Notice, Progress, Started
from orchestrator.launch import events
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.paths import attempt_run_dir
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt

_INFRASTRUCTURE_RETRIES = 3
"""Of faults that are not the job's: a port taken, a killed fork server."""


def new_attempt(
    setting: EngineSetting, engine: str, sweep_uid: str, owner: str, **more: object
) -> NewAttempt:
    """An attempt that nobody has begun yet, with a run directory of its own."""
    uid = uuid.uuid4().hex
    values: Mapping[str, object] = {
        "uid": uid,
        "engine": engine,
        "launcher": setting.launcher,
        "run_dir": str(attempt_run_dir(setting.db_url, sweep_uid, uid)),
        "owner": owner,
        **more,
    }
    return NewAttempt(**values)  # type: ignore[arg-type]


def whole_order(setting: EngineSetting, job: JobRow, attempt: AttemptRow, accelerator: str) -> LaunchOrder:
    """The attempt as an order without ranks: who runs it says where they are."""
    need = need_of(job)
    return LaunchOrder(
        attempt_uid=attempt.uid,
        attempt_id=attempt.attempt_id,
        job_id=job.job_id,
        sweep=setting.sweep,
        parameters=job.cell_values.values,
        ds=job.cell_values.ds,
        env=job.cell_values.env,
        run_dir=attempt.run_dir,
        ranks=(),
        world_size=need.num_gpus * need.nodes,
        num_nodes=need.nodes,
        accelerator=accelerator,
        db_url=setting.db_url,
        launcher=setting.launcher,
        worker=setting.worker,
        timed_section=setting.takes_timed_section,
        timeout_s=setting.timeout_s,
        grace_s=setting.grace_s,
        start_timeout_s=setting.start_timeout_s,
        hang_s=setting.hang_s,
    )


def retries_left(setting: EngineSetting, tries: int) -> tuple[int, int]:
    """After so many tries: of failures of the job that may pass, and of faults that are not the job's."""
    most = max(_INFRASTRUCTURE_RETRIES, setting.retries)
    return max(setting.retries - tries, 0), max(most - tries, 0)


def engine_event(event: events.SupervisorEvent) -> EngineEvent | None:
    """What a supervisor tells, for the loop; None for an end, which each engine settles its own way."""
    match event:
        case events.Started(uid, mode, _, _):
            return Started(uid, mode)
        case events.Waiting(uid, what):
            return Progress(uid, f"waits for the {what}")
        case events.Timed(uid, on):
            return Progress(uid, "timed" if on else "")
        case events.Progress(uid, iteration, of):
            return Progress(uid, None, iteration, of)
        case events.Notice(text):
            return Notice(text)
    return None
