"""How would a person run a cell by hand? The worker's own command line, as DeepSpeed's example has it."""

from __future__ import annotations

import json
import shlex

from orchestrator.spec.axes import AXES, AXIS_BY_NAME
from orchestrator.spec.cell import Cell

_EXAMPLE_FLAGS = ("included_state", "nlayers", "hidden_dim", "dtype", "iteration", "warmup")
_EXAMPLE_SWITCHES = ("pin_memory", "non_blocking")
_PLACEMENT = ("num_gpus", "num_nodes", "contention")


def launch_line(cell: Cell) -> str:
    """One shell line that runs the cell without orch: one rank by Python, several by ``deepspeed``.

    The example's options come first; every other axis that is not at its default follows as ``--set``.
    """
    words = [f"{name}={value}" for name, value in sorted(cell.env.items())]
    words += _program(cell)
    for name in _EXAMPLE_FLAGS:
        words += [f"--{name}", str(cell.effective(name))]
    words += [f"--{name}" for name in _EXAMPLE_SWITCHES if cell.effective(name)]
    for axis in AXES:
        name = axis.name
        if name in (*_EXAMPLE_FLAGS, *_EXAMPLE_SWITCHES, *_PLACEMENT):
            continue
        if cell.effective(name) != AXIS_BY_NAME[name].default:
            words += ["--set", f"{name}={json.dumps(cell.effective(name)).strip(chr(34))}"]
    if cell.ds:
        words += ["--ds", json.dumps(cell.ds, separators=(",", ":"), sort_keys=True)]
    return shlex.join(words)


def _program(cell: Cell) -> list[str]:
    if cell.ranks == 1:
        return ["python", "-m", "worker"]
    words = ["deepspeed", "--num_gpus", str(cell.effective("num_gpus"))]
    nodes = cell.effective("num_nodes")
    return [*words, *(["--num_nodes", str(nodes)] if nodes != 1 else []), "--module", "worker"]
