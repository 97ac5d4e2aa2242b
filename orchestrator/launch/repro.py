"""A job without orch: a folder with a script, its DeepSpeed config, and the command that runs it.

The script needs torch and DeepSpeed alone, so that a report to DeepSpeed can carry it.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from orchestrator.launch.devices import inventory
from orchestrator.launch.environment import allocator_settings
from orchestrator.spec.axes import AxisValue
from orchestrator.spec.cell import Cell
from orchestrator.spec.dsconfig import ds_config, included_states
from orchestrator.spec.models import ARCHITECTURES, architecture, is_factory, shape_of
from orchestrator.store.rows import IMPORT_ENGINE, AttemptRow

_MODEL_IMPORT = "from worker.model import SimpleModel, Transformer\n"
_LEFT_OUT = ("hold_bytes", "numa", "contention", "checksums", "sampler_hz", "instrumented")
"""Axes of orch's own surroundings, which the script does without."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """Everything needed to run a job without orch.

    Attributes:
        folder: name for the folder that the files go to.
        files: name → content.
        command: one shell line, to be run inside the folder.
        notes: what the script does not reproduce, one line each.
    """

    folder: str
    files: Mapping[str, str]
    command: str
    notes: tuple[str, ...]

    def as_shell(self) -> str:
        """A shell script that writes the files and runs the command."""
        parts = ["#!/bin/sh", *(f"# {note}" for note in self.notes), "set -e"]
        parts.append(f"mkdir -p {self.folder} && cd {self.folder}")
        for name, content in self.files.items():
            parts.append(f"cat > {name} <<'END_OF_{name}'\n{content.rstrip()}\nEND_OF_{name}")
        return "\n".join([*parts, self.command, ""])


def reproduce(cell: Cell, label: str, accelerator: str) -> Reproduction:
    """What runs ``cell`` on ``cuda`` or ``cpu`` without orch."""
    files = {
        "ds_config.json": json.dumps(ds_config(cell), indent=2),
        "job.json": json.dumps(_job(cell), indent=2),
        "repro.py": _script(),
    }
    notes = [f"job {label} without orch: needs torch and deepspeed alone"]
    for axis in _LEFT_OUT:
        value = cell.values[axis]
        if value not in (None, cell_default(axis)) and axis != "checksums":
            notes.append(f"left out: {axis} = {value}")
    if is_factory(str(cell.effective("model"))):
        notes.append(f"imports {cell.effective('model')}: PYTHONPATH must lead there")
    return Reproduction(f"repro-{label.replace('/', '-')}", files, _command(cell, accelerator), tuple(notes))


def untold(cell: Cell, attempts: Sequence[AttemptRow]) -> tuple[str, ...]:
    """What a script needs and a job imported from a log of the example does not tell; empty for any other."""
    if not any(attempt.engine == IMPORT_ENGINE for attempt in attempts):
        return ()
    return tuple(name for name in _NEEDED if cell.values[name] is None)


_NEEDED = ("hidden_dim", "nlayers", "dtype", "zero_stage", "num_gpus", "micro_batch", "iteration", "warmup")


def ran_on(attempts: Sequence[AttemptRow]) -> str:
    """The accelerator of the last attempt that says; without any, the one that this host has."""
    for attempt in reversed(attempts):
        if attempt.started_at is not None:
            return "cuda" if any(attempt.device_uuids or ()) else "cpu"
    return inventory().accelerator


def cell_default(axis: str) -> AxisValue:
    """The built-in default of an axis."""
    from orchestrator.spec.axes import AXIS_BY_NAME

    return AXIS_BY_NAME[axis].default


def _command(cell: Cell, accelerator: str) -> str:
    variables = {"DS_ACCELERATOR": accelerator, "OMP_NUM_THREADS": "1", **cell.env}
    settings = allocator_settings(cell.effective("pin_backend"))
    if settings is not None:
        variables["PYTORCH_CUDA_ALLOC_CONF"] = settings
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    ranks, nodes = cell.num_gpus, cell.num_nodes
    where = "--standalone"
    if nodes > 1:
        # On every node, with its own rank; the first node's name is for the user to fill in.
        where = f"--nnodes={nodes} --node_rank=$NODE_RANK --master_addr=$MASTER_ADDR --master_port=29511"
    return f"{assignments} python -m torch.distributed.run {where} --nproc_per_node={ranks} repro.py"


def _job(cell: Cell) -> dict[str, object]:
    """The axes as the script reads them: resolved, no preset, nothing inactive."""
    names = (
        "hidden_dim nlayers micro_batch seq_len dtype pin_memory non_blocking reload_non_blocking"
        " iteration warmup gc_freeze dwell_s".split()
    )
    job: dict[str, object] = {name: cell.effective(name) for name in names}
    then = cell.values["pin_memory_then"]
    job["pin_memory_then"] = job["pin_memory"] if then is None else then
    states = included_states(cell.values)
    job["included_state"] = None if states is None else sorted(states)
    model = str(cell.effective("model"))
    job["factory"] = model if is_factory(model) else None
    job["axes"] = dict(cell.values) if is_factory(model) else None
    job["transformer"] = _transformer(cell, model)
    shape = shape_of(cell.values)
    frozen = shape is not None and any(not parameter.trainable for parameter in shape.parameters)
    job["trainable"] = [p.trainable for p in shape.parameters] if shape is not None and frozen else []
    job["groups"] = [list(group) for group in shape.groups] if shape and len(shape.groups) > 1 else []
    return job


def _transformer(cell: Cell, model: str) -> dict[str, object] | None:
    if model != "transformer" and model not in ARCHITECTURES:
        return None
    arch = architecture(cell.values)
    names = "hidden ffn layers heads kv_heads vocab gated tied qkv_bias head_width".split()
    return {name: getattr(arch, name) for name in names}


def _script() -> str:
    """``worker/standalone.py`` with the models' source in place of their import."""
    spec = find_spec("worker")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    text = (folder / "standalone.py").read_text(encoding="utf-8")
    model = (folder / "model.py").read_text(encoding="utf-8")
    classes = [
        source
        for node in ast.parse(model).body
        if isinstance(node, ast.ClassDef) and (source := ast.get_source_segment(model, node))
    ]
    imports = "from torch import nn\nfrom torch.nn import functional\n"
    if text.count(_MODEL_IMPORT) != 1:
        raise RuntimeError("worker/standalone.py does not import the models as expected")
    return text.replace(_MODEL_IMPORT, imports + "\n\n" + "\n\n\n".join(classes) + "\n")
