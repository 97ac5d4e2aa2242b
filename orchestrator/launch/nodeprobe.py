"""When does a node of a cluster measure its devices' link? Before a job, when the last time is long ago.

No process lives on such a node between jobs, so when a device was measured is remembered in the host's
state folder. The rows lie in the attempt's spool and reach the database with its records.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.launch.environment import inherited, python_path
from orchestrator.launch.hoststate import TimedSection, state_dir
from orchestrator.launch.meeting import wait_for
from orchestrator.launch.order import LaunchOrder
from orchestrator.launch.paths import AttemptPaths
from orchestrator.launch.probes import PROBE_TIMEOUT_S, command_for, probe_rows


def probe_before(order: LaunchOrder) -> None:
    """Measure the link of the order's devices if that is due; a failure is said and keeps no job back.

    Held meanwhile: this host's timed section, so that nothing is being timed. Called before the job
    asks for it.
    """
    devices = [rank.device_uuid for rank in order.ranks if rank.device_uuid is not None]
    if order.probe_command and not devices:
        devices = ["cpu"]  # a site's own command may know what to measure
    every_s = order.probe_every_s
    if every_s is None or not devices or not _is_due(devices, every_s):
        return
    section = TimedSection()
    try:
        wait_for(lambda: section.try_acquire() or None, "this host's timed section")
        if _is_due(devices, every_s):  # another one may have done it meanwhile
            _leave_rows(order, _measured(command_for(devices, order.probe_command)))
    finally:
        for stamp in _stamps(devices):
            stamp.touch()
        section.release()


def _measured(command: list[str]) -> bytes:
    # It dies with this process, and is ended with all that it has started.
    guarded = [sys.executable, "-P", "-m", "worker.guarded", str(os.getpid()), "--exec", *command]
    process = subprocess.Popen(
        guarded,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**inherited(), **python_path()},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _say(f"took longer than {PROBE_TIMEOUT_S:.0f} s and was ended")
        return b"[]"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        _say(f"failed (exit status {process.returncode}): orch doctor says why")
        return b"[]"
    return output


def _leave_rows(order: LaunchOrder, output: bytes) -> None:
    try:
        if not probe_rows(output):
            return
    except (ValueError, TypeError) as error:
        _say(f"printed something else than rows of link_probe: {error}")
        return
    lines = [json.dumps({**row, "kind": "link_probe"}) + "\n" for row in json.loads(output)]
    spool = AttemptPaths(Path(order.run_dir)).spool_dir
    spool.mkdir(parents=True, exist_ok=True)
    with (spool / f"link.{order.node_rank}.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(lines))


def _is_due(devices: Sequence[str], every_s: float) -> bool:
    return any(_age_s(stamp) >= every_s for stamp in _stamps(devices))


def _stamps(devices: Sequence[str]) -> list[Path]:
    folder = state_dir() / "probed"
    folder.mkdir(exist_ok=True)
    return [folder / f"{device.replace(os.sep, '_')}.{len(devices)}" for device in devices]


def _age_s(stamp: Path) -> float:
    try:
        return time.time() - stamp.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


def _say(text: str) -> None:
    print(f"link probe: {text}", file=sys.stderr, flush=True)
