"""A name that is printed leads back to the job it was printed for, whatever other sweeps there are."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli.main import main
from orchestrator.cli.progress import failure_line
from orchestrator.spec.cell import Cell, make_cell
from orchestrator.store import Store, open_store, this_owner
from orchestrator.store.addresses import addresses
from orchestrator.store.importing import import_into
from orchestrator.store.status import JobStatus, Verdict
from tests.store.plans import make_plan, new_attempt

CELL = make_cell({"hidden_dim": 64})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(str(tmp_path / "orch.db"), create=True)) as opened:
        yield opened


@pytest.fixture
def orch(store: Store) -> Callable[..., Result]:
    return lambda *words: CliRunner().invoke(main, [*words, "--db", store.url])


def fail(store: Store, name: str, folder: Path, cells: Sequence[Cell] = (CELL,)) -> int:
    """A sweep whose first job failed; that job."""
    job = store.runnable(store.put_sweep(make_plan(name, cells)).sweep_id)[0]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rank0.log").write_text(f"of {name}\n")
    attempt = store.begin_attempt(job.job_id, new_attempt(folder))
    assert attempt is not None
    assert store.end_attempt(attempt.attempt_id, Verdict(JobStatus.failed, None, "boom"))
    return job.job_id


def printed(text: str, verb: str) -> list[str]:
    """The words of the printed ``orch VERB …``."""
    found = re.search(rf"orch ({verb} [^·\n]*)", text)
    assert found, text
    return found[1].split()


@pytest.mark.parametrize("name", ["first", "second"])
def test_each_printed_command_leads_to_the_job_of_its_own_sweep(
    orch: Callable[..., Result], store: Store, tmp_path: Path, name: str
) -> None:
    ids = {one: fail(store, one, tmp_path / one) for one in ("first", "second")}
    told = orch(*printed(orch("status", name).stdout, "show"))
    assert f"job {ids[name]} ·" in told.stdout
    assert told.stderr == ""
    for text in (orch("report", name).stdout, told.stdout):
        logged = orch(*printed(text, "logs"))
        assert (logged.stdout, logged.stderr) == (f"of {name}\n", "")
    assert orch(*printed(told.stdout, "repro"), "--accelerator", "cpu").exit_code == 0
    page = tmp_path / "page.html"
    assert orch("report", name, "--format", "html", "-o", str(page)).exit_code == 0
    assert f"orch logs {CELL.short}/1 --sweep {name}" in page.read_text()


def test_a_job_of_one_sweep_alone_is_printed_without_a_sweep(store: Store, tmp_path: Path) -> None:
    other = make_cell({"hidden_dim": 128})
    job = fail(store, "first", tmp_path / "a")
    fail(store, "second", tmp_path / "b", [other])
    assert addresses(store, [job]) == {job: f"{CELL.short}/1"}


def test_a_cell_that_begins_like_another_is_printed_with_more_digits(store: Store) -> None:
    alike = [Cell(CELL.values, {}, {}, f"v1:abcdef{digit}" + "0" * 57) for digit in "12"]
    sweep_id = store.put_sweep(make_plan("one", alike)).sweep_id
    for job in store.jobs(sweep_id):
        [address] = addresses(store, [job.job_id]).values()
        assert address == f"{job.cell[3:10]}/1"
        assert store.find_job(address).job_id == job.job_id


def test_an_ambiguous_name_says_which_sweep_it_took(
    orch: Callable[..., Result], store: Store, tmp_path: Path
) -> None:
    job = fail(store, "first", tmp_path / "a")
    fail(store, "second", tmp_path / "b")
    result = orch("logs", f"{CELL.short}/1")
    assert result.stdout == "of second\n"
    assert result.stderr == (
        f"orch: {CELL.short}/1 of sweep second, the latest; first has it too: --sweep first\n"
    )
    for name in (str(job), f"{CELL.short}/1"):
        result = orch("logs", name, "--sweep", "first")
        assert (result.stdout, result.stderr) == ("of first\n", "")
    assert "there is no sweep 'nope'" in orch("show", str(job), "--sweep", "nope").stderr


def dead_owner() -> str:
    """The owner string of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return this_owner(process.pid)


def test_status_names_who_runs_it_only_while_it_lives(orch: Callable[..., Result], store: Store) -> None:
    sweep_id = store.put_sweep(make_plan("one")).sweep_id
    assert f"run by {this_owner()}\n" in orch("status").stdout
    gone = dead_owner()
    store.set_owner(sweep_id, gone)
    text = orch("status").stdout
    assert "run by" not in text
    assert f"nobody runs it now: {gone} is gone; orch sweep continues it\n" in text


def test_status_of_another_hosts_orch_goes_by_its_sign_of_life(
    orch: Callable[..., Result], store: Store, tmp_path: Path
) -> None:
    sweep_id = store.put_sweep(make_plan("one")).sweep_id
    elsewhere = f"not-{socket.gethostname()}:1:1"
    store.set_owner(sweep_id, elsewhere)
    assert "run by" not in orch("status").stdout
    attempt = store.begin_attempt(
        store.runnable(sweep_id)[0].job_id, new_attempt(tmp_path / "run", owner=elsewhere)
    )
    assert attempt is not None
    store.heartbeat([attempt.attempt_id])
    assert f"run by {elsewhere}\n" in orch("status").stdout


def test_being_stopped_is_said_only_while_somebody_is_stopping(
    orch: Callable[..., Result], store: Store
) -> None:
    sweep_id = store.put_sweep(make_plan("one")).sweep_id
    assert "stops its jobs and leaves" in orch("cancel", "one").stdout
    assert "being stopped" in orch("status").stdout
    for owner in (None, dead_owner()):
        store.set_owner(sweep_id, owner)
        assert "being stopped" not in orch("status").stdout
        assert "no orch runs it now" in orch("cancel", "one").stdout


def test_status_tells_jobs_that_left_the_sweep_file_apart(
    orch: Callable[..., Result], store: Store, tmp_path: Path
) -> None:
    other = make_cell({"hidden_dim": 128})
    fail(store, "one", tmp_path / "a", [CELL, other])
    sweep_id = store.put_sweep(make_plan("one", [other])).sweep_id
    store.set_owner(sweep_id, None)
    assert orch("status").stdout.splitlines() == [
        "one: 1 job · 1 pending · 1 no longer in the sweep file",
        "next: orch report one",
    ]
    assert json.loads(orch("status", "--json").stdout)["counts"] == {"pending": 1}


def test_show_of_a_job_without_attempts_suggests_no_log(orch: Callable[..., Result], store: Store) -> None:
    job = store.runnable(store.put_sweep(make_plan("one")).sweep_id)[0]
    store.weigh([(job.job_id, "too large")])
    assert orch("show", job.label).stdout.splitlines()[-1] == f"next: orch repro {job.label}"


def test_an_imported_row_has_no_log_and_no_script_of_invented_sizes(
    orch: Callable[..., Result], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "offload_states.log"
    log.write_text("1,1,0.5,0.6\n")
    import_into(store.url, str(log))
    (tmp_path / "rank0.log").write_text("of something else")
    monkeypatch.chdir(tmp_path)
    assert "next:" not in orch("show", "1").stdout
    assert json.loads(orch("show", "1", "--json").stdout)["files"] == []
    assert "imported" in orch("logs", "1").stderr
    result = orch("repro", "1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "does not tell its hidden_dim, nlayers, dtype" in result.stderr


def test_an_imported_row_whose_sizes_were_told_has_a_script(
    orch: Callable[..., Result], store: Store, tmp_path: Path
) -> None:
    log = tmp_path / "offload_states.log"
    log.write_text("1,1,0.5,0.6\n")
    told = "hidden_dim=64 nlayers=2 dtype=bfloat16 zero_stage=3 num_gpus=1 micro_batch=1 iteration=5 warmup=1"
    import_into(store.url, str(log), known=told.split())
    result = orch("repro", "1", "--accelerator", "cpu")
    assert result.exit_code == 0, result.stderr
    assert '"hidden_dim": 64' in result.stdout


def test_a_failure_while_the_sweep_runs_is_named_with_its_sweep(store: Store, tmp_path: Path) -> None:
    [alone] = store.runnable(store.put_sweep(make_plan("first", [CELL])).sweep_id)
    [shared] = store.runnable(store.put_sweep(make_plan("second", [CELL])).sweep_id)
    failed = Verdict(JobStatus.failed, None, "boom")
    assert failure_line(alone, failed, retry=False).endswith(f" · orch logs {CELL.short}/1")
    assert failure_line(shared, failed, retry=False).endswith(f" · orch logs {CELL.short}/1 --sweep second")


def test_one_of_a_kind_is_no_plural(orch: Callable[..., Result], store: Store, tmp_path: Path) -> None:
    fail(store, "one", tmp_path / "run", [CELL])
    assert orch("db", "delete", "one", "--yes").stdout == "deleted one: 1 job, 1 attempt\n"
    log = tmp_path / "offload_states.log"
    log.write_text("1,1,0.5,0.6\n")
    assert import_into(store.url, str(log)).told().endswith(": new 1 job, 1 attempt, 1 iteration, 0 samples")
