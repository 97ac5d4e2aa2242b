"""What is to happen to an attempt later, unless it is over by then?"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.launch.loop import Loop, Timer


class Deadlines:
    """The timers of one attempt, which are cancelled together."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._timers: list[Timer] = []
        self._once: set[str] = set()

    def after(self, delay_s: float, run: Callable[[], None]) -> None:
        """Call back after so many seconds."""
        self._timers.append(self._loop.call_later(delay_s, run))

    def after_once(self, name: str, delay_s: float, run: Callable[[], None]) -> None:
        """As ``after``, but only the first time that the name is given."""
        if name not in self._once:
            self._once.add(name)
            self.after(delay_s, run)

    def cancel(self) -> None:
        """Nothing of it happens any more."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
