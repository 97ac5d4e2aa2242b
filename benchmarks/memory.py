"""Uses much of the host's memory once, before anything is timed.

A virtual machine may get its memory only when it is first used. Then the first pinning would measure the
machine's growth, and a plan would find less memory than there is.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass

PROCESSES = 16
LONGEST_S = 45.0

# Held until the parent's end of the pipe closes, or the next process would get the same pages again.
_HOLD = """
import mmap, os, sys
memory = mmap.mmap(-1, int(sys.argv[1]))
try:
    memory.madvise(23)  # MADV_POPULATE_WRITE, where the kernel has it
except OSError:
    for place in range(0, len(memory), mmap.PAGESIZE):
        memory[place] = 1
os.write(int(sys.argv[2]), b".")
sys.stdin.buffer.read()
"""


@dataclass(frozen=True, slots=True)
class Touched:
    """What was used: gigabytes, seconds that it took, and the machine's memory before and after, in bytes."""

    gigabytes: float
    seconds: float
    ram_before_bytes: int
    ram_after_bytes: int


def touch_memory(size_bytes: int, processes: int = PROCESSES, longest_s: float = LONGEST_S) -> Touched:
    """Use ``size_bytes`` at once in several processes; less if that takes longer than ``longest_s``."""
    before, began = _ram_bytes(), time.monotonic()
    share = max(size_bytes // processes, 1)
    told, tell = os.pipe()
    command = [sys.executable, "-S", "-c", _HOLD, str(share), str(tell)]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[tell]) for _ in range(processes)]
    done = 0
    while done < processes and (left_s := began + longest_s - time.monotonic()) > 0:
        if select.select([told], [], [], left_s)[0]:
            done += len(os.read(told, processes))
    after = _ram_bytes()
    for process in running:
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()
    os.close(told)
    os.close(tell)
    return Touched(done * share / 1e9, round(time.monotonic() - began, 1), before, after)


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
