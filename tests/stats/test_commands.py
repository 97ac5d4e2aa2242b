"""``orch compare`` and ``orch predict`` as typed: exit status, streams, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.main import main
from tests.stats import h200
from tests.stats.databases import Database
from tests.stats.golden_files import assert_golden
from tests.stats.test_compare import BIG, simple, times


def orch(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(list(arguments), prog_name="orch")
    return int(left.value.code or 0)


@pytest.fixture
def databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, scale in (("old.db", 1.0), ("new.db", 1.1)):
        database = Database(tmp_path / name)
        simple(1 if scale == 1 else 11, scale)(database, database.sweep("full"), database.environment())
        database.close()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("databases")
@pytest.mark.parametrize(
    ("options", "status"),
    [([], 0), (["--fail-if-worse", "5%"], 1), (["--fail-if-worse", "5"], 1), (["--fail-if-worse", "15%"], 0)],
)
def test_compare_fails_only_where_it_is_asked_to(options: list[str], status: int) -> None:
    assert orch("compare", "old.db#full", "new.db", *options) == status


@pytest.mark.usefixtures("databases")
def test_compare_of_better_never_fails() -> None:
    assert orch("compare", "new.db", "old.db", "--fail-if-worse", "0%") == 0


@pytest.mark.usefixtures("databases")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["old.db", "none", "--db", "new.db"], 2, "there is no sweep 'none'"),
        (["old.db", "none.db#full"], 3, "none.db"),
        (["old.db", "new.db", "--metric", "speed"], 2, "'speed' is not a metric"),
        (["old.db", "new.db", "--metric", ","], 2, "no metric is named"),
        (["old.db", "new.db", "--margin", "wide"], 2, "'wide' is not a percentage"),
        (["old.db", "new.db", "--fail-if-worse", "-3%"], 2, "not between 0% and 1000%"),
        (["old.db", "new.db", "--margin", "nan"], 2, "not between"),
        (["old.db", ""], 2, "a side of the comparison is empty"),
    ],
)
def test_a_wrong_comparison_is_one_message(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch("compare", *arguments) == status
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.out == ""
    assert "Traceback" not in streams.err


def test_compare_json_to_a_file_is_whole(databases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert orch("compare", "old.db", "new.db", "--json", "-o", "out.json") == 0
    assert capsys.readouterr().out == ""
    document = json.loads((databases / "out.json").read_text())
    assert document["counts"] == {"worse": 1, "better": 0, "inconclusive": 0, "same": 2}
    assert len(document["cells"]) == 6


@pytest.mark.usefixtures("databases")
def test_compare_csv_keeps_the_head_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert orch("compare", "old.db", "new.db", "--format", "csv") == 0
    streams = capsys.readouterr()
    assert streams.out.startswith("cell,label,metric,verdict")
    assert "3 cells: 2 same" in streams.err


def test_compare_reads_only(databases: Path) -> None:
    before = {path.name: path.read_bytes() for path in databases.glob("*.db")}
    assert orch("compare", "old.db", "new.db") == 0
    assert {path.name: path.read_bytes() for path in databases.glob("*.db*")} == before


def test_predict_from_the_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h200.fill(tmp_path / "o.db")
    arguments = ["--params", "7.6e9", "--num-gpus", "2", "--set", "non_blocking=true", "--json"]
    assert orch("predict", "--db", str(tmp_path / "o.db"), *arguments) == 0
    (setting,) = json.loads(capsys.readouterr().out)["settings"]
    assert setting["offload"]["seconds"] == pytest.approx(1.15, rel=0.03)


def test_predict_without_a_database_gives_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert orch("predict", "--db", str(tmp_path / "none.db"), "--model", "llama-2-7b") == 0
    out = capsys.readouterr().out
    assert "frees 109 GB a GPU" in out
    assert "nothing was measured yet" in out
    assert not (tmp_path / "none.db").exists()


def test_predict_from_a_file_that_is_no_database_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "o.db").write_text("hello")
    assert orch("predict", "--db", str(tmp_path / "o.db"), "--model", "llama-2-7b") == 3
    assert "not a SQLite database" in capsys.readouterr().err


def test_predict_of_an_empty_sweep_gives_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = Database(tmp_path / "o.db")
    flagged = {**times(1, 1.0, 1)[0], "is_valid": False}
    database.jobs(database.sweep("x"), database.environment(), BIG, [flagged])
    database.close()
    assert orch("predict", "--db", str(tmp_path / "o.db"), "--set", "hidden_dim=8192") == 0
    assert "nothing was measured yet" in capsys.readouterr().out


def test_predict_of_a_users_own_model_asks_for_its_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orch("predict", "--db", str(tmp_path / "o.db"), "--model", "pkg.mod:factory") == 2
    assert "give their number instead: --params" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compare", "predict"])
def test_help_is_as_recorded(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert orch(command, "--help") == 0
    assert_golden(f"{command}_help.txt", capsys.readouterr().out)


@pytest.mark.parametrize("option", ["--num-gpus", "--model"])
def test_predict_refuses_an_axis_given_twice(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    axis, value = ("num_gpus", "2") if option == "--num-gpus" else ("model", "linear")
    assert orch("predict", "--db", "none.db", option, value, "--set", f"{axis}=4") == 2
    assert f"{option} and --set {axis} are the same" in capsys.readouterr().err
