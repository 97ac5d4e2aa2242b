"""What does orch hand to ``sbatch``? The options of a job and its batch script."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.launch.environment import python_path
from orchestrator.launch.paths import AttemptPaths
from orchestrator.spec.options import SlurmOptions

REQUEUED_STATUS = 75
NO_GRES = "none"


def sbatch_options(
    options: SlurmOptions,
    *,
    name: str,
    comment: str,
    folder: Path,
    nodes: int,
    ranks_per_node: int,
    gpus: bool,
) -> list[str]:
    """The arguments of ``sbatch`` beside the script.

    Args:
        name: finds the job again when the answer of ``sbatch`` is lost.
        gpus: the ranks are to have a GPU each.
    """
    arguments = [
        f"--job-name={name}",
        f"--comment={comment}",
        f"--chdir={folder}",
        f"--output={AttemptPaths(folder).slurm_log}",
        "--open-mode=append",
        "--export=ALL",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        # Whether a job is tried again is the database's decision, as another attempt.
        "--no-requeue",
    ]
    given = (
        ("partition", options.partition),
        ("account", options.account),
        ("qos", options.qos),
        ("constraint", options.constraint),
        ("time", options.time_minutes),
        ("gres", _gres(options, ranks_per_node, gpus)),
    )
    arguments += [f"--{key}={value}" for key, value in given if value is not None]
    extra = [part for line in options.extra for part in shlex.split(line.removeprefix("#SBATCH"))]
    if not any(part.startswith(("--cpus-per", "-c")) for part in extra):
        arguments.append(f"--cpus-per-task={ranks_per_node}")
    return [*arguments, *extra]


def _gres(options: SlurmOptions, ranks_per_node: int, gpus: bool) -> str | None:
    if options.gres is None:
        return f"gpu:{ranks_per_node}" if gpus else None
    return None if options.gres == NO_GRES else options.gres.replace("{gpus}", str(ranks_per_node))


def write_script(path: Path, module: str, arguments: Sequence[str], *, nodes: int) -> None:
    """The batch script: one process of ``module`` on each node.

    One node needs no ``srun``: the script itself becomes the process. A requeued job does nothing: its
    first run belongs to an attempt that is over.
    """
    command = shlex.join([sys.executable, "-P", "-m", module, *arguments])
    if nodes > 1:
        # A step does not inherit the processors of a task.
        cpus = "${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}"
        command = f"srun --kill-on-bad-exit=1 --ntasks-per-node=1 --nodes={nodes} {cpus} {command}"
    lines = ["#!/bin/bash"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in python_path().items()]
    lines += [
        'if [ "${SLURM_RESTART_COUNT:-0}" != 0 ]; then',
        '    echo "orch: Slurm has requeued this job; orch starts another one"',
        f"    exit {REQUEUED_STATUS}",
        "fi",
        f"exec {command}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
