"""Who of this supervisor's attempts may be in the host's timed section: one at a time, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from orchestrator.launch.hoststate import TimedSection
from orchestrator.launch.loop import Loop, Timer

_FIRST_POLL_S = 0.005
_LONGEST_POLL_S = 0.1


class Sections:
    """Hands the host's timed section to attempts; never blocks the loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._section = TimedSection()
        self._holder: object | None = None
        self._line: deque[tuple[object, Callable[[], None]]] = deque()
        self._poll_s = _FIRST_POLL_S
        self._timer: Timer | None = None

    def request(self, who: object, granted: Callable[[], None]) -> bool:
        """Take the section: True if it is held at once, else ``granted`` is called later."""
        if not self._line and self._holder is None and self._section.try_acquire():
            self._holder = who
            return True
        self._line.append((who, granted))
        self._poll()
        return False

    def release(self, who: object) -> None:
        """Give it back, or leave the line; harmless for one who is in neither."""
        if self._holder is who:
            self._holder = None
            self._section.release()
        else:
            self._line = deque(entry for entry in self._line if entry[0] is not who)
        if not self._line and self._holder is None:
            # Do not stay "next in line" when nobody here wants it.
            self._section.release()
        self._poll()

    def _poll(self) -> None:
        if self._holder is not None or not self._line or self._timer is not None:
            return
        if self._section.try_acquire():
            self._poll_s = _FIRST_POLL_S
            who, granted = self._line.popleft()
            self._holder = who
            self._loop.call_soon(granted)
            return
        self._timer = self._loop.call_later(self._poll_s, self._again)
        self._poll_s = min(self._poll_s * 1.5, _LONGEST_POLL_S)

    def _again(self) -> None:
        self._timer = None
        self._poll()
