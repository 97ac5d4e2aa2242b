"""What a supervisor tells, in the engines' words."""

from __future__ import annotations

from orchestrator.engines.base import EngineEvent, Notice, Progress, Started
from orchestrator.launch import events


def engine_event(event: events.SupervisorEvent) -> EngineEvent | None:
    """What a supervisor tells, for the loop; None for an end, which each engine settles its own way."""
    match event:
        case events.Started(uid, mode, _, _):
            return Started(uid, mode)
        case events.Waiting(uid, what):
            return Progress(uid, f"waits for the {what}")
        case events.Timed(uid, on):
            return Progress(uid, "timed" if on else "")
        case events.Progress(uid, iteration, of):
            return Progress(uid, None, iteration, of)
        case events.Notice(text):
            return Notice(text)
    return None
