"""Prints a prediction: seconds and bytes of each setting, what was not measured, what to run."""

from __future__ import annotations

import json
from typing import IO

from orchestrator.analysis.estimate import TimeEstimate
from orchestrator.analysis.payback import Payback
from orchestrator.analysis.predict import Outlook, SettingPrediction
from orchestrator.render.sentences import percent
from orchestrator.render.terminal import stream_width, wrapped
from orchestrator.render.values import human_bytes, human_seconds, interval_text, three_digits


def render_outlook(outlook: Outlook, *, format: str, out: IO[str]) -> None:  # noqa: A002
    """Write the outlook as text (``table``) or JSON."""
    if format == "json":
        json.dump(_document(outlook), out, indent=1, allow_nan=False)
        out.write("\n")
        return
    lines = [outlook.subject]
    if outlook.settings:
        lines += _bytes_lines(outlook)
    if outlook.host:
        lines.append(f"as measured on {outlook.host}: {outlook.stack}")
    notes = [_notes(setting, outlook) for setting in outlook.settings]
    # What holds for every setting is said once, at the end.
    shared = [note for note in notes[0] if all(note in other for other in notes)] if notes else []
    for setting, own in zip(outlook.settings, notes, strict=True):
        lines += _setting_lines(setting, outlook)
        lines += [f"  {note}" for note in own if note not in shared]
    lines += shared
    if outlook.advice:
        lines.append(outlook.advice)
    width = stream_width(out)
    out.write("\n".join(lines if width is None else (wrapped(line, width) for line in lines)) + "\n")


def _bytes_lines(outlook: Outlook) -> list[str]:
    sizes = outlook.settings[0].bytes
    freed, copied = _size(sizes.freed_bytes), _size(sizes.copied_bytes)
    if outlook.on_cpu:
        return [f"on a CPU nothing leaves the device; a GPU would free {freed} a rank and copy {copied}"]
    lines = [f"frees {freed} a GPU · copies {copied} a GPU"]
    device_bytes = outlook.device_bytes
    if device_bytes and sizes.gpu_bytes and sizes.gpu_bytes > device_bytes:
        lines.append(f"warning: a step takes {_size(sizes.gpu_bytes)}, the device has {_size(device_bytes)}")
    return lines


def _setting_lines(setting: SettingPrediction, outlook: Outlook) -> list[str]:
    times = f"asleep {_time(setting.offload)}, awake {_time(setting.reload)} · " if setting.offload else ""
    lines = [f"{setting.setting}: {times}{_pinned(setting, outlook)}"]
    # Of bytes that do not move there is no speed.
    calls = [
        f"{three_digits(call.gbps)} GB/s {way}{_share(call)}"
        for call, way in ((setting.offload, "down"), (setting.reload, "up"))
        if call and not outlook.on_cpu
    ]
    if setting.offload:
        source = f"from {_count(setting.offload.sizes, 'size')} and {_count(setting.offload.jobs, 'job')}"
        lines.append(f"  {' · '.join([', '.join(calls)] * bool(calls) + [setting.offload.form])}, {source}")
    if setting.payback and not outlook.on_cpu:
        lines.append("  " + _payback(setting.payback))
    return lines


def _notes(setting: SettingPrediction, outlook: Outlook) -> list[str]:
    notes = [f"no seconds: {setting.refusal}"] if setting.refusal else []
    notes += [f"warning: {warning}" for warning in setting.warnings]
    if _is_too_much(setting, outlook):
        notes.append("warning: this is more pinned memory than the host has")
    return notes


def _payback(payback: Payback) -> str:
    first = f"pinning costs {human_seconds(payback.cold_pinning_s)} once"
    if payback.cycles is None:
        return f"{first} and never pays: {payback.against} is as fast"
    loss = f"{human_seconds(payback.gain_s)} slower each"
    if payback.against_pinning_s:
        loss += f", with {human_seconds(payback.against_pinning_s)} of pinning, too"
    return f"{first}, has paid after {_count(payback.cycles, 'cycle')} against {payback.against} ({loss})"


def _pinned(setting: SettingPrediction, outlook: Outlook) -> str:
    if not setting.bytes.pinned_bytes:
        return "pins nothing"
    if outlook.on_cpu:
        return f"a GPU host would pin {_size(setting.bytes.pinned_bytes)} a rank"
    of = f" of {_size(outlook.ram_bytes)} host RAM" if outlook.ram_bytes else ""
    whole = _size(setting.pinned_node_bytes)
    return f"pins {_size(setting.bytes.pinned_bytes)} a rank ({whole} a node{of})"


def _is_too_much(setting: SettingPrediction, outlook: Outlook) -> bool:
    pinned, ram = setting.pinned_node_bytes, outlook.ram_bytes
    return bool(ram and pinned and pinned > ram) and not outlook.on_cpu


def _time(estimate: TimeEstimate | None) -> str:
    if estimate is None:
        return "not measured"
    return interval_text("call_s", estimate.seconds, estimate.low_s, estimate.high_s)


def _share(estimate: TimeEstimate) -> str:
    return f" ({percent(estimate.link_share)} % of the link)" if estimate.link_share is not None else ""


def _size(size: int | None) -> str:
    return "?" if size is None else human_bytes(size)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _document(outlook: Outlook) -> dict[str, object]:
    return {
        "subject": outlook.subject,
        "host": outlook.host,
        "stack": outlook.stack,
        "ram_bytes": outlook.ram_bytes,
        "device_bytes": outlook.device_bytes,
        "advice": outlook.advice,
        "on_cpu": outlook.on_cpu if outlook.host else None,
        "settings": [_setting_document(setting, outlook) for setting in outlook.settings],
    }


def _setting_document(setting: SettingPrediction, outlook: Outlook) -> dict[str, object]:
    from dataclasses import asdict

    def times(estimate: TimeEstimate | None) -> dict[str, object] | None:
        if estimate is None:
            return None
        return asdict(estimate) | ({"gbps": None, "link_share": None} if outlook.on_cpu else {})

    sizes = setting.bytes
    is_known = bool(outlook.ram_bytes) and not outlook.on_cpu
    return {
        "setting": setting.setting,
        "parameters_total": sizes.parameters_total,
        "gpu_bytes": sizes.gpu_bytes,
        "freed_bytes": sizes.freed_bytes,
        "copied_bytes": sizes.copied_bytes,
        "pinned_bytes": sizes.pinned_bytes,
        "pinned_node_bytes": setting.pinned_node_bytes,
        "pinned_fits": not _is_too_much(setting, outlook) if is_known else None,
        "offload": times(setting.offload),
        "reload": times(setting.reload),
        "payback": asdict(setting.payback) if setting.payback and not outlook.on_cpu else None,
        "refusal": setting.refusal or None,
        "warnings": list(setting.warnings),
    }
