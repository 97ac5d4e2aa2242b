"""The measured loop: train step → offload → dwell → reload, once an iteration.

Only the three calls lie inside timed sections. Everything that observes them (checksums, memory samples,
device checks, the record) happens between, with the device idle.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

from orchestrator.spec.axes import AxisValue
from orchestrator.spec.bytes import StateBytes, freed_bytes
from orchestrator.spec.models import axis_int, axis_value
from worker import checksum, states
from worker.clocks import Timing, measure
from worker.device import Device
from worker.engine import Sleeper, train_step, was_skipped
from worker.instrument import split_columns, split_offload, split_reload, time_each_state
from worker.memory import Sample, Sampler
from worker.recorder import Recorder

BYTES_TOLERANCE = 1 << 20
BYTES_TOLERANCE_SHARE = 0.001


class Holder(Protocol):
    """Somebody who takes the freed memory while the engine sleeps."""

    def hold(self) -> None:
        """Take it."""

    def release(self) -> None:
        """Give it back."""


@dataclass(slots=True)
class Loop:
    """Everything that an iteration needs; made before the loop so that the loop allocates nothing.

    Attributes:
        predicted: device bytes of each state by the formula; None for an unknown optimizer.
        barrier: waits for all ranks.
        holder: takes device memory while offloaded; None if nobody does.
        problems: what was found wrong, first words of each kind.
    """

    values: Mapping[str, AxisValue]
    engine: Any
    sleeper: Sleeper
    batch: tuple[Any, ...]
    device: Device
    rank: int
    predicted: StateBytes | None
    recorder: Recorder
    barrier: Callable[[], None]
    holder: Holder | None = None
    problems: dict[str, str] = field(default_factory=dict)
    _sampler: Sampler = field(init=False)
    _checksums: checksum.Checksums | None = field(init=False)
    _began: float = field(init=False, default=0.0)
    _samples: int = field(init=False, default=0)
    _dwell_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._sampler = Sampler(self.device)
        self._dwell_s = float(axis_value(self.values, "dwell_s") or 0.0)
        wanted = bool(axis_value(self.values, "checksums"))
        self._checksums = (
            checksum.Checksums(states.COPIED_STATES, self.device.torch_device) if wanted else None
        )

    def begin(self) -> None:
        """Set the loop's zero of time."""
        self._began = perf_counter()

    @property
    def elapsed_s(self) -> float:
        """Seconds since ``begin``."""
        return perf_counter() - self._began

    def iterate(self, iteration: int) -> None:
        """Run one iteration and record it."""
        instrumented = iteration >= axis_int(self.values, "iteration")
        started_s = self.elapsed_s
        self.sleeper.set_iteration(iteration)
        self._sample(iteration, "before_step")
        self.device.reset_peak()
        loss: list[Any] = []
        step = self._timed(lambda: loss.append(train_step(self.engine, self.batch)))
        peak_step = self.device.peak_bytes()
        loss_value = float(loss.pop())
        skipped = was_skipped(self.engine)

        present = states.state_tensors(self.engine.optimizer)
        copied = states.copied_bytes(present, self.sleeper.included)
        expected = self._expected_freed(present)
        sums_before = self._sums(present)
        del present

        before = self._sample(iteration, "after_step")
        self.device.reset_peak()
        offload_split: dict[str, float] = {}
        if instrumented:
            offload, offload_split = split_offload(self.sleeper.offload, self.device, self.barrier)
        else:
            offload = self._timed(self.sleeper.offload)
        peak_offload = self.device.peak_bytes()
        offloaded = self._sample(iteration, "offloaded")
        wrong = self._misplaced(self.sleeper.included, is_offloaded=True)
        self._dwell(iteration)

        self.device.reset_peak()
        reload_split: dict[str, float] = {}
        if instrumented:
            reload, reload_split = split_reload(self.sleeper.reload, self.device, self.barrier)
        else:
            reload = self._timed(self.sleeper.reload)
        peak_reload = self.device.peak_bytes()
        after = self._sample(iteration, "reloaded")

        wrong = wrong or states.misplaced(
            self.engine.optimizer, self.engine.module, (), self.device.type, False
        )
        intact = self._compare(iteration, sums_before)
        if wrong:
            self._problem("wrong_device", f"iteration {iteration}: {wrong}")
        state_split = None
        if instrumented:
            state_split = time_each_state(self.sleeper, self.device, self.barrier)
        self.recorder.write(
            "iteration",
            rank=self.rank,
            iteration=iteration,
            is_warmup=iteration < axis_int(self.values, "warmup"),
            is_cold=iteration == 0,
            is_instrumented=instrumented,
            started_s=started_s,
            step_s=step.done_s,
            **_timing_columns("offload", offload),
            **_timing_columns("reload", reload),
            **self._byte_columns(before, offloaded, after, expected),
            copied_bytes=copied,
            states_intact=intact,
            devices_ok=wrong is None,
            peak_step_bytes=peak_step,
            peak_offload_bytes=peak_offload,
            peak_reload_bytes=peak_reload,
            loss=loss_value if math.isfinite(loss_value) else None,
            nonfinite=None if math.isfinite(loss_value) else f"loss={loss_value}",
            skipped_step=skipped,
            **split_columns("offload", offload_split),
            **split_columns("reload", reload_split),
            state_split=state_split,
        )

    def _misplaced(self, included: tuple[str, ...], *, is_offloaded: bool) -> str | None:
        engine = self.engine
        return states.misplaced(engine.optimizer, engine.module, included, self.device.type, is_offloaded)

    def _timed(self, call: Callable[[], object]) -> Timing:
        return measure(call, self.device.synchronize, self.barrier)

    def _sample(self, iteration: int, phase: str) -> Sample:
        sample = self._sampler.take()
        self.recorder.write(
            "sample",
            rank=self.rank,
            sample=self._samples,
            iteration=iteration,
            phase=phase,
            at_s=self.elapsed_s,
            **sample.columns(),
        )
        self._samples += 1
        return sample

    def _dwell(self, iteration: int) -> None:
        """Stay asleep as long as the cell says, with somebody else in the memory."""
        if not self._dwell_s and self.holder is None:
            return
        if self.holder is not None:
            self.holder.hold()
        time.sleep(self._dwell_s)
        self._sample(iteration, "dwell")
        if self.holder is not None:
            self.holder.release()

    def _sums(self, present: Mapping[str, list[Any]]) -> dict[str, int] | None:
        if self._checksums is None:
            return None
        self._checksums.take(present)
        return self._checksums.read()

    def _compare(self, iteration: int, before: dict[str, int] | None) -> bool | None:
        if self._checksums is None or before is None:
            return None
        after = self._sums(states.state_tensors(self.engine.optimizer))
        names = checksum.changed(before, after or {})
        if names:
            self._problem(
                "states_changed", f"iteration {iteration}: {', '.join(names)} changed over offload/reload"
            )
        return not names

    def _problem(self, kind: str, message: str) -> None:
        """Report the first problem of a kind at once: a later crash must not hide it."""
        if kind in self.problems:
            return
        self.problems[kind] = message
        self.recorder.write(
            "error", rank=self.rank, status="failed", failure_kind=kind, message=message, traceback=None
        )

    def _expected_freed(self, present: Mapping[str, list[Any]]) -> int | None:
        """What the formula expects now: Adam's states exist only after a step that was not skipped."""
        if self.predicted is None:
            return None
        existing = [name for name in self.sleeper.included if name != "optim_states" or present[name]]
        return freed_bytes(self.predicted, existing)

    def _byte_columns(
        self, before: Sample, offloaded: Sample, after: Sample, expected: int | None
    ) -> dict[str, int | float | bool | None]:
        freed = before.allocated_bytes - offloaded.allocated_bytes
        match = None
        if self.device.is_cuda and expected is not None:
            # Without the allocator's slack where torch tells, so that the formula is held to the tensors.
            exact = _difference(before.requested_bytes, offloaded.requested_bytes)
            compared = freed if exact is None else exact
            match = abs(compared - expected) <= max(BYTES_TOLERANCE, BYTES_TOLERANCE_SHARE * expected)
        return {
            "freed_bytes": freed,
            "predicted_freed_bytes": expected,
            "device_freed_bytes": _difference(offloaded.device_free_bytes, before.device_free_bytes),
            "bytes_match": match,
            "allocated_before_bytes": before.allocated_bytes,
            "allocated_offloaded_bytes": offloaded.allocated_bytes,
            "allocated_after_bytes": after.allocated_bytes,
            "reserved_before_bytes": before.reserved_bytes,
            "reserved_offloaded_bytes": offloaded.reserved_bytes,
            "reserved_after_bytes": after.reserved_bytes,
            "pinned_bytes": offloaded.pinned_bytes,
            "pinning_s": _seconds(offloaded.pinning_s, before.pinning_s),
            "rss_bytes": offloaded.rss_bytes,
        }


def _timing_columns(name: str, timing: Timing) -> dict[str, float]:
    return {f"{name}_s": timing.done_s, f"{name}_host_s": timing.host_s, f"{name}_all_s": timing.all_s}


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _seconds(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
