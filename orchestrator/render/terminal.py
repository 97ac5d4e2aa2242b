"""What the terminal can do: its width, its colours, its pager."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def is_terminal(out: IO[str]) -> bool:
    """Whether a person looks at this stream."""
    try:
        return out.isatty()
    except ValueError:  # closed
        return False


def wants_color(out: IO[str], color: bool | None) -> bool:
    """``color`` if given; else a terminal without NO_COLOR that is not dumb."""
    if color is not None:
        return color
    return is_terminal(out) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def stream_width(out: IO[str]) -> int | None:
    """Columns of the terminal (or $COLUMNS on one); None = not a terminal, no limit."""
    return shutil.get_terminal_size().columns if is_terminal(out) else None


def wrapped(line: str, width: int) -> str:
    """The line in as many as the terminal needs, further in than its own beginning; no word is broken."""
    inner = " " * (len(line) - len(line.lstrip()) + 4)
    return textwrap.fill(line, width, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)


def console_for(out: IO[str], *, color: bool | None = None, width: int | None = None) -> Console:
    """A rich console on this stream that adds no colour of its own to numbers or paths."""
    from rich.console import Console

    class Output(Console):
        """rich would leave with status 1 when the reader has gone, which here means that a job failed."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    colored = wants_color(out, color)
    return Output(
        file=out,
        width=width if width is not None else stream_width(out) or 10_000,
        force_terminal=colored,
        color_system="standard" if colored else None,
        no_color=not colored,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )


class _TerminalText(io.StringIO):
    """Collects text for the pager while looking like the terminal it will be shown on."""

    def isatty(self) -> bool:
        return True


@contextmanager
def paged(out: IO[str], *, wide: bool = False) -> Iterator[IO[str]]:
    """Give a stream; what is longer than the screen goes through the pager, on a terminal only.

    $PAGER is honoured; ``less`` gets the options that keep colours and leave short text alone, and for
    ``wide`` lines the one that scrolls sideways instead of folding them.
    """
    if out is not sys.stdout or not is_terminal(out):
        yield out
        return
    held = _TerminalText()
    yield held
    text = held.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines and not wide:
        out.write(text)
        return
    import click

    os.environ.setdefault("LESS", "-RFXS" if wide else "-RFX")
    click.echo_via_pager(text, color=wants_color(out, None))
