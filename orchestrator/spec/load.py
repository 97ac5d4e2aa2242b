"""How does a sweep file become a plan? Read, checked, expanded, ordered; nothing is started or written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.cell import Cell, canonical_json
from orchestrator.spec.document import NAME_PATTERN, Document, read_document
from orchestrator.spec.dsbase import quote_reference
from orchestrator.spec.expand import check_size, expand
from orchestrator.spec.order import running_order
from orchestrator.spec.overrides import REPEATS, Override, read_overrides
from orchestrator.spec.plan import Plan, PlannedJob
from orchestrator.spec.problems import Problems, did_you_mean
from orchestrator.spec.read_sections import read_sections
from orchestrator.spec.shipped import find_spec, shipped_sweeps
from orchestrator.spec.source import parse_yaml, read_text

DEFAULT_MAX_JOBS = 10_000


def load_plan(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    max_jobs: int = DEFAULT_MAX_JOBS,
    name: str | None = None,
) -> Plan:
    """The plan of a sweep file, or of the shipped sweep of that name.

    Args:
        overrides: ``axis=value`` each, as given to ``--set``.
        max_jobs: a larger sweep is refused before it is expanded.
        name: replaces the file's name.

    Raises:
        SpecError: the file, an override or the name is wrong.
    """
    path = find_spec(Path(path))
    if path.parent in (Path(), Path("sweeps")) and not path.exists():
        what = "there is no such file, and no sweep of that name comes with orch"
        near = did_you_mean(path.stem, shipped_sweeps())
        raise SpecError(what, str(path), f"{near}; orch init writes a starter")
    text = read_text(path)
    return _plan(text, str(path), path, overrides, max_jobs, name)


def parse_plan(
    text: str,
    *,
    where: str = "<string>",
    overrides: Sequence[str] = (),
    max_jobs: int = DEFAULT_MAX_JOBS,
    name: str | None = None,
    path: Path | None = None,
) -> Plan:
    """As ``load_plan``, from text; ``path`` says where the text came from, ``ds: @file`` is beside it."""
    return _plan(text, where, path, overrides, max_jobs, name)


def _plan(
    text: str, where: str, path: Path | None, overrides: Sequence[str], max_jobs: int, name: str | None
) -> Plan:
    problems = Problems()
    root = parse_yaml(quote_reference(text), where)
    if root is None or root.value is None:
        raise SpecError("the file is empty", where, "orch init writes a starter")
    document = read_document(root, problems)
    replaced = read_overrides(overrides, problems)
    repeats = _repeats(document.file.repeats if document else 1, replaced, problems)
    problems.raise_if_any()
    assert document is not None
    sections = read_sections(document, replaced, path.parent if path else Path(), problems)
    problems.raise_if_any()
    check_size(sections, repeats, max_jobs, where)
    expansion = expand(sections, problems)
    problems.raise_if_any()
    count = len(expansion.cells) * repeats
    if not count:
        raise SpecError("exclude leaves no job", where, "loosen a condition")
    if count > max_jobs:
        what = f"the sweep has {count} jobs ({len(expansion.cells)} cells × {repeats})"
        raise SpecError(
            f"{what}; at most {max_jobs} are allowed", where, "lower repeats, or raise --max-jobs"
        )
    jobs = running_order(expansion.cells, repeats, document.file.order, document.file.seed)
    return Plan(
        name=_name(name, document, path, where),
        source=text,
        path=str(path) if path else None,
        cells=expansion.cells,
        jobs=tuple(PlannedJob(cell, repeat, place) for place, (cell, repeat) in enumerate(jobs, 1)),
        repeats=repeats,
        limits=document.file.limits,
        engine=document.engine,
        launcher=document.launcher,
        warnings=(*sections.warnings, *expansion.warnings),
        varying=varying_axes(expansion.cells, tuple(sections.names)),
        overrides=tuple(overrides),
        set_axes=tuple(sections.set_axes),
    )


def varying_axes(cells: Sequence[Cell], first: Sequence[str] = ()) -> tuple[str, ...]:
    """Axes that differ between the cells; those of ``first`` lead, in its order."""
    shown: dict[str, set[str]] = {}
    flats = [cell.parameters() for cell in cells]
    for name in {name: None for flat in flats for name in flat}:
        shown[name] = {canonical_json(flat.get(name)) for flat in flats}
    names = [name for name, values in shown.items() if len(values) > 1]
    place = {name: index for index, name in enumerate(first)}
    return tuple(sorted(names, key=lambda name: place.get(name, len(place))))


def _repeats(repeats: int, overrides: dict[str, Override], problems: Problems) -> int:
    override = overrides.get(REPEATS)
    if override is None:
        return repeats
    value = override.node.value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        problems.add(override.mark, "repeats must be a whole number from 1")
        return repeats
    return value


def _name(name: str | None, document: Document, path: Path | None, where: str) -> str:
    """The name asked for, else the file's, else the file name without its ending."""
    if name is None and document.file.name is not None:
        return document.file.name
    chosen = name if name is not None else path.stem if path else ""
    if not re.fullmatch(NAME_PATTERN, chosen):
        if name is None:
            raise SpecError("the sweep has no name", where, "begin with  name: my-sweep")
        fix = "letters, digits, dot, dash and underscore, at most 100"
        raise SpecError(f"'{name}' cannot be used in file names and commands", "--name", fix)
    return chosen
