"""Did the kernel kill for memory? The cgroup's counters and, where readable, the kernel's log."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

_KILLED = re.compile(r"Killed process (\d+)")
_FRESH_S = 1.0


def _counter_files() -> list[Path]:
    files = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        group = group.lstrip("/")
        if controllers == "":
            files += [Path("/sys/fs/cgroup") / group / "memory.events"]
        elif "memory" in controllers.split(","):
            files += [
                Path("/sys/fs/cgroup/memory") / group / "memory.oom_control",
                Path("/sys/fs/cgroup/memory/memory.oom_control"),
            ]
    return [path for path in files if path.exists()]


class OomWatch:
    """Sees the kernel's kills from its creation on."""

    def __init__(self) -> None:
        self._files = _counter_files()
        try:
            self._log: int | None = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._log, 0, os.SEEK_END)
        except OSError:
            self._log = None
        self._killed_pids: set[int] = set()
        self._count = 0
        self._counted_at = -_FRESH_S

    def recent_count(self) -> int:
        """``count``, not older than a second: some kernels take a millisecond to tell."""
        if time.monotonic() - self._counted_at > _FRESH_S:
            self._count, self._counted_at = self.count(), time.monotonic()
        return self._count

    def count(self) -> int:
        """Kills that the cgroup has counted so far."""
        total = 0
        for path in self._files:
            try:
                lines = path.read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return total

    def killed(self, pid: int | None, count_before: int) -> bool:
        """Whether a process that died of KILL did so for memory.

        ``count_before`` is ``recent_count()`` at its start: a counter that has moved is taken as the reason.
        """
        self._read_log()
        self._count, self._counted_at = self.count(), time.monotonic()
        return self._count > count_before or (pid is not None and pid in self._killed_pids)

    def _read_log(self) -> None:
        while self._log is not None:
            try:
                record = os.read(self._log, 8192)
            except BlockingIOError:
                return
            except OSError as error:
                # EPIPE: records were overwritten before they were read; the next read goes on.
                if error.errno == 32:
                    continue
                return
            match = _KILLED.search(record.decode(errors="replace"))
            if match:
                self._killed_pids.add(int(match[1]))
