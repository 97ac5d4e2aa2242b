"""How errors become one line on stderr and an exit status, and how the group finds its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from orchestrator import __version__
from orchestrator.cli import main as main_module
from orchestrator.cli.main import COMMANDS, LazyGroup, main
from orchestrator.errors import DatabaseError, OrchError, SpecError, SweepRunning


def outcome(body: object) -> Result:
    """What ``orch boom`` gives when its body raises, or returns, ``body``."""

    @click.command("boom")
    def boom() -> object:
        if isinstance(body, BaseException):
            raise body
        return body

    group = LazyGroup("orch")
    group.add_command(boom)
    return CliRunner().invoke(group, ["boom"])


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (OrchError("no such job"), 2),
        (SpecError("duplicate key", "a.yaml:7:5"), 2),
        (DatabaseError("locked", "orch.db"), 3),
        (SweepRunning("it runs already"), 4),
        (click.UsageError("no such option"), 2),
        (click.FileError("a.yaml", "gone"), 2),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (None, 0),
        (1, 1),
        (True, 0),
    ],
)
def test_outcome_of_a_command_gives_its_exit_status(
    raised: object, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "_silence_stdout", lambda: None)
    result = outcome(raised)
    assert result.exit_code == status
    assert "Traceback" not in result.output


def test_orch_error_is_one_line_with_place_and_mend() -> None:
    result = outcome(SpecError("duplicate key 'a'", "mine.yaml:7:5", "remove one"))
    assert result.stderr == "orch: mine.yaml:7:5: duplicate key 'a'; remove one\n"
    assert result.stdout == ""


def test_fault_in_orch_keeps_its_traceback_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = outcome(ZeroDivisionError("division by zero"))
    assert result.exit_code == 70
    assert result.stderr.count("\n") == 1
    (log,) = tmp_path.iterdir()
    assert str(log) in result.stderr
    assert "ZeroDivisionError" in log.read_text()


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"orch, version {__version__}\n"


def test_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["frobnicate"])
    assert result.exit_code == 2
    assert "No such command 'frobnicate'" in result.stderr


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_the_name_of_the_table_and_a_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help


def test_reader_that_leaves_early_is_no_error_message() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) in (0, 141)
    process.stderr.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from orchestrator.cli.main import main; main(prog_name='orch')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "_ORCH_COMPLETE": f"{shell}_source"},
    )
    assert "_ORCH_COMPLETE" in run.stdout


def test_completion_offers_the_commands() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "from orchestrator.cli.main import main; main(prog_name='orch')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch re", "COMP_CWORD": "1"},
    )
    assert [line.split(",")[1] for line in run.stdout.split()] == ["repro", "report"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["--db", "a b.db", "status"], "orch status --db 'a b.db'"),
        (["--db=a.db", "status", "full"], "orch status --db=a.db full"),
        (["--json", "status"], "orch status --json"),
        (["--format", "csv", "report"], "orch report --format csv"),
        (["-o", "x.csv", "report"], "orch report -o x.csv"),
        (["--no-color", "report"], "orch report --no-color"),
        (["db", "--db", "a.db", "check"], "orch db check --db a.db"),
        (["--db", "a.db", "db", "check"], "orch db check --db a.db"),
        (["--db", "a.db"], "orch COMMAND --db …"),
        (["db", "--db", "a.db"], "orch db COMMAND --db …"),
    ],
)
def test_an_option_before_its_command_is_told_where_it_belongs(written: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, written, prog_name="orch")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"is an option of a command and comes after it: {meant}\n")


def test_an_option_that_no_command_has_stays_unknown() -> None:
    result = CliRunner().invoke(main, ["--bogus", "status"])
    assert result.exit_code == 2
    assert "comes after" not in result.stderr


@pytest.mark.parametrize(("written", "meant"), [(["statsu"], "status"), (["db", "chek"], "check")])
def test_a_misspelt_command_is_told_the_nearest(written: list[str], meant: str) -> None:
    result = CliRunner().invoke(main, written)
    assert result.exit_code == 2
    assert result.stderr.count("Did you mean") == 1
    assert meant in result.stderr.rpartition("Did you mean")[2]
