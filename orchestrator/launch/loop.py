"""The supervisor's event loop: descriptors, timers, and work handed over by a thread."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
import traceback
from collections import deque
from collections.abc import Callable

from orchestrator.launch.complain import complain

_TIMERS = 256
"""More than so many are looked through for cancelled ones."""


def _nothing() -> None:
    """What a cancelled timer does."""


class Timer:
    """Something that is to happen at a monotonic instant, unless cancelled."""

    __slots__ = ("__weakref__", "cancelled", "run", "when")

    def __init__(self, when: float, run: Callable[[], None]) -> None:
        self.when = when
        self.run = run
        self.cancelled = False

    def cancel(self) -> None:
        """It will not happen; what it would have called is let go, since it may lie in the heap for long."""
        self.cancelled = True
        self.run = _nothing


class Loop:
    """Runs callbacks in one thread. Only ``post`` may be called from another.

    A callback that raises is told about on standard error and must not stop the others: the deadlines of
    whatever it belonged to still come.
    """

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._sweep_timers_at = _TIMERS
        self._soon: deque[Callable[[], None]] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._running = False
        self.watch(self._wake_read, self._take_posted)

    @property
    def wake_descriptor(self) -> int:
        """Where ``signal.set_wakeup_fd`` may write."""
        return self._wake_write

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call back whenever the descriptor is readable or at its end."""
        self._readers[descriptor] = on_readable
        self._register(descriptor)

    def watch_writable(self, descriptor: int, on_writable: Callable[[], None] | None) -> None:
        """Call back whenever the descriptor takes data; None ends it."""
        if on_writable is None:
            self._writers.pop(descriptor, None)
        else:
            self._writers[descriptor] = on_writable
        self._register(descriptor)

    def unwatch(self, descriptor: int) -> None:
        """Forget the descriptor; call before closing it."""
        self._readers.pop(descriptor, None)
        self._writers.pop(descriptor, None)
        self._register(descriptor)

    def call_later(self, delay_s: float, run: Callable[[], None]) -> Timer:
        """Call back after so many seconds."""
        timer = Timer(time.monotonic() + delay_s, run)
        if len(self._timers) > self._sweep_timers_at:
            # Deadlines half an hour away would outlive a hundred thousand short jobs.
            self._timers = [entry for entry in self._timers if not entry[2].cancelled]
            heapq.heapify(self._timers)
            self._sweep_timers_at = max(_TIMERS, 2 * len(self._timers))
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def call_soon(self, run: Callable[[], None]) -> None:
        """Call back in the next turn."""
        self._soon.append(run)

    def post(self, run: Callable[[], None]) -> None:
        """Call back in the loop's thread; the one method for other threads."""
        self._posted.append(run)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\1")

    def stop(self) -> None:
        """Return from ``run`` after this turn."""
        self._running = False

    def run(self) -> None:
        """Turn until ``stop``."""
        self._running = True
        while self._running:
            self._turn()

    def close(self) -> None:
        """Free the loop's descriptors."""
        self._poll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _turn(self) -> None:
        for descriptor, event in self._poll.poll(self._patience_s()):
            if event & ~select.EPOLLOUT and (reader := self._readers.get(descriptor)):
                self._call(reader)
            if event & select.EPOLLOUT and (writer := self._writers.get(descriptor)):
                self._call(writer)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._call(timer.run)
        for _ in range(len(self._soon)):
            self._call(self._soon.popleft())

    def _patience_s(self) -> float:
        if self._soon or self._posted:
            return 0.0
        # Cancelled timers at the front are dropped here, those further back when they come up.
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            return -1
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _register(self, descriptor: int) -> None:
        mask = (select.EPOLLIN if descriptor in self._readers else 0) | (
            select.EPOLLOUT if descriptor in self._writers else 0
        )
        if not mask:
            with contextlib.suppress(OSError, ValueError):
                self._poll.unregister(descriptor)
            return
        try:
            self._poll.modify(descriptor, mask)
        except FileNotFoundError:
            self._poll.register(descriptor, mask)

    def _take_posted(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._posted:
            self._call(self._posted.popleft())

    @staticmethod
    def _call(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - see the class.
            complain(traceback.format_exc())
