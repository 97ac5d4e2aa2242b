"""The log files of an attempt: which there are, their ends, and following them while they grow."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.store.queries_report import Value
from orchestrator.store.rows import IMPORT_ENGINE

_RANK_LOG = re.compile(r"rank(\d+)\.log")
_PAUSE_S = 0.2
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log; ``rank`` is None for a launcher's or sampler's."""

    path: Path
    rank: int | None

    @property
    def title(self) -> str:
        """``rank 0`` or the file's stem."""
        return f"rank {self.rank}" if self.rank is not None else self.path.stem


def choose_attempt(attempts: list[dict[str, Value]], number: int | None, job: str) -> Mapping[str, Value]:
    """The attempt of that number; None = the last.

    Raises:
        OrchError: there is no such attempt.
    """
    if not attempts:
        raise OrchError(f"job {job} has not been started, so it has no log", "", f"see: orch show {job}")
    if attempts[-1]["engine"] == IMPORT_ENGINE:
        raise OrchError(f"job {job} was imported from a log of the example, so no log of its own is known")
    for attempt in reversed(attempts):
        if number is None or attempt["number"] == number:
            return attempt
    raise OrchError(
        f"job {job} has no attempt {number}", "--attempt", f"it has 1 to {attempts[-1]['number']}"
    )


def log_files(attempt: Mapping[str, Value], rank: int | None = None) -> list[LogFile]:
    """The attempt's logs that lie here, ranks first; one rank's alone if asked.

    Raises:
        OrchError: none is here; says on which host and in which folder they were written.
    """
    folder = Path(str(attempt["run_dir"]))
    found = [LogFile(path, _rank_of(path)) for path in folder.glob("*.log")] if folder.is_dir() else []
    found.sort(key=lambda log: (log.rank is None, log.rank or 0, log.path.name))
    chosen = [log for log in found if rank is None or log.rank == rank]
    if chosen:
        return chosen
    if found:
        there = ", ".join(str(log.rank) for log in found if log.rank is not None) or "none"
        raise OrchError(f"there is no log of rank {rank}", str(folder), f"ranks with a log: {there}")
    host = attempt.get("host") or "an unknown host"
    raise OrchError(
        f"no log lies here; they were written on {host}",
        str(folder),
        f"look there: ssh {host} 'tail -n 50 {folder}/*.log'" if attempt.get("host") else "",
    )


def _rank_of(path: Path) -> int | None:
    match = _RANK_LOG.fullmatch(path.name)
    return int(match[1]) if match else None


def last_lines(blocks: Iterable[bytes], lines: int) -> bytes:
    """The last lines of what comes in blocks; everything if there are fewer. No more than they are held."""
    held: deque[bytes] = deque()
    newlines = 0
    for block in blocks:
        held.append(block)
        newlines += block.count(b"\n")
        while held and newlines - held[0].count(b"\n") > lines:
            newlines -= held.popleft().count(b"\n")
    kept = b"".join(held).split(b"\n")
    # What stands after the last newline is a line only if there is something.
    whole_lines = [line + b"\n" for line in kept[:-1]] + [kept[-1]] * bool(kept[-1])
    return b"".join(whole_lines[-lines:]) if lines > 0 else b""


def first_bytes(path: Path, size: int) -> Iterator[bytes]:
    """The first bytes of a file, in blocks: what comes later is for whoever follows it."""
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, _READ_BYTES))):
            size -= len(block)
            yield block


def follow(
    logs: Mapping[LogFile, int], has_ended: Callable[[], bool], pause: Callable[[float], None] = time.sleep
) -> Iterator[tuple[LogFile, bytes]]:
    """What the logs hold from those bytes on, until the attempt has ended and everything was read."""
    files = [(log, log.path.open("rb")) for log in logs]
    try:
        for log, file in files:
            file.seek(logs[log])
        ended = False
        while True:
            grown = False
            for log, file in files:
                while block := file.read(_READ_BYTES):
                    grown = True
                    yield log, block
            if ended and not grown:
                return
            # Asked before the next read, so that what came before the end is never missed.
            ended = has_ended()
            if not grown and not ended:
                pause(_PAUSE_S)
    finally:
        for _, file in files:
            file.close()
