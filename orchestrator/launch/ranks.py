"""What is known of one rank, and who is told when that changes?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orchestrator.launch.order import RankPlacement
from orchestrator.launch.output import Output
from orchestrator.launch.spool import SpoolTail

if TYPE_CHECKING:
    from orchestrator.launch.group import RankGroup


class RankState:
    """One rank: where it runs, whether it lives, how it ended."""

    def __init__(self, placement: RankPlacement, tail: SpoolTail) -> None:
        self.placement = placement
        self.tail = tail
        self.output: Output | None = None
        self.pid: int | None = None
        self.ended = False
        self.exit_status: int | None = None
        self.signal: int | None = None
        """The signal that ended it, unless it was ours."""


class GroupWatcher(Protocol):
    """Who is told about a group."""

    def rank_forked(self, group: RankGroup) -> None:
        """The fork server has forked another rank."""

    def rank_ended(self, _group: RankGroup, _state: RankState) -> None:
        """A rank's process has ended (its records have been read)."""

    def group_refused(self, group: RankGroup, reason: str) -> None:
        """The fork server would not fork."""

    def group_lost_its_server(self, _group: RankGroup) -> None:
        """The fork server died with the ranks."""
