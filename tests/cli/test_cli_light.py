"""Help and completion must come at once: they load none of the heavy packages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from orchestrator.cli.main import COMMANDS

HEAVY = {
    "alembic",
    "deepspeed",
    "numpy",
    "pandas",
    "plotly",
    "pydantic",
    "ray",
    "rich",
    "scipy",
    "sqlalchemy",
    "torch",
}

REPORT = (
    "import atexit, sys; atexit.register(lambda: print('LOADED', *{m.split('.')[0] for m in sys.modules}))"
)


def loaded_by(*arguments: str, **environ: str) -> set[str]:
    """The top modules in memory when ``orch ARGUMENTS`` ends."""
    code = f"{REPORT}; from orchestrator.cli.main import main; main(prog_name='orch')"
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environ},
    )
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_and_version_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded_by(*arguments) & HEAVY == set()


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_each_command_loads_nothing_heavy(name: str) -> None:
    assert loaded_by(name, "--help") & HEAVY == set()


def test_completion_of_a_command_name_loads_nothing_heavy() -> None:
    environ = {"_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch re", "COMP_CWORD": "1"}
    assert loaded_by(**environ) & HEAVY == set()
