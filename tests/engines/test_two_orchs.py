"""Two orchs on one host, killed at random moments: slots, ports and timed sections stay exclusive.

The ranks themselves look: each takes a lock of its own on one of as many places as there are slots, and
listens on its port, for as long as it lives. One that finds no place or no port writes that down.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.engines import acting_worker as act
from tests.engines.kill_rounds import held_locks, supervisors_of
from tests.engines.running import Workplace, wait_until

SLOTS, ROUNDS = 2, int(os.environ.get("KILL_ROUNDS", "8"))


class Pair:
    """Two sweeps that are run and killed; with ``to_the_end`` they are then run to their end."""

    def __init__(self, places: list[Workplace], specs: list[Path], *, to_the_end: bool) -> None:
        self._places, self._specs, self._to_the_end = places, specs, to_the_end
        self._processes: list[subprocess.Popen[bytes] | None] = [None, None]
        self._random = random.Random(11)

    def run(self, rounds: int) -> None:
        """Kill one of the two, with or without its supervisor, and start it again; so many times."""
        try:
            for _ in range(rounds):
                for number in (0, 1):
                    self._start(number)
                victim = self._random.randrange(2)
                before = self._begun(victim)
                wait_until(lambda: self._begun(victim) > before, "the victim has begun a job")  # noqa: B023
                wait_until(lambda: True, "", self._random.uniform(0.0, 0.3))
                self._kill(victim)
            for number in (0, 1):
                before = self._begun(number)
                self._start(number)
                if not self._to_the_end:  # SIGINT before Python itself is up ends any program as it likes
                    wait_until(lambda: self._begun(number) > before, "the sweep goes on")  # noqa: B023
            self._end()
        finally:
            for process in filter(None, self._processes):
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _start(self, number: int) -> None:
        process = self._processes[number]
        if process is None or process.poll() is not None:
            assert process is None or process.returncode, "the sweep was over too early: more jobs"
            place = self._places[number]
            with (place.folder / "orch.log").open("ab") as log:
                self._processes[number] = subprocess.Popen(
                    place.command("sweep", self._specs[number], *place.options, "--quiet", "--no-probe"),
                    cwd=place.folder, env=place.environment, stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip

    def _end(self) -> None:
        for process in filter(None, self._processes):
            if not self._to_the_end:
                process.send_signal(signal.SIGINT)
            assert process.wait(300) == (0 if self._to_the_end else 130)

    def _begun(self, number: int) -> int:
        rows = self._places[number].query(
            "select count(*) as n from attempt join job using (job_id) join sweep using (sweep_id)"
            f" where name = '{self._specs[number].stem}'"
        )
        return int(rows[0]["n"]) if rows else 0

    def _kill(self, number: int) -> None:
        process = self._processes[number]
        assert process is not None
        pids = [process.pid]
        if self._random.random() < 0.5:
            pids += supervisors_of(process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=["one database", "two databases"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> list[Workplace]:
    """Two workplaces with one host state."""
    options = ["--engine", "local", "--slots", str(SLOTS)]
    if request.param == "one database":
        place = Workplace(tmp_path, options)
        return [place, place]
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(Workplace(tmp_path / name, options))
    found[1].environment["ORCH_STATE_DIR"] = found[0].environment["ORCH_STATE_DIR"]
    return found


def test_two_orchs_killed_at_random_moments_never_share_a_slot_or_a_port(places: list[Workplace]) -> None:
    together = places[0].folder / "together"
    together.mkdir()
    for place in places:
        place.environment |= {"ACT_TOGETHER": str(together), "ACT_PLACES": str(SLOTS)}
    specs = [
        place.spec(60 * ROUNDS, name=name, micro_batch=act.EXCLUSIVE, dwell_s=0.1, limits="retries: 20")
        for name, place in zip(("one", "two"), places, strict=True)
    ]
    Pair(places, specs, to_the_end=False).run(ROUNDS)
    assert not list(together.glob("violation-*")), [p.read_text() for p in together.glob("violation-*")]
    for place in places:
        twice = "select job_id from attempt where status = 'ok' group by job_id having count(*) > 1"
        assert place.query(twice) == []
        assert place.query("select message from attempt where status = 'failed'") == []
        place.wait_for_no_survivors()
    assert held_locks(Path(places[0].environment["ORCH_STATE_DIR"])) == []


@pytest.mark.deepspeed
def test_timed_sections_of_two_orchs_never_overlap_though_one_is_killed(tmp_path: Path) -> None:
    place = Workplace(tmp_path, ["--engine", "local", "--slots", "2"])
    specs = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"name: {name}\nrepeats: 12\nlimits: {{retries: 20, grace_s: 2}}\n"
            "defaults: {hidden_dim: 64, nlayers: 1, iteration: 3, warmup: 1, dtype: float32, dwell_s: 0.1}\n"
        )
        specs.append(path)
    Pair([place, place], specs, to_the_end=True).run(4)
    assert place.statuses() == {"ok": 24}
    spans = place.query(
        "select timed_from_at, timed_to_at from attempt where timed_to_at is not null order by timed_from_at"
    )
    assert len(spans) >= 24
    assert all(before["timed_to_at"] <= after["timed_from_at"] for before, after in pairwise(spans))
    place.wait_for_no_survivors()


@pytest.mark.parametrize("victim", ["orch", "both"])
def test_same_sweep_is_refused_while_its_orch_lives_and_free_the_moment_it_is_dead(
    place: Workplace, victim: str
) -> None:
    spec = place.spec(2, micro_batch=act.WAITS_FOR_GO)
    for number in range(3):
        with place.sweeping(spec) as process:
            wait_until(lambda: len(_attempts(place)) > 2 * number, "it has begun jobs")  # noqa: B023
            refused = place.sweep(spec)
            assert (refused.returncode, refused.stdout) == (4, "")
            assert refused.stderr.count("\n") == 1
            pids = [process.pid, *(supervisors_of(process.pid) if victim == "both" else [])]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            process.wait()
    (place.folder / "go").touch()
    free = place.sweep(spec)
    assert free.returncode == 0, free.stderr
    place.wait_for_no_survivors()


def _attempts(place: Workplace) -> list[dict[str, object]]:
    return place.query("select attempt_id from attempt")
