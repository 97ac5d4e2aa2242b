"""Stops and continues the process that samples a job's memory, so that a part of the job runs without it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

START_S = 60.0
"""A sampler is started with the ranks, and imports less."""


@dataclass(slots=True)
class SamplerSwitch:
    """The sampler of the job in a run directory; it runs when it is found.

    A stopped process ends only once it is continued: leave it on.
    """

    pid: int
    is_on: bool = True

    def turn(self, on: bool) -> None:
        """Let it sample, or stand still; it holds no lock of ours in either state."""
        if on != self.is_on:
            os.kill(self.pid, signal.SIGCONT if on else signal.SIGSTOP)
            self.is_on = on


def sampler_of(run_dir: Path, longest_s: float = START_S) -> SamplerSwitch:
    """Find it by its working directory, waiting for its start; TimeoutError if there is none."""
    deadline = time.monotonic() + longest_s
    while True:
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                is_there = (entry / "cwd").samefile(run_dir)
                command = (entry / "cmdline").read_bytes()
            except OSError:  # Gone, or somebody else's.
                continue
            if is_there and b"worker.sampler" in command:
                return SamplerSwitch(int(entry.name))
        if time.monotonic() > deadline:
            raise TimeoutError(f"no sampler of {run_dir}: does the cell ask for one (sampler_hz)?")
        time.sleep(0.05)
