"""What will a sweep run? The file, resolved: cells, jobs in their order, options, warnings."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.spec.cell import Cell
from orchestrator.spec.options import (
    EngineOptions,
    LauncherOptions,
    Limits,
    LocalOptions,
    RayOptions,
    SlurmOptions,
)

__all__ = [
    "EngineOptions",
    "LauncherOptions",
    "Limits",
    "LocalOptions",
    "Plan",
    "PlannedJob",
    "RayOptions",
    "SlurmOptions",
]


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One repeat of one cell. ``repeat`` and ``position`` (place in the running order) count from 1."""

    cell: Cell
    repeat: int
    position: int

    @property
    def label(self) -> str:
        """``CELL6/REPEAT``, which every command takes."""
        return f"{self.cell.short}/{self.repeat}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A sweep file, resolved.

    Attributes:
        name: the sweep's identity.
        source: the text of the file.
        path: where the file lies; None if it came as text.
        cells: distinct cells in the file's order.
        jobs: cells x repeats in running order.
        repeats: jobs of each cell.
        overrides: what ``--set`` replaced, as given.
        set_axes: axes that matrix, zip or cells set, in the file's order, whether they differ or not.
        varying: axes (dotted names for ds and env) that differ between cells, in the file's order.
        warnings: each one line, ready to print.
    """

    name: str
    source: str
    path: str | None
    cells: tuple[Cell, ...]
    jobs: tuple[PlannedJob, ...]
    repeats: int
    limits: Limits
    engine: EngineOptions
    launcher: LauncherOptions
    warnings: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    set_axes: tuple[str, ...] = ()
