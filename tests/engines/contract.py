"""What every engine does, through the real command line. Parametrised by the fixture ``place``.

A module of tests makes a fixture ``place`` that gives a ``Workplace`` whose options name the engine,
and imports the class: ``class TestLocal(EngineContract)``. ``Workplace.spec`` uses a worker without torch.
"""

from __future__ import annotations

import os
import signal

from tests.engines import acting_worker as act
from tests.engines.running import Workplace, wait_until


class EngineContract:
    """Each test starts real jobs and ends by proving that nothing of them is left."""

    max_at_once = 2
    """Slots that the engine under test has."""

    def test_sweep_every_job_ok_exactly_once(self, place: Workplace) -> None:
        done = place.sweep(place.spec(3, dwell_s=[0, 0.01], iterations=2))
        assert done.returncode == 0, done.stderr
        assert place.statuses() == {"ok": 6}
        assert place.query("select count(*) as n from attempt") == [{"n": 6}]
        assert place.query("select count(*) as n from iteration") == [{"n": 12}]
        again = place.sweep(place.spec(3, dwell_s=[0, 0.01], iterations=2))
        assert again.returncode == 0, again.stderr
        assert place.query("select count(*) as n from attempt") == [{"n": 6}]
        place.wait_for_no_survivors()

    def test_b10_never_more_jobs_at_once_than_slots(self, place: Workplace) -> None:
        done = place.sweep(place.spec(50, dwell_s=0.02))
        assert done.returncode == 0, done.stderr
        spans = place.query("select started_at, ended_at from attempt")
        assert len(spans) == 50
        moments = sorted(
            [(span["started_at"], 1) for span in spans] + [(span["ended_at"], -1) for span in spans]
        )
        at_once = highest = 0
        for _, change in moments:
            at_once += change
            highest = max(highest, at_once)
        assert highest <= self.max_at_once

    def test_two_ranks_are_started_together(self, place: Workplace) -> None:
        done = place.sweep(place.spec(2, num_gpus=2))
        assert done.returncode == 0, done.stderr
        assert place.query("select distinct rank from iteration order by rank") == [{"rank": 0}, {"rank": 1}]
        place.wait_for_no_survivors()

    def test_too_wide_job_is_skipped_with_the_arithmetic(self, place: Workplace) -> None:
        done = place.sweep(place.spec(num_gpus=[1, 64]))
        assert done.returncode == 0, done.stderr
        assert place.statuses() == {"ok": 1, "skipped": 1}
        (row,) = place.query("select reason from job where status = 'skipped'")
        assert "num_gpus 64 > " in row["reason"]

    def test_failure_kinds(self, place: Workplace) -> None:
        done = place.sweep(
            place.spec(micro_batch=[act.OK, act.NO_RESULT, act.RAISES, act.KILLED], limits="retries: 0")
        )
        assert done.returncode == 1, done.stderr
        rows = place.query(
            "select j.micro_batch as act, a.status, a.failure_kind from job j join attempt a using (job_id)"
        )
        kinds = {row["act"]: (row["status"], row["failure_kind"]) for row in rows}
        assert kinds == {
            act.OK: ("ok", None),
            act.NO_RESULT: ("failed", "no_result"),
            act.RAISES: ("failed", "exception"),
            act.KILLED: ("failed", "killed"),
        }
        place.wait_for_no_survivors()

    def test_infrastructure_failure_is_tried_again(self, place: Workplace) -> None:
        done = place.sweep(place.spec(micro_batch=act.FAILS_ONCE, limits="retries: 1"))
        assert done.returncode == 0, done.stderr
        assert place.query("select number, status from attempt order by number") == [
            {"number": 1, "status": "failed"},
            {"number": 2, "status": "ok"},
        ]

    def test_timeout_ends_a_job_that_ignores_term(self, place: Workplace) -> None:
        done = place.sweep(place.spec(micro_batch=act.IGNORES_TERM, dwell_s=1000), "--timeout", 1)
        assert done.returncode == 1, done.stderr
        assert place.statuses() == {"timeout": 1}
        place.wait_for_no_survivors()

    def test_grandchild_of_a_job_is_ended(self, place: Workplace) -> None:
        done = place.sweep(place.spec(micro_batch=act.GRANDCHILD))
        assert done.returncode == 0, done.stderr
        place.wait_for_no_survivors()

    def test_logs_are_reachable(self, place: Workplace) -> None:
        assert place.sweep(place.spec(micro_batch=act.PRINTS)).returncode == 0
        (job,) = place.query("select job_id from job")
        logs = place.orch("logs", job["job_id"])
        assert "a line for the log" in logs.stdout, logs.stderr
        assert "and one for stderr" in logs.stdout

    def test_cancel_from_elsewhere_stops_the_sweep(self, place: Workplace) -> None:
        with place.sweeping(place.spec(5, dwell_s=1000)) as process:
            wait_until(
                lambda: place.query(
                    "select 1 from iteration union select 1 from attempt where started_at is not null"
                ),
                "a job runs",
            )
            assert place.orch("cancel", "s").returncode == 0
            _, errors = process.communicate(timeout=240)
        assert process.returncode == 1, errors
        assert "Continue with: orch sweep" in errors
        assert set(place.statuses()) <= {"cancelled", "pending"}
        assert place.statuses()["cancelled"] >= 1
        place.wait_for_no_survivors()

    def test_b5_first_interrupt_cancels_and_the_sweep_continues(self, place: Workplace) -> None:
        with place.sweeping(place.spec(3, dwell_s=[1000])) as process:
            wait_until(lambda: place.statuses().get("running"), "a job runs")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=240)
        assert process.returncode == 130, errors
        assert "cancelled, nothing lost. Continue with: orch sweep" in errors
        assert place.statuses().keys() <= {"cancelled", "pending"}
        place.wait_for_no_survivors()

    def test_b5_second_interrupt_kills_and_every_running_job_is_cancelled(self, place: Workplace) -> None:
        spec = place.spec(3, micro_batch=act.IGNORES_TERM, dwell_s=1000)
        spec.write_text(spec.read_text().replace("grace_s: 1", "grace_s: 1000"))
        with place.sweeping(spec) as process:
            started = "select 1 from attempt where started_at is not null"
            wait_until(lambda: place.query(started), "a job runs")
            # To the whole group, as a terminal does: what orch has started must not die of it halfway.
            os.killpg(process.pid, signal.SIGINT)
            assert process.stderr is not None
            while "stopping" not in (line := process.stderr.readline()):
                assert line, "orch left before it said that it stops"
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=240)
        assert process.returncode == 130, errors
        statuses = place.statuses()
        assert statuses.keys() <= {"cancelled", "pending"}, errors
        cancelled = statuses["cancelled"]
        assert f"{cancelled} cancelled; {cancelled} ran in " in errors
        jobs = "job" if cancelled == 1 else "jobs"
        assert f"stopped: {cancelled} running {jobs} cancelled, nothing lost. Continue with: orch" in errors
        place.wait_for_no_survivors()
