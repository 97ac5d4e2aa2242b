"""How is one cell of a plan run on its own? One shell line for each."""

from __future__ import annotations

import json
import re
import shlex

from orchestrator.spec.axes import AXES, AXIS_BY_NAME, STATE_NAMES
from orchestrator.spec.cell import Cell
from orchestrator.spec.plan import Plan
from orchestrator.spec.presets import ALL
from orchestrator.spec.shipped import spec_word

_EXAMPLE_AXES = (
    "included_state", "pin_memory", "non_blocking", "nlayers", "hidden_dim", "dtype", "iteration", "warmup",
)  # fmt: skip
_PLACEMENT = ("num_gpus", "num_nodes")
_PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.+:/-]*")
_YAML_WORDS = {"true", "false", "null"}


def launch_line(plan: Plan, cell: Cell) -> str:
    """A line that runs the cell: the worker's, in the example's terms, where these say all; else orch's."""
    if is_example(cell):
        return shlex.join(example_words(cell, with_deepspeed=plan.launcher.name == "deepspeed"))
    words = [
        "orch",
        "sweep",
        spec_word(plan.path) if plan.path else "SPEC",
        "--name",
        f"{plan.name}-{cell.short}",
    ]
    for text in (*plan.overrides, *cell_overrides(plan, cell), "repeats=1"):
        words += ["--set", text]
    return shlex.join(words)


def is_example(cell: Cell) -> bool:
    """Whether DeepSpeed's example has options for all in which the cell differs from the defaults."""
    others = [axis for axis in AXES if axis.name not in (*_EXAMPLE_AXES, *_PLACEMENT)]
    is_plain = all(cell.effective(axis.name) == axis.default for axis in others)
    return is_plain and not cell.ds and cell.effective("included_state") in (ALL, *STATE_NAMES)


def example_words(cell: Cell, *, with_deepspeed: bool) -> list[str]:
    """The worker's command line; more than one rank needs the ``deepspeed`` command."""
    words = ["env", *(f"{name}={value}" for name, value in sorted(cell.env.items()))] if cell.env else []
    if with_deepspeed or cell.ranks > 1:
        words += ["deepspeed", "--num_gpus", str(cell.effective("num_gpus"))]
        if cell.effective("num_nodes") != 1:
            words += ["--num_nodes", str(cell.effective("num_nodes"))]
        words += ["--module", "worker"]
    else:
        words += ["python", "-m", "worker"]
    if cell.effective("included_state") != ALL:
        words += ["--included_state", str(cell.effective("included_state"))]
    words += [f"--{name}" for name in ("pin_memory", "non_blocking") if cell.effective(name)]
    for name in ("nlayers", "hidden_dim"):
        words += [f"--{name}", str(cell.effective(name))]
    words += ["--dtype", f"torch.{cell.effective('dtype')}"]
    for name in ("iteration", "warmup"):
        words += [f"--{name}", str(cell.effective(name))]
    return words


def cell_overrides(plan: Plan, cell: Cell) -> list[str]:
    """``axis=value`` for ``--set`` that leave this cell alone of the plan's."""
    parameters = cell.parameters()
    # Also what does not differ: an excluded combination may have another value of it.
    names = dict.fromkeys((*plan.set_axes, *plan.varying))
    sections = {name: _section(name, parameters) for name in names if name not in parameters}
    texts = []
    for name in names:
        if any(name.startswith(f"{section}.") for section, leaves in sections.items() if leaves):
            continue
        value = sections.get(name) or parameters.get(name)
        # None of an axis that has no null is "inactive": its rule says so again, whatever the value.
        if value is None and name in AXIS_BY_NAME and not AXIS_BY_NAME[name].nullable:
            continue
        texts.append(f"{name}={_yaml(value)}")
    return texts


def _section(name: str, parameters: dict[str, object]) -> dict[str, object]:
    """What an axis that takes a whole DeepSpeed section sets in this cell: path below it -> value."""
    prefix = f"{name}."
    return {path.removeprefix(prefix): value for path, value in parameters.items() if path.startswith(prefix)}


def _yaml(value: object) -> str:
    """The value in YAML flow style, bare where that reads back as the same."""
    if isinstance(value, str) and _PLAIN_WORD.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    # A list stands for several values; one that is a value is wrapped.
    return f"[{text}]" if isinstance(value, list) else text
