"""Which lines of a log help nobody: announcements of libraries, and warnings that were shown before.

An error is never left out: what is left out is counted, and what is not known for noise stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

_LONGEST_LINE = 1 << 16
"""A line of more bytes is no warning: it is passed on in pieces, never held."""

_PYTHON_WARNING = re.compile(rb"(?P<path>[^\s:][^:]*\.py):\d+: (?P<kind>\w*Warning): ")
_PACKAGE = re.compile(rb"/(?:site|dist)-packages/([\w-]+)")
# What a library tells its own developers; nobody who measures can do anything about it.
_ANNOUNCEMENTS = (b"FutureWarning", b"DeprecationWarning", b"PendingDeprecationWarning")
# [2026-11-30 21:38:31,096] [WARNING] [runner.py:214:fetch_hostfile] …  and
# [rank0]:[W1130 21:38:31.123456789 ProcessGroup.cpp:12] …
_STAMPED = (
    re.compile(rb"\[[-\d]+ [\d:,.]+\] \[(?P<kind>INFO|WARNING)\] (?P<text>.*)", re.DOTALL),
    re.compile(rb"(?:\[rank\d+\]:)?\[(?P<kind>W)\d{4} [\d:.]+ (?P<text>.*)", re.DOTALL),
)
_KINDS = {b"INFO": "line of DeepSpeed", b"WARNING": "warning of DeepSpeed", b"W": "warning of torch"}


class Fold:
    """Takes a log in blocks and gives back what is worth reading.

    Attributes:
        left_out: how often each kind of noise was left out.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._unfinished = b""
        self._is_long = False
        self._warning_was_left_out = False
        self._seen: set[bytes] = set()

    def feed(self, block: bytes) -> bytes:
        """What of the log so far may be shown; an unfinished line waits for its end."""
        *lines, self._unfinished = (self._unfinished + block).split(b"\n")
        shown = b"".join(line for line in (line + b"\n" for line in lines) if self._is_shown(line))
        if self._is_long or len(self._unfinished) > _LONGEST_LINE:
            shown, self._unfinished, self._is_long = shown + self._unfinished, b"", True
        return shown

    def end(self) -> bytes:
        """What was still waiting."""
        line, self._unfinished = self._unfinished, b""
        return line if line and self._is_shown(line) else b""

    def through(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """What is worth reading of a log that ends with these blocks."""
        for block in blocks:
            yield self.feed(block)
        yield self.end()

    def _is_shown(self, line: bytes) -> bool:
        if self._is_long:  # the rest of a line whose beginning is out already
            self._is_long = not line.endswith(b"\n")
            return True
        if self._warning_was_left_out:
            self._warning_was_left_out = False
            if line.startswith(b"  ") and not line.startswith(b"   "):  # the source line of a Python warning
                return False
        noise = self._noise(line)
        if noise is None:
            return True
        self.left_out[noise] += 1
        return False

    def _noise(self, line: bytes) -> str | None:
        """What kind of noise the line is; None if it is worth reading."""
        if found := _PYTHON_WARNING.match(line):
            kind = found["kind"]
            package = _PACKAGE.search(found["path"])
            is_announced = package is not None and kind in _ANNOUNCEMENTS
            if not is_announced and self._is_new(line):
                return None
            self._warning_was_left_out = True
            whose = f" of {package[1].decode()}" if package else ""
            return f"{kind.decode()}{whose}"
        for form in _STAMPED:
            if found := form.match(line):
                return None if self._is_new(found["kind"] + found["text"]) else _KINDS[found["kind"]]
        return None

    def _is_new(self, text: bytes) -> bool:
        if text in self._seen:
            return False
        self._seen.add(text)
        return True


def told(left_out: Counter[str]) -> str:
    """``left out of the log: 22 × FutureWarning of torch``; empty if nothing was."""
    parts = [f"{count} × {kind}" for kind, count in left_out.most_common()]
    return f"left out of the log: {', '.join(parts)}" if parts else ""
