"""A launch order: what an engine asks a supervisor to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from orchestrator.spec.axes import AxisValue
from orchestrator.spec.jobfile import DEFAULT_WORKER, RankPlacement

__all__ = ["LaunchOrder", "Launcher", "RankPlacement", "order_from_json"]

Launcher = Literal["fork", "spawn", "deepspeed"]


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One attempt (or one node's part of it) as a supervisor is to run it.

    Attributes:
        parameters: every axis and its value; None = inactive.
        ds: nested DeepSpeed overrides.
        env: environment variables of the cell.
        worker: ``module:function`` that is the rank; called with the job file's path and the rank.
        ranks: this node's ranks.
        port: rendezvous port; None = the supervisor leases one.
        accelerator: ``cuda`` or ``cpu``.
        timed_section: hold the host's timed section from before the launch to the last timed operation.
        timeout_s: wall clock from launch to the last rank's end; waiting does not count.
        grace_s: between TERM and KILL.
        start_timeout_s: from launch to the first timed operation of every rank.
        hang_s: longest time without a record once started; None = not watched.
        retries_left: whether a failure that may pass (killed, no result, hang) makes the job pending again.
        infrastructure_retries_left: the same for faults that are not the job's (port taken, server died,
            disk full).
        finish: this supervisor takes in the spool, judges and ends the attempt in the database.
        neighbours: further groups of ranks that run the same loop on other devices (contention).
        probe_every_s: a node that serves no sweep of its own measures its link when the last
            measurement is so old; None = never.
        probe_command: measures it instead of orch's own probe; empty = orch's own.
    """

    attempt_uid: str
    attempt_id: int
    job_id: int
    sweep: str
    parameters: Mapping[str, AxisValue]
    run_dir: str
    ranks: tuple[RankPlacement, ...]
    world_size: int
    accelerator: str
    db_url: str | None
    ds: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher = "fork"
    worker: str = DEFAULT_WORKER
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    port: int | None = None
    timed_section: bool = True
    timeout_s: float = 1800.0
    grace_s: float = 10.0
    start_timeout_s: float = 600.0
    hang_s: float | None = None
    retries_left: int = 0
    infrastructure_retries_left: int = 3
    finish: bool = True
    neighbours: tuple[tuple[RankPlacement, ...], ...] = ()
    probe_every_s: float | None = None
    probe_command: tuple[str, ...] = ()

    @property
    def local_size(self) -> int:
        """Ranks on this node."""
        return len(self.ranks)

    def to_json(self) -> dict[str, object]:
        """The order as a JSON object."""
        document: dict[str, object] = {name: getattr(self, name) for name in _FIELDS}
        document["ranks"] = [placement.to_json() for placement in self.ranks]
        document["neighbours"] = [[rank.to_json() for rank in group] for group in self.neighbours]
        return document


_FIELDS = tuple(f.name for f in fields(LaunchOrder))


def order_from_json(document: Mapping[str, Any]) -> LaunchOrder:
    """Rebuild an order from its JSON object; TypeError if a field is unknown or missing."""
    values = dict(document)
    values["ranks"] = tuple(RankPlacement(**placement) for placement in document["ranks"])
    values["neighbours"] = tuple(
        tuple(RankPlacement(**placement) for placement in group) for group in document.get("neighbours", ())
    )
    values["probe_command"] = tuple(document.get("probe_command", ()))
    return LaunchOrder(**values)
