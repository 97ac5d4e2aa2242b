"""Any order of events leaves a job and its attempts in a state that makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.store import JobStatus, Store, Verdict
from orchestrator.store.check import status_problem
from orchestrator.store.transitions import ATTEMPT, JOB, IllegalTransition, check_attempt, check_job
from tests.store.plans import deliver, make_plan, new_attempt

_ENDS = sorted(ATTEMPT[JobStatus.running])


@given(old=st.sampled_from(JobStatus), new=st.sampled_from(JobStatus))
def test_pair_that_is_not_in_the_table_raises(old: JobStatus, new: JobStatus) -> None:
    for table, check in ((JOB, check_job), (ATTEMPT, check_attempt)):
        if new in table.get(old, ()):
            check(old, new)
        else:
            with pytest.raises(IllegalTransition):
                check(old, new)


def test_tables_are_closed() -> None:
    assert JOB.keys() == set(JobStatus)
    assert ATTEMPT.keys() == set(JobStatus) - {JobStatus.pending, JobStatus.skipped}
    assert all(targets <= JOB.keys() for targets in JOB.values())
    assert all(targets <= ATTEMPT.keys() for targets in ATTEMPT.values())
    assert JOB[JobStatus.ok] == frozenset()


_ACTION = st.one_of(
    st.just(("begin",)),
    st.tuples(st.just("end"), st.integers(0, 3), st.sampled_from(_ENDS), st.booleans()),
    st.tuples(st.just("reap"), st.booleans()),
    st.tuples(st.just("deliver"), st.integers(0, 3)),
    st.tuples(st.just("weigh"), st.booleans()),
    st.just(("requeue",)),
    st.just(("continue",)),
)


@given(actions=st.lists(_ACTION, max_size=12))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_order_of_events_keeps_statuses_and_attempts_in_step(
    sqlite_store: Store, tmp_path: Path, actions: list[tuple[object, ...]]
) -> None:
    store = sqlite_store
    plan = make_plan(f"s{len(store.sweep_names())}")
    sweep_id = store.put_sweep(plan).sweep_id
    job_id = store.runnable(sweep_id)[0].job_id
    was_ok = False
    for action in actions:
        attempts = store.attempts(job_id)
        if action[0] == "begin":
            fresh = new_attempt(tmp_path / f"{job_id}-{len(attempts)}")
            store.begin_attempt(job_id, fresh)
        elif action[0] == "end" and attempts:
            one = attempts[int(str(action[1])) % len(attempts)]
            retry = bool(action[3]) and action[2] != JobStatus.ok
            store.end_attempt(one.attempt_id, Verdict(JobStatus(str(action[2]))), retry=retry)
        elif action[0] == "reap":
            store.reap(sweep_id, lambda _, alive=bool(action[1]): alive)  # type: ignore[misc]
        elif action[0] == "deliver" and attempts:
            one = attempts[int(str(action[1])) % len(attempts)]
            spool = Path(one.run_dir) / "spool"
            spool.mkdir(parents=True, exist_ok=True)
            deliver(one, spool, iterations=1)
        elif action[0] == "weigh":
            store.weigh(skip=[(job_id, "no")] if action[1] else [], unskip=[] if action[1] else [job_id])
        elif action[0] == "requeue":
            store.requeue(sweep_id, retry_failed=True)
        elif action[0] == "continue":
            store.put_sweep(plan)
        [job] = [job for job in store.jobs(sweep_id) if job.job_id == job_id]
        statuses = [str(one.status) for one in store.attempts(job_id)]
        assert status_problem(str(job.status), statuses) is None
        assert not was_ok or job.status is JobStatus.ok
        was_ok = job.status is JobStatus.ok
    assert store.check() == []
