"""docs/findings.md is what docs/findings.py makes of docs/data, and every section of it works."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import sqlite3
import sys
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import main
from tests.fixtures.make_results import LINK_GBPS, T0, JobPlan, Writer, axes

DOCS = Path(__file__).parents[2] / "docs"
DATABASES = sorted((DOCS / "data").glob("*.db"))
SHIPPED = sorted((DOCS / "data").glob("**/*.db"))
QUERIES = sorted((DOCS / "findings_sql").glob("*.sql"))
PAGE = (DOCS / "findings.md").read_text(encoding="utf-8")
ABSENT = "not measured yet"


@pytest.fixture(scope="module")
def findings() -> Any:
    """The module that writes the page."""
    sys.path.insert(0, str(DOCS))
    try:
        yield importlib.import_module("findings")
    finally:
        sys.path.remove(str(DOCS))


def query(database: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(text).fetchall()


def section(page: str, heading: str) -> str:
    """A section of the page, from its heading to the next of its kind."""
    return re.split(r"^## ", page.split(f"## {heading}", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_page_is_what_the_databases_say(findings: Any) -> None:
    assert findings.page() == PAGE, "run: python docs/findings.py"


@pytest.mark.parametrize("database", DATABASES, ids=lambda path: path.name)
@pytest.mark.parametrize("file", QUERIES, ids=lambda path: path.stem)
def test_every_query_of_the_page_is_one_that_orch_sql_answers(file: Path, database: Path) -> None:
    text = file.read_text(encoding="utf-8")
    done = CliRunner().invoke(main, ["sql", text, "--db", str(database), "--json"])
    assert done.exit_code == 0, done.output
    assert isinstance(json.loads(done.stdout), list)


def test_the_whole_integers_of_the_byte_tables_stand_on_the_page() -> None:
    for database in DATABASES:
        for file in ("stages", "states", "others", "host"):
            for row in query(database, (DOCS / "findings_sql" / f"{file}.sql").read_text(encoding="utf-8")):
                wanted = [f"{value:,}" for value in row if isinstance(value, int) and value > 1_000_000]
                assert any(all(f" {text} " in line for text in wanted) for line in PAGE.splitlines())


def test_the_query_printed_on_the_page_gives_the_table_below_it() -> None:
    [block] = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    rows = [row for database in DATABASES for row in query(database, block)]
    assert [(row[2], row[3]) for row in rows if row[1] == 0][:4] == [
        (0, 0), (1, 268500992), (2, 268500992), (3, 268500992),
    ]  # fmt: skip
    assert all(f"| {row[1]} | {row[2]} | {row[3]:,} | {row[4]:,} |" in PAGE for row in rows)


def test_without_databases_every_section_says_in_one_line_that_nothing_was_measured(
    findings: Any, tmp_path: Path
) -> None:
    page = findings.page(tmp_path)
    assert "|" not in page
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert len(headings) == len(findings.SECTIONS) == page.lower().count(ABSENT)


PLAIN: dict[str, Any] = {"nlayers": 8, "iteration": 8, "warmup": 3}
FAST: dict[str, Any] = PLAIN | {"pin_memory": True, "non_blocking": True, "reload_non_blocking": True}


def findings_plan() -> list[JobPlan]:
    """Settings by size, pinned in two ways, with and without a frozen heap, some split."""
    jobs = []
    for hidden in (4096, 6144, 8192, 16384):
        registered = FAST | {"hidden_dim": hidden, "pin_backend": "host_register:16"}
        jobs.append(JobPlan(axes(**registered, instrumented=1)))
        jobs.append(JobPlan(axes(**registered, gc_freeze=True)))
        jobs.append(JobPlan(axes(**FAST, hidden_dim=hidden)))
        jobs.append(JobPlan(axes(**PLAIN, hidden_dim=hidden, pin_memory=False, non_blocking=False)))
    jobs.append(JobPlan(axes(**FAST, hidden_dim=4096, zero_stage=2, instrumented=1)))
    jobs.append(JobPlan(axes(**FAST, hidden_dim=512) | {"iteration": 70}))
    return jobs


def four_settings(trials: int, **size: Any) -> list[JobPlan]:
    return [
        JobPlan(axes(**size, pin_memory=pin, non_blocking=blocking), trial)
        for trial, pin, blocking in product(range(1, trials + 1), (False, True), (False, True))
    ]


def bytes_plan() -> list[JobPlan]:
    size: dict[str, Any] = {"hidden_dim": 4096, "nlayers": 4, "iteration": 4, "warmup": 1, "num_gpus": 2}
    return [
        *(JobPlan(axes(**size, zero_stage=stage)) for stage in (3, 2, 1)),
        JobPlan(axes(**size, zero_stage=2, included_state="optim_states")),
        JobPlan(axes(**size, param_groups=3)),
    ]


def other_plans() -> dict[str, list[JobPlan]]:
    small: dict[str, Any] = {"hidden_dim": 1024, "nlayers": 4}
    sleeper = FAST | {"model": "qwen2.5-7b", "hidden_dim": 28672, "num_gpus": 2, "dwell_s": 2.0}
    wrong: dict[str, Any] = {"status": "failed", "failure_kind": "states_changed", "states_intact": False}
    return {
        "findings": findings_plan(),
        "example_4096": four_settings(10, hidden_dim=4096, nlayers=8),
        "example_32768": four_settings(10, hidden_dim=32768, nlayers=4, num_gpus=4),
        "bytes-2": bytes_plan(),
        "instrument": [
            JobPlan(axes(**FAST, hidden_dim=4096, checksums=sums, sampler_hz=rate), repeat)
            for repeat, (sums, rate) in product((1, 2, 3), ((True, 0.0), (False, 0.0), (False, 50.0)))
        ],
        "known_faults": [
            JobPlan(axes(**small, pin_memory_then=False), reason="hp_params changed", **wrong),
            JobPlan(axes(**small)),
        ],
        "stranger": [JobPlan(axes(**small), overlapped=True), JobPlan(axes(**small), 2, overlapped=True)],
        "sleep_7b": [JobPlan(axes(**sleeper, hold_bytes=16_000_000_000))],
        "scaling": [
            JobPlan(axes(hidden_dim=32768, nlayers=count, num_gpus=count, pin_memory=pin, non_blocking=pin))
            for count, pin in product((1, 2, 4), (True, False))
        ],
    }


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as docs/data will be once everything has been run; no figure in it was measured."""
    folder = tmp_path_factory.mktemp("data")
    writer = Writer(folder / "invented.db")
    for name, plan in other_plans().items():
        writer.sweep(name, plan, samples=False)
    writer.insert(
        "link_probe",
        [
            {
                "probe_id": writer._id("link_probe"), "uid": f"at-once-{count}-{device}-{pinned}-{way}",
                "host": "node-a", "device_uuid": f"GPU-{device}", "pinned": pinned, "direction": way,
                "bytes": 1, "copies": 5, "seconds": 1.0, "gbps": gbps / count**0.5, "devices_at_once": count,
                "probed_at": T0,
            }
            for (pinned, way), gbps in LINK_GBPS.items() for count in (2, 4) for device in range(count)
        ],
    )  # fmt: skip
    writer.db.executescript("""
        CREATE TEMP TABLE lower AS SELECT attempt_id, zero_stage, included_state
            FROM attempt JOIN job USING (job_id) JOIN sweep USING (sweep_id)
            WHERE sweep.name = 'bytes-2' AND zero_stage < 3;
        UPDATE iteration SET freed_bytes = 0, bytes_match = FALSE WHERE is_cold
            AND attempt_id IN (SELECT attempt_id FROM lower WHERE included_state = 'optim_states');
        UPDATE job_result SET offload_s_median = 3 * offload_s_median
            WHERE attempt_id IN (SELECT attempt_id FROM lower);
        UPDATE job_result SET pinned_bytes = 1610612736
            WHERE job_id IN (SELECT job_id FROM job WHERE NOT pin_memory AND non_blocking);
    """)
    writer.close()
    loop = dict.fromkeys(
        (
            "example_s_per_job", "orch_s_per_job", "times_faster", "orch_jobs", "orch_loop_s_per_job",
            "times_faster_at_most", "orch_overhead_s_per_job", "orch_before_first_loop_s",
            "times_less_overhead",
        ), 2.5,
    )  # fmt: skip
    loop |= {"cut_short": True, "example_jobs": 7, "example_jobs_asked": 8, "orch_jobs_asked": 8}
    ratio = {
        "launcher": "fork", "metric": "offload_s_median", "cell": "all", "ratio": 1.01, "low": 0.99,
        "high": 1.02, "pairs": 16, "inside": True,
    }  # fmt: skip
    parity = {"ratios": [ratio], "cells": [ratio | {"cell": "pinned, plain"}], "rounds": 8, "problems": []}
    (folder / "parity").mkdir()
    launchers = Writer(folder / "parity" / "parity.db")
    launchers.sweep("parity-spawn", four_settings(1, hidden_dim=4096, nlayers=8), samples=False)
    launchers.db.execute("UPDATE attempt SET launch_mode = 'spawn'")
    launchers.close()
    (folder / "example_loop.json").write_text(json.dumps(loop))
    (folder / "parity.json").write_text(json.dumps(parity))
    size = {"pin_backend": "default", "bytes": 1 << 30}
    copies = {"copies": 5, "rows": [size | {"kind": "up, fresh", "copy_s": 0.02, "gbps": 53.7}]}
    (folder / "link_sizes.json").write_text(json.dumps(copies))
    ways = {"rows": [size | {"way": "copied", "whole_s": 0.91, "pinning_s": 0.44}]}
    (folder / "pinning_ways.json").write_text(json.dumps(ways))
    cost = {
        "hidden_dim": 8192, "turn": "sampler", "call": "offload_s", "iterations": 40, "bare_s": 0.16,
        "difference_s": 0.0004, "difference_share": 0.0025, "low_share": 0.001, "high_share": 0.004,
    }  # fmt: skip
    costs = [cost, cost | {"turn": "checksums", "difference_share": -0.0142}]
    (folder / "instrument_cost.json").write_text(json.dumps({"limit_share": 0.01, "costs": costs}))
    (folder / "campaign.json").write_text(json.dumps({"touched": {"gigabytes": 80.0}}))
    return folder


@pytest.fixture(scope="module")
def full_page(findings: Any, invented: Path) -> str:
    page: str = findings.page(invented)
    return page


def test_with_everything_measured_no_section_is_left_out(full_page: str, findings: Any) -> None:
    assert ABSENT not in full_page.lower()
    assert full_page.count("\n## ") == len(findings.SECTIONS)
    assert full_page.count("\n### ") == 6
    assert "80 GB of host memory were used once" in full_page


def test_every_query_is_named_beside_its_figures(full_page: str) -> None:
    named = set(re.findall(r"\(findings_sql/(\w+)\.sql\)", full_page))
    assert named | {"stacks", "sweeps", "first_offload"} >= {path.stem for path in QUERIES}


def test_the_best_setting_of_each_size_is_told_with_its_distance_to_the_worst(
    full_page: str, invented: Path
) -> None:
    part = section(full_page, "Which setting is best").replace("\n", " ")
    for hidden, copied, fastest in (
        (16384, "34.4 GB", "pinned"),
        (6144, "4.83 GB", "pinned by host_register:16"),
    ):
        [(least, most)] = query(
            invented / "invented.db",
            f"""SELECT MIN(both_s), MAX(both_s) FROM (
                    SELECT offload_s_median + reload_s_median AS both_s FROM job_summary
                    WHERE sweep = 'findings' AND hidden_dim = {hidden} AND zero_stage = 3)""",
        )
        told = part.split(f"- {copied} on 1 GPU: ", 1)[1]
        assert told.startswith(fastest)
        assert f"(pageable, blocking) takes {most / least:.1f} times as long" in told.split("- ", 1)[0]


def test_the_trials_are_the_example_report_of_orch(full_page: str, invented: Path) -> None:
    part = section(full_page, "DeepSpeed's example at 4096 × 8")
    command = ["report", "example_4096", "--layout", "example", "--format", "markdown"]
    shown = CliRunner().invoke(main, [*command, "--db", str(invented / "invented.db")]).stdout
    assert next(line for line in shown.splitlines() if line.startswith("| 10 |")) in part


def test_the_published_case_stands_beside_ours_with_sums_over_four_gpus(
    full_page: str, invented: Path
) -> None:
    part = section(full_page, "The example's published case")
    [(gbps,)] = query(
        invented / "invented.db",
        """SELECT AVG(offload_gbps) FROM job_summary
           WHERE sweep = 'example_32768' AND NOT pin_memory AND NOT non_blocking""",
    )
    assert f"| no | no | {gbps:.3g} | {4 * gbps:.3g} |" in part
    assert "| no | no | 10 | 9.50 s |" in part
    assert "18,180,655,616" in part.replace("\n", " ")


def test_what_was_pinned_unasked_stands_beside_the_blocking_copy_of_the_same_size(full_page: str) -> None:
    part = (
        full_page.split("### `non_blocking` without `pin_memory`", 1)[1].split("\n### ")[0].split("\n## ")[0]
    )
    told, rows = part.split("\n|", 1)
    pinned = [line for line in rows.splitlines() if "1,610,612,736" in line]
    assert len(pinned) == 2 and "1.61 GB of host memory are pinned" in " ".join(told.split())
    assert all("–" not in line for line in pinned)


def test_raw_copies_and_raw_pinning_stand_beside_what_they_explain(full_page: str) -> None:
    assert "| default | 1,073,741,824 | up, fresh | 0.0200 s | 53.7 |" in section(full_page, "How far")
    assert "| default | 1,073,741,824 | copied | 0.910 s | 0.440 s |" in section(full_page, "What pinning")


def test_what_the_instrument_costs_is_told_from_one_process_beside_the_scatter_of_jobs(
    full_page: str, invented: Path
) -> None:
    part = section(full_page, "What the instrument costs")
    assert "the largest is -1.42% (checksums, offload, hidden_dim 8192)" in " ".join(part.split())
    assert "| sampler | offload | 40 | 0.160 s | 0.400 ms | +0.25% | +0.10% to +0.40% | yes |" in part
    assert "| -1.42% | +0.10% to +0.40% | no |" in part
    [spans] = query(
        invented / "invented.db",
        """SELECT MAX(offload_s_median) / MIN(offload_s_median), MAX(reload_s_median) / MIN(reload_s_median)
           FROM job_summary WHERE sweep = 'instrument' AND NOT checksums AND sampler_hz = 0""",
    )
    assert f"differ among themselves by up to {max(spans) - 1:.1%} (" in " ".join(part.split())


def test_the_launchers_compared_are_in_the_tables_of_starting_and_in_no_other(full_page: str) -> None:
    part = section(full_page, "What starting a job costs")
    assert "| parity.db | spawn | 1 | 4 |" in part and "| fork | offload_s_median | all | 1.01 |" in part
    assert "in 8 rounds" in part and "| pinned, plain | 1.01 |" in part
    assert "parity" not in full_page.replace(part, "")


def test_rounds_too_few_for_a_verdict_are_counted(findings: Any, invented: Path, tmp_path: Path) -> None:
    shutil.copytree(invented, tmp_path, dirs_exist_ok=True)
    few = {"ratios": [], "cells": [], "rounds": 3, "missing_rounds": 1, "problems": []}
    (tmp_path / "parity.json").write_text(json.dumps(few))
    part = " ".join(section(findings.page(tmp_path), "What starting a job costs").split())
    assert "against each other; 1 rounds of `python -m benchmarks.parity` are missing" in part


def test_a_comparison_that_was_cut_short_says_so(full_page: str) -> None:
    told = " ".join(section(full_page, "What starting a job costs").split())
    assert "cut short: 7 of 8 commands of the example and 2.5 of 8 jobs of orch" in told


def test_jobs_beside_a_stranger_are_counted(full_page: str) -> None:
    assert "overlapped: 2 of 2" in section(full_page, "Planted faults")


def test_the_scaling_table_goes_over_one_two_and_four_ranks(full_page: str) -> None:
    part = section(full_page, "More ranks at a fixed size a rank")
    assert len([line for line in part.splitlines() if line.startswith("| yes | yes |")]) == 3
    assert "| 4 | no | down | 4 | 4 |" in section(full_page, "How far from the link")


@pytest.mark.parametrize("database", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_database_is_sound_and_leaves_no_files_behind(database: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(database, tmp_path / database.name))
    done = CliRunner().invoke(main, ["db", "check", "--db", str(copy)])
    assert (done.exit_code, done.stdout) == (0, "ok\n")
    CliRunner().invoke(main, ["report", "--db", str(copy)])
    # A reader of a file in WAL mode would make two more beside it.
    assert [path.name for path in tmp_path.iterdir()] == [database.name]


@pytest.mark.parametrize(
    ("database", "sweep"),
    [(path, name) for path in DATABASES for (name,) in query(path, "SELECT name FROM sweep ORDER BY name")],
)
def test_the_shipped_sweeps_can_be_reported(database: Path, sweep: str) -> None:
    done = CliRunner().invoke(main, ["report", sweep, "--db", str(database)])
    assert done.exit_code == 0, done.output
    valid = query(database, f"SELECT COUNT(*) FROM job_summary WHERE sweep = '{sweep}' AND is_valid")
    # Followed by a letter where a sweep ran on several stacks. The jobs beside a stranger are all overlapped.
    opening = r"(best|only valid) setting( \[[A-Z]\])?: " if valid != [(0,)] else "no valid job to name"
    assert re.search(f"^{opening}", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("database", SHIPPED, ids=lambda path: path.name)
def test_the_shipped_database_names_no_folder_of_whoever_measured(database: Path) -> None:
    assert query(database, "SELECT spec_path FROM sweep WHERE spec_path LIKE '/%'") == []
    assert query(database, "SELECT run_dir FROM attempt WHERE run_dir LIKE '/%'") == []
    texts = query(database, "SELECT traceback FROM attempt_rank WHERE traceback IS NOT NULL")
    files = {name for (text,) in texts for name in re.findall(r'File "([^"]+)"', str(text))}
    assert not any(name.startswith("/") for name in files)
