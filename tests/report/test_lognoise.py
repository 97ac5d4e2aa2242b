"""Logs without the noise that helps nobody: counted, never an error, whatever the blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.logfiles import LogFile
from orchestrator.analysis.lognoise import Fold, told
from orchestrator.cli.main import main
from orchestrator.render.logs import LogWriter
from tests.fixtures.make_results import JobPlan, Writer, axes

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py:83"
FUTURE = f"{TORCH}: FutureWarning: `reduce_scatter_tensor` is deprecated.\n  return func(*args, **kwargs)\n"
USER = "/home/me/model.py:7: UserWarning: this model is slow\n  warnings.warn(text)\n"
STAMPED = "[2026-11-30 21:38:{:02d},463] [WARNING] [runner.py:214:fetch_hostfile] Unable to find hostfile\n"
NCCL = "[rank0]:[W1130 21:38:{:02d}.123456789 ProcessGroupNCCL.cpp:12] Warning: no device id\n"
ERROR = "[2026-11-30 21:38:36,104] [ERROR] [launch.py:259:sigkill_handler] exits with return code = 1\n"
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/opt/venv/lib/python3.11/site-packages/torch/optim/optimizer.py", line 400, in __init__\n'
    "    raise ValueError(text)\n"
    "ValueError: optimizer got an empty parameter list\n"
)


def shown(text: str, block: int = 1 << 16) -> tuple[str, Fold]:
    fold, data = Fold(), text.encode()
    blocks = (data[start : start + block] for start in range(0, len(data), block))
    return b"".join(fold.through(blocks)).decode(), fold


def test_what_libraries_announce_is_left_out_and_counted() -> None:
    text, fold = shown("begin\n" + FUTURE * 5 + "end\n")
    assert text == "begin\nend\n"
    assert told(fold.left_out) == "left out of the log: 5 × FutureWarning of torch"


def test_a_warning_of_the_users_own_code_is_shown_once() -> None:
    text, fold = shown(USER + "between\n" + USER + USER)
    assert text == USER + "between\n"
    assert fold.left_out == {"UserWarning": 2}


@pytest.mark.parametrize("line", [STAMPED, NCCL])
def test_a_line_that_differs_from_an_earlier_one_by_its_time_is_shown_once(line: str) -> None:
    text, fold = shown(line.format(1) + line.format(2) + line.format(3))
    assert text == line.format(1)
    assert sum(fold.left_out.values()) == 2


@pytest.mark.parametrize("error", [ERROR, TRACEBACK, "RuntimeError: boom\n", "orch: records stay in x\n"])
def test_an_error_is_shown_every_time(error: str) -> None:
    text, _ = shown((error + FUTURE) * 3)
    assert text == error * 3


def test_an_error_right_after_a_warning_is_not_taken_for_its_source_line() -> None:
    text, _ = shown(FUTURE.splitlines(keepends=True)[0] + "RuntimeError: boom\n    indented\n")
    assert text == "RuntimeError: boom\n    indented\n"


LINES = st.lists(
    st.sampled_from(
        [FUTURE, USER, STAMPED.format(1), STAMPED.format(2), ERROR, TRACEBACK, "a line\n", "\n", "\r"]
    )
)


@given(LINES, st.integers(1, 60), st.sampled_from(["", "no end"]))
def test_the_size_of_the_blocks_changes_nothing(pieces: list[str], block: int, end: str) -> None:
    text = "".join(pieces) + end
    assert shown(text, block)[0] == shown(text)[0]
    assert shown(text)[0].count("ValueError") == text.count("ValueError")
    assert shown(text)[0].count("[ERROR]") == text.count("[ERROR]")
    assert shown(text)[0].endswith(end)


def test_a_line_of_many_megabytes_passes_through_whole() -> None:
    text = "x" * 3_000_000 + "\n" + FUTURE + "y" * 200_000
    assert shown(text)[0] == "x" * 3_000_000 + "\n" + "y" * 200_000


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    """A database with one failed job, its log here and full of warnings."""
    path = tmp_path / "noisy.db"
    writer = Writer(path)
    writer.sweep("one", [JobPlan(axes(num_gpus=1), status="failed", failure_kind="exception", reason="boom")])
    writer.db.execute("UPDATE attempt SET run_dir = ?", (str(tmp_path / "run"),))
    writer.close()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rank0.log").write_text(FUTURE * 30 + TRACEBACK + FUTURE * 30)
    return path


def orch(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_logs_shows_the_error_and_says_what_it_left_out(noisy: Path) -> None:
    result = orch("logs", 1, "--db", noisy)
    assert result.stdout == TRACEBACK
    assert result.stderr == "orch: left out of the log: 60 × FutureWarning of torch; --raw shows everything\n"


def test_logs_raw_gives_every_byte(noisy: Path) -> None:
    result = orch("logs", 1, "--db", noisy, "--raw")
    assert result.stdout == FUTURE * 30 + TRACEBACK + FUTURE * 30
    assert result.stderr == ""


def test_logs_tail_is_of_what_is_shown(noisy: Path) -> None:
    assert orch("logs", 1, "--db", noisy, "--tail", 1).stdout == TRACEBACK.splitlines(keepends=True)[-1]
    assert orch("logs", 1, "--db", noisy, "--tail", 1, "--raw").stdout == "  return func(*args, **kwargs)\n"


def test_show_ends_with_the_error_not_with_the_warnings(noisy: Path) -> None:
    text = orch("show", 1, "--db", noisy).stdout
    assert "ValueError: optimizer got an empty parameter list" in text
    assert "FutureWarning" not in text


def test_following_shows_a_line_once_it_is_whole_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(b"begun\nhal")
    log = LogFile(path, 0)
    out = (tmp_path / "out").open("w+b")
    writer = LogWriter(out, raw=False)
    read = writer.write([log], tail=None, is_whole=False)
    assert read == {log: 9}
    writer.follow([(log, b"f\n" + FUTURE.encode()), (log, b"no end")], several=False)
    out.seek(0)
    assert out.read() == b"begun\nhalf\nno end\n"
    assert writer.left_out() == "left out of the log: 1 × FutureWarning of torch"
    out.close()
