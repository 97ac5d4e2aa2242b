"""The engine's end of a supervisor: starts the process, sends orders, reads events."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from orchestrator.errors import EngineError
from orchestrator.launch.environment import python_path
from orchestrator.launch.events import SupervisorEvent, event_from_json
from orchestrator.launch.order import LaunchOrder
from orchestrator.spec.jobfile import DEFAULT_WORKER
from orchestrator.store.owner import this_owner


class SupervisorClient:
    """One supervisor process of this orch on this host.

    Not thread-safe. The supervisor has a session of its own, so a Ctrl-C at the terminal reaches orch
    alone; it sees orch's death as the end of its standard input and then stops everything.
    """

    def __init__(
        self,
        *,
        db_url: str | None,
        log_path: Path | str | None = None,
        prestart: Iterable[Mapping[str, str]] = (),
        worker: str = DEFAULT_WORKER,
        accelerator: str = "cpu",
        state_dir: Path | str | None = None,
        keep_fds: Sequence[int] = (),
        kill_at_end: bool = False,
    ) -> None:
        """Start the supervisor.

        Args:
            db_url: the results database; None if no order says ``finish``.
            log_path: where the supervisor's own messages go; None = this process's stderr.
            prestart: environments (of cells) whose fork servers are started at once.
            worker: the worker that prestarted servers serve.
            accelerator: ``cuda`` or ``cpu``, for the prestarted servers.
            keep_fds: descriptors (of slot leases) that the supervisor holds open until it leaves.
            state_dir: folder of the host's lock files; None = the usual one.
            kill_at_end: whether the attempts that run when this process goes get no grace.
        """
        environment = {**os.environ, **python_path()}
        if state_dir is not None:
            environment["ORCH_STATE_DIR"] = str(state_dir)
        command = [sys.executable, "-P", "-m", "orchestrator.launch.supervisor"]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(log_path, "ab")) if log_path is not None else None
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                pass_fds=tuple(keep_fds),
                bufsize=0,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)
        self._partial = b""
        self._unread: list[SupervisorEvent] = []
        self.owner = this_owner(self._process.pid)
        """``host:pid:start`` of the supervisor: what to put into ``attempt.owner``."""
        self._send({"op": "open", "db_url": db_url, "kill_at_end": kill_at_end})
        for cell_environment in prestart:
            self._send(
                {
                    "op": "prestart",
                    "env": dict(cell_environment),
                    "worker": worker,
                    "accelerator": accelerator,
                }
            )

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the supervisor still runs."""
        return self._process.poll() is None

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it: somebody else's doing, not a fault of its own."""
        return self._process.poll() == -signal.SIGKILL

    def fileno(self) -> int:
        """Readable when ``events`` has something, or when the supervisor has gone."""
        return self._output.fileno()

    def start(self, order: LaunchOrder) -> None:
        """Run an attempt; EngineError if the supervisor is gone."""
        self._send({"op": "start", "order": order.to_json()})

    def stop(self, attempt_uid: str, reason: str) -> None:
        """Stop an attempt (TERM, grace, KILL); it ends as cancelled with this reason."""
        self._send({"op": "stop", "uid": attempt_uid, "reason": reason})

    def stop_all(self, reason: str) -> None:
        """Stop every attempt with the usual grace; each ends as cancelled."""
        self._send({"op": "stop_all", "reason": reason, "now": False})

    def kill_all(self, reason: str = "killed by the user") -> None:
        """Kill every attempt at once; each ends as cancelled."""
        self._send({"op": "stop_all", "reason": reason, "now": True})

    def events(self) -> list[SupervisorEvent]:
        """What the supervisor has said since the last call; never waits."""
        while True:
            try:
                data = os.read(self._output.fileno(), 1 << 16)
            except BlockingIOError:
                break
            if not data:
                break
            self._partial += data
            if len(data) < 1 << 16:
                break
        *lines, self._partial = self._partial.split(b"\n")
        unread, self._unread = self._unread, []
        return unread + [event_from_json(json.loads(line)) for line in lines]

    def close(self, timeout_s: float = 60.0) -> None:
        """Tell the supervisor to end (running attempts end as cancelled) and wait for it.

        What it says meanwhile is left for ``events``.

        After ``timeout_s`` it is killed; what it then leaves, ``cleanup.sweep`` ends.
        """
        with contextlib.suppress(OSError):
            self._input.close()
        deadline = time.monotonic() + timeout_s
        while self._process.poll() is None and time.monotonic() < deadline:
            # Its output must be drained or it could block in a write.
            self._unread = self.events()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> SupervisorClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._output.close()

    def _send(self, message: Mapping[str, object]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._input.fileno(), data) :]
        except (OSError, ValueError) as error:
            raise EngineError("the supervisor of this host is gone", fix="run the sweep again") from error
