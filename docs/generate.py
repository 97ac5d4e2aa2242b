"""Write the parts of the documentation that are read off the program.

python docs/generate.py            write docs/cli.md, docs/axes.md and the last column of tests/CASES.md
python docs/generate.py --check    exit 1 if one of them is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator.cli.main import main
from orchestrator.spec.axes import AXES, STATE_NAMES, Axis
from orchestrator.spec.presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
_WIDTH = 100
_MADE = "<!-- Made by `python docs/generate.py`; do not edit. -->\n"


_CLI_INTRODUCTION = f"""# Command line

{_MADE}
Results go to stdout, progress to stderr. `JOB` is a job's id, the start of its uid, `CELL` or
`CELL/REPEAT`, as any output prints it; where several sweeps have such a job, `--sweep` says which.

| exit status | means |
|---|---|
| 0 | all ok (skipped jobs alone are ok) |
| 1 | some job failed or was cancelled, or the sweep did not come to its end, as after `orch cancel` |
| 1 | `compare --fail-if-worse`: worse; `doctor`, `db check`: an error |
| 2 | usage, or the sweep file is wrong |
| 3 | the database cannot be used |
| 4 | that sweep is already running |
| 70 | a fault in orch itself |
| 130, 143 | stopped by SIGINT, SIGTERM |
| 141 | the reader of the output has left |

Completion: `eval "$(_ORCH_COMPLETE=bash_source orch)"` in `~/.bashrc` (or `zsh_source`, `fish_source`).
"""

_AXES_INTRODUCTION = f"""# Axes

{_MADE}
Every axis may stand under `defaults`, `matrix`, `zip`, `cells` and in `--set`. An axis of the question says
what is measured; the others are settings, among which `orch report` looks for the best. `ds.*` and `env.*`
entries are axes as well.

| axis | type | default | part of | meaning |
|---|---|---|---|---|
"""

_PRESETS_INTRODUCTION = f"""
## Sets of states

`included_state` takes `all`, a state ({", ".join(f"`{name}`" for name in STATE_NAMES)}),
a list of them, or a preset:

| preset | states |
|---|---|
"""


def cli_page() -> str:
    """``docs/cli.md``: the help of every command."""
    parts = [_CLI_INTRODUCTION]
    for names, command in _commands(main, ("orch",)):
        parts.append(f"{'#' * len(names)} {' '.join(names)}\n\n```\n{_help(names, command)}\n```\n")
    return "\n".join(parts)


def _commands(group: click.Group, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*names, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*names, name))


def _help(names: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(
        command, info_name=" ".join(names), terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    context.help_option_names = ["-h", "--help"]
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def axes_page() -> str:
    """``docs/axes.md``: every axis with its type, default and meaning."""
    rows = "".join(f"{_axis_row(axis)}\n" for axis in AXES)
    presets = "".join(f"| `{name}` | {', '.join(states)} |\n" for name, states in PRESETS.items())
    return _AXES_INTRODUCTION + rows + _PRESETS_INTRODUCTION + presets


def _axis_row(axis: Axis) -> str:
    default = (
        "null"
        if axis.default is None
        else str(axis.default).lower()
        if axis.type == "boolean"
        else axis.default
    )
    limits = [f"≥ {axis.minimum:g}"] if axis.minimum is not None else []
    limits += [f"≤ {axis.maximum:g}"] if axis.maximum is not None else []
    kind = f"{axis.type}{', ' + ', '.join(limits) if limits else ''}"
    part = "question" if axis.is_size else "setting"
    return f"| `{axis.name}` | {kind} | `{default}` | {part} | {axis.help} |"


def cases_page() -> str:
    """``tests/CASES.md`` with the tests that carry each id in the last column."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name, case in re.findall(r"def (test_([a-d]\d+)_\w+)", path.read_text(encoding="utf-8")):
            found.setdefault(case.upper(), []).append(
                f"`{path.relative_to(ROOT / 'tests').as_posix()}::{name}`"
            )
    lines = (ROOT / "tests/CASES.md").read_text(encoding="utf-8").splitlines()
    for index, line in enumerate(lines):
        row = re.match(r"(\| ([A-D]\d+) \|.*\|)[^|]*\|$", line)
        if row:
            lines[index] = f"{row[1]} {'<br>'.join(found.get(row[2], []))} |"
    return "\n".join(lines) + "\n"


PAGES = {"docs/cli.md": cli_page, "docs/axes.md": axes_page, "tests/CASES.md": cases_page}


def stale_pages() -> list[str]:
    """Pages that are not what would be written now."""
    return [
        name
        for name, page in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != page()
    ]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        stale = stale_pages()
        sys.exit(f"not current: {', '.join(stale)}; run: make docs" if stale else 0)
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
