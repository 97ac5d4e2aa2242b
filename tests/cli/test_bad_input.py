"""Slips of a user's pen: one line that says what is wrong, and nothing written."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.encoding import make_printable
from orchestrator.cli.main import main
from orchestrator.spec.load import load_plan
from orchestrator.store import open_store


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database that holds the quickstart sweep, nothing of it run; the one that commands read."""
    path = tmp_path / "results.db"
    with open_store(str(path), create=True) as store:
        store.put_sweep(load_plan("quickstart"), {})
    monkeypatch.setenv("ORCH_DB", str(path))
    return path


def orch(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "command",
    [("repro", "1"), ("schema",), ("db", "metadata"), ("sql", "SELECT 1"), ("report", "--json")],
)
def test_output_into_a_missing_folder_is_refused(results: Path, command: tuple[str, ...]) -> None:
    target = results.parent / "nowhere" / "file"
    result = orch(*command, "-o", target)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"orch: {target}: cannot be written (No such file or directory)")
    assert not target.parent.exists()


@pytest.mark.parametrize("command", [("repro", "1"), ("sql", "SELECT 1")])
def test_output_into_a_pipe_leaves_the_pipe_there(results: Path, command: tuple[str, ...]) -> None:
    pipe = results.parent / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert orch(*command, "-o", pipe).exit_code == 0
    assert pipe.is_fifo()
    assert os.read(reader, 4)
    os.close(reader)


def test_a_state_folder_that_cannot_be_made_is_named_with_its_variable(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = results / "state"  # below a file
    monkeypatch.setenv("ORCH_STATE_DIR", str(folder))
    result = orch("sweep", "quickstart")
    assert result.exit_code == 2
    assert f"orch: {folder}: the folder of this host's locks cannot be used (Not a" in result.stderr
    assert "set ORCH_STATE_DIR to a folder that you can write" in result.stderr


@pytest.mark.parametrize("word", ["quikstart", "sweeps/quikstart.yaml"])
def test_a_misspelt_shipped_sweep_is_answered_with_the_nearest(results: Path, word: str) -> None:
    result = orch("plan", word)
    assert result.exit_code == 2
    assert "did you mean 'quickstart'?" in result.stderr


def test_no_rows_are_said_in_one_line(results: Path) -> None:
    assert orch("sql", "SELECT 1 AS a WHERE 0").stdout.splitlines() == ["(no rows)"]


def test_the_line_that_plan_ends_with_holds_no_password(results: Path) -> None:
    url = "postgresql://me:secret@127.0.0.1:1/orch"
    command = [sys.executable, "-m", "orchestrator", "plan", "quickstart", "--db", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "run it: orch sweep quickstart --db postgresql://me:***@127.0.0.1:1/orch" in done.stdout
    assert "secret" not in done.stdout + done.stderr


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "0", "-1"])
def test_a_timeout_is_a_finite_positive_number(results: Path, text: str) -> None:
    result = orch("sweep", "quickstart", "--timeout", text)
    assert result.exit_code == 2
    assert "--timeout" in result.stderr


def test_control_characters_of_a_message_do_not_steer_the_terminal(tmp_path: Path) -> None:
    spec = tmp_path / "a.yaml"
    spec.write_text('name: "a\\e[31mb"\n')
    result = orch("plan", spec)
    assert result.exit_code == 2
    assert r"the name 'a\x1b[31mb' cannot be used" in result.stderr


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--layout example --per job", "--per: --per does not go with --layout example"),
        ("--layout example --by pin_memory", "--by: --by does not go with --layout example"),
        ("--layout example --format html", "--layout: --layout does not go with"),
        ("--format html --per cell", "--per: --per does not go with --format html"),
    ],
)
def test_report_refuses_options_that_it_would_ignore(results: Path, options: str, refused: str) -> None:
    assert results.exists()
    result = orch("report", *options.split())
    assert result.exit_code == 2
    assert refused in result.stderr


@pytest.mark.parametrize("redirection", ["> /dev/full", "-o /dev/full"])
def test_a_full_disk_is_said_in_one_line(results: Path, redirection: str) -> None:
    run = shell(f'sql "SELECT 1" --db {results} {redirection}')
    assert (run.returncode, run.stderr.count("\n")) == (2, 1)
    assert "cannot be written (No space left on device)" in run.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_fault(results: Path, closed: str) -> None:
    assert shell(f'sql "SELECT 1" --db {results} {closed}').returncode == 0


def test_a_question_to_a_closed_stdin_is_an_error_not_a_fault(results: Path) -> None:
    done = shell(f"db delete quickstart --db {results} <&-")
    assert done.returncode == 2
    assert "--yes" in done.stderr


def shell(command: str) -> subprocess.CompletedProcess[str]:
    line = f"{shlex.quote(sys.executable)} -m orchestrator {command}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize(
    "command", ["report", "status", "show 1", "plan quickstart", "predict", "report --format markdown"]
)
def test_a_stream_without_utf8_gets_plain_signs(results: Path, encoding: str, command: str) -> None:
    option = "" if command.startswith("plan") else f"--db {results}"
    line = f"{shlex.quote(sys.executable)} -m orchestrator {command} {option}"
    run = subprocess.run(
        ["sh", "-c", line], capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.decode(encoding)
    assert b"fault" not in run.stderr


def test_what_an_encoding_lacks_is_said_in_plain_signs_and_the_rest_escaped() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    make_printable(stream)
    stream.write("a → b · 2 × 3 – é 日")
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    assert written.getvalue() == rb"a -> b - 2 x 3 - \xe9 \u65e5"


@pytest.mark.parametrize("command", ["report", "show 1", "report --per job", "report --format csv"])
def test_a_reader_that_leaves_is_never_told_apart_as_a_failed_job(results: Path, command: str) -> None:
    line = f"{shlex.quote(sys.executable)} -m orchestrator {command} --db {results}"
    process = subprocess.Popen(shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 141
    process.stderr.close()
