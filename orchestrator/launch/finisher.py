"""The supervisor's one thread that talks to the database, so that its loop never waits for it.

If the database is away the work stays queued and is tried again; everything catches up when it is back.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import DatabaseFull, DatabaseLocked, DatabaseUnreachable
from orchestrator.launch.complain import complain

if TYPE_CHECKING:
    from orchestrator.store.rows import AttemptEnd
    from orchestrator.store.store import Store

HEARTBEAT_S = 5.0
_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 10.0
_MOST_AT_ONCE = 64
_GATHER_S = 0.03
"""So long an ended attempt waits for others to be recorded with, which costs each of them less."""


@dataclass(frozen=True)
class Finish:
    """An attempt whose processes are gone: take its records in, then end it.

    ``done`` is called in the supervisor's loop once the database knows; ``spool_dir`` is None if there
    is nothing to read.
    """

    ending: AttemptEnd
    spool_dir: Path | None
    done: Callable[[], None]


@dataclass(frozen=True)
class _Update:
    attempt_id: int
    columns: Mapping[str, object]


@dataclass
class _State:
    alive: set[int] = field(default_factory=set)
    abandoned: bool = False


def _say(text: str) -> None:
    complain(f"supervisor: {text}")


class Finisher:
    """Queue and thread. All methods are for the supervisor's loop."""

    def __init__(
        self,
        db_url: str,
        post: Callable[[Callable[[], None]], None],
        notice: Callable[[str], None] | None = None,
        reachable: Callable[[bool], None] | None = None,
    ) -> None:
        """``notice`` gets a line for the user when the database goes away and when it is back.

        ``reachable`` is told when it cannot be reached any more, and when it can again.
        """
        self._db_url = db_url
        self._post = post
        self._notice = notice
        self._reachable = reachable
        self._is_away = self._is_unreachable = False
        self._queue: queue.SimpleQueue[Finish | _Update | None] = queue.SimpleQueue()
        self._state = _State()
        self._thread = threading.Thread(target=self._run, name="finisher", daemon=True)
        self._thread.start()

    def finish(self, task: Finish) -> None:
        """Take records in and end the attempt, as soon as the database lets it."""
        self._queue.put(task)

    def update(self, attempt_id: int, columns: Mapping[str, object]) -> None:
        """Set columns of a running attempt; lost if the database is away."""
        self._queue.put(_Update(attempt_id, columns))

    def keep_alive(self, attempt_ids: set[int]) -> None:
        """These attempts get heartbeats from now on."""
        self._state.alive = set(attempt_ids)

    def close(self, timeout_s: float) -> bool:
        """Finish what is queued, within so many seconds; whether it all was."""
        self._queue.put(None)
        self._thread.join(timeout_s)
        self._state.abandoned = True
        return not self._thread.is_alive()

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        # Imported here: SQLAlchemy takes a third of a second, and ranks can start meanwhile.
        from orchestrator.store import open_store

        store: Store | None = None
        last_heartbeat = time.monotonic()
        ending = False
        waiting: list[Finish] = []
        backoff_s = _FIRST_BACKOFF_S
        while not (ending and not waiting) and not self._state.abandoned:
            patience = backoff_s if waiting else max(0.0, last_heartbeat + HEARTBEAT_S - time.monotonic())
            updates: list[_Update] = []
            ending |= self._collect(patience, waiting, updates)
            try:
                if store is None:
                    store = open_store(self._db_url)
                self._write(store, waiting, updates)
                if time.monotonic() - last_heartbeat >= HEARTBEAT_S:
                    last_heartbeat = time.monotonic()
                    if self._state.alive:
                        store.heartbeat(sorted(self._state.alive))
                backoff_s = _FIRST_BACKOFF_S
                self._tell(False, "the database is back")
                self._tell_reachable(True)
            except (DatabaseUnreachable, DatabaseLocked, DatabaseFull) as error:
                _say(f"{error}; trying again in {backoff_s:.1f} s")
                # Not what mends it: "run the same command again" is for one that has ended.
                self._tell(True, f"{error.where}: {error.what}; what has ended is recorded when it is back")
                self._tell_reachable(not isinstance(error, DatabaseUnreachable))
                time.sleep(backoff_s)
                backoff_s = min(backoff_s * 2, _LONGEST_BACKOFF_S)
            except Exception as error:  # noqa: BLE001 - one bad attempt must not stop all others.
                _say(f"{error!r}; trying the attempts one by one")
                self._write_singly(store, waiting)
        if store is not None:
            store.close()

    def _tell(self, is_away: bool, text: str) -> None:
        notice = self._notice
        if is_away is not self._is_away and notice is not None:
            self._post(lambda: notice(text))
        self._is_away = is_away

    def _tell_reachable(self, is_reachable: bool) -> None:
        told = self._reachable
        if is_reachable is self._is_unreachable and told is not None:
            self._post(lambda: told(is_reachable))
        self._is_unreachable = not is_reachable

    def _collect(self, patience_s: float, waiting: list[Finish], updates: list[_Update]) -> bool:
        """Move what is queued into the lists; True if the end of the queue was among it."""
        gather_until = None
        with contextlib.suppress(queue.Empty):
            item = self._queue.get(timeout=max(patience_s, 0.001))
            while True:
                match item:
                    case None:
                        return True
                    case Finish():
                        waiting.append(item)
                    case _Update():
                        updates.append(item)
                if len(waiting) >= _MOST_AT_ONCE:
                    break
                if self._is_worth_waiting(waiting):
                    now = time.monotonic()
                    gather_until = gather_until or now + _GATHER_S
                    item = self._queue.get(timeout=max(gather_until - now, 0.0))
                else:
                    item = self._queue.get_nowait()
        return False

    def _is_worth_waiting(self, waiting: list[Finish]) -> bool:
        """Whether more attempts are under way than have ended: those keep the host busy meanwhile."""
        ended = {task.ending.attempt_id for task in waiting}
        return bool(ended) and len(ended) < len(self._state.alive - ended)

    def _write_singly(self, store: Store | None, waiting: list[Finish]) -> None:
        """Finish each by itself; one that cannot be is left for the next orch to reap."""
        for task in list(waiting):
            try:
                if store is not None:
                    self._write(store, [task], [])
                    waiting.remove(task)
                    continue
            except (DatabaseUnreachable, DatabaseLocked, DatabaseFull):
                return
            except Exception as error:  # noqa: BLE001 - see above.
                _say(f"attempt {task.ending.attempt_id} could not be ended: {error!r}")
            self._post(task.done)
            waiting.remove(task)

    def _write(self, store: Store, waiting: list[Finish], updates: list[_Update]) -> None:
        for update in updates:
            store.attempt_update(update.attempt_id, **update.columns)
        if not waiting:
            return
        store.finish_attempts([(task.ending, task.spool_dir) for task in waiting])
        for task in waiting:
            self._post(task.done)
        waiting.clear()
