"""The typed options of a sweep beside its axes: limits, engine, launcher.

Frozen dataclasses inside, checked by pydantic at the border (``document.py``); every field is a key of
the sweep file, its docstring line is the description in the JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, MinLen

from orchestrator.spec.jobfile import DEFAULT_WORKER

PositiveSeconds = Annotated[float, Gt(0)]
PositiveCount = Annotated[int, Gt(0)]
Count = Annotated[int, Ge(0)]
Text = Annotated[str, MinLen(1)]

_FORBID: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}

EngineName = Literal["local", "slurm", "ray"]
LauncherName = Literal["fork", "spawn", "deepspeed"]
Order = Literal["interleave", "random", "sequential"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a job or the whole sweep is given up.

    Attributes:
        timeout_s: wall clock of one attempt from its start, seconds; waiting for the host does not count.
        retries: further attempts after one that failed for a reason outside the job.
        consecutive_failures: the sweep stops after so many failed jobs in a row.
        grace_s: seconds between TERM and KILL.
        start_timeout_s: seconds until every rank has joined its process group.
        hang_s: seconds without a new record before an attempt counts as hung; none = only the timeout.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID

    timeout_s: PositiveSeconds = 1800.0
    retries: Count = 1
    consecutive_failures: PositiveCount = 10
    grace_s: Annotated[float, Ge(0)] = 10.0
    start_timeout_s: PositiveSeconds = 600.0
    hang_s: PositiveSeconds | None = None


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Jobs on this host. ``gpus``: device indices to use, none = all; ``slots``: ranks at once."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID

    gpus: tuple[Count, ...] | None = None
    slots: PositiveCount | None = None


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """Jobs through ``sbatch``: an allocation for each (``job``) or one for many (``pilot``).

    Attributes:
        time_minutes: time limit of an allocation; none = the partition's.
        gres: devices of a node, ``{gpus}`` stands for their number; none = ``gpu:{gpus}`` where the nodes
            have GPUs; the word ``none`` asks for no device.
        extra: further options of sbatch, e.g. ``--mem=0``.
        mode: ``pilot`` for many short jobs of one node each.
        max_pilots: allocations at once in pilot mode.
        gpus_per_node: ranks that a pilot runs at once; none = the devices (or processors) of a node.
        max_queued: jobs that orch keeps in Slurm's queue, running ones included.
        poll_s: longest pause between two looks at the queue.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID

    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    time_minutes: PositiveCount | None = None
    gres: Text | None = None
    extra: tuple[Text, ...] = ()
    mode: Literal["job", "pilot"] = "job"
    max_pilots: PositiveCount = 1
    gpus_per_node: PositiveCount | None = None
    max_queued: PositiveCount = 200
    poll_s: PositiveSeconds = 5.0


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Jobs through Ray placement groups."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID

    address: Text | None = None
    start_timeout_s: PositiveSeconds = 300.0
    strategy: Literal["STRICT_SPREAD", "SPREAD", "PACK", "STRICT_PACK"] = "STRICT_SPREAD"


EngineSettings = LocalOptions | SlurmOptions | RayOptions

ENGINE_SETTINGS: dict[EngineName, type[LocalOptions] | type[SlurmOptions] | type[RayOptions]] = {
    "local": LocalOptions,
    "slurm": SlurmOptions,
    "ray": RayOptions,
}


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where jobs run; ``options`` is of the class that ``ENGINE_SETTINGS`` names."""

    name: EngineName = "local"
    options: EngineSettings = field(default_factory=LocalOptions)


@dataclass(frozen=True, slots=True)
class LauncherOptions:
    """How ranks become processes; ``worker`` is the ``module:function`` that a rank runs."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _FORBID

    name: LauncherName = "fork"
    worker: Annotated[str, MinLen(3)] = DEFAULT_WORKER
