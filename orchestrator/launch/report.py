"""What one node tells of its part of an attempt, and what all nodes together make of it.

A node judges nothing: it hands over what it saw. Whoever knows all nodes and the scheduler's word judges.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.launch.spool import ErrorRecord
from orchestrator.launch.verdict import AttemptFacts, RankFacts, Stop

if TYPE_CHECKING:
    from orchestrator.launch.attempt import Attempt

_Choice = Callable[[list[Any]], object]
_FIRST = ("host", "launch_mode", "launch_note", "port")
_LEAST = ("started_at", "timed_from_at")
_MOST = ("timed_to_at", "ended_at", "wait_s", "wall_s", "loop_s", "exit_status")
_CHOICES: tuple[tuple[tuple[str, ...], _Choice], ...] = (
    (_FIRST, lambda values: values[0]),
    (_LEAST, min),
    (_MOST, max),
)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node's part of an attempt, when all its processes are gone.

    Attributes:
        facts: of this node's ranks alone.
        columns: columns of ``attempt`` as this node knows them.
    """

    node_rank: int
    host: str
    facts: AttemptFacts
    columns: Mapping[str, object]

    @property
    def was_stopped(self) -> bool:
        """Somebody told the node to stop; who and why, the scheduler may know."""
        return self.facts.stop is Stop.CANCELLED

    @property
    def delivered(self) -> bool:
        """Every rank of the node has delivered its final record."""
        return all(rank.final for rank in self.facts.ranks)


def report_of(attempt: Attempt, host: str) -> NodeReport:
    """The report of an attempt (one node's part) that is over."""
    return NodeReport(attempt.order.node_rank, host, attempt.facts(), attempt.columns())


def report_to_json(report: NodeReport) -> dict[str, Any]:
    """The report as a JSON object."""
    return {
        "v": 1,
        "node_rank": report.node_rank,
        "host": report.host,
        "facts": asdict(report.facts),
        "columns": dict(report.columns),
    }


def report_from_json(body: Mapping[str, Any]) -> NodeReport:
    """Rebuild a report; ValueError for one of another orch."""
    if body.get("v") != 1:
        raise ValueError(f"node report version {body.get('v')!r}")
    facts = dict(body["facts"])
    facts["stop"] = Stop(facts["stop"]) if facts["stop"] else None
    facts["ranks"] = tuple(_rank(rank) for rank in facts["ranks"])
    return NodeReport(body["node_rank"], body["host"], AttemptFacts(**facts), body["columns"])


def _rank(body: Mapping[str, Any]) -> RankFacts:
    error = body["error"]
    return RankFacts(**{**body, "error": ErrorRecord(**error) if error else None})


def merge_facts(reports: Sequence[NodeReport], others: Sequence[RankFacts]) -> AttemptFacts:
    """The facts of the whole attempt; ``others`` are the ranks of nodes that left no report.

    A node that was told to stop because another one had failed explains nothing: it counts as stopped
    only if no node failed by itself.
    """
    ranks = [rank for report in reports for rank in report.facts.ranks] + list(others)
    stopped = [report.facts for report in reports if report.facts.stop not in (None, Stop.CANCELLED)]
    failed = any(report.facts.stop is None and not report.delivered for report in reports)
    if not stopped and not failed:
        stopped = [report.facts for report in reports if report.was_stopped]
    launcher = next((report.facts for report in reports if report.node_rank == 0), AttemptFacts(()))
    return replace(
        launcher,
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        stop=stopped[0].stop if stopped else None,
        stop_detail=stopped[0].stop_detail if stopped else "",
    )


def merge_columns(reports: Sequence[NodeReport]) -> dict[str, object]:
    """Columns of ``attempt``, of all nodes together."""
    each = [report.columns for report in sorted(reports, key=lambda report: report.node_rank)]
    columns: dict[str, object] = {}
    for names, choose in _CHOICES:
        for name in names:
            values = [part[name] for part in each if part.get(name) is not None]
            if values:
                columns[name] = choose(values)
    signals = [part["signal"] for part in each if part.get("signal") is not None]
    if signals:
        columns["signal"] = signals[0]
    uuids = [uuid for part in each for uuid in json.loads(str(part.get("device_uuids") or "[]"))]
    if uuids:
        columns["device_uuids"] = json.dumps(uuids)
    if len(each) > 1:
        columns["hosts"] = json.dumps([report.host for report in sorted(reports, key=lambda r: r.node_rank)])
    return columns
