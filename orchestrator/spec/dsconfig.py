"""Which DeepSpeed configuration does a cell run with, and which cells does DeepSpeed refuse?

The base is the configuration of DeepSpeed's own offload_states example: micro-batch, Adam with a
learning rate of 1e-6, the ZeRO stage, the dtype. The cell's ``ds`` overrides are merged into it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from orchestrator.spec.axes import AxisValue
from orchestrator.spec.models import axis_int, axis_value

if TYPE_CHECKING:
    from orchestrator.spec.cell import Cell

OWNED_DS_KEYS: dict[str, str] = {
    "train_micro_batch_size_per_gpu": "micro_batch",
    "train_batch_size": "micro_batch",
    "zero_optimization.stage": "zero_stage",
    "bf16.enabled": "dtype",
    "fp16.enabled": "dtype",
    "optimizer.type": "optimizer",
    "optimizer.params.torch_adam": "optimizer",
}
"""Dotted DeepSpeed keys that an axis decides, and that axis: as ``ds`` overrides they are errors."""

COUNT_KEYS = frozenset(
    f"zero_optimization.{key}"
    for key in ("sub_group_size", "reduce_bucket_size", "stage3_prefetch_bucket_size")
)
"""Dotted DeepSpeed keys that the byte formula reads as numbers of elements."""

DTYPE_KEYS = frozenset({"data_types.grad_accum_dtype", "communication_data_type"})
"""Dotted DeepSpeed keys that it reads as dtypes."""

_DS_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def unreadable(dotted: str, value: object) -> str | None:
    """What should stand at this key instead of ``value``; None where the byte formula can read it."""
    if value is None:
        return None
    if dotted in DTYPE_KEYS:
        known = {*_DS_DTYPES, *_DS_DTYPES.values()}
        return None if str(value).lower() in known else "write fp32, fp16 or bf16"
    if dotted in COUNT_KEYS and value != "auto":
        try:
            is_count = not isinstance(value, bool) and 0 <= float(str(value)) < float("inf")
        except ValueError:
            is_count = False
        return None if is_count else "write a number of elements, or auto"
    return None


def ds_config(cell: Cell) -> dict[str, object]:
    """The resolved DeepSpeed configuration of a cell, ready for JSON."""
    return resolve_ds_config(cell.values, cell.ds)


def resolve_ds_config(values: Mapping[str, AxisValue], ds: Mapping[str, object]) -> dict[str, object]:
    """The example's base for these axes with the nested overrides ``ds`` merged in."""
    optimizer_params: dict[str, object] = {"lr": 1e-6}
    if axis_value(values, "optimizer") == "torch_adam":
        optimizer_params["torch_adam"] = True
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": axis_int(values, "micro_batch"),
        "optimizer": {"type": "Adam", "params": optimizer_params},
        "zero_optimization": {"stage": axis_int(values, "zero_stage")},
    }
    dtype = axis_value(values, "dtype")
    if dtype == "float16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 8}
    elif dtype == "bfloat16":
        config["bf16"] = {"enabled": True}
    return merged(config, ds)


def merged(base: Mapping[str, object], override: Mapping[str, object]) -> dict[str, object]:
    """A deep copy of ``base`` with ``override`` laid over it, mapping by mapping."""
    result = deepcopy(dict(base))
    for key, value in override.items():
        mine = result.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            result[key] = merged(mine, value)
        else:
            result[key] = deepcopy(value)
    return result


def ds_config_sha256(config: Mapping[str, object]) -> str:
    """SHA-256 of the configuration's canonical JSON, hexadecimal."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def config_at(config: Mapping[str, object], dotted: str) -> object:
    """The entry at a dotted key, None where it is not set."""
    node: object = config
    for part in dotted.split("."):
        if not isinstance(node, Mapping):
            return None
        node = node.get(part)
    return node


def config_dtype(config: Mapping[str, object], dotted: str) -> str | None:
    """A dtype set in the configuration as ``float32``, ``float16`` or ``bfloat16``; None: not set."""
    value = config_at(config, dotted)
    return None if value is None else _DS_DTYPES.get(str(value).lower(), str(value).lower())


def included_states(values: Mapping[str, AxisValue]) -> frozenset[str] | None:
    """The states a cell offloads; None means all of them (``include=None``)."""
    text = str(axis_value(values, "included_state"))
    return None if text == "all" else frozenset(text.split("+"))


def refusal(values: Mapping[str, AxisValue], ds: Mapping[str, object], accelerator: str) -> str | None:
    """Why DeepSpeed cannot run this cell at all on ``cuda`` or ``cpu``; None if nothing is known against it.

    Each reason is an assertion or a missing method of DeepSpeed 0.19.8 (``DeepSpeedEngine.offload_states``,
    ``DeepSpeedZeroOptimizer_Stage3.offload_states``, ``get_optimizer_wrapper`` choosing ``BF16_Optimizer``).
    """
    config = resolve_ds_config(values, ds)
    stage = axis_int(values, "zero_stage")
    include = included_states(values)
    if accelerator == "cpu" and axis_value(values, "dtype") == "float16":
        return "fp16 does not run on a CPU"
    if config_at(config, "zero_optimization.offload_param.device") not in (None, "none"):
        return "offload_states refuses an engine with zero_optimization.offload_param"
    touches_adam = include is None or include & {"hp_params", "optim_states"}
    is_torch_adam = axis_value(values, "optimizer") == "torch_adam"
    if stage == 3 and is_torch_adam and touches_adam:
        return "ZeRO-3 offloads hp_params and optim_states only with DeepSpeed's FusedAdam"
    uses_bf16_optimizer = (
        stage == 1
        and axis_value(values, "dtype") == "bfloat16"
        and config_dtype(config, "data_types.grad_accum_dtype") == "float32"
    )
    if uses_bf16_optimizer:
        return "ZeRO-1 with bf16 and fp32 gradient accumulation has no offload_states (BF16_Optimizer)"
    if float(axis_value(values, "frozen_fraction") or 0.0) >= 1.0:
        return "no parameter trains (frozen_fraction 1): ZeRO has nothing to optimize"
    return None
