"""Has the user asked to stop? SIGINT and SIGTERM, counted, never as an exception out of nowhere."""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType, TracebackType
from typing import Any

_STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Counts the signals that ask the sweep to stop, while its context lasts.

    An exception raised by a handler could tear a transaction or lose an event; a count cannot. A
    byte on ``wake_fd`` ends whatever ``select`` is waited in, so a signal acts at once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: signal.Signals | None = None
        self.wake_fd, self._write_fd = os.pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._write_fd, False)
        self._before: dict[signal.Signals, Any] = {}
        self._fd_before = -1

    @property
    def exit_status(self) -> int:
        """128 + the first signal's number; 0 if there was none."""
        return 128 + self.first if self.first is not None else 0

    def drain(self) -> None:
        """Forget the bytes on ``wake_fd``."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake_fd, 64):
                pass

    def __enter__(self) -> StopSignals:
        for number in _STOPPING_SIGNALS:
            self._before[number] = signal.signal(number, self._asked)
        # Only bytes for signals with a Python handler are written: SIGINT, SIGTERM, SIGWINCH...
        self._fd_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.wake_fd)
        os.close(self._write_fd)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.first is None:
            self.first = signal.Signals(number)
