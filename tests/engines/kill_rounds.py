"""SIGKILL at random moments: does anything get lost, is anything left?

    python -m tests.engines.kill_rounds [--rounds 100] [--worker acting|deepspeed] [--victims orch rank ...]

One sweep is killed and continued until so many kills have happened, then run to its end. Each rank has
children of the kinds that are hard to find, and leaves shared memory. Printed: what was killed how often,
and what must be: every cell ok exactly once, no acknowledged iteration lost, nothing left of any process,
lock or shared memory. Exit status 1 if it is not so.

``both`` is orch with its supervisor, ``all`` its fork servers too, ``child`` something that a rank started.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.doctor.jitlocks import extensions_dirs
from tests.engines import acting_worker as act
from tests.engines.running import Workplace, wait_until

VICTIMS = ("orch", "supervisor", "both", "all", "server", "rank", "child")
_LIMITS = "retries: 20, consecutive_failures: 1000, start_timeout_s: 600"


@dataclass
class Outcome:
    """What the rounds have done, and what is to be seen after them.

    Attributes:
        killed: kills by victim.
        attempts: by status.
        jobs: of the sweep; each must have exactly one attempt that is ok.
        ok_once: jobs that have.
        acknowledged: complete iteration lines of all spools.
        lost: those that the database does not have.
        survivors: processes that are left.
        shared_memory: files of our ranks that are left.
        locks: of slots, ports and the timed section that somebody still holds.
    """

    killed: Counter[str] = field(default_factory=Counter)
    attempts: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    ok_once: int = 0
    acknowledged: int = 0
    lost: int = 0
    survivors: list[int] = field(default_factory=list)
    shared_memory: list[str] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether all is as it must be."""
        left = self.lost or self.survivors or self.shared_memory or self.locks
        return bool(self.jobs and self.ok_once == self.jobs and self.acknowledged and not left)

    def lines(self) -> list[str]:
        """For people."""
        kills = ", ".join(f"{victim} {count}" for victim, count in sorted(self.killed.items()))
        ended = ", ".join(f"{count} {status}" for status, count in sorted(self.attempts.items()))
        return [
            f"killed                  {self.killed.total()} times: {kills}",
            f"attempts                {sum(self.attempts.values())}: {ended}",
            f"cells ok exactly once   {self.ok_once} of {self.jobs}",
            f"acknowledged iterations {self.acknowledged}, lost {self.lost}",
            f"survivors               {len(self.survivors)}",
            f"shared-memory files     {len(self.shared_memory)}",
            f"locks still held        {len(self.locks)}",
        ]


class Rounds:
    """Kills one sweep of a workplace again and again."""

    def __init__(self, place: Workplace, spec: Path, jobs: int, seed: int, longest_s: float) -> None:
        self._place, self._spec, self._jobs = place, spec, jobs
        self._random = random.Random(seed)
        self._longest_s = longest_s
        self._orch: subprocess.Popen[bytes] | None = None
        self.outcome = Outcome(jobs=jobs)

    def run(self, rounds: int, victims: Sequence[str]) -> Outcome:
        """So many kills, the end of the sweep, and the account."""
        try:
            for _ in range(rounds):
                self._round(self._random.choice(victims))
            assert self._orch is not None
            self._orch.wait(1800)
        finally:
            if self._orch is not None and self._orch.poll() is None:
                self._orch.kill()
                self._orch.wait()
        runs = Path(f"{self._place.db}.runs")
        acknowledged = acknowledged_iterations(runs)
        last = self._place.sweep(self._spec, "--no-probe", timeout_s=1800)
        assert last.returncode == 0, last.stderr
        self._count(acknowledged | acknowledged_iterations(runs))
        return self.outcome

    def _round(self, victim: str) -> None:
        if self._orch is None or self._orch.poll() is not None:
            self._orch = self._start()
        begun = self._begun()
        wait_until(lambda: self._over() or (self._begun() > begun and self._ranks()), "a job is at it", 600)
        time.sleep(self._random.uniform(0.0, self._longest_s))
        assert not self._over(), "the sweep was over before it could be killed: more --jobs"
        pids = self._pids_of(victim)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.outcome.killed[victim] += bool(pids)
        if victim in ("orch", "both", "all"):
            self._orch.wait(60)
        if victim == "orch":
            # Its supervisor stops everything by itself; after "both" it is the next orch that does.
            self._place.wait_for_no_survivors()

    def _start(self) -> subprocess.Popen[bytes]:
        place = self._place
        with (place.folder / "orch.log").open("ab") as log:
            return subprocess.Popen(
                place.command("sweep", self._spec, *place.options, "--quiet", "--no-probe"),
                cwd=place.folder, env=place.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _over(self) -> bool:
        return self._orch is not None and self._orch.poll() is not None

    def _begun(self) -> int:
        rows = self._place.query("select max(attempt_id) as n from attempt")
        return int(rows[0]["n"] or 0) if rows else 0

    def _pids_of(self, victim: str) -> list[int]:
        """Whom to kill; several for ``both`` and ``all``, orch first."""
        assert self._orch is not None
        supervisors, servers = self._supervisors(), self._servers()
        match victim:
            case "orch":
                return [self._orch.pid]
            case "both":
                return [self._orch.pid, *_pids(supervisors)]
            case "all":
                return [self._orch.pid, *_pids(supervisors), *_pids(servers)]
            case "supervisor":
                return _pids(supervisors)
        candidates = {"server": servers, "rank": self._ranks(), "child": self._family()}[victim]
        return [self._random.choice(_pids(candidates))] if candidates else []

    def _supervisors(self) -> list[psutil.Process]:
        assert self._orch is not None
        return [psutil.Process(pid) for pid in supervisors_of(self._orch.pid) if psutil.pid_exists(pid)]

    def _servers(self) -> list[psutil.Process]:
        below = [child for one in self._supervisors() for child in _children(one.pid)]
        # What ranks have left comes to the supervisor, and looks like the server that forked it.
        return [one for one in below if _runs(one, "worker.server") and _leads_its_session(one)]

    def _ranks(self) -> list[psutil.Process]:
        below = [child for one in self._servers() for child in _children(one.pid)]
        return [one for one in below if _leads_its_session(one)]

    def _family(self) -> list[psutil.Process]:
        ranks = _pids(self._ranks())
        found = [child for pid in ranks for child in _children(pid, recursive=True)]
        servers = _pids(self._servers())
        for one in self._supervisors():
            found += [child for child in _children(one.pid) if child.pid not in servers]
        return found

    def _count(self, acknowledged: set[tuple[str, int, int]]) -> None:
        place, outcome = self._place, self.outcome
        rows = place.query("select status, count(*) as n from attempt group by status")
        outcome.attempts = {row["status"]: row["n"] for row in rows}
        ok = place.query(
            "select job_id from attempt a join job using (job_id) where a.status = 'ok' and job.status = 'ok'"
            " group by job_id having count(*) = 1"
        )
        outcome.ok_once = len(ok)
        stored = place.query(
            "select a.uid, i.rank, i.iteration from iteration i join attempt a using (attempt_id)"
        )
        outcome.acknowledged = len(acknowledged)
        outcome.lost = len(acknowledged - {(row["uid"], row["rank"], row["iteration"]) for row in stored})
        with contextlib.suppress(AssertionError):
            place.wait_for_no_survivors()
        outcome.survivors = place.survivors()
        outcome.shared_memory = _shared_memory(place)
        outcome.locks = held_locks(Path(place.environment["ORCH_STATE_DIR"]))


def supervisors_of(orch: int) -> list[int]:
    """The supervisors of a running orch: one, or none for a moment."""
    return [one.pid for one in _children(orch) if _runs(one, "orchestrator.launch.supervisor")]


def held_locks(state: Path) -> list[str]:
    """Lock files of the host's state that some process holds."""
    held = []
    for path in state.iterdir():
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
        except OSError:
            held.append(path.name)
        finally:
            os.close(descriptor)
    return held


def _children(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.Error:
        return False


def _leads_its_session(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except ProcessLookupError:
        return False


def _pids(processes: Sequence[psutil.Process]) -> list[int]:
    return [process.pid for process in processes]


def acknowledged_iterations(runs_root: Path) -> set[tuple[str, int, int]]:
    """Every complete iteration line of every spool: attempt, rank, iteration."""
    found = set()
    for spool in runs_root.glob("*/*/spool/rank*.jsonl"):
        for line in spool.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            if record["kind"] == "iteration":
                found.add((spool.parent.parent.name, record["rank"], record["iteration"]))
    return found


def _shared_memory(place: Workplace) -> list[str]:
    """What our ranks have left in shared memory, by the ports that they had."""
    ports = set()
    for job_file in Path(f"{place.db}.runs").glob("*/*/job.json"):
        with contextlib.suppress(OSError, ValueError):
            ports.add(str(json.loads(job_file.read_text())["port"]))
    names = os.listdir("/dev/shm")
    return [
        name for name in names if name.startswith(("torch_", "deepspeed_")) and ports & {*name.split("_")}
    ]


def acting(place: Workplace, jobs: int) -> Path:
    """A sweep of torch-free ranks, each with a family."""
    return place.spec(jobs, iterations=5, dwell_s=0.05, micro_batch=act.FAMILY, limits=_LIMITS)


def deepspeed(place: Workplace, jobs: int) -> Path:
    """A sweep of real ranks, one and two, each with a family."""
    # Real servers write down which modules they learned; the built ops are the user's own.
    place.environment["XDG_CACHE_HOME"] = str(place.folder / "cache")
    for built in extensions_dirs(os.environ)[:1]:
        place.environment["TORCH_EXTENSIONS_DIR"] = str(built)
    spec = place.folder / "real.yaml"
    spec.write_text(
        f"name: real\nrepeats: {jobs // 2}\n"
        "defaults: {hidden_dim: 64, nlayers: 1, iteration: 5, warmup: 1, dtype: float32, dwell_s: 0.1,"
        " model: 'tests.engines.family:model'}\n"
        f"matrix: {{num_gpus: [1, 2]}}\nlimits: {{grace_s: 2, {_LIMITS}}}\n"
    )
    return spec


SWEEPS = {"acting": (acting, 0.3, 6), "deepspeed": (deepspeed, 3.0, 4)}
"""How the sweep is made, the longest wait before a kill (seconds), and jobs a round."""


def run_rounds(
    place: Workplace, worker: str, rounds: int, victims: Sequence[str] = VICTIMS, seed: int = 9, jobs: int = 0
) -> Outcome:
    """Kill the sweep of that worker so often, and account for it."""
    make, longest_s, jobs_a_round = SWEEPS[worker]
    jobs = jobs or max(jobs_a_round * rounds, 4)
    return Rounds(place, make(place, jobs), jobs, seed, longest_s).run(rounds, victims)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--worker", choices=SWEEPS, default="acting")
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS), metavar="VICTIM")
    parser.add_argument("--jobs", type=int, default=0, help="of the sweep; default: enough for the rounds")
    parser.add_argument("--seed", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orch-kills-") as name:
        place = Workplace(Path(name))
        outcome = run_rounds(
            place, options.worker, options.rounds, options.victims, options.seed, options.jobs
        )
    print("\n".join(outcome.lines()))
    return 0 if outcome.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
