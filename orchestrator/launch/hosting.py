"""What does an attempt need of the supervisor that it runs under?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orchestrator.launch.children import Children
from orchestrator.launch.events import SupervisorEvent
from orchestrator.launch.loop import Loop
from orchestrator.launch.oom import OomWatch
from orchestrator.launch.sections import Sections
from orchestrator.launch.servers import ForkServers

if TYPE_CHECKING:
    from orchestrator.launch.attempt import Attempt
    from orchestrator.launch.group import RankGroup


class Host(Protocol):
    """The supervisor as its attempts see it."""

    loop: Loop
    children: Children
    servers: ForkServers
    sections: Sections
    oom: OomWatch

    def emit(self, event: SupervisorEvent) -> None:
        """Tell orch."""

    def attempt_over(self, attempt: Attempt) -> None:
        """Every process of the attempt is gone: judge and record it."""

    def watch_spool(self, attempt: Attempt, group: RankGroup) -> None:
        """Call ``spool_changed`` when a file in the group's spool folder changes."""

    def others_active(self, attempt: Attempt) -> bool:
        """Whether other attempts have processes now."""
