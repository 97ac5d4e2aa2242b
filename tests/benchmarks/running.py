"""Starts a benchmark as its own process, stops it as a limit does, and counts what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.leftovers import marked
from tests.worker.ranks import ROOT, environment

LONGEST_S = 400
TINY = ("--set", "ds.zero_optimization.reduce_bucket_size=5e5")


class Benchmark:
    """``python -m benchmarks.NAME``; what it prints goes into ``output.txt`` of the folder."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        self.folder = folder
        self._output = folder / "output.txt"
        # In the environment of everything that it starts, and of nothing else.
        self.marker = f"ORCH_TEST_BENCHMARK={folder}"
        variables = environment() | dict([self.marker.split("=")]) | {"ORCH_STATE_DIR": str(folder / "state")}
        with self._output.open("wb") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"benchmarks.{name}", *words],
                cwd=ROOT, env=variables, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip

    @property
    def printed(self) -> str:
        """All of it so far."""
        return self._output.read_text()

    def until(self, there: Callable[[], bool]) -> None:
        """Wait for a condition while the benchmark runs."""
        deadline = time.monotonic() + LONGEST_S
        while not there():
            assert self.process.poll() is None and time.monotonic() < deadline, self.printed
            time.sleep(0.05)

    def ended(self) -> int:
        """Its exit status; nothing that it started is left."""
        status = self.process.wait(LONGEST_S)
        left = marked(self.marker)
        assert left == set(), [Path(f"/proc/{pid}/cmdline").read_text() for pid in left] + [self.printed]
        return status

    def saved(self, name: str) -> Any:
        """What lies in a JSON file of the folder; None if there is none yet."""
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def end(self) -> None:
        """Whatever is left of a failed test."""
        self.process.kill()
        for pid in marked(self.marker):
            os.kill(pid, 9)
        self.process.wait()
