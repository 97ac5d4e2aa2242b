"""Prints a prediction: seconds and bytes of each setting, what was not measured, what to run."""

from __future__ import annotations

import json
from typing import IO

from orchestrator.analysis.predict import Outlook, Payback, SettingPrediction, TimeEstimate


def render_outlook(outlook: Outlook, *, format: str, out: IO[str]) -> None:  # noqa: A002
    """Write the outlook as text (``table``) or JSON."""
    if format == "json":
        json.dump(_document(outlook), out, indent=1, allow_nan=False)
        out.write("\n")
        return
    lines = [outlook.subject]
    if outlook.settings:
        lines += _bytes_lines(outlook.settings[0], outlook.device_bytes)
    if outlook.host:
        lines.append(f"as measured on {outlook.host}: {outlook.stack}")
    notes = [_notes(setting, outlook.ram_bytes) for setting in outlook.settings]
    # What holds for every setting is said once, at the end.
    shared = [note for note in notes[0] if all(note in other for other in notes)] if notes else []
    for setting, own in zip(outlook.settings, notes, strict=True):
        lines += _setting_lines(setting, outlook.ram_bytes)
        lines += [f"  {note}" for note in own if note not in shared]
    lines += shared
    if outlook.advice:
        lines.append(outlook.advice)
    out.write("\n".join(lines) + "\n")


def _bytes_lines(setting: SettingPrediction, device_bytes: int | None) -> list[str]:
    sizes = setting.bytes
    lines = [f"frees {_gb(sizes.freed_bytes)} a GPU · copies {_gb(sizes.copied_bytes)} a GPU"]
    if device_bytes and sizes.gpu_bytes and sizes.gpu_bytes > device_bytes:
        lines.append(f"warning: a step takes {_gb(sizes.gpu_bytes)}, the device has {_gb(device_bytes)}")
    return lines


def _setting_lines(setting: SettingPrediction, ram_bytes: int | None) -> list[str]:
    times = f"asleep {_time(setting.offload)}, awake {_time(setting.reload)} · " if setting.offload else ""
    lines = [f"{setting.setting}: {times}{_pinned(setting, ram_bytes)}"]
    calls = [
        f"{call.gbps:.3g} GB/s {way}{_share(call)}"
        for call, way in ((setting.offload, "down"), (setting.reload, "up"))
        if call
    ]
    if setting.offload:
        source = f"from {setting.offload.sizes} sizes and {setting.offload.jobs} jobs"
        lines.append(f"  {', '.join(calls)} · {setting.offload.form}, {source}")
    if setting.payback:
        lines.append("  " + _payback(setting.payback))
    return lines


def _notes(setting: SettingPrediction, ram_bytes: int | None) -> list[str]:
    notes = [f"no seconds: {setting.refusal}"] if setting.refusal else []
    notes += [f"warning: {warning}" for warning in setting.warnings]
    if _is_too_much(setting, ram_bytes):
        notes.append("warning: this is more pinned memory than the host has")
    return notes


def _payback(payback: Payback) -> str:
    first = f"pinning costs {payback.cold_pinning_s:.3g} s once"
    if payback.cycles is None:
        return f"{first} and never pays: {payback.against} is as fast"
    plural = "cycle" if payback.cycles == 1 else "cycles"
    gain = f"{payback.gain_s:.3g} s faster each than unpinned"
    return f"{first}, has paid after {payback.cycles} {plural} ({gain})"


def _pinned(setting: SettingPrediction, ram_bytes: int | None) -> str:
    if not setting.bytes.pinned_bytes:
        return "pins nothing"
    of = f" of {_gb(ram_bytes)} host RAM" if ram_bytes else ""
    return f"pins {_gb(setting.bytes.pinned_bytes)} a rank ({_gb(setting.pinned_node_bytes)} a node{of})"


def _is_too_much(setting: SettingPrediction, ram_bytes: int | None) -> bool:
    return bool(ram_bytes and setting.pinned_node_bytes and setting.pinned_node_bytes > ram_bytes)


def _time(estimate: TimeEstimate | None) -> str:
    if estimate is None:
        return "not measured"
    return f"{estimate.seconds:.3g} s ({estimate.low_s:.3g}–{estimate.high_s:.3g})"


def _share(estimate: TimeEstimate) -> str:
    return f" ({estimate.link_share:.0%} of the link)" if estimate.link_share is not None else ""


def _gb(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _document(outlook: Outlook) -> dict[str, object]:
    return {
        "subject": outlook.subject,
        "host": outlook.host,
        "stack": outlook.stack,
        "ram_bytes": outlook.ram_bytes,
        "device_bytes": outlook.device_bytes,
        "advice": outlook.advice,
        "settings": [_setting_document(setting, outlook.ram_bytes) for setting in outlook.settings],
    }


def _setting_document(setting: SettingPrediction, ram_bytes: int | None) -> dict[str, object]:
    from dataclasses import asdict

    sizes = setting.bytes
    return {
        "setting": setting.setting,
        "parameters_total": sizes.parameters_total,
        "gpu_bytes": sizes.gpu_bytes,
        "freed_bytes": sizes.freed_bytes,
        "copied_bytes": sizes.copied_bytes,
        "pinned_bytes": sizes.pinned_bytes,
        "pinned_node_bytes": setting.pinned_node_bytes,
        "pinned_fits": None if not ram_bytes else not _is_too_much(setting, ram_bytes),
        "offload": asdict(setting.offload) if setting.offload else None,
        "reload": asdict(setting.reload) if setting.reload else None,
        "payback": asdict(setting.payback) if setting.payback else None,
        "refusal": setting.refusal or None,
        "warnings": list(setting.warnings),
    }
