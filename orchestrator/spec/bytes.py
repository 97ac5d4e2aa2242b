"""How many bytes does each engine state take on the device, on the link and in pinned host memory?

The exact formula for DeepSpeed 0.19.8, pure and without torch. Admission, the worker and the reports use
this one. Sizes are for the fullest rank; every tensor is rounded up to 512 bytes on the device, as
torch's caching allocator does, and to a power of two in pinned host memory, as its host allocator does.

ZeRO-3 (``deepspeed/runtime/zero/stage3.py``): a parameter of n elements leaves ceil(n/W) on a rank
(``Init._partition_param``, padding per parameter). Master weights are one flat tensor a sub-group
(``_create_fp16_sub_groups``), model weights and gradients one flat tensor each
(``defragment``, ``_setup_for_real_optimizer``), Adam's two moments follow the master weights, and the
gradient bucket has ``reduce_bucket_size`` elements of the communication dtype. It is dropped and made
again, never copied. Parameters of at most ``stage3_param_persistence_threshold`` elements stay gathered
between steps and are dropped by every offload (``empty_partition_cache``); on one rank they are views
of the flat buffer (``NoGatherHandle``) and free nothing.

ZeRO-1/2 (``stage_1_and_2.py``): each optimizer group is padded to a multiple of 2·W elements; every rank
keeps the whole flat model weights and 1/W of the master weights and moments. Gradients are gone after a
step, and the bucket is not a state that ``offload_states`` touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import SpecError
from orchestrator.spec.axes import STATE_NAMES, AxisValue
from orchestrator.spec.dsconfig import (
    COUNT_KEYS,
    DTYPE_KEYS,
    config_at,
    config_dtype,
    included_states,
    resolve_ds_config,
    unreadable,
)
from orchestrator.spec.models import ModelShape, axis_int, axis_value, shape_of

if TYPE_CHECKING:
    from orchestrator.spec.cell import Cell

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of an element."""

DEFAULT_REDUCE_BUCKET_SIZE = 500_000_000
DEFAULT_SUB_GROUP_SIZE = 1_000_000_000
DEFAULT_PERSISTENCE_THRESHOLD = 100_000
_DEVICE_ROUNDING_BYTES = 512
_EXACT_ABOVE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Device bytes of each state on the fullest rank, each tensor rounded up to 512 bytes.

    ``persistent`` is not a state that can be asked for: small parameters that every ZeRO-3 offload drops.
    """

    hp_params: int = 0
    lp_params: int = 0
    lp_grads: int = 0
    optim_states: int = 0
    contiguous_grad_buffer: int = 0
    persistent: int = 0

    def as_dict(self) -> dict[str, int]:
        """State name → bytes."""
        return asdict(self)

    def get(self, state: str) -> int:
        """Bytes of one state by its name."""
        return int(getattr(self, state))


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one job of a cell takes, for its fullest rank; None where the model's shape is not known.

    Attributes:
        parameters_total: elements of the whole model.
        gpu_bytes: device memory at the peak of a step, an estimate (``_step_peak``).
        freed_bytes: device memory that one offload of the cell's states frees, exact.
        copied_bytes: bytes that one offload moves to the host, exact.
        pinned_bytes: pinned host memory while offloaded, rounded as torch rounds it; 0: nothing is pinned.
        per_state: device bytes of every state, included or not.
    """

    parameters_total: int | None
    gpu_bytes: int | None
    freed_bytes: int | None
    copied_bytes: int | None
    pinned_bytes: int | None
    per_state: StateBytes | None


UNKNOWN = Prediction(None, None, None, None, None, None)
"""The prediction for a model whose parameters are not known."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """The tensors of each copied state on the fullest rank: sizes in bytes, not rounded."""

    hp_params: tuple[int, ...]
    lp_params: tuple[int, ...]
    lp_grads: tuple[int, ...]
    optim_states: tuple[int, ...]
    bucket: int
    persistent: tuple[int, ...]

    def of(self, state: str) -> tuple[int, ...]:
        """The tensors that an offload of ``state`` copies; the bucket is never copied."""
        if state == "contiguous_grad_buffer":
            return ()
        sizes: tuple[int, ...] = getattr(self, state)
        return sizes


def predict(cell: Cell) -> Prediction:
    """The prediction for a cell; ``UNKNOWN`` for a model of the user."""
    return predict_values(cell.values, cell.ds)


def predict_values(
    values: Mapping[str, AxisValue], ds: Mapping[str, object], shape: ModelShape | None = None
) -> Prediction:
    """The prediction for resolved axes and ``ds`` overrides; ``shape`` replaces the axes' model."""
    shape = shape or shape_of(values)
    if shape is None:
        return UNKNOWN
    _check_readable(ds)
    buffers = state_buffers(values, ds, shape)
    states = device_bytes(buffers)
    included = included_states(values) or frozenset(STATE_NAMES)
    return Prediction(
        parameters_total=shape.numel,
        gpu_bytes=_step_peak(values, ds, shape, buffers, states),
        freed_bytes=freed_bytes(states, included),
        copied_bytes=sum(sum(buffers.of(state)) for state in included),
        pinned_bytes=pinned_bytes(values, buffers),
        per_state=states,
    )


def device_bytes(buffers: Buffers) -> StateBytes:
    """Device bytes of each state, every tensor rounded up to 512 bytes."""
    return StateBytes(
        hp_params=_rounded(buffers.hp_params),
        lp_params=_rounded(buffers.lp_params),
        lp_grads=_rounded(buffers.lp_grads),
        optim_states=_rounded(buffers.optim_states),
        contiguous_grad_buffer=_rounded((buffers.bucket,)),
        persistent=_rounded(buffers.persistent),
    )


def freed_bytes(states: StateBytes, included: Iterable[str]) -> int:
    """Device bytes that one offload of ``included`` frees: those states and the persistent parameters."""
    return states.persistent + sum(states.get(state) for state in included)


def state_buffers(values: Mapping[str, AxisValue], ds: Mapping[str, object], shape: ModelShape) -> Buffers:
    """The tensors of every state on the fullest rank after a real step."""
    ranks = axis_int(values, "num_gpus") * axis_int(values, "num_nodes")
    if axis_int(values, "zero_stage") == 3:
        return _stage3_buffers(values, ds, shape, ranks)
    width = DTYPE_BYTES[str(axis_value(values, "dtype"))]
    alignment = 2 * ranks
    padded = [
        -(-sum(shape.parameters[index].numel for index in group) // alignment) * alignment
        for group in shape.groups
    ]
    masters = tuple(4 * numel // ranks for numel in padded)
    return Buffers(
        hp_params=masters,
        lp_params=tuple(width * numel for numel in padded),
        lp_grads=(),
        optim_states=masters + masters,
        bucket=0,
        persistent=(),
    )


def _stage3_buffers(
    values: Mapping[str, AxisValue], ds: Mapping[str, object], shape: ModelShape, ranks: int
) -> Buffers:
    config = resolve_ds_config(values, ds)
    dtype = str(axis_value(values, "dtype"))
    width = DTYPE_BYTES[dtype]
    grad_width = DTYPE_BYTES[config_dtype(config, "data_types.grad_accum_dtype") or dtype]
    comm_width = DTYPE_BYTES[config_dtype(config, "communication_data_type") or dtype]
    threshold = _count(config, "stage3_param_persistence_threshold", DEFAULT_PERSISTENCE_THRESHOLD)
    sub_groups = [
        numel
        for group in shape.groups
        for numel in _sub_groups(
            [-(-shape.parameters[index].numel // ranks) for index in group],
            _count(config, "sub_group_size", DEFAULT_SUB_GROUP_SIZE),
        )
    ]
    partition = sum(sub_groups)
    masters = tuple(4 * numel for numel in sub_groups)
    small = [p.numel for p in shape.parameters if p.numel <= threshold] if ranks > 1 else []
    contiguous = config_at(config, "zero_optimization.contiguous_gradients") is not False
    bucket = _count(config, "reduce_bucket_size", DEFAULT_REDUCE_BUCKET_SIZE)
    return Buffers(
        hp_params=masters,
        lp_params=(width * partition,),
        lp_grads=(grad_width * partition,),
        optim_states=masters + masters,
        bucket=comm_width * bucket if contiguous else 0,
        persistent=tuple(width * -(-numel // ranks) * ranks for numel in small),
    )


def _sub_groups(partitions: list[int], limit: int) -> list[int]:
    """Elements of each sub-group (``DeepSpeedZeroOptimizer_Stage3._create_fp16_sub_groups``)."""
    if limit >= sum(partitions):
        return [sum(partitions)]
    groups, current = [], 0
    for position, numel in enumerate(partitions):
        current += numel
        if current >= limit or position == len(partitions) - 1:
            groups.append(current)
            current = 0
    return groups


def pinned_bytes(values: Mapping[str, AxisValue], buffers: Buffers) -> int:
    """Pinned host bytes of a rank while offloaded; the most of any iteration.

    ZeRO-3 keeps its buffers when ``pin_memory_then`` turns pinning off.
    """
    included = included_states(values) or frozenset(STATE_NAMES)
    is_exact = axis_value(values, "pin_backend") == "exact"

    def total(states: frozenset[str]) -> int:
        return sum(pinned_size(size, is_exact) for state in states & included for size in buffers.of(state))

    every = total(frozenset(STATE_NAMES))
    first = bool(axis_value(values, "pin_memory"))
    then = values.get("pin_memory_then")
    if then is None or bool(then) == first:
        return every if first else total(_pinned_unasked(values))
    if axis_int(values, "zero_stage") == 3:
        return every if then else every + total(_pinned_unasked(values))
    return every


def _pinned_unasked(values: Mapping[str, AxisValue]) -> frozenset[str]:
    """States whose host buffers are pinned although ``pin_memory`` is off.

    With ``non_blocking``, ``Tensor.to("cpu", non_blocking=True)`` allocates pinned memory: for master and
    model weights (ZeRO-1/2: the moments too).
    """
    if not axis_value(values, "non_blocking"):
        return frozenset()
    moments = {"optim_states"} if axis_int(values, "zero_stage") < 3 else set()
    return frozenset({"hp_params", "lp_params"} | moments)


def pinned_share(values: Mapping[str, AxisValue], ds: Mapping[str, object]) -> float | None:
    """Share of the copied bytes that a warm iteration copies to pinned memory: 0 to 1.

    None where it takes the model's shape to know, and that is not known.
    """
    then = values.get("pin_memory_then")
    if bool(axis_value(values, "pin_memory") if then is None else then):
        return 1.0
    unasked = _pinned_unasked(values)
    if not unasked:
        return 0.0
    shape = shape_of(values)
    if shape is None:
        return None
    buffers = state_buffers(values, ds, shape)
    included = included_states(values) or frozenset(STATE_NAMES)
    copied = {state: sum(buffers.of(state)) for state in included}
    every = sum(copied.values())
    return sum(copied[state] for state in unasked & included) / every if every else 0.0


def pinned_size(size: int, is_exact: bool = False) -> int:
    """Bytes that torch's host allocator takes for ``size``: the next power of two.

    ``is_exact``: with ``pinned_max_round_threshold_mb:1`` only buffers up to 1 MiB are rounded.
    """
    if size <= 0:
        return 0
    if is_exact and size > _EXACT_ABOVE_BYTES:
        return size
    return 1 << (size - 1).bit_length()


def _step_peak(
    values: Mapping[str, AxisValue],
    ds: Mapping[str, object],
    shape: ModelShape,
    buffers: Buffers,
    states: StateBytes,
) -> int:
    """Device bytes at the peak of a training step, an estimate for admission, on the safe side.

    All states and the frozen parameters, plus the larger of two transients. Backward: activations,
    gathered parameters (ZeRO-3 on several ranks: two layers and the prefetch bucket), and gradients (a
    layer's; ZeRO-1/2: the whole model's, or two buckets and the partition). Optimizer step: one
    sub-group's gradient flattened and in fp32. 5 % and 512 MiB are added for cuBLAS, NCCL and fragments.
    """
    config = resolve_ds_config(values, ds)
    ranks = axis_int(values, "num_gpus") * axis_int(values, "num_nodes")
    stage = axis_int(values, "zero_stage")
    width = DTYPE_BYTES[str(axis_value(values, "dtype"))]
    frozen = width * (shape.numel - shape.trainable_numel)
    activations = width * axis_int(values, "micro_batch") * shape.activation_numel
    largest_group = max(buffers.hp_params, default=0)
    step = largest_group + (largest_group // 4 * width if width != 4 else 0)
    if stage == 3:
        frozen = -(-frozen // ranks)
        gathered = 0
        if ranks > 1:
            prefetch = _count(config, "stage3_prefetch_bucket_size", 50_000_000)
            gathered = width * min(shape.numel, 2 * shape.layer_numel + prefetch)
        backward = gathered + width * shape.layer_numel + activations
    else:
        bucket = width * _count(config, "reduce_bucket_size", DEFAULT_REDUCE_BUCKET_SIZE)
        model = sum(buffers.lp_params)
        gradients = model if stage == 1 else model // ranks + min(model, 2 * bucket)
        backward = gradients + activations
        step += gradients
    resident = sum(states.as_dict().values()) + frozen
    return int((resident + max(backward, step)) * 1.05) + (512 << 20)


def _check_readable(ds: Mapping[str, object]) -> None:
    """Refuse what a base file of DeepSpeed may hold and the formula cannot read."""
    for key in sorted(COUNT_KEYS | DTYPE_KEYS):
        fix = unreadable(key, config_at(ds, key))
        if fix:
            raise SpecError(f"'{config_at(ds, key)}' cannot be read", f"ds.{key}", fix)


def _count(config: Mapping[str, object], key: str, default: int) -> int:
    value = config_at(config, f"zero_optimization.{key}")
    return default if value is None or value == "auto" else int(float(str(value)))


def _rounded(sizes: Iterable[int]) -> int:
    return sum(-(-size // _DEVICE_ROUNDING_BYTES) * _DEVICE_ROUNDING_BYTES for size in sizes)
