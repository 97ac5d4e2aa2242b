"""From the request of a user to a finished sweep: read the file, open the database, run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.engines.base import SweepOptions
from orchestrator.engines.choose import EngineChoice, choose, hosts_of, make_engine
from orchestrator.engines.outcome import SweepOutcome
from orchestrator.engines.progress import ProgressView
from orchestrator.engines.run import run_sweep
from orchestrator.engines.unfit import refuse_unfit_host
from orchestrator.spec.load import load_plan
from orchestrator.spec.plan import Plan
from orchestrator.store.opening import open_store
from orchestrator.store.url import without_passwords

_PROBE_EVERY_S = 300.0
_PATIENCE_S = 2.0
"""With a server that is away; the loop asks again, and sees signals and ends of jobs meanwhile."""
_LEAVE_WITHIN_S = 30.0
"""Beyond the grace: for taking in what the stopped ranks left."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """Everything that the command line of ``orch sweep`` says.

    Attributes:
        command: the arguments as typed, for "Continue with".
    """

    spec: Path
    db_url: str
    name: str | None = None
    overrides: tuple[str, ...] = ()
    max_jobs: int = 10_000
    timeout_s: float | None = None
    retry_failed: bool = False
    fail_fast: bool = False
    probe: bool = True
    choice: EngineChoice = field(default_factory=EngineChoice)
    command: tuple[str, ...] = ()


def plan_of(request: SweepRequest) -> Plan:
    """The sweep file, resolved, with what the command line replaces; SpecError if it is wrong."""
    plan = load_plan(request.spec, overrides=request.overrides, max_jobs=request.max_jobs, name=request.name)
    if request.timeout_s is not None:
        plan = replace(plan, limits=replace(plan.limits, timeout_s=request.timeout_s))
    return choose(plan, request.choice)


def launch_sweep(request: SweepRequest, view: ProgressView) -> SweepOutcome:
    """Run the sweep; everything that can be wrong is found before anything is written or started."""
    plan = plan_of(request)
    refuse_unfit_host(plan)
    for warning in plan.warnings:
        view.notice(f"warning: {warning}")
    options = SweepOptions(
        retry_failed=request.retry_failed,
        fail_fast=request.fail_fast,
        probe_every_s=_PROBE_EVERY_S if request.probe else None,
        retries=plan.limits.retries,
        stop_within_s=plan.limits.grace_s + _LEAVE_WITHIN_S,
        continue_with=without_passwords(shlex.join(["orch", *request.command])),
    )
    engine = make_engine(plan, request.db_url, request.choice.gpus, options)
    hosts = getattr(engine, "hosts", hosts_of(plan.engine.name))
    with open_store(request.db_url, create=True, hosts=hosts, patience_s=_PATIENCE_S) as store:
        return run_sweep(store, plan, engine, options, view)
