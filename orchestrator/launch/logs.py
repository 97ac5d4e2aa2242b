"""What a process prints, kept to a size: the head in the file, then the newest part."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

HEAD_BYTES = 8 << 20
TAIL_BYTES = 8 << 20


class CappedLog:
    """A log file fed from a pipe. Bytes are bytes: any encoding, any length of line.

    The head goes to the file at once; what comes after it is kept in memory, the newest part only, and
    is appended on ``close`` with a line that says how much is missing.
    """

    def __init__(self, path: Path, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._head_left = head_bytes
        self._tail_bytes = tail_bytes
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0
        self.write_failed = False
        self.last_bytes = b""
        """The newest few kilobytes, for messages."""

    def write(self, data: bytes) -> None:
        """Take in what was read from the pipe."""
        self.last_bytes = (self.last_bytes + data)[-4096:] if len(data) < 4096 else data[-4096:]
        if self._head_left:
            head, data = data[: self._head_left], data[self._head_left :]
            self._head_left -= len(head)
            self._to_file(head)
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._tail_bytes:
                oldest = self._tail.popleft()
                self._tail_size -= len(oldest)
                self._dropped += len(oldest)

    def close(self) -> None:
        """Write the tail and close the file; harmless twice."""
        if self._descriptor < 0:
            return
        if self._dropped:
            self._to_file(b"\n[orch: the log was capped, %d bytes are left out here]\n" % self._dropped)
        for data in self._tail:
            self._to_file(data)
        self._tail.clear()
        os.close(self._descriptor)
        self._descriptor = -1

    def _to_file(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            # A full disk must not take the job with it: its records matter, its log does not.
            self.write_failed = True


def drain(descriptor: int, log: CappedLog, limit_bytes: int = 1 << 20) -> bool:
    """Move what is in a non-blocking pipe into the log; False at its end."""
    moved = 0
    while moved < limit_bytes:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        if not data:
            return False
        log.write(data)
        moved += len(data)
        if len(data) < 1 << 12:
            return True
    return True
