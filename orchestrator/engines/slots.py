"""Which device does a rank get? Slots of this host, shared with every other orch on it.

A slot is a device, or a numbered place on a CPU. It is leased by ``flock`` on a file of the host's
state folder. The file descriptors are opened once and inherited by the supervisor: a lease therefore
lives until orch gave it back *or* orch and its supervisor are both gone, never shorter than the
ranks on the device.

Who waits holds ``next`` locks, so that nobody else takes what comes free, and an orch that gives a slot
back cannot have it again at once while another one waits: a job of one slot holds that of one slot, a
wide one that of every slot. They are taken in the order of their names and kept while one waits for the
next, so two that wait cannot block each other; who came by a slot by waiting rests before it waits
again, so narrow jobs do not keep a wide one out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import EngineError


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for one rank.

    Attributes:
        name: of its lease, the same in every orch on the host: ``cpu-3`` or the device's UUID.
        device_index: index of the device for CUDA; ``None`` on a CPU.
        device_uuid: ``None`` on a CPU.
        numa_node: the node next to the device, if known.
    """

    name: str
    device_index: int | None = None
    device_uuid: str | None = None
    numa_node: int | None = None


_REST_S = 0.2
"""After a slot that was waited for: longer than others take to ask again."""


class _Lock:
    """A ``flock`` that is tried, never waited for; the kernel frees it with its last holder."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.held = False

    def take(self) -> bool:
        if not self.held:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self.held = True
        return True

    def give(self) -> None:
        if self.held:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            self.held = False


class SlotPool:
    """The slots that this orch may use.

    Args:
        slots: in the order in which they are given out.
        folder: where the lease files lie; made if it is not there.
    """

    def __init__(self, slots: Sequence[Slot], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.slots = tuple(slots)
        try:
            self._leases = {slot.name: _Lock(folder / f"slot-{slot.name}.lock") for slot in slots}
            self._nexts = {slot.name: _Lock(folder / f"slot-{slot.name}.next") for slot in slots}
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            fix = "ulimit -n 4096, or fewer --slots"
            raise EngineError(f"too many open files for {len(slots)} slots", str(folder), fix) from error
        self._used: set[str] = set()
        self._rests_until_s = 0.0
        self.waits_for_others = False
        """The last ``take`` met a slot that another orch holds: nothing will wake us, so ask again."""

    def lease_fds(self) -> tuple[int, ...]:
        """To be inherited by the supervisor, which only keeps them open."""
        return tuple(lock.fd for lock in self._leases.values())

    @property
    def used(self) -> int:
        """Slots that this orch holds now."""
        return len(self._used)

    def take(self, count: int) -> tuple[Slot, ...] | None:
        """``count`` free slots, leased; ``None`` if there are not so many at this moment."""
        self.waits_for_others = False
        if count == 1:
            return self._take_one()
        if not self._take_all_nexts():
            self.waits_for_others = True
            return None
        got: list[Slot] = []
        for slot in self._free():
            if self._leases[slot.name].take():
                got.append(slot)
                if len(got) == count:
                    break
            else:
                self.waits_for_others = True
        if len(got) < count:
            self._give_leases(got)
            return None
        self.stop_waiting()
        self._used.update(slot.name for slot in got)
        return tuple(got)

    def give(self, slots: Iterable[Slot]) -> None:
        """Slots are free again."""
        mine = [slot for slot in slots if slot.name in self._used]
        self._used.difference_update(slot.name for slot in mine)
        self._give_leases(mine)

    def stop_waiting(self) -> None:
        """No job waits any more for a slot."""
        for lock in self._nexts.values():
            lock.give()

    def close(self) -> None:
        """Close every file; leases live on in the supervisor if it still runs."""
        for lock in (*self._leases.values(), *self._nexts.values()):
            with contextlib.suppress(OSError):
                os.close(lock.fd)
        self._leases.clear()
        self._nexts.clear()

    def _take_one(self) -> tuple[Slot, ...] | None:
        place = self._one_place_in_line()
        has_waited = place is not None
        for slot in self._free():
            turn = self._nexts[slot.name]
            if not turn.take():
                self.waits_for_others = True
                continue
            if self._leases[slot.name].take():
                self.stop_waiting()
                if has_waited:
                    self._rests_until_s = time.monotonic() + _REST_S
                self._used.add(slot.name)
                return (slot,)
            self.waits_for_others = True
            if place is None and time.monotonic() >= self._rests_until_s:
                place = slot.name
            if slot.name != place:
                turn.give()
        return None

    def _one_place_in_line(self) -> str | None:
        """The slot that is waited for since an earlier call; those of a wide job are given up but one."""
        held = [slot.name for slot in self._free() if self._nexts[slot.name].held]
        place = held[0] if held else None
        for name, lock in self._nexts.items():
            if name != place:
                lock.give()
        return place

    def _take_all_nexts(self) -> bool:
        names = sorted(self._nexts)
        for number, name in enumerate(names):
            if not self._nexts[name].take():
                # One that is held out of turn could be what the other waits for.
                for later in names[number:]:
                    self._nexts[later].give()
                return False
        return True

    def _free(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.name not in self._used]

    def _give_leases(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._leases[slot.name].give()
