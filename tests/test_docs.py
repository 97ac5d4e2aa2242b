"""The documentation is about this program: generated pages are current, commands in it exist, links lead."""

from __future__ import annotations

import dataclasses
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import worker
from orchestrator.cli.main import COMMANDS, main
from orchestrator.spec.document import as_documented
from orchestrator.spec.options import Limits

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def documented_commands() -> list[tuple[str, tuple[str, ...]]]:
    """Every ``orch ...`` line of a shell block, with the page that holds it."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                if re.match(r"(\$ )?orch\s", line):
                    command = re.split(r"\s(?:[|>]|#)\s", line.removeprefix("$ "))[0]
                    words = shlex.split(command)
                    found.append((page.relative_to(ROOT).as_posix(), tuple(words[1:])))
    return found


COMMAND_LINES = documented_commands()


def test_generated_pages_are_current() -> None:
    stale: Callable[[], list[str]] = runpy.run_path(str(ROOT / "docs/generate.py"))["stale_pages"]
    assert stale() == [], "run: make docs"


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"## orch {name}\n" not in text] == []


@pytest.mark.parametrize(("page", "words"), COMMAND_LINES, ids=[" ".join(w) for _, w in COMMAND_LINES])
def test_documented_command_exists_with_its_options(page: str, words: tuple[str, ...]) -> None:
    group: click.Command | None = main
    context = click.Context(main)
    arguments = list(words)
    while isinstance(group, click.Group):
        name = arguments.pop(0)
        if name.startswith("-"):
            return
        group = group.get_command(context, name)
    assert group is not None, page
    # Parsing alone: the command's own body does not run.
    group.make_context(group.name, arguments, ignore_unknown_options=False)


@pytest.mark.parametrize(
    "words",
    sorted({words for _, words in COMMAND_LINES if words[0] in ("plan", "schema", "init", "doctor")}),
    ids=" ".join,
)
def test_documented_command_that_needs_no_results_runs(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    runner = CliRunner()
    if "mine.yaml" in words and words[0] != "init":
        assert runner.invoke(main, ["init", "mine.yaml"]).exit_code == 0
    result = runner.invoke(main, [word for word in words if word != "--probe"])
    assert result.exit_code in ((0, 1) if words[0] == "doctor" else (0,)), result.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)]
    assert [t for t in targets if t and "://" not in t and not (page.parent / t).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.parent.name == "docs" and f"({page.name})" not in index] == [
        "README.md"
    ]


def test_the_report_in_the_readme_is_the_one_that_its_command_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```\n\$ orch (.*?)^```", text, re.MULTILINE | re.DOTALL)
    command, *shown = block.splitlines()
    words = [str(ROOT / word) if word.startswith("docs/") else word for word in shlex.split(command)]
    done = CliRunner().invoke(main, words)
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    # In this order; "…" stands for lines that were left out.
    assert len(shown) > 10 and all(line in printed for line in shown if line != "…")


def table_keys(page: str, heading: str) -> set[str]:
    """What stands in backticks in the first column of the table below a heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    return {key for cell in cells for key in re.findall(r"`([^`]+)`", cell) if key != "limits"}


def test_every_limit_is_documented_with_its_default() -> None:
    text = (ROOT / "docs/sweep-file.md").read_text(encoding="utf-8")
    named = {as_documented(field.name): field.default for field in dataclasses.fields(Limits)}
    assert table_keys("sweep-file.md", "Limits") == set(named)
    for name, default in named.items():
        shown = "none" if default is None else f"{default:g}"
        assert re.search(rf"^\| `{name}` \| {shown}(?: s)? \|", text, re.MULTILINE), name


def test_every_option_and_export_of_the_example_is_documented() -> None:
    text = (ROOT / "docs/how-to.md").read_text(encoding="utf-8")
    usage = subprocess.run(
        [sys.executable, "-m", "worker", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    options = set(re.findall(r"--\w+", usage)) - {"--help", "--local"}
    assert options == table_keys("how-to.md", "Run the example as it was")
    assert [name for name in worker.__all__ if name not in text.split("from worker import")[1][:80]] == []
