"""``orch status``, ``show`` and ``logs``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.analysis.logfiles import LogFile, first_bytes, follow, last_lines
from orchestrator.analysis.standing import standing
from orchestrator.cli.main import main
from orchestrator.store import Store
from tests.fixtures.make_results import JobPlan, Writer, axes

Orch = Callable[..., Result]
Sql = Callable[[str], list[tuple[Any, ...]]]


def test_status_json_has_the_shape_scripts_rely_on(orch: Orch, sql: Sql) -> None:
    assert json.loads(orch("status", "--json").stdout) == {
        "sweep": "gpu-full",
        "counts": dict(sql("SELECT status, COUNT(*) FROM job WHERE sweep_id = 2 GROUP BY status")),
    }


def test_status_says_what_runs_and_for_how_long(store: Store) -> None:
    found = standing(store, "gpu-full", now=datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC))
    [running] = found.running
    assert (running.age_s, running.host, running.is_timed) == (60.0, "node-a", False)


def test_status_names_troubles_and_the_next_command(orch: Orch) -> None:
    text = orch("status").stdout
    assert "65 jobs · 59 ok" in text
    assert "failed (states_changed): hp_params changed" in text
    assert "orch logs" in text


def test_status_of_an_unknown_sweep_is_an_error(orch: Orch) -> None:
    assert orch("status", "nope").exit_code == 2


def test_status_of_a_database_that_is_not_there_is_exit_3(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["status", "--db", str(tmp_path / "none.db")])
    assert result.exit_code == 3
    assert not (tmp_path / "none.db").exists()


def test_status_imports_no_pandas(results: Path) -> None:
    code = (
        "import sys\nfrom orchestrator.cli.main import main\n"
        f"try: main(['status', '--db', {str(results)!r}])\n"
        "finally: print(sorted({'pandas', 'scipy', 'torch', 'rich', 'plotly'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("by", ["id", "uid", "cell", "cell/repeat"])
def test_show_finds_a_job_by_each_of_its_names(orch: Orch, sql: Sql, by: str) -> None:
    [(job_id, uid, cell)] = sql("SELECT job_id, uid, cell FROM job WHERE status = 'failed'")
    name = {"id": job_id, "uid": uid, "cell": cell[3:9], "cell/repeat": f"{cell[3:9]}/1"}[by]
    text = orch("show", name).stdout
    assert f"job {job_id} · {cell[3:9]}/1 · sweep gpu-full · failed" in text
    for part in (
        "parameters",
        "pin_memory_then no",
        "attempt 1: failed",
        "events",
        "NVIDIA H200",
        "rank 0: Traceback (most recent call last):",
        "/nowhere/runs",
    ):
        assert part in text


def test_show_splits_the_time_of_instrumented_iterations(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "split.db")
    writer.sweep("s", [JobPlan(axes(instrumented=2))])
    writer.db.execute(
        "UPDATE iteration SET offload_copy_s = 0.05, offload_gc_s = 0.2, reload_alloc_s = 0.01"
        " WHERE is_instrumented"
    )
    writer.close()
    show = ("show", "1", "--db", str(tmp_path / "split.db"))
    text = CliRunner().invoke(main, show).stdout
    assert "where the time goes (means of 2 instrumented iterations of a rank)\n" in text
    assert " offload: copy 0.0500 s · gc 0.200 s" in text
    told = json.loads(CliRunner().invoke(main, [*show, "--json"]).stdout)["time_split"]
    assert (told["iterations"], told["offload_gc_s"], told["reload_alloc_s"]) == (2, 0.2, 0.01)


def test_show_json_is_one_object(orch: Orch, sql: Sql) -> None:
    [(job_id, median)] = sql("""
        SELECT job_id, offload_s_median FROM job_result JOIN job USING (job_id)
        WHERE num_gpus = 4 ORDER BY job_id LIMIT 1""")
    told = json.loads(orch("show", job_id, "--json").stdout)
    assert told["results"]["offload_s_median"] == median
    assert told["parameters"]["num_gpus"] == 4
    assert len(told["ranks"]) == 4
    assert told["attempts"][0]["status"] == "ok"


def test_an_unknown_or_ambiguous_job_is_an_error(orch: Orch) -> None:
    assert orch("show", "ffffffff").exit_code == 2
    result = orch("show", "gpu-full-0000")
    assert result.exit_code == 2
    assert "name one of them" in result.stderr


def test_wildcards_are_no_names(orch: Orch) -> None:
    assert orch("show", "%").exit_code == 2
    assert orch("show", "______").exit_code == 2


@pytest.fixture
def logged(tmp_path: Path) -> Path:
    """A database of one failed job of two ranks whose logs lie beside it."""
    path = tmp_path / "logged.db"
    writer = Writer(path)
    writer.sweep("one", [JobPlan(axes(num_gpus=2), status="failed", failure_kind="exception", reason="boom")])
    run_dir = tmp_path / "runs" / "a"
    run_dir.mkdir(parents=True)
    writer.db.execute("UPDATE attempt SET run_dir = ?", (str(run_dir),))
    writer.close()
    (run_dir / "rank0.log").write_text("".join(f"line {n}\n" for n in range(1000)))
    (run_dir / "rank1.log").write_bytes(b"start\n\xff\xfe\nRuntimeError: boom")
    return path


def logs(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["logs", "1", "--db", str(path), *arguments])


def test_logs_prints_each_rank_under_a_heading(logged: Path) -> None:
    output = logs(logged).stdout_bytes
    assert output.count(b"==> rank ") == 2
    assert b"line 999\n" in output
    assert b"\xff\xfe" in output


def test_logs_of_one_rank_and_its_end(logged: Path) -> None:
    assert logs(logged, "--rank", "0", "--tail", "2").stdout == "line 998\nline 999\n"
    assert logs(logged, "--rank", "7").exit_code == 2
    assert logs(logged, "--attempt", "2").exit_code == 2


def test_logs_follow_ends_with_the_attempt(logged: Path) -> None:
    assert logs(logged, "--rank", "1", "--follow").exit_code == 0


def test_logs_on_another_host_says_where_they_are(orch: Orch, sql: Sql) -> None:
    result = orch("logs", sql("SELECT job_id FROM job WHERE status = 'failed'")[0][0])
    assert result.exit_code == 2
    assert "they were written on node-a" in result.stderr


def test_logs_of_a_job_not_started_says_so(orch: Orch, sql: Sql) -> None:
    result = orch("logs", sql("SELECT job_id FROM job WHERE status = 'pending'")[0][0])
    assert "has not been started" in result.stderr


def test_show_gives_the_end_of_a_failed_jobs_log(logged: Path) -> None:
    result = CliRunner().invoke(main, ["show", "1", "--db", str(logged)])
    assert "RuntimeError: boom" in result.stdout


@pytest.mark.parametrize("lines", [0, 1, 3, 50, 10_000])
def test_last_lines_equals_reading_it_all(tmp_path: Path, lines: int) -> None:
    content = [b"x" * (number * 37 % 5000) + b"\n" for number in range(200)]
    (tmp_path / "log").write_bytes(b"".join(content))
    blocks = first_bytes(tmp_path / "log", sum(map(len, content)))
    assert last_lines(blocks, lines) == b"".join(content[-lines:] if lines else [])


def test_follow_gives_what_is_appended_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rank0.log"
    path.write_bytes(b"old\n")
    log = LogFile(path, 0)
    appended = [b"one\n", b"two\n"]

    def pause(_: float) -> None:
        with path.open("ab") as file:
            file.write(appended.pop(0))

    pieces = follow({log: 4}, lambda: not appended, pause)
    assert b"".join(block for _, block in pieces) == b"one\ntwo\n"


def test_golden_status(orch: Orch) -> None:
    golden = Path(__file__).parent / "golden" / "status_cpu.txt"
    assert orch("status", "cpu-quick").stdout == golden.read_text()


def test_show_of_a_job_on_a_cpu_names_no_freed_bytes(orch: Orch) -> None:
    told = json.loads(orch("show", "1", "--json").stdout)
    assert "offload_s_median" in told["results"]
    assert not {"freed_bytes", "device_freed_bytes", "leak_bytes"} & set(told["results"])
