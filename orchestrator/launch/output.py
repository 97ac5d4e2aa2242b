"""Where does what a process prints go? Through a pipe into a log that cannot grow without end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from orchestrator.launch.logs import CappedLog, drain
from orchestrator.launch.loop import Loop


class Output:
    """What one process and its children print, on its way into a capped log."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self.log = CappedLog(path)
        self._loop = loop
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        loop.watch(self._read_end, self._drain)

    def close_write_end(self) -> None:
        """Only the processes hold it from now on."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what is left and close; harmless twice."""
        self.close_write_end()
        if self._read_end >= 0:
            drain(self._read_end, self.log, limit_bytes=64 << 20)
            self._end()
        self.log.close()

    def last_line(self, preferred: Callable[[str], bool] | None = None) -> str:
        """The last line that is not blank, for a message; the last ``preferred`` one where there is any."""
        lines = [line.strip()[:300] for line in self.log.last_bytes.decode(errors="replace").splitlines()]
        said = [line for line in reversed(lines) if line]
        if preferred is not None:
            said = [line for line in said if preferred(line)] or said
        return said[0] if said else ""

    def _drain(self) -> None:
        if not drain(self._read_end, self.log):
            self._end()

    def _end(self) -> None:
        self._loop.unwatch(self._read_end)
        os.close(self._read_end)
        self._read_end = -1
