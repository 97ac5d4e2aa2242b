"""How fast is the link between host and device? A probe in a process of its own, because it needs torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict

from orchestrator.doctor.devices import Driver
from orchestrator.doctor.finding import Finding, error, ok, warn
from orchestrator.launch.devices import select_visible
from orchestrator.launch.environment import python_path
from orchestrator.launch.hoststate import TimedSection

_LIMIT_S = 120.0
_SLOW_SHARE = 0.6
"""A device with less than this share of the best device's rate stands out."""


def probe_link(driver: Driver | str) -> list[Finding]:
    """Probe every visible device, one after the other; say the rates and which device lags behind."""
    devices = () if isinstance(driver, str) else select_visible(driver.devices, _visible())
    if not devices:
        return [ok("link", "no device whose link could be probed", "NVML")]
    section = TimedSection()
    if not section.try_acquire():
        message = "the link was not probed: a job of a sweep is being timed, and would be disturbed"
        return [warn("link", message, "lock of the host's timed section", "orch doctor --probe, later")]
    try:
        return _probe([device.uuid for device in devices])
    finally:
        section.release()


def _visible() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def _probe(uuids: list[str]) -> list[Finding]:
    rates: dict[tuple[bool, str], dict[str, float]] = defaultdict(dict)
    for uuid in uuids:
        command = [sys.executable, "-m", "worker.probe", "--device", uuid, "--json"]
        shown = " ".join(["python", *command[1:]])
        try:
            run = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=_LIMIT_S,
                check=False,
                env={**os.environ, **python_path()},
            )
        except subprocess.TimeoutExpired:
            return [error("link", f"the link probe did not end within {_LIMIT_S:.0f} s", shown, "nvidia-smi")]
        if run.returncode != 0:
            last = (run.stderr.strip().splitlines() or ["no message"])[-1]
            return [error("link", f"the link probe failed: {last}", shown, shown)]
        for row in json.loads(run.stdout):
            rates[bool(row["pinned"]), str(row["direction"])][uuid] = float(row["gbps"])
    return [_summary(rates), *_slow_devices(rates)]


def _summary(rates: dict[tuple[bool, str], dict[str, float]]) -> Finding:
    least = {key: min(by_device.values()) for key, by_device in rates.items()}
    parts = [
        f"{kind}: {least[pinned, 'down']:.1f} GB/s down, {least[pinned, 'up']:.1f} up"
        for pinned, kind in ((True, "pinned"), (False, "pageable"))
        if (pinned, "down") in least and (pinned, "up") in least
    ]
    return ok("link", f"link, {' · '.join(parts)}", "python -m worker.probe, slowest device")


def _slow_devices(rates: dict[tuple[bool, str], dict[str, float]]) -> list[Finding]:
    findings = []
    for (pinned, direction), by_device in rates.items():
        best = max(by_device.values())
        for uuid, gbps in by_device.items():
            if pinned and gbps < _SLOW_SHARE * best:
                message = f"{uuid} copies {direction} at {gbps:.1f} GB/s, the best device at {best:.1f}"
                mend = "numactl or the axis numa: device; check the slot with nvidia-smi topo -m"
                findings.append(warn("link", message, "python -m worker.probe", mend))
    return findings
