"""Real supervisors, real processes; every test ends by proving that none of them survived."""

from __future__ import annotations

import os
import select
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.launch.client import SupervisorClient
from orchestrator.launch.events import Ended, SupervisorEvent
from orchestrator.launch.order import LaunchOrder, RankPlacement
from orchestrator.launch.processes import all_pids, environment_value, is_inside, stat_of, working_directory

WAIT_S = 30.0


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Wait for a condition, or fail saying what did not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.005)


class Bench:
    """One supervisor client and everything it has said."""

    def __init__(self, client: SupervisorClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.said: list[SupervisorEvent] = []

    def order(self, worker: str, *, ranks: int = 1, uid: str | None = None, **fields: object) -> LaunchOrder:
        """An order for a torch-free worker of ``tests.launch.workers``."""
        uid = uid or uuid.uuid4().hex
        name = worker if ":" in worker else f"tests.launch.workers:{worker}"
        order = LaunchOrder(
            attempt_uid=uid,
            attempt_id=1,
            job_id=1,
            sweep="test",
            parameters={"iteration": 2, "warmup": 0},
            run_dir=str(self.folder / "runs" / "sweep" / uid),
            ranks=tuple(RankPlacement(rank, rank) for rank in range(ranks)),
            world_size=ranks,
            accelerator="cpu",
            db_url=None,
            worker=name,
            finish=False,
            launcher="spawn",
            grace_s=5.0,
        )
        return replace(order, **fields)  # type: ignore[arg-type]

    def run(self, order: LaunchOrder) -> Ended:
        """Start it and wait for its end."""
        self.client.start(order)
        return self.ended(order.attempt_uid)

    def ended(self, uid: str) -> Ended:
        """Wait for the end of an attempt."""
        return self.until(lambda e: isinstance(e, Ended) and e.attempt_uid == uid, f"the end of {uid}")  # type: ignore[return-value]

    def until(self, wanted: Callable[[SupervisorEvent], bool], what: str) -> SupervisorEvent:
        """Wait for an event."""
        deadline = time.monotonic() + WAIT_S
        while True:
            for event in self.said:
                if wanted(event):
                    return event
            left = deadline - time.monotonic()
            assert left > 0, f"waited {WAIT_S} s for {what}; heard {self.said[-5:]}"
            select.select([self.client], [], [], left)
            self.said += self.client.events()
            assert self.client.alive or any(map(wanted, self.said)), f"the supervisor died: {what}"


def processes_of(folder: Path) -> list[int]:
    """Living processes that work below the folder or belong to an attempt of it, zombies left out."""
    found = []
    uids = {path.name for path in folder.glob("runs/*/*")}
    for pid in all_pids():
        stat = stat_of(pid)
        if stat is None or stat.state in "ZX" or pid == os.getpid():
            continue
        if is_inside(working_directory(pid), str(folder)) or environment_value(pid, "ORCH_ATTEMPT") in uids:
            found.append(pid)
    return found


@pytest.fixture
def make_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Bench]]:
    """Makes supervisors; at the end none of their processes is left."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    benches: list[Bench] = []

    def make(**options: object) -> Bench:
        settings: dict[str, object] = {"db_url": None, "state_dir": tmp_path / "state", **options}
        client = SupervisorClient(log_path=tmp_path / f"supervisor{len(benches)}.log", **settings)  # type: ignore[arg-type]
        benches.append(Bench(client, tmp_path))
        return benches[-1]

    yield make
    pids = [bench.client.pid for bench in benches]
    for bench in benches:
        bench.client.close()
    wait_until(lambda: not processes_of(tmp_path), f"no survivors of {tmp_path}", 20.0)
    assert [pid for pid in pids if stat_of(pid) is not None and stat_of(pid).state != "Z"] == []  # type: ignore[union-attr]


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    """One supervisor."""
    return make_bench()


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A listening socket on some port below the ephemeral range."""
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        yield listener
