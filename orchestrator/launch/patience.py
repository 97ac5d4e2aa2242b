"""How long may an attempt take, until it starts, between two records, and in all?"""

from __future__ import annotations

import time
from collections.abc import Callable

from orchestrator.launch.deadlines import Deadlines
from orchestrator.launch.group import RankGroup
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.verdict import Stop

_SHORTEST_LOOK_S = 0.05


class Patience:
    """The time limits of one attempt, from its launch on."""

    def __init__(
        self,
        order: LaunchOrder,
        measured: RankGroup,
        deadlines: Deadlines,
        stop: Callable[[Stop, str], None],
    ) -> None:
        """``stop`` is called when one is exceeded; the deadlines are cancelled when the attempt ends."""
        self._order = order
        self._measured = measured
        self._deadlines = deadlines
        self._stop = stop
        self._last_record_at = 0.0

    def begin(self) -> None:
        """The ranks are being launched."""
        self._last_record_at = time.monotonic()
        order = self._order
        late = f"not done within {order.timeout_s:g} s"
        self._deadlines.after(order.timeout_s, lambda: self._stop(Stop.TIMEOUT, late))
        self._deadlines.after(order.start_timeout_s, self._check_start)
        if order.hang_s is not None:
            self._deadlines.after(order.hang_s, self._check_hang)

    def heard(self) -> None:
        """A measured rank has written a record."""
        self._last_record_at = time.monotonic()

    def _check_start(self) -> None:
        if not (self._measured.launched_at and self._measured.ready):
            limit_s = self._order.start_timeout_s
            self._stop(Stop.START_TIMEOUT, f"nothing was measured within {limit_s:g} s")

    def _check_hang(self) -> None:
        hang_s = self._order.hang_s
        if hang_s is None:
            return
        silent_s = time.monotonic() - self._last_record_at
        # Until the first timed operation the start timeout watches: a build writes no records.
        if silent_s < hang_s or not self._measured.ready:
            self._deadlines.after(max(hang_s - silent_s, _SHORTEST_LOOK_S), self._check_hang)
        else:
            self._stop(Stop.HANG, f"no record for {hang_s:g} s")
