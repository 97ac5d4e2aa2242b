"""What a supervisor says, and its form on the wire: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.store.status import FailureKind, JobStatus, Verdict


@dataclass(frozen=True, slots=True)
class Started:
    """The ranks of an attempt have been started."""

    attempt_uid: str
    launch_mode: str
    port: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The attempt waits: for the host's timed section, for the fork server to be ready, or for the database.

    What waits for the database has no process any more: only its record is missing.
    """

    attempt_uid: str
    what: str = "timed section"


@dataclass(frozen=True, slots=True)
class Timed:
    """The attempt holds the host's timed section from now on, or no longer."""

    attempt_uid: str
    on: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Iterations that every rank has recorded, of how many."""

    attempt_uid: str
    iteration: int
    of: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt is over; where the order said ``finish``, the database knows it too.

    ``retry``: the job is pending again. ``report``: where the order did not, what the node saw
    (``report.report_to_json``), for whoever judges.
    """

    attempt_uid: str
    verdict: Verdict
    retry: bool
    report: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for a person."""

    text: str


SupervisorEvent = Started | Waiting | Timed | Progress | Ended | Notice


def event_to_line(event: SupervisorEvent) -> bytes:
    """The event as one line of JSON."""
    match event:
        case Started():
            body = {
                "event": "started",
                "uid": event.attempt_uid,
                "mode": event.launch_mode,
                "port": event.port,
                "note": event.note,
            }
        case Waiting():
            body = {"event": "waiting", "uid": event.attempt_uid, "what": event.what}
        case Timed():
            body = {"event": "timed", "uid": event.attempt_uid, "on": event.on}
        case Progress():
            body = {
                "event": "progress",
                "uid": event.attempt_uid,
                "iteration": event.iteration,
                "of": event.of,
            }
        case Ended():
            body = {
                "event": "ended",
                "uid": event.attempt_uid,
                "retry": event.retry,
                **verdict_to_json(event.verdict),
            }
            if event.report is not None:
                body["report"] = event.report
        case Notice():
            body = {"event": "notice", "text": event.text}
    return json.dumps(body).encode() + b"\n"


def event_from_json(body: Mapping[str, Any]) -> SupervisorEvent:
    """Rebuild an event; ValueError if it is unknown."""
    match body["event"]:
        case "started":
            return Started(body["uid"], body["mode"], body["port"], body["note"])
        case "waiting":
            return Waiting(body["uid"], body["what"])
        case "timed":
            return Timed(body["uid"], body["on"])
        case "progress":
            return Progress(body["uid"], body["iteration"], body["of"])
        case "ended":
            return Ended(body["uid"], verdict_from_json(body), body["retry"], body.get("report"))
        case "notice":
            return Notice(body["text"])
    raise ValueError(f"unknown supervisor event {body['event']!r}")


def verdict_to_json(verdict: Verdict) -> dict[str, object]:
    """A verdict as JSON."""
    kind = verdict.failure_kind
    return {
        "status": verdict.status.value,
        "failure_kind": kind.value if kind else None,
        "message": verdict.message,
    }


def verdict_from_json(body: Mapping[str, Any]) -> Verdict:
    """Rebuild a verdict."""
    kind = body["failure_kind"]
    return Verdict(JobStatus(body["status"]), FailureKind(kind) if kind else None, body["message"])
