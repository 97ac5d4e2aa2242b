"""What would a plan take on this host, and does it fit? The engine's own admission, nothing started."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.engines.admission import need_of_cell, refusal
from orchestrator.engines.base import Capacity
from orchestrator.engines.host import local_capacity, make_slots
from orchestrator.launch.devices import inventory
from orchestrator.spec.bytes import Prediction, predict
from orchestrator.spec.cell import Cell
from orchestrator.spec.options import LocalOptions
from orchestrator.spec.plan import Plan


@dataclass(frozen=True, slots=True)
class CellForecast:
    """What one cell takes.

    Attributes:
        prediction: of the fullest rank; its fields are None for a model of the user.
        pinned_node_bytes: pinned host memory of all ranks of a node; None if unknown.
        refusal: why it can never run here; None if it can, or if the host is not known.
    """

    cell: Cell
    prediction: Prediction
    pinned_node_bytes: int | None
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """All cells of a plan against one capacity; ``capacity`` is None where only a run can tell."""

    capacity: Capacity | None
    cells: tuple[CellForecast, ...]

    def admitted(self, plan: Plan) -> Plan:
        """The plan without the cells that will be skipped."""
        cells = tuple(item.cell for item in self.cells if item.refusal is None)
        keys = {cell.key for cell in cells}
        return replace(plan, cells=cells, jobs=tuple(job for job in plan.jobs if job.cell.key in keys))


def forecast(plan: Plan) -> Forecast:
    """Every cell of the plan against the host it would run on."""
    capacity = _capacity(plan)
    return Forecast(capacity, tuple(_forecast(cell, capacity) for cell in plan.cells))


def _capacity(plan: Plan) -> Capacity | None:
    options = plan.engine.options
    if not isinstance(options, LocalOptions):
        return None
    here = inventory()
    gpus = None if options.gpus is None else [str(index) for index in options.gpus]
    return local_capacity(here, make_slots(here, gpus, options.slots))


def _forecast(cell: Cell, capacity: Capacity | None) -> CellForecast:
    prediction = predict(cell)
    need = need_of_cell(cell, prediction.gpu_bytes, prediction.pinned_bytes)
    pinned = None if prediction.pinned_bytes is None else prediction.pinned_bytes * need.ranks_per_node
    return CellForecast(cell, prediction, pinned, refusal(need, capacity) if capacity else None)
