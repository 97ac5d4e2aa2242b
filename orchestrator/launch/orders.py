"""What do engines and pilots make of a job in the same way? The draft of an attempt, and the order for it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.launch.paths import attempt_run_dir
from orchestrator.launch.setting import RunSetting
from orchestrator.store.rows import AttemptRow, JobRow, NewAttempt

_INFRASTRUCTURE_RETRIES = 3
"""Of faults that are not the job's: a port taken, a killed fork server, a full disk."""


def new_attempt(setting: RunSetting, engine: str, sweep_uid: str, owner: str, **more: object) -> NewAttempt:
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


def whole_order(setting: RunSetting, job: JobRow, attempt: AttemptRow, accelerator: str) -> LaunchOrder:
    """The attempt as an order without ranks: who runs it says where they are."""
    cell = job.cell_values
    return LaunchOrder(
        attempt_uid=attempt.uid,
        attempt_id=attempt.attempt_id,
        job_id=job.job_id,
        sweep=setting.sweep,
        parameters=cell.values,
        ds=cell.ds,
        env=cell.env,
        run_dir=attempt.run_dir,
        ranks=(),
        world_size=cell.ranks,
        num_nodes=cell.num_nodes,
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


def placed(order: LaunchOrder, places: Sequence[RankPlacement], ranks: int) -> LaunchOrder:
    """The order with a rank on each place: so many are measured, the others are copies beside them."""
    groups = [
        tuple(replace(place, rank=rank, local_rank=rank) for rank, place in enumerate(places[start:][:ranks]))
        for start in range(0, len(places), ranks)
    ]
    return replace(order, ranks=groups[0], neighbours=tuple(groups[1:]))


def retries_left(setting: RunSetting, tries: int) -> tuple[int, int]:
    """After so many tries: of failures of the job that may pass, and of faults that are not the job's."""
    most = max(_INFRASTRUCTURE_RETRIES, setting.retries)
    return max(setting.retries - tries, 0), max(most - tries, 0)
