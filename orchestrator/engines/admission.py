"""Can a job run here at all, and beside what already runs? Pure arithmetic, reasons in words."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.engines.base import Capacity
from orchestrator.spec import dsconfig
from orchestrator.spec.cell import Cell
from orchestrator.store.rows import JobRow


@dataclass(frozen=True, slots=True)
class Need:
    """What one job takes.

    Attributes:
        ranks_per_node: ranks on each node, copies for contention included.
        nodes: nodes.
        gpu_bytes: predicted device memory of the fullest rank at the peak of a step.
        pinned_bytes: predicted pinned host memory of one rank, after rounding.
        size: for the message, e.g. ``hidden_dim 49152, nlayers 8``.
        num_gpus: ranks on a node as the cell has it.
        contention: copies that run at once.
        cell: for what DeepSpeed refuses whatever the host's size; None = not looked at.
    """

    ranks_per_node: int
    nodes: int
    gpu_bytes: int
    pinned_bytes: int
    size: str = ""
    num_gpus: int = 1
    contention: int = 1
    cell: Cell | None = None

    def host_bytes(self, accelerator: str | None) -> int:
        """Memory that the job takes on one host: pinned buffers, and on a CPU all the rest."""
        per_rank = self.pinned_bytes + (self.gpu_bytes if accelerator == "cpu" else 0)
        return per_rank * self.ranks_per_node


def need_of(job: JobRow) -> Need:
    """What a stored job takes; an unknown prediction counts as nothing."""
    return need_of_cell(job.cell_values, job.predicted_gpu_bytes, job.predicted_pinned_bytes)


def need_of_cell(cell: Cell, gpu_bytes: int | None, pinned_bytes: int | None) -> Need:
    """What a job of the cell takes by these predictions."""
    return Need(
        ranks_per_node=cell.num_gpus * cell.contention,
        nodes=cell.num_nodes,
        gpu_bytes=gpu_bytes or 0,
        pinned_bytes=pinned_bytes or 0,
        size=_size(cell),
        num_gpus=cell.num_gpus,
        contention=cell.contention,
        cell=cell,
    )


def _size(cell: Cell) -> str:
    """What makes the job large, for a message; a named model brings its own layers."""
    model = cell.effective("model")
    if model in ("linear", "transformer"):
        return f"hidden_dim {cell.effective('hidden_dim')}, nlayers {cell.effective('nlayers')}"
    return f"model {model}"


def gigabytes(count: int) -> str:
    """``1.3 GB``, in units of 10^9 bytes."""
    return f"{count / 1e9:.1f} GB"


def refusal(need: Need, capacity: Capacity) -> str | None:
    """Why the job can never run with this capacity, with the arithmetic; ``None`` if it can."""
    if need.cell is not None and capacity.accelerator is not None:
        reason = dsconfig.refusal(need.cell.values, need.cell.ds, capacity.accelerator)
        if reason is not None:
            return reason
    if need.nodes > capacity.nodes:
        return f"num_nodes {need.nodes} > {capacity.nodes} host{'s' if capacity.nodes > 1 else ''}"
    if capacity.ranks_per_node is not None and need.ranks_per_node > capacity.ranks_per_node:
        return _too_many_ranks(need, capacity)
    if (
        capacity.accelerator != "cpu"
        and capacity.device_bytes is not None
        and need.gpu_bytes > capacity.device_bytes
    ):
        return (
            f"predicted {gigabytes(need.gpu_bytes)} of device memory,"
            f" {gigabytes(capacity.device_bytes)} are there{_of(need)}"
        )
    host_bytes = need.host_bytes(capacity.accelerator)
    if capacity.host_bytes is not None and host_bytes > capacity.host_bytes:
        return _too_much_host_memory(need, capacity.accelerator, host_bytes, capacity.host_bytes)
    return None


def _too_many_ranks(need: Need, capacity: Capacity) -> str:
    there = capacity.ranks_per_node or 0
    noun = "slot" if capacity.accelerator == "cpu" else "device"
    asked = f"num_gpus {need.num_gpus}"
    if need.contention > 1:
        asked += f" x contention {need.contention} = {need.ranks_per_node}"
    text = f"{asked} > {there} {noun}{'' if there == 1 else 's'}"
    return f"{text} (--slots {need.ranks_per_node} gives more)" if noun == "slot" else text


def _too_much_host_memory(need: Need, accelerator: str | None, asked: int, there: int) -> str:
    if accelerator == "cpu":
        per_rank = f"({gigabytes(need.gpu_bytes)} + {gigabytes(need.pinned_bytes)} offloaded)"
        what = "host memory"
    else:
        per_rank, what = gigabytes(need.pinned_bytes), "pinned host memory"
    ranks = need.ranks_per_node
    return (
        f"predicted {what} {per_rank} x {ranks} rank{'' if ranks == 1 else 's'}"
        f" = {gigabytes(asked)}, {gigabytes(there)} are there{_of(need)}"
    )


def _of(need: Need) -> str:
    return f" ({need.size})" if need.size else ""
