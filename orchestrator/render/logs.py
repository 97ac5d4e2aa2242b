"""Writes logs as bytes, with a heading where there is more than one, and without the known noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import IO

from orchestrator.analysis.logfiles import LogFile, first_bytes, last_lines
from orchestrator.analysis.lognoise import Fold, told


class LogWriter:
    """Writes the logs of one attempt to one stream.

    Args:
        out: where to.
        raw: everything, the noise too.
    """

    def __init__(self, out: IO[bytes], *, raw: bool) -> None:
        self._out = out
        self._raw = raw
        self._folds: dict[LogFile, Fold] = {}

    def write(
        self, logs: Sequence[LogFile], *, tail: int | None, is_whole: bool = True
    ) -> dict[LogFile, int]:
        """Write each log, all of it or its last lines.

        Args:
            is_whole: nothing is to follow: an unfinished last line is shown, too.

        Returns:
            How many bytes of each log have been read.
        """
        read = {}
        for log in logs:
            if len(logs) > 1:
                self._out.write(f"==> {log.title}: {log.path} <==\n".encode())
            read[log] = size = log.path.stat().st_size
            blocks = self._shown(log, first_bytes(log.path, size), is_whole)
            last = b"\n"
            for block in blocks if tail is None else [last_lines(blocks, tail)]:
                self._out.write(block)
                last = block[-1:] or last
            if last != b"\n":
                self._out.write(b"\n")
        self._out.flush()
        return read

    def follow(self, pieces: Iterable[tuple[LogFile, bytes]], *, several: bool) -> None:
        """Write pieces as they come; a heading whenever another log speaks."""
        speaker: LogFile | None = None
        for log, shown in chain(self._folded(pieces), self._rests()):
            if not shown:
                continue
            if several and log != speaker:
                self._out.write(f"==> {log.title} <==\n".encode())
                speaker = log
            self._out.write(shown)
            self._out.flush()

    def left_out(self) -> str:
        """What was left out, in words; empty if nothing was."""
        return told(sum((fold.left_out for fold in self._folds.values()), Counter()))

    def _fold(self, log: LogFile) -> Fold:
        return self._folds.setdefault(log, Fold())

    def _shown(self, log: LogFile, blocks: Iterable[bytes], is_whole: bool) -> Iterator[bytes]:
        for block in blocks:
            yield block if self._raw else self._fold(log).feed(block)
        if is_whole and not self._raw:
            yield self._fold(log).end()

    def _folded(self, pieces: Iterable[tuple[LogFile, bytes]]) -> Iterator[tuple[LogFile, bytes]]:
        for log, block in pieces:
            yield log, block if self._raw else self._fold(log).feed(block)

    def _rests(self) -> Iterator[tuple[LogFile, bytes]]:
        """Last lines without an end, once nothing more follows."""
        for log, fold in self._folds.items():
            if rest := fold.end():
                yield log, rest + b"\n"
