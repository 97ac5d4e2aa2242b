"""When is the link to the devices measured? At the sweep's start, at its end, and every few minutes.

So on orch's own host and in a pilot; ``nodeprobe.py`` does it on a node that runs one job. Always in a
process of its own (inside a rank a probe would fill the pinned cache and hide the cold cost), between
jobs, under the host's timed section.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, Protocol

from orchestrator.launch.environment import python_path
from orchestrator.launch.hoststate import TimedSection
from orchestrator.store.rows import ProbeRow

PROBE_MODULE = "worker.probe"
PROBE_TIMEOUT_S = 300.0


class ProbeStore(Protocol):
    """What a probe needs of the store."""

    def put_probes(self, probes: Sequence[ProbeRow]) -> object:
        """Keep the measurements."""


class ProbeClock:
    """Says when a probe is due, lets it run, keeps its result.

    Args:
        groups: devices of this host that are probed together, a group after the other.
        sweep_id: what the measurements are stored under.
        every_s: seconds between two probes while jobs run; None = never one.
        say: takes one line for the user.
        command: measures instead of orch's own probe.
    """

    def __init__(
        self,
        store: ProbeStore,
        sweep_id: int,
        groups: Sequence[Sequence[str]],
        every_s: float | None,
        say: Callable[[str], None],
        command: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._sweep_id = sweep_id
        self._groups = tuple(tuple(group) for group in groups)
        self._left: list[tuple[str, ...]] = []
        self._every_s = every_s
        self._say = say
        self._command = tuple(command)
        self._section = TimedSection()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._deadline_s = 0.0
        self._last_s = -float("inf")
        self._jobs_since = True

    @property
    def due(self) -> bool:
        """Jobs have run since the last probe (or none was made), and it is old."""
        if self._every_s is None or not self._jobs_since:
            return False
        return time.monotonic() - self._last_s >= self._every_s

    def job_begins(self) -> None:
        """A job is started: there will be something to measure again for."""
        self._jobs_since = True

    def turn(self, *, idle: bool, over: bool, last: bool) -> bool:
        """Bring a probe forward if one is due. True: nothing is to be started on the host now.

        Args:
            idle: no job of this orch runs.
            over: the sweep is being stopped: a running probe is ended, none is begun.
            last: no job is left: one last probe, if jobs have run since the one before.
        """
        if over:
            self.close()
            return False
        if self._process is not None:
            return self._still_runs(self._process)
        if not (self.due or (last and self._jobs_since and self._last_s > 0)):
            self._jobs_since = self._jobs_since or not idle
            return False
        if not idle or not self._section.try_acquire():
            return True
        self._left = list(self._groups)
        self._start()
        return True

    def close(self) -> None:
        """End a running probe and let the host's timed section go."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._finish()

    def _start(self) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _finish
        self._deadline_s = time.monotonic() + PROBE_TIMEOUT_S
        self._process = subprocess.Popen(
            command_for(self._left.pop(0), self._command),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **python_path()},
            start_new_session=True,
        )

    def _still_runs(self, process: subprocess.Popen[bytes]) -> bool:
        status = process.poll()
        if status is None and time.monotonic() < self._deadline_s:
            return True
        if status is None:
            self.close()
            self._say(f"the link probe took longer than {PROBE_TIMEOUT_S:.0f} s and was ended")
            return False
        assert self._output is not None
        self._output.seek(0)
        text = self._output.read()
        self._output.close()
        if status:
            self._finish()
            self._say(f"the link probe failed (exit status {status}): orch doctor says why")
            return False
        try:
            rows = probe_rows(text)
        except (ValueError, TypeError) as error:
            self._finish()
            self._say(f"the link probe printed something else than rows of link_probe: {error}")
            return False
        try:
            self._store.put_probes([replace(row, sweep_id=self._sweep_id) for row in rows])
        except BaseException:
            self._finish()
            raise
        if self._left:
            self._start()
            return True
        self._finish()
        return False

    def _finish(self) -> None:
        self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None
        self._section.release()
        self._jobs_since, self._last_s = False, time.monotonic()


def probe_command() -> tuple[str, ...]:
    """What measures a link instead of orch's own probe: ``$ORCH_LINK_PROBE``, empty without it.

    For sites where a probe must be started in a way of their own (bound to a NUMA node, in a container).
    It gets ``--device UUID`` for each device and prints what ``python -m worker.probe --json`` prints.
    """
    return tuple(shlex.split(os.environ.get("ORCH_LINK_PROBE", "")))


def command_for(devices: Sequence[str], command: Sequence[str] = ()) -> list[str]:
    """The command line that measures those devices at the same time."""
    own = command or (sys.executable, "-P", "-m", PROBE_MODULE, "--json")
    return [*own, *(word for uuid in devices for word in ("--device", uuid))]


def probe_rows(text: bytes) -> list[ProbeRow]:
    """The measurements that ``worker.probe`` printed: a JSON array of rows of ``link_probe``."""
    records: list[Mapping[str, Any]] = json.loads(text)
    return [ProbeRow(**record) for record in records]


def probe_groups(device_uuids: Sequence[str], widths: Iterable[int]) -> list[tuple[str, ...]]:
    """Devices to probe together: as many at once as jobs use, each device once for each such number."""
    return [
        tuple(device_uuids[start : start + width])
        for width in sorted(set(widths))
        if width <= len(device_uuids)
        for start in range(0, len(device_uuids) - width + 1, width)
    ]
