"""What does orch add to a job on a cluster? Beside the engine's own trivial job, in one run.

    python -m benchmarks.cluster_overhead [--jobs 40] [--rounds 3] [--queued 1000] [--only slurm]

Starts a Slurm (needs root), a PostgreSQL server and a Ray on this host. Each line: seconds a job through
orch, then seconds of the engine's own trivial jobs and the ratio to each. Slurm's are ``sbatch`` of a script
that calls ``srun true``, the same with an empty Python, which is the least that a rank costs, and ``srun
true`` without a script, as many at once as there are devices; Ray's are a task in a placement group that does
nothing, and one that starts an empty Python. The last line: calls of squeue while so many jobs lay in Slurm's
queue. Slurm looks at its queue about once a second: only many jobs in many rounds say much.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cluster.ray_cluster import CPUS_PER_NODE, RayCluster
from tests.cluster.slurm_cluster import GPUS_PER_NODE, SlurmCluster
from tests.postgres import private_server, server_programs

ROOT = Path(__file__).resolve().parents[1]


def sweep(folder: Path, db: str, jobs: int, environment: dict[str, str], *options: str) -> float:
    """Seconds from the first attempt's begin to the last one's end, of a sweep of jobs that do nothing."""
    import psycopg

    spec = folder / "noop.yaml"
    spec.write_text(
        f"name: noop-{time.monotonic_ns()}\nrepeats: {jobs}\ndefaults: {{iteration: 1, warmup: 0}}\n"
        "launcher: {name: fork, worker: 'benchmarks.noop_worker:main'}\n"
    )
    command = [sys.executable, "-m", "orchestrator", "sweep", str(spec), "--db", db, "-q", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    question = (
        "select extract(epoch from max(a.ended_at::timestamptz) - min(a.created_at::timestamptz))"
        " from attempt a join job j using (job_id) where j.sweep_id = (select max(sweep_id) from sweep)"
    )
    with psycopg.connect(db) as connection:
        (seconds,) = connection.execute(question).fetchone()  # type: ignore[misc]
    return float(seconds)


def slurm_alone(cluster: SlurmCluster, folder: Path, jobs: int, command: list[str]) -> float:
    """Seconds for so many batch scripts whose one step is that command."""
    script = folder / "trivial.sh"
    script.write_text(f"#!/bin/bash\nsrun {' '.join(command)}\n")
    since_s = time.monotonic()
    for _ in range(jobs):
        cluster.run("sbatch", "--gres=gpu:1", "--output=/dev/null", "--job-name=trivial", str(script))
    while cluster.run("squeue", "-h", "--name=trivial"):
        time.sleep(0.05)
    return time.monotonic() - since_s


def srun_alone(cluster: SlurmCluster, jobs: int) -> float:
    """Seconds for so many ``srun true``, each an allocation of its own without a batch script."""
    devices = GPUS_PER_NODE * len(cluster.names)
    since_s = time.monotonic()
    with ThreadPoolExecutor(devices) as pool:
        list(pool.map(lambda _: cluster.run("srun", "--gres=gpu:1", "true", timeout_s=120.0), range(jobs)))
    return time.monotonic() - since_s


def in_turn(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The median of each, taken in turn: what else the host does meets all of them alike."""
    taken = [[measure() for measure in measures] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def tell(what: str, jobs: int, orch_s: float, **own_s: float) -> None:
    """One line."""
    beside = "; ".join(
        f"{name.replace('_', ' ')} {each_s / jobs:.3f} s, ratio {orch_s / each_s:.2f}"
        for name, each_s in own_s.items()
    )
    print(f"{what}: {jobs} jobs, {orch_s / jobs:.3f} s a job; {beside}", flush=True)


def measure_slurm(folder: Path, db: str, jobs: int, queued: int, rounds: int, only: str | None) -> None:
    """Both modes, and the polls."""
    cluster = SlurmCluster(Path(tempfile.mkdtemp(prefix="orch-s-", dir="/tmp")))
    cluster.up()
    options = ["--engine", "slurm", "--engine-option", "gres=gpu:{gpus}", "--engine-option", "poll_s=1"]
    try:
        environment = cluster.environment()
        pilot = [*options, "--engine-option", "mode=pilot"]
        own: dict[str, Callable[[], float]] = {
            "sbatch_of_srun_true": lambda: slurm_alone(cluster, folder, jobs, ["true"]),
            "sbatch_of_an_empty_Python": lambda: slurm_alone(
                cluster, folder, jobs, [sys.executable, "-c", "pass"]
            ),
            "srun_true": lambda: srun_alone(cluster, jobs),
        }
        modes = {"job": ("slurm, an allocation a job", options), "pilot": ("slurm, a pilot", pilot)}
        for mode, (what, arguments) in modes.items():
            if only in (None, "slurm", mode):
                orch = lambda given=arguments: sweep(folder, db, jobs, environment, *given)  # noqa: E731
                orch_s, *own_s = in_turn(rounds, orch, *own.values())
                tell(what, jobs, orch_s, **dict(zip(own, own_s, strict=True)))
        if only in (None, "slurm", "polls"):
            count_polls(cluster, folder, db, queued, options)
    finally:
        cluster.down()


def count_polls(cluster: SlurmCluster, folder: Path, db: str, queued: int, options: list[str]) -> None:
    """So many jobs wait in a partition that is down; every call of squeue is counted."""
    fake, calls = folder / "bin", folder / "calls"
    fake.mkdir()
    real = subprocess.run(["which", "squeue"], capture_output=True, text=True, check=True).stdout.strip()
    (fake / "squeue").write_text(f'#!/bin/sh\necho >> {calls}\nexec {real} "$@"\n')
    (fake / "squeue").chmod(0o755)
    cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    spec = folder / "many.yaml"
    spec.write_text(
        f"name: many\nrepeats: {queued}\ndefaults: {{iteration: 1, warmup: 0}}\n"
        "launcher: {name: fork, worker: 'benchmarks.noop_worker:main'}\n"
    )
    environment = cluster.environment()
    environment |= {"PATH": f"{fake}:{environment['PATH']}", "PYTHONPATH": str(ROOT), "DS_ACCELERATOR": "cpu"}
    command = [sys.executable, "-m", "orchestrator", "sweep", str(spec), "--db", db, "-q", *options]
    since_s = time.monotonic()
    process = subprocess.Popen(
        [*command, "--engine-option", f"max_queued={queued}"], cwd=folder, env=environment,
        stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    while len(cluster.run("squeue", "-h").splitlines()) < queued:
        time.sleep(0.2)
    submitted_s, before = time.monotonic() - since_s, len(calls.read_text()) if calls.exists() else 0
    time.sleep(20)
    polls = len(calls.read_text()) - before
    process.terminate()
    process.wait()
    print(
        f"slurm, {queued} jobs queued: submitted in {submitted_s:.1f} s,"
        f" {1e3 * submitted_s / queued:.0f} ms a job;"
        f" squeue was called {polls} times in the next 20 s (pauses up to 1 s)",
        flush=True,
    )


def measure_ray(folder: Path, db: str, jobs: int) -> None:
    """A Ray of one node with two processors."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    with RayCluster() as cluster:
        options = ["--engine", "ray", "--engine-option", f"address={cluster.address}"]
        orch_s = sweep(folder, db, jobs, {}, *options)
        ray.init(address=cluster.address, log_to_driver=False)

        def own(function: Callable[[], None]) -> float:
            task = ray.remote(num_cpus=0, max_retries=0)(function)
            since_s = time.monotonic()
            pending: dict[Any, Any] = {}
            left = jobs
            while left or pending:
                # One more than there is room for, as orch does: many pending groups slow Ray down.
                while left and len(pending) < CPUS_PER_NODE + 1:
                    group = placement_group([{"CPU": 1.0}], strategy="STRICT_PACK")
                    place = PlacementGroupSchedulingStrategy(group, 0)
                    pending[task.options(scheduling_strategy=place).remote()] = group
                    left -= 1
                done, _ = ray.wait(list(pending), num_returns=1)
                remove_placement_group(pending.pop(done[0]))
            return time.monotonic() - since_s

        own(do_nothing)  # starts the workers
        own_s, python_s = own(do_nothing), own(start_python)
        ray.shutdown()
    tell("ray", jobs, orch_s, a_task=own_s, a_task_with_an_empty_Python=python_s)


def do_nothing() -> None:
    """A trivial task."""


def start_python() -> None:
    """A task that starts what a rank is at least."""
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queued", type=int, default=1000)
    parser.add_argument("--only", choices=["slurm", "job", "pilot", "ray", "polls"])
    options = parser.parse_args()
    # As on any host: a Python module is compiled once, not at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    programs = server_programs()
    if programs is None:
        sys.exit("no PostgreSQL server on this host")
    with tempfile.TemporaryDirectory(prefix="orch-overhead-") as name, private_server(programs) as server:
        folder = Path(name)
        if options.only != "ray":
            measure_slurm(
                folder, server.new_database(), options.jobs, options.queued, options.rounds, options.only
            )
        if options.only in (None, "ray"):
            measure_ray(folder, server.new_database(), options.jobs)


if __name__ == "__main__":
    main()
