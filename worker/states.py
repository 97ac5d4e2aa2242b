"""Where are the tensors of each engine state, how large are they, and on which device?

DeepSpeed's own ``get_state_devices`` knows ZeRO-3 alone; this one looks at the attributes that
``offload_states`` itself moves, for every stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from orchestrator.spec.axes import STATE_NAMES

COPIED_STATES = tuple(name for name in STATE_NAMES if name != "contiguous_grad_buffer")
"""States whose content survives; the bucket is dropped and made anew."""

_OFFLOAD_BUFFER_SUFFIX = "_offload_buffer"


def state_tensors(optimizer: Any) -> dict[str, list[Any]]:
    """The tensors of each state of a ZeRO optimizer (``engine.optimizer``), as they are now."""
    return {
        name: [tensor for tensor in _READERS[name](optimizer) if tensor is not None] for name in STATE_NAMES
    }


def is_stage3(optimizer: Any) -> bool:
    """Whether the optimizer partitions the parameters too."""
    return hasattr(optimizer, "fp32_partitioned_groups_flat")


def _hp_params(optimizer: Any) -> Iterable[Any]:
    if is_stage3(optimizer):
        return list(optimizer.fp32_partitioned_groups_flat)
    return list(optimizer.single_partition_of_fp32_groups)


def _lp_params(optimizer: Any) -> Iterable[Any]:
    if not is_stage3(optimizer):
        return list(optimizer.bit16_groups_flat)
    buffer = getattr(optimizer, "lp_param_buffer", None)
    if buffer is not None:
        return [buffer]
    return [parameter.ds_tensor for group in optimizer.fp16_groups for parameter in group]


def _lp_grads(optimizer: Any) -> Iterable[Any]:
    if is_stage3(optimizer):
        return [getattr(optimizer, "grad_partitions_flat_buffer", None)]
    tensors: list[Any] = []
    for gradients in getattr(optimizer, "averaged_gradients", {}).values():
        flat = getattr(gradients, "flat_partition", None)
        tensors += [flat] if flat is not None else list(gradients or [])
    return tensors


def _optim_states(optimizer: Any) -> Iterable[Any]:
    # A step counter may be a tensor too; it is no bulk state and torch keeps it on the host.
    return [
        value
        for state in optimizer.optimizer.state.values()
        for key, value in state.items()
        if torch.is_tensor(value) and value.dim() > 0 and not str(key).endswith(_OFFLOAD_BUFFER_SUFFIX)
    ]


def _contiguous_grad_buffer(optimizer: Any) -> Iterable[Any]:
    if not is_stage3(optimizer):
        return []
    return [getattr(bucket, "buffer", None) for bucket in getattr(optimizer, "ipg_buckets", {}).values()]


_READERS: Mapping[str, Callable[[Any], Iterable[Any]]] = {
    "hp_params": _hp_params,
    "lp_params": _lp_params,
    "lp_grads": _lp_grads,
    "optim_states": _optim_states,
    "contiguous_grad_buffer": _contiguous_grad_buffer,
}


def nbytes(tensors: Iterable[Any]) -> int:
    """Bytes of the tensors' elements."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def copied_bytes(states: Mapping[str, list[Any]], included: Iterable[str]) -> int:
    """Bytes that an offload of ``included`` moves to the host, on the real tensors."""
    return sum(nbytes(states[name]) for name in included if name in COPIED_STATES)


def misplaced(
    optimizer: Any, module: Any, included: Iterable[str], device_type: str, is_offloaded: bool
) -> str | None:
    """The first state that is not where it belongs, in words; None if all are.

    While offloaded the included states belong on the host (the bucket nowhere) and the others on the
    device; otherwise everything belongs on the device, the weights that the module sees included.
    """
    away = set(included) if is_offloaded else set()
    for name, tensors in state_tensors(optimizer).items():
        if name == "contiguous_grad_buffer" and name in away:
            if tensors:
                return f"{name} still exists"
            continue
        expected = "cpu" if name in away else device_type
        found = {tensor.device.type for tensor in tensors}
        if found - {expected}:
            return f"{name} on {'+'.join(sorted(found))} instead of {expected}"
    if "lp_params" not in away:
        weights = [getattr(parameter, "ds_tensor", parameter) for parameter in module.parameters()]
        found = {weight.device.type for weight in weights}
        if found - {device_type}:
            return f"module weights on {'+'.join(sorted(found))} instead of {device_type}"
    return None
