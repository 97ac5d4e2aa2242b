"""How long does a call take on this rank, and on all ranks?

Copies are queued on a stream and the call may return before they are done, so one figure is not enough.
The monotonic clock is read four times: before the call, when it returned to the host, when the device
was idle, and when every rank had reached that point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the start of a call.

    Attributes:
        host_s: until the call returned.
        done_s: until this rank's device was idle: the figure that counts.
        all_s: until every rank was there.
    """

    host_s: float
    done_s: float
    all_s: float


def measure(
    call: Callable[[], object], synchronize: Callable[[], None], barrier: Callable[[], None]
) -> Timing:
    """Run ``call`` from a common start of all ranks with an idle device, and time it."""
    synchronize()
    barrier()
    started = perf_counter()
    call()
    returned = perf_counter()
    synchronize()
    done = perf_counter()
    barrier()
    everyone = perf_counter()
    return Timing(returned - started, done - started, everyone - started)
