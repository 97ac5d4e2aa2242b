"""How does orch watch jobs it cannot wait for? Often at first, more and more seldom while nothing happens."""

from __future__ import annotations

import json
import time

from orchestrator.engines.base import EngineEvent
from orchestrator.engines.told import engine_event
from orchestrator.launch import events
from orchestrator.launch.node import events_path
from orchestrator.launch.paths import AttemptPaths

_FACTOR = 1.5


class Pace:
    """When to look next: ``least_s`` after something has changed, then ever later up to ``most_s``."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._pause_s = least_s
        self.due_s = 0.0
        """On the monotonic clock."""

    def is_due(self) -> bool:
        """Whether it is time to look."""
        return time.monotonic() >= self.due_s

    def looked(self, *, changed: bool, at_least_s: float = 0.0) -> None:
        """One look has been taken."""
        self._pause_s = self._least_s if changed else min(self._pause_s * _FACTOR, self._most_s)
        self.due_s = time.monotonic() + max(self._pause_s, at_least_s)

    def speed_up(self) -> None:
        """Something is about to change."""
        self._pause_s = self._least_s
        self.due_s = min(self.due_s, time.monotonic() + self._least_s)


class EventTail:
    """What the first node of an attempt tells in its events file."""

    def __init__(self, paths: AttemptPaths) -> None:
        self._path = events_path(paths, 0)
        self._offset = 0
        self.started_at: str | None = None

    def read(self) -> list[EngineEvent]:
        """The events since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        said = [self._engine_event(json.loads(line)) for line in whole.splitlines()]
        return [event for event in said if event is not None]

    def _engine_event(self, body: dict[str, object]) -> EngineEvent | None:
        event = events.event_from_json(body)
        if isinstance(event, events.Started):
            self.started_at = str(body["at"]) if "at" in body else None
        return None if isinstance(event, events.Notice) else engine_event(event)
