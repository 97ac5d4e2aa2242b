"""Where does the time of one offload or reload go?

Instrumented iterations come after the plain ones and never enter the medians. While one runs, the calls
that DeepSpeed makes (tensor copies, pinning, ``gc.collect``, ``empty_cache``) are replaced by timed ones
that wait for the device, so the parts are exclusive; what is left of the total is DeepSpeed's own Python.
The plain iterations run without any of this.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from deepspeed.accelerator import get_accelerator

from worker import states
from worker.clocks import Timing, measure
from worker.device import Device
from worker.engine import Sleeper

PARTS = ("copy", "gc", "empty_cache", "alloc", "wait")


def split_offload(
    call: Callable[[], None], device: Device, barrier: Callable[[], None]
) -> tuple[Timing, dict[str, float]]:
    """Time one offload and split it; seconds of each part."""
    return _split(call, device, barrier)


def split_reload(
    call: Callable[[], None], device: Device, barrier: Callable[[], None]
) -> tuple[Timing, dict[str, float]]:
    """Time one reload and split it; seconds of each part."""
    return _split(call, device, barrier)


def split_columns(name: str, parts: dict[str, float]) -> dict[str, float | None]:
    """The parts as columns of ``iteration``; all None for a plain iteration."""
    return {f"{name}_{part}_s": parts.get(part) for part in PARTS}


def time_each_state(sleeper: Sleeper, device: Device, barrier: Callable[[], None]) -> str:
    """Offload and reload the cell's states one by one: JSON of seconds and copied bytes by state."""
    result: dict[str, dict[str, float | int]] = {}
    for state in sleeper.included:
        present = states.state_tensors(sleeper.engine.optimizer)
        size = states.copied_bytes(present, [state])
        del present

        def offload(state: str = state) -> None:
            sleeper.offload_one(state)

        down = measure(offload, device.synchronize, barrier)
        up = measure(sleeper.reload, device.synchronize, barrier)
        result[state] = {"offload_s": down.done_s, "reload_s": up.done_s, "copied_bytes": size}
    return json.dumps(result)


def _split(
    call: Callable[[], None], device: Device, barrier: Callable[[], None]
) -> tuple[Timing, dict[str, float]]:
    parts = dict.fromkeys(PARTS, 0.0)
    with _timed_calls(parts, device.synchronize):
        timing = measure(call, device.synchronize, barrier)
    parts["wait"] = timing.all_s - timing.done_s
    return timing, parts


@contextmanager
def _timed_calls(parts: dict[str, float], synchronize: Callable[[], None]) -> Iterator[None]:
    """Replace the calls by timed ones for the duration of the block."""
    depth = 0

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if depth:  # Inside another timed call: its time, not ours.
                return function(*args, **kwargs)
            depth += 1
            synchronize()
            started = perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                synchronize()
                parts[part] += perf_counter() - started
                depth -= 1

        return run

    plain_to, plain_copy = torch.Tensor.to, torch.Tensor.copy_

    def split_to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """``Tensor.to`` between host and device as an allocation and a copy, each timed."""
        target = args[0] if args else kwargs.get("device")
        non_blocking = bool(kwargs.get("non_blocking", False))
        if not isinstance(target, str | torch.device) or depth:
            return plain_to(tensor, *args, **kwargs)
        place = torch.device(target)
        if place.type in ("meta", tensor.device.type):
            return plain_to(tensor, *args, **kwargs)
        # A non-blocking copy to the host goes into pinned memory, as Tensor.to itself does it.
        pinned = place.type == "cpu" and non_blocking
        out = timed("alloc", torch.empty_like)(tensor, device=place, pin_memory=pinned, requires_grad=False)
        timed("copy", plain_copy)(out, tensor.detach(), non_blocking=non_blocking)
        return out

    accelerator = get_accelerator()
    replaced: list[tuple[Any, str, Any]] = [
        (gc, "collect", timed("gc", gc.collect)),
        (accelerator, "empty_cache", timed("empty_cache", accelerator.empty_cache)),
        (torch.Tensor, "copy_", timed("copy", plain_copy)),
        (torch.Tensor, "to", split_to),
    ]
    for name in ("pin_memory", "pin_empty_like"):
        if hasattr(accelerator, name):
            replaced.append((accelerator, name, timed("alloc", getattr(accelerator, name))))
    saved = [(owner, name, vars(owner).get(name)) for owner, name, _ in replaced]
    for owner, name, function in replaced:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, name, original in saved:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
