"""Is it certain that no job of the sweep can run on this host? Said before anything is written or started."""

from __future__ import annotations

import os

from orchestrator.doctor.finding import Finding
from orchestrator.doctor.linking import check_linking
from orchestrator.doctor.software import missing_packages
from orchestrator.errors import EngineError
from orchestrator.spec.jobfile import DEFAULT_WORKER
from orchestrator.spec.models import axis_value
from orchestrator.spec.plan import Plan


def refuse_unfit_host(plan: Plan) -> None:
    """Raise EngineError with ``orch doctor``'s words if what the jobs need is not there.

    Only for jobs of this host: those of a cluster run elsewhere. A worker of the user's own needs what it
    needs, but the ``deepspeed`` launcher is DeepSpeed's own command.
    """
    if plan.engine.name != "local":
        return
    is_built_in = plan.launcher.worker == DEFAULT_WORKER
    findings: list[Finding] = []
    if is_built_in or plan.launcher.name == "deepspeed":
        findings += missing_packages()
    if is_built_in and any(axis_value(cell.values, "optimizer") == "adam" for cell in plan.cells):
        findings += check_linking(os.environ)
    if findings:
        first = findings[0]
        raise EngineError(first.message, first.evidence, first.mend)
