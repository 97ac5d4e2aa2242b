"""What is common to all attempts of a sweep: which worker, how started, how long, how often."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.launch.order import Launcher
from orchestrator.spec.jobfile import DEFAULT_WORKER


@dataclass(frozen=True, slots=True)
class RunSetting:
    """What the attempts of a sweep have in common, whoever starts them.

    Attributes:
        db_url: the results database, for whoever writes from elsewhere.
        sweep: name of the sweep.
        launcher: ``fork``, ``spawn`` or ``deepspeed``.
        worker: ``module:function`` that is a rank.
        timeout_s: wall clock of one attempt, waiting for the timed section left out.
        grace_s: between TERM and KILL.
        start_timeout_s: until the first rank has started, builds included.
        hang_s: without a spool line for that long a rank hangs; ``None`` = never judged so.
        retries: of an infrastructure failure, a job.
        consecutive_failures: after so many failed jobs in a row nothing more is begun; 0 = never.
        probe_every_s: between two link probes of a device that orch does not see itself; ``None`` = none.
        probe_command: measures the link instead of orch's own probe; empty = orch's own.
    """

    db_url: str
    sweep: str
    launcher: Launcher = "fork"
    worker: str = DEFAULT_WORKER
    timeout_s: float = 1800.0
    grace_s: float = 10.0
    start_timeout_s: float = 600.0
    hang_s: float | None = None
    retries: int = 1
    consecutive_failures: int = 10
    probe_every_s: float | None = None
    probe_command: tuple[str, ...] = ()

    @property
    def takes_timed_section(self) -> bool:
        """Whether jobs hold the host's timed section: orch's own worker does, it times transfers."""
        return self.worker == DEFAULT_WORKER
