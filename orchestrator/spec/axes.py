"""Which axes there are: name, type, default and what they mean.

This is the only list of axes. The sweep grammar, the JSON Schema, the columns of ``job``, the cell
identity, the reports and the worker all read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

AxisValue = bool | int | float | str | None
"""A resolved value. A set of states is its canonical string; ``None`` is "inactive" in a cell."""


class AxisType(StrEnum):
    """How a value of the axis is read, checked and stored."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    STATES = "states"
    """A set of engine states, canonical: ``all`` or names joined by ``+`` in ``STATE_NAMES`` order."""


STATE_NAMES = ("optim_states", "hp_params", "lp_params", "lp_grads", "contiguous_grad_buffer")
"""DeepSpeed's ``OffloadStateTypeEnum``, in the order in which canonical sets are written."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        name: as written in a sweep file and as the column of ``job``.
        type: how a value is read.
        default: the value where a sweep file says nothing.
        identity_default: the default frozen when the axis was introduced. A cell whose value equals
            it leaves the axis out of its identity, so a new axis renames no old cell. Never change it.
        help: one line for a reader of the starter file and the JSON Schema.
        minimum: least value allowed, for numbers.
        maximum: greatest value allowed, for numbers.
        choices: the values allowed, for strings; empty = free.
        is_size: part of the question (model, precision, ranks) rather than a setting one may choose.
        nullable: ``null`` is a value of its own ("same as ..."), not the default.
    """

    name: str
    type: AxisType
    default: AxisValue
    identity_default: AxisValue
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    is_size: bool = False
    nullable: bool = False


def _axis(
    name: str,
    type_: AxisType,
    default: AxisValue,
    help_: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    is_size: bool = False,
    nullable: bool = False,
) -> Axis:
    return Axis(name, type_, default, default, help_, minimum, maximum, choices, is_size, nullable)


_B, _I, _N, _S = AxisType.BOOLEAN, AxisType.INTEGER, AxisType.NUMBER, AxisType.STRING

AXES: tuple[Axis, ...] = (
    _axis(
        "included_state",
        AxisType.STATES,
        "all",
        "what is offloaded: all, one state, a list of states, or a preset",
        is_size=True,
    ),
    _axis("pin_memory", _B, True, "offload into page-locked host memory"),
    _axis(
        "pin_memory_then", _B, None, "pin_memory from the second iteration on; null = the same", nullable=True
    ),
    _axis("non_blocking", _B, False, "offload_states(non_blocking=...)"),
    _axis("reload_non_blocking", _B, False, "reload_states(non_blocking=...)"),
    _axis(
        "model",
        _S,
        "linear",
        "linear, transformer, a named shape such as llama-2-7b, or pkg.mod:factory",
        is_size=True,
    ),
    _axis("nlayers", _I, 1, "number of layers", minimum=1, maximum=10_000, is_size=True),
    _axis("hidden_dim", _I, 1024, "width of a layer", minimum=1, is_size=True),
    _axis(
        "ffn_dim",
        _I,
        None,
        "transformer: width of the feed-forward layer; null = 4 x hidden_dim",
        minimum=1,
        is_size=True,
        nullable=True,
    ),
    _axis(
        "num_heads",
        _I,
        None,
        "transformer: attention heads; null = hidden_dim / 128, at least 1",
        minimum=1,
        is_size=True,
        nullable=True,
    ),
    _axis(
        "vocab_size",
        _I,
        None,
        "transformer: vocabulary; null = 32000",
        minimum=1,
        is_size=True,
        nullable=True,
    ),
    _axis("tied_embeddings", _B, False, "transformer: input and output embedding are one", is_size=True),
    _axis("seq_len", _I, 128, "transformer: tokens in a sample", minimum=1, is_size=True),
    _axis("micro_batch", _I, 1, "samples a rank takes in a step", minimum=1, is_size=True),
    _axis(
        "dtype",
        _S,
        "bfloat16",
        "bfloat16, float16 or float32",
        choices=("bfloat16", "float16", "float32"),
        is_size=True,
    ),
    _axis("zero_stage", _I, 3, "ZeRO stage", minimum=1, maximum=3, is_size=True),
    _axis(
        "optimizer",
        _S,
        "adam",
        "adam (DeepSpeed's fused) or torch_adam",
        choices=("adam", "torch_adam"),
        is_size=True,
    ),
    _axis("param_groups", _I, 1, "parameter groups of the optimizer", minimum=1, is_size=True),
    _axis(
        "frozen_fraction",
        _N,
        0.0,
        "fraction of the layers that do not train",
        minimum=0.0,
        maximum=1.0,
        is_size=True,
    ),
    _axis("num_gpus", _I, 1, "ranks on each node", minimum=1, is_size=True),
    _axis("num_nodes", _I, 1, "nodes", minimum=1, is_size=True),
    _axis("iteration", _I, 10, "iterations of the measured loop, warm-up included", minimum=1),
    _axis("warmup", _I, 5, "leading iterations kept out of the medians", minimum=0),
    _axis("instrumented", _I, 0, "further iterations that split the time", minimum=0),
    _axis("gc_freeze", _B, False, "gc.collect(); gc.freeze() before the loop"),
    _axis("pin_backend", _S, "default", "default, host_register, host_register:THREADS, or exact"),
    _axis("numa", _S, "none", "none, device (the node next to the device), or a node number"),
    _axis("dwell_s", _N, 0.0, "seconds spent offloaded", minimum=0.0, maximum=10_000_000.0),
    _axis("hold_bytes", _I, 0, "device bytes that another process holds while offloaded", minimum=0),
    _axis("contention", _I, 1, "copies of the job that run at once on a host", minimum=1),
    _axis("checksums", _B, True, "checksum every state before offload and after reload"),
    _axis(
        "sampler_hz",
        _N,
        0.0,
        "memory samples a second from outside the rank; 0 = none",
        minimum=0.0,
        maximum=1000.0,
    ),
)

AXIS_BY_NAME: dict[str, Axis] = {axis.name: axis for axis in AXES}
"""Every axis by its name; ``ds`` and ``env`` entries are not here, they are dotted names."""
