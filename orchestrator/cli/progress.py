"""How a running sweep looks: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from typing import IO, TYPE_CHECKING

from orchestrator.engines.progress import ProgressView, Tally

if TYPE_CHECKING:
    from rich.live import Live

    from orchestrator.store.rows import JobRow
    from orchestrator.store.status import Verdict

_PLAIN_EVERY_S = 10.0
_LIVE_EVERY_S = 0.5
"""Drawing twice a second costs well under 1 % of a core."""


def duration(seconds: float) -> str:
    """``12 min``, ``45 s``, ``3 h 20 min``: as precise as an estimate deserves."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes and hours < 24 else f"{hours} h"


def progress_line(tally: Tally, *, marks: tuple[str, str] = ("✓", "✗")) -> str:
    """``132/216 ✓ 131 ✗ 1 · now: 3f9ac1 round 2 on GPU 0 (iteration 6/10, timed) · 12 min left``."""
    ok, bad = marks
    parts = [f"{tally.done}/{tally.total} {ok} {tally.ok} {bad} {tally.failed}"]
    running = list(tally.running.values())
    if running:
        # The one inside the timed section says most.
        shown = max(running, key=lambda entry: (entry.phase == "timed", entry.iteration))
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        parts.append(f"now: {shown.describe()}{more}")
    elif tally.waits_for_others:
        parts.append("waits for free slots: another orch uses them")
    left_s = tally.left_s()
    if left_s is not None and tally.done < tally.total:
        parts.append(f"{duration(left_s)} left")
    return " · ".join(parts) if ok == "✓" else ", ".join(parts)


def _marks(out: IO[str]) -> tuple[str, str]:
    try:
        "✓✗·".encode(getattr(out, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ("ok", "failed")
    return ("✓", "✗")


class PlainView:
    """Lines for a log file: one every ten seconds at most, failures at once."""

    def __init__(self, out: IO[str], *, quiet: bool = False) -> None:
        self._out = out
        self._quiet = quiet
        self._marks = _marks(out)
        self._next_s = 0.0

    def begin(self, header: str) -> None:
        """The header line."""
        self._next_s = time.monotonic() + _PLAIN_EVERY_S
        if not self._quiet:
            self._say(header)

    def update(self, tally: Tally) -> None:
        """A line, if the last one is old."""
        now_s = time.monotonic()
        if not self._quiet and now_s >= self._next_s:
            self._next_s = now_s + _PLAIN_EVERY_S
            self._say(f" {progress_line(tally, marks=self._marks)}")

    def failed(self, job: JobRow, verdict: Verdict, *, retry: bool) -> None:
        """What failed, and the command that shows its log."""
        self._say(failure_line(job, verdict, retry=retry, mark=self._marks[1]))

    def notice(self, text: str) -> None:
        """The line as it is."""
        self._say(text)

    def end(self) -> None:
        """Nothing: the last line is the command's."""

    def _say(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except UnicodeEncodeError:
            print(text.encode("ascii", "replace").decode(), file=self._out, flush=True)
        except BrokenPipeError:
            pass  # nobody reads progress any more; the sweep goes on


def failure_line(job: JobRow, verdict: Verdict, *, retry: bool, mark: str = "✗") -> str:
    """``✗ a07c22 round 1: out of device memory at the first step · orch logs a07c22/1``."""
    kind = f" ({verdict.failure_kind})" if verdict.failure_kind else ""
    why = verdict.message or "no message"
    again = " · tried again" if retry else f" · orch logs {job.address}"
    return f" {mark} {job.cell_values.short} round {job.repeat}: {verdict.status}{kind}: {why}{again}"


class LiveView(PlainView):
    """One line that stays at the bottom of the terminal; failures scroll by above it."""

    def __init__(self, out: IO[str]) -> None:
        super().__init__(out)
        self._live: Live | None = None

    def begin(self, header: str) -> None:
        """The header line, then the live one."""
        super().begin(header)
        from rich.live import Live
        from rich.text import Text

        from orchestrator.render.terminal import console_for

        self._live = Live(
            Text(""),
            console=console_for(self._out),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start()
        self._next_s = 0.0

    def update(self, tally: Tally) -> None:
        """Draw the line anew, if the last drawing is old."""
        now_s = time.monotonic()
        if self._live is not None and now_s >= self._next_s:
            from rich.text import Text

            self._next_s = now_s + _LIVE_EVERY_S
            line = Text(f" {progress_line(tally, marks=self._marks)}", no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)

    def end(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text: str) -> None:
        if self._live is None:
            super()._say(text)
        else:
            from rich.text import Text

            self._live.console.print(Text(text), soft_wrap=True)


def make_view(out: IO[str], *, quiet: bool = False) -> ProgressView:
    """The live line on a terminal, plain lines elsewhere; with ``quiet`` failures and notices only."""
    from orchestrator.render.terminal import is_terminal, wants_color

    if not quiet and is_terminal(out) and wants_color(out, None):
        return LiveView(out)
    return PlainView(out, quiet=quiet)
