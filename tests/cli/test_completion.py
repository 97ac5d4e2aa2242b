"""Tab offers sweeps and jobs that are there, and is silent where no database is."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from orchestrator.cli.completion import complete_job, complete_sweep
from orchestrator.cli.main import main
from orchestrator.spec.load import load_plan
from orchestrator.store import open_store


@pytest.fixture
def context(tmp_path: Path) -> click.Context:
    path = str(tmp_path / "results.db")
    with open_store(path, create=True) as store:
        store.put_sweep(load_plan("quickstart"), {})
    context = click.Context(main)
    context.params["db"] = path
    return context


def test_sweeps_of_the_database_are_offered(context: click.Context) -> None:
    parameter = click.Argument(["sweep"])
    assert [item.value for item in complete_sweep(context, parameter, "qui")] == ["quickstart"]
    assert complete_sweep(context, parameter, "x") == []


def test_jobs_of_the_latest_sweep_are_offered(context: click.Context) -> None:
    labels = [item.value for item in complete_job(context, click.Argument(["job"]), "")]
    assert len(labels) == 8
    assert all(label.endswith(("/1", "/2")) for label in labels)


def test_no_database_offers_nothing(tmp_path: Path) -> None:
    context = click.Context(main)
    context.params["db"] = str(tmp_path / "none.db")
    assert complete_sweep(context, click.Argument(["sweep"]), "") == []
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "name", ["status", "report", "cancel", "show", "logs", "repro", "compare", "db delete"]
)
def test_command_completes_its_argument(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command: click.Command | None = main
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    assert arguments
    for argument in arguments:
        assert argument.shell_complete(click.Context(command), "") == []
        assert argument._custom_shell_complete is not None
