"""From axes to a running DeepSpeed engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import deepspeed
import torch
from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum, OffloadStateTypeEnum

from orchestrator.spec.axes import STATE_NAMES, AxisValue
from orchestrator.spec.dsconfig import included_states
from orchestrator.spec.models import ModelShape, axis_int, axis_value
from worker.device import Device
from worker.failures import RankError
from worker.model import DTYPES, build_model, freeze, parameter_groups, shape_of_module

SEED = 1234


@contextlib.contextmanager
def _default_dtype(dtype: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build_engine(
    values: Mapping[str, AxisValue], config: dict[str, object], device: Device
) -> tuple[Any, ModelShape]:
    """The engine, and the shape of the model as it really is. The process group must exist."""
    torch.manual_seed(SEED)
    dtype = DTYPES[str(axis_value(values, "dtype"))]
    if axis_int(values, "zero_stage") == 3:
        with deepspeed.zero.Init(config_dict_or_path=config):
            module = build_model(values)
    else:
        # In its own dtype and place at once: no fp32 copy, no pass through the host.
        with _default_dtype(dtype), device.torch_device:
            module = build_model(values)
    freeze(module, values)
    shape = shape_of_module(module, values)
    engine, *_ = deepspeed.initialize(
        model=module, model_parameters=parameter_groups(module, shape), config=config
    )
    if not hasattr(engine, "offload_states") or not hasattr(engine.optimizer, "offload_states"):
        name = type(engine.optimizer).__name__
        raise RankError("unsupported", f"{name} of DeepSpeed {deepspeed.__version__} has no offload_states")
    return engine, shape


class Sleeper:
    """Puts an engine to sleep and wakes it up, with the settings of a cell."""

    def __init__(self, engine: Any, values: Mapping[str, AxisValue]) -> None:
        self.engine = engine
        names = included_states(values)
        self.included: tuple[str, ...] = tuple(n for n in STATE_NAMES if names is None or n in names)
        self._include = None if names is None else {OffloadStateTypeEnum[name] for name in names}
        self._first_pin = bool(axis_value(values, "pin_memory"))
        then = values.get("pin_memory_then")
        self._later_pin = self._first_pin if then is None else bool(then)
        self._offload_non_blocking = bool(axis_value(values, "non_blocking"))
        self._reload_non_blocking = bool(axis_value(values, "reload_non_blocking"))
        self.pin_memory = self._first_pin

    def set_iteration(self, iteration: int) -> None:
        """``pin_memory_then`` applies from the second iteration on."""
        self.pin_memory = self._first_pin if iteration == 0 else self._later_pin

    def offload(self) -> None:
        """The call that is measured."""
        self._offload(self._include)

    def offload_one(self, state: str) -> None:
        """Offload a single state with the same settings."""
        self._offload({OffloadStateTypeEnum[state]})

    def reload(self) -> None:
        """The other call that is measured."""
        self.engine.reload_states(non_blocking=self._reload_non_blocking)

    def _offload(self, include: Any) -> None:
        self.engine.offload_states(
            include=include,
            device=OffloadDeviceEnum.cpu,
            pin_memory=self.pin_memory,
            non_blocking=self._offload_non_blocking,
        )


def train_step(engine: Any, batch: tuple[Any, ...]) -> Any:
    """Forward, backward, optimizer step; the loss, still on the device."""
    loss = engine(*batch)
    engine.backward(loss)
    engine.step()
    return loss.detach()


def was_skipped(engine: Any) -> bool:
    """Whether the last step was skipped (fp16 overflow)."""
    applied = getattr(engine, "was_step_applied", None)
    return not applied() if callable(applied) else bool(getattr(engine.optimizer, "overflow", False))
