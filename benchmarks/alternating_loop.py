"""The measured loop with the instrument switched on and off from iteration to iteration."""

from __future__ import annotations

from typing import Any

from benchmarks.sampler_switch import SamplerSwitch, sampler_of
from benchmarks.turns import RECORDED, SAMPLED, SUMMED, order
from orchestrator.spec.models import axis_int
from worker import devicecheck, states
from worker.clocks import Timing
from worker.engine import train_step
from worker.loop import Loop


class AlternatingLoop(Loop):
    """Iterations by ``turns.order``; those that record nothing are written down behind the last."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._turns = order(axis_int(self.values, "iteration"))
        self._done = 0
        self._all_checksums = self._checksums
        self._outside: SamplerSwitch | None = None
        self._unwritten: list[tuple[int, float, float, Timing, Timing, bool | None]] = []
        self._look_for_strangers = devicecheck.foreign_users
        # Whom the rank asks for strangers after an iteration, before the next: that one's turn decides.
        devicecheck.foreign_users = self._strangers

    def begin(self) -> None:
        """Find the sampler, then set the zero of time."""
        assert self.recorder.path is not None
        self._outside = sampler_of(self.recorder.path.parent.parent)
        super().begin()

    def iterate(self, iteration: int) -> None:
        """Run one iteration with what its turn asks for."""
        turn = self._turns[iteration]
        assert self._outside is not None
        self._outside.turn(turn in SAMPLED)
        self._checksums = self._all_checksums if turn in SUMMED else None
        if turn in RECORDED:
            super().iterate(iteration)
        else:
            self._observe_no_more(iteration)
        self._done = iteration + 1
        if self._done == len(self._turns):
            # It ends when it sees that the rank is done.
            self._outside.turn(True)
            self._write()

    def _observe_no_more(self, iteration: int) -> None:
        """As ``Loop.iterate`` without whatever looks at memory, devices or the loss."""
        started_s = self.elapsed_s
        self.sleeper.set_iteration(iteration)
        step = self._timed(lambda: train_step(self.engine, self.batch))
        sums = self._sums(states.state_tensors(self.engine.optimizer)) if self._checksums else None
        offload = self._timed(self.sleeper.offload)
        reload = self._timed(self.sleeper.reload)
        intact = self._compare(iteration, sums)
        self._unwritten.append((iteration, started_s, step.done_s, offload, reload, intact))

    def _write(self) -> None:
        for iteration, started_s, step_s, offload, reload, intact in self._unwritten:
            columns: dict[str, Any] = {}
            for name, timing in (("offload", offload), ("reload", reload)):
                columns[f"{name}_s"] = timing.done_s
                columns[f"{name}_host_s"] = timing.host_s
                columns[f"{name}_all_s"] = timing.all_s
            self.recorder.write(
                "iteration", rank=self.rank, iteration=iteration, is_cold=False, is_instrumented=False,
                is_warmup=iteration < axis_int(self.values, "warmup"), started_s=started_s, step_s=step_s,
                states_intact=intact, **columns,
            )  # fmt: skip

    def _strangers(self, *arguments: Any, **named: Any) -> str | None:
        is_recorded = self._done == len(self._turns) or self._turns[self._done] in RECORDED
        return self._look_for_strangers(*arguments, **named) if is_recorded else None
