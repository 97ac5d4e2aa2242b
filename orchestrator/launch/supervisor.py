"""One process per orch and host that starts, watches, ends and judges attempts.

``python -m orchestrator.launch.supervisor`` reads orders (JSON lines) on standard input and tells events
(JSON lines) on standard output. The end of its input means that orch is gone: everything is stopped,
or killed where ``open`` has said so, attempts end as cancelled, and it leaves. TERM means the same.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.launch.attempt import Attempt
from orchestrator.launch.children import Children
from orchestrator.launch.events import Ended, Notice, SupervisorEvent, Waiting, event_to_line
from orchestrator.launch.finisher import Finish, Finisher
from orchestrator.launch.group import RankGroup
from orchestrator.launch.loop import Loop, Timer
from orchestrator.launch.notify import FolderWatch
from orchestrator.launch.oom import OomWatch
from orchestrator.launch.order import LaunchOrder, order_from_json
from orchestrator.launch.processes import become_subreaper, signal_process
from orchestrator.launch.report import report_of, report_to_json
from orchestrator.launch.sections import Sections
from orchestrator.launch.servers import ForkServers
from orchestrator.launch.sharedmemory import remove_shared_memory
from orchestrator.launch.verdict import Stop
from orchestrator.store.status import Verdict

if TYPE_CHECKING:
    from orchestrator.launch.spares import Spares
    from orchestrator.store.rows import AttemptEnd

_SPOOL_POLL_S = 0.1
_SWITCH_S = 0.0002
_WATCH_AFTER_S = 0.02
_EARLY_UPDATE_S = 1.0
"""Shorter attempts write their columns once, when they end."""
_UNRECORDED_S = 5.0
"""An attempt that has ended and is not recorded by then waits for the database, and orch is told.

At once where the database cannot be reached.
"""
_LAST_WRITES_S = 30.0
"""How long a supervisor that is to leave waits for a database that is away; spools keep the rest."""
_HURRIED_WRITES_S = 3.0
"""The same where everything was to be killed at once: somebody waits for the end."""
_ONE_MORE_WRITE_S = 0.2


class Supervisor:
    """The attempts of this process; ``emit`` tells whoever ordered them."""

    def __init__(
        self,
        tell: Callable[[SupervisorEvent], None],
        db_url: str | None = None,
        spares: Spares | None = None,
    ) -> None:
        become_subreaper()
        self.loop = Loop()
        self.children = Children(self.loop, spares)
        self.servers = ForkServers(self.loop, self.children, lambda text: self.emit(Notice(text)))
        self.sections = Sections(self.loop)
        self.oom = OomWatch()
        self._tell = tell
        self._attempts: dict[str, Attempt] = {}
        self._watches: dict[str, list[int]] = {}
        self._recording: dict[str, Timer] = {}
        self._is_unreachable = False
        self._db_url = db_url
        self._finisher: Finisher | None = None
        self._leaving = False
        self._patience_s = _LAST_WRITES_S
        try:
            self._folders: FolderWatch | None = FolderWatch()
            self.loop.watch(self._folders.descriptor, self._folders.read)
        except OSError:
            self._folders = None

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is under way or still to be recorded."""
        return not self._attempts and not self._recording

    def open_database(self, db_url: str | None) -> None:
        """Where finished attempts are recorded."""
        self._db_url = db_url
        if db_url is not None and self._finisher is None:
            self._finisher = Finisher(
                db_url, self.loop.post, lambda text: self.emit(Notice(text)), self._database_reachable
            )

    # -- orders ------------------------------------------------------------------------------------

    def start(self, order: LaunchOrder) -> Attempt:
        """Take an attempt on."""
        if order.finish and self._finisher is None:
            self.open_database(order.db_url)
        attempt = Attempt(self, order)
        self._attempts[order.attempt_uid] = attempt
        self._tell_alive()
        if self._leaving:
            attempt.stop(Stop.CANCELLED, "orch is leaving")
            return attempt
        self.loop.call_later(_EARLY_UPDATE_S, lambda: self._early_update(attempt))
        attempt.begin()
        return attempt

    def stop(self, uid: str, reason: str) -> None:
        """Stop one attempt; harmless if it is over."""
        attempt = self._attempts.get(uid)
        if attempt is not None:
            attempt.stop(Stop.CANCELLED, reason)

    def stop_all(self, reason: str, *, why: Stop = Stop.CANCELLED, now: bool = False) -> None:
        """Stop every attempt."""
        if now:
            self._patience_s = _HURRIED_WRITES_S
        for attempt in list(self._attempts.values()):
            attempt.stop(why, reason, now=now)

    def leave(self, reason: str, *, why: Stop = Stop.CANCELLED, now: bool = False) -> None:
        """Stop everything and end the loop as soon as all is recorded."""
        if not self._leaving:
            self._leaving = True
            self.stop_all(reason, why=why, now=now)
            self.loop.call_soon(self._leave_if_idle)

    def close(self) -> None:
        """After the loop: record what is queued, end the fork servers and whatever else is left."""
        deadline = time.monotonic() + _LAST_WRITES_S
        if self._finisher is not None:
            self._finisher.close(_ONE_MORE_WRITE_S if self._recording else self._patience_s)
        self.servers.kill()
        while strays := self.children.strays() + self.servers.pids:
            for pid in strays:
                signal_process(pid, signal.SIGKILL)
            self.children.reap()
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)

    # -- what attempts need ------------------------------------------------------------------------

    def emit(self, event: SupervisorEvent) -> None:
        """Tell orch."""
        self._tell(event)

    def others_active(self, attempt: Attempt) -> bool:
        """Whether other attempts have processes now."""
        return any(other is not attempt and other.has_processes for other in self._attempts.values())

    def watch_spool(self, attempt: Attempt, group: RankGroup) -> None:
        """Call the attempt when a record may have been written.

        Not at once: the end of a rank is noticed anyhow, and for the shortest jobs a watch costs more
        than all the rest.
        """
        self.loop.call_later(_WATCH_AFTER_S, lambda: self._watch_spool(attempt, group))

    def _watch_spool(self, attempt: Attempt, group: RankGroup) -> None:
        if attempt.uid not in self._attempts:
            return
        if self._folders is not None:
            try:
                number = self._folders.add(group.paths.spool_dir, attempt.spool_changed)
            except OSError:
                pass
            else:
                self._watches.setdefault(attempt.uid, []).append(number)
                attempt.spool_changed()
                return

        def poll() -> None:
            if attempt.uid in self._attempts:
                attempt.spool_changed()
                self.loop.call_later(_SPOOL_POLL_S, poll)

        self.loop.call_later(_SPOOL_POLL_S, poll)

    def attempt_over(self, attempt: Attempt) -> None:
        """Judge the attempt and record it."""
        del self._attempts[attempt.uid]
        for number in self._watches.pop(attempt.uid, []):
            if self._folders is not None:
                self._folders.remove(number)
        remove_shared_memory(attempt.all_pids(), attempt.ports(), attempt.shared_memory)
        for text in attempt.leftovers:
            self.emit(Notice(f"attempt {attempt.uid[:8]}: {text}"))
        if not attempt.order.finish or self._finisher is None:
            self._tell_alive()
            seen = report_to_json(report_of(attempt, socket.gethostname()))
            self.emit(Ended(attempt.uid, *attempt.verdict(), report=seen))
            self._leave_if_idle()
            return
        ending, retry = attempt.ending()
        verdict = Verdict(ending.status, ending.failure_kind, ending.message)
        self._record(attempt, ending, Ended(attempt.uid, verdict, retry))

    def _record(self, attempt: Attempt, ending: AttemptEnd, event: Ended) -> None:
        assert self._finisher is not None
        within_s = 0.0 if self._is_unreachable else _UNRECORDED_S
        self._recording[attempt.uid] = self.loop.call_later(
            within_s, lambda: self._tell_unrecorded(attempt.uid)
        )

        def done() -> None:
            self._recording.pop(attempt.uid).cancel()
            self._tell_alive()
            self.emit(event)
            self._leave_if_idle()

        spool_dir = attempt.paths.spool_dir
        started = "started_at" in ending.columns
        self._finisher.finish(Finish(ending, spool_dir if started else None, done))
        self._leave_if_idle()

    def _database_reachable(self, is_reachable: bool) -> None:
        self._is_unreachable = not is_reachable
        if self._is_unreachable:
            for uid in self._recording:
                self._tell_unrecorded(uid)

    def _tell_unrecorded(self, uid: str) -> None:
        self._recording[uid].cancel()
        self.emit(Waiting(uid, "database"))

    def _early_update(self, attempt: Attempt) -> None:
        if attempt.uid not in self._attempts or self._finisher is None or not attempt.order.finish:
            return
        columns = attempt.columns()
        if columns.get("started_at") is None:
            self.loop.call_later(_EARLY_UPDATE_S, lambda: self._early_update(attempt))
            return
        wanted = ("host", "launch_mode", "launch_note", "port", "started_at", "wait_s")
        self._finisher.update(
            attempt.order.attempt_id, {name: columns[name] for name in wanted if name in columns}
        )

    def _tell_alive(self) -> None:
        if self._finisher is not None:
            # Of several nodes the first one's supervisor says that the attempt lives.
            attempts = [a.order for a in self._attempts.values()]
            self._finisher.keep_alive(
                {order.attempt_id for order in attempts if order.finish or order.node_rank == 0}
            )

    def _leave_if_idle(self) -> None:
        if not self._leaving or self._attempts:
            return
        if self._recording:
            # A database that stays away must not keep it here: the next orch takes the spools in.
            self.loop.call_later(self._patience_s, self.loop.stop)
        else:
            self.loop.stop()


class _Pipe:
    """Orch at the other end of standard input and output."""

    def __init__(self) -> None:
        self._input = 0
        # A descriptor of our own: what a library prints must not end up among the events.
        self._output = os.dup(1)
        os.dup2(2, 1)
        os.set_inheritable(self._output, False)
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._partial = b""
        self._unsent = b""
        self._is_broken = False
        self._kill_at_end = False
        self.supervisor = Supervisor(self.tell)
        self.supervisor.loop.watch(self._input, self._read)

    def tell(self, event: SupervisorEvent) -> None:
        """Send an event; kept until orch takes it, dropped when orch is gone."""
        if self._is_broken:
            return
        self._unsent += event_to_line(event)
        self._send()

    def flush(self) -> None:
        """Send what is left, as long as orch takes it."""
        if self._unsent and not self._is_broken:
            os.set_blocking(self._output, True)
            self._send()

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._output, self._unsent) :]
        except BlockingIOError:
            self.supervisor.loop.watch_writable(self._output, self._send)
            return
        except OSError:
            self._is_broken = True
            self._unsent = b""
        self.supervisor.loop.watch_writable(self._output, None)

    def _read(self) -> None:
        try:
            data = os.read(self._input, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self.supervisor.loop.unwatch(self._input)
            self.supervisor.leave("orch went away", now=self._kill_at_end)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, message: Mapping[str, Any]) -> None:
        match message["op"]:
            case "open":
                self._kill_at_end = message["kill_at_end"]
                self.supervisor.open_database(message["db_url"])
            case "prestart":
                self.supervisor.servers.get(message["worker"], message["accelerator"], message["env"])
            case "start":
                self.supervisor.start(order_from_json(message["order"]))
            case "stop":
                self.supervisor.stop(message["uid"], message["reason"])
            case "stop_all":
                self.supervisor.stop_all(message["reason"], now=message["now"])


def main() -> int:
    """Serve one orch until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Every system call gives the interpreter up: to get it back from the thread that writes to the
    # database must not take Python's usual 5 ms each time.
    sys.setswitchinterval(_SWITCH_S)
    pipe = _Pipe()
    supervisor = pipe.supervisor

    def leave() -> None:
        supervisor.leave("the supervisor was stopped")

    signal.signal(signal.SIGTERM, lambda _number, _frame: supervisor.loop.post(leave))
    try:
        supervisor.loop.run()
    finally:
        supervisor.close()
        pipe.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
