"""On a real terminal: colour, width and pager; elsewhere none of them."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest


def on_terminal(
    results: Path, *arguments: str, columns: int = 100, lines: int = 500, **environment: str
) -> str:
    """What ``orch`` writes to a pseudo-terminal of that size."""
    command = ["-m", "orchestrator", *arguments, "--db", str(results)]
    return python_on_terminal(command, columns=columns, lines=lines, **environment)


def python_on_terminal(command: list[str], *, columns: int, lines: int, **environment: str) -> str:
    """What Python writes to a pseudo-terminal of that size."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "PAGER")}
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=follower, stdout=follower, stderr=subprocess.PIPE, env=kept | {"TERM": "xterm"} | environment,
    )  # fmt: skip
    os.close(follower)
    written = b""
    while True:
        try:
            block = os.read(leader, 65536)
        except OSError as error:  # Linux says so when the other end is closed
            assert error.errno == errno.EIO
            break
        if not block:
            break
        written += block
    os.close(leader)
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    return written.decode().replace("\r\n", "\n")


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


@pytest.mark.parametrize("columns", [60, 100, 160])
def test_a_report_is_no_wider_than_the_terminal(results: Path, columns: int) -> None:
    text = on_terminal(results, "report", "cpu-quick", columns=columns, NO_COLOR="1")
    assert widest(text) <= columns
    assert "0.0203 s" in text


def test_colour_is_for_a_terminal_only(results: Path) -> None:
    assert "\x1b[" in on_terminal(results, "status")
    assert "\x1b[" in on_terminal(results, "report", "cpu-quick")
    plain = subprocess.run([sys.executable, "-m", "orchestrator", "report", "--db", str(results)],
                           capture_output=True, text=True, check=True)  # fmt: skip
    assert "\x1b[" not in plain.stdout


@pytest.mark.parametrize("command", [("status",), ("report", "cpu-quick"), ("show", "1")])
def test_no_color_is_respected(results: Path, command: tuple[str, ...]) -> None:
    assert "\x1b[" not in on_terminal(results, *command, "--no-color")
    assert "\x1b[" not in on_terminal(results, *command, NO_COLOR="1")


def test_a_long_report_goes_through_the_pager_and_a_short_one_does_not(results: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\necho through the pager\n")
    pager.chmod(0o755)
    assert on_terminal(results, "report", lines=20, PAGER=str(pager)) == "through the pager\n"
    assert "best setting" in (tmp_path / "paged").read_text()
    assert "through the pager" not in on_terminal(results, "report", "cpu-quick", lines=200, PAGER=str(pager))


def test_the_report_at_the_end_of_a_sweep_never_waits_in_a_pager(results: Path, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho through the pager\n")
    pager.chmod(0o755)
    call = f"from orchestrator.cli.sweep_end import print_report; print_report('gpu-full', {str(results)!r})"
    text = python_on_terminal(["-c", call], columns=100, lines=20, PAGER=str(pager))
    assert "best setting" in text
    assert "through the pager" not in text


@pytest.mark.parametrize(("columns", "sweep"), [(80, "bytes"), (80, "full"), (120, "full")])
def test_a_plan_of_many_axes_stays_a_row_a_cell(results: Path, columns: int, sweep: str) -> None:
    text = on_terminal(results, "plan", sweep, columns=columns, NO_COLOR="1", PAGER="cat")
    lines = text.splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("───"))
    heading, rows = " ".join(lines[rule - 3 : rule]).split(), lines[rule + 1 :]
    assert {"cell", "differs", "in", "GPU", "bytes", "pinned", "host", "fits"} <= set(heading)
    assert widest("\n".join([*lines[rule - 2 : rule + 1], *rows[:20]])) <= columns
    assert "── 1 ──" not in text


def test_a_column_folds_between_words_only(results: Path) -> None:
    text = on_terminal(results, "report", "gpu-full", columns=120, NO_COLOR="1", PAGER="cat")
    assert not [line for line in text.splitlines() if line.strip().startswith(")")]


def test_sql_heads_a_column_with_the_name_that_a_query_can_use(results: Path) -> None:
    text = on_terminal(results, "sql", "select offload_s_median from job_summary", NO_COLOR="1")
    assert text.splitlines()[0].strip() == "offload_s_median"
