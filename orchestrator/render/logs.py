"""Writes logs as bytes, with a heading where there is more than one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO

from orchestrator.analysis.logfiles import LogFile, last_lines, whole


def write_logs(logs: Sequence[LogFile], out: IO[bytes], *, tail: int | None) -> None:
    """Each log, whole or its last lines."""
    for log in logs:
        if len(logs) > 1:
            out.write(f"==> {log.title}: {log.path} <==\n".encode())
        last = b"\n"
        for block in [last_lines(log.path, tail)] if tail is not None else whole(log.path):
            out.write(block)
            last = block[-1:] or last
        if last != b"\n":
            out.write(b"\n")
    out.flush()


def write_followed(pieces: Iterable[tuple[LogFile, bytes]], out: IO[bytes], *, several: bool) -> None:
    """Pieces as they come; a heading whenever another log speaks."""
    speaker: LogFile | None = None
    for log, block in pieces:
        if several and log != speaker:
            out.write(f"==> {log.title} <==\n".encode())
            speaker = log
        out.write(block)
        out.flush()
