"""Is this a value of that axis? Raw YAML values in, canonical ones out."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from orchestrator.spec.axes import AXIS_BY_NAME, STATE_NAMES, Axis, AxisType
from orchestrator.spec.cell import canonical_number
from orchestrator.spec.dsconfig import unreadable
from orchestrator.spec.models import ARCHITECTURES, is_known_model
from orchestrator.spec.presets import ALL, JOIN, PRESETS, canonical_states
from orchestrator.spec.problems import did_you_mean

YAML_1_1_BOOLEANS = frozenset(["y", "n", "yes", "no", "on", "off"])
LARGEST_INTEGER = 2**31 - 1
LARGEST_BIGINT = 2**63 - 1
BIGINT_AXES = frozenset({"hold_bytes"})
DTYPE_ALIASES = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32",
}  # fmt: skip
RESERVED_ENV = {
    "RANK": "orch sets it", "LOCAL_RANK": "orch sets it",
    "WORLD_SIZE": "the axes num_gpus and num_nodes decide it",
    "MASTER_ADDR": "orch sets it", "MASTER_PORT": "orch leases a free port for each job",
    "CUDA_VISIBLE_DEVICES": "orch gives each job its devices; limit them by --gpus",
    "CUDA_DEVICE_ORDER": "orch sets it", "DS_ACCELERATOR": "orch sets it", "OMP_NUM_THREADS": "orch sets it",
    "PYTORCH_CUDA_ALLOC_CONF": "the axis pin_backend decides it", "ORCH_ATTEMPT": "orch sets it",
    "LOCAL_SIZE": "with it DeepSpeed leaves shared memory behind",
}  # fmt: skip

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FACTORY = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NUMA = re.compile(r"none|device|0|[1-9][0-9]*")
_PIN_BACKEND = re.compile(r"default|exact|host_register(?::[1-9][0-9]*)?")
# How somebody writes a list who does not know that this is YAML: 1,2 or 1;2 or 1 2.
_SEVERAL = re.compile(r"\s*[,;]\s*|\s+")
_NAMED_MODELS = {"linear", "transformer", *ARCHITECTURES}


class ValueRefused(ValueError):
    """The value does not suit the axis; ``what`` and ``fix`` for the message."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


class Default:
    """What ``null`` stands for: the value that would hold without this entry."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default()


def read_value(name: str, raw: Any) -> Any:
    """The canonical value of axis ``name``; ``DEFAULT`` for a null that means it.

    Args:
        name: an axis of ``AXES``, ``ds.<path>`` or ``env.<NAME>``.

    Raises:
        ValueRefused: it is none.
    """
    if name.startswith("env."):
        return DEFAULT if raw is None else _env_value(raw)
    if name.startswith("ds."):
        return DEFAULT if raw is None else _ds_value(name, raw)
    axis = AXIS_BY_NAME[name]
    if raw is None:
        return None if axis.nullable else DEFAULT
    try:
        return _READERS[axis.type](axis, raw)
    except ValueRefused as refused:
        if isinstance(raw, str) and len(words := _SEVERAL.split(raw.strip())) > 1 and all(words):
            listed = f"[{', '.join(words)}]"
            one_set = f", one set of them [{listed}]" if axis.type is AxisType.STATES else ""
            several = f"several values are a list: {listed}{one_set}"
            raise ValueRefused(
                refused.what, f"{refused.fix}; {several}" if refused.fix else several
            ) from refused
        raise


def check_env_name(name: str) -> None:
    """Refuse a name that is no environment variable, or one that orch itself decides."""
    if not _ENV_NAME.fullmatch(name):
        raise ValueRefused(f"'{name}' is not the name of an environment variable")
    if name in RESERVED_ENV:
        raise ValueRefused(f"{name} cannot be set by a sweep", RESERVED_ENV[name])


def described(raw: Any) -> str:
    """The value and its type in words."""
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return f"{str(raw).lower()} is a boolean"
    if isinstance(raw, (int, float)):
        return f"{raw} is a number"
    if isinstance(raw, str):
        return f"'{_shortened(raw)}' is a string"
    return "this is a mapping" if isinstance(raw, dict) else "this is a list"


def _boolean(axis: Axis, raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in YAML_1_1_BOOLEANS:
        raise ValueRefused(f"{axis.name}: '{raw}' is a string in YAML 1.2", "write true or false")
    raise ValueRefused(f"{axis.name}: {described(raw)}", "write true or false")


def _integer(axis: Axis, raw: Any) -> int:
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise ValueRefused(f"{axis.name}: {described(raw)}", "write a whole number")
    largest = LARGEST_BIGINT if axis.name in BIGINT_AXES else LARGEST_INTEGER
    if raw > largest:
        raise ValueRefused(f"{axis.name}: {_shortened(str(raw))} is too large", f"at most {largest}")
    _check_range(axis, raw)
    return raw


def _number(axis: Axis, raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueRefused(f"{axis.name}: {described(raw)}", "write a number")
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueRefused(f"{axis.name}: {raw} is not finite", "write a finite number")
    _check_range(axis, value)
    return value + 0.0  # minus zero becomes zero


def _check_range(axis: Axis, value: float) -> None:
    if axis.minimum is not None and value < axis.minimum:
        raise ValueRefused(f"{axis.name}: {value} is too small", f"at least {axis.minimum:g}")
    if axis.maximum is not None and value > axis.maximum:
        raise ValueRefused(f"{axis.name}: {value} is too large", f"at most {axis.maximum:g}")


def _string(axis: Axis, raw: Any) -> str:
    if axis.name == "numa" and isinstance(raw, int) and not isinstance(raw, bool):
        raw = str(raw)
    if not isinstance(raw, str):
        raise ValueRefused(f"{axis.name}: {described(raw)}", "write a string, quoted if need be")
    if not raw or not raw.isprintable():
        raise ValueRefused(f"{axis.name}: an empty or unprintable string", axis.help)
    text = raw
    if axis.name == "dtype":
        text = raw.removeprefix("torch.")
        text = DTYPE_ALIASES.get(text, text)
    if axis.choices and text not in axis.choices:
        choices = f"{', '.join(axis.choices[:-1])} or {axis.choices[-1]}"
        raise ValueRefused(f"{axis.name} '{_shortened(raw)}' is unknown", f"use {choices}")
    _check_free_string(axis, text)
    return text


def _check_free_string(axis: Axis, text: str) -> None:
    if axis.name == "model" and not is_known_model(text) and not _FACTORY.fullmatch(text):
        hint = did_you_mean(text, _NAMED_MODELS)
        raise ValueRefused(f"model '{_shortened(text)}' is unknown", hint or f"use {axis.help}")
    pattern = {"numa": _NUMA, "pin_backend": _PIN_BACKEND}.get(axis.name)
    if pattern is not None and not pattern.fullmatch(text):
        raise ValueRefused(f"{axis.name} '{_shortened(text)}' is unknown", f"use {axis.help}")


def _states(axis: Axis, raw: Any) -> str:
    names = raw if isinstance(raw, list) else raw.split(JOIN) if isinstance(raw, str) else None
    if names is None:
        raise ValueRefused(f"{axis.name}: {described(raw)}", f"use {axis.help}")
    if not names:
        raise ValueRefused(f"{axis.name}: an empty set of states", "name at least one, or all")
    for name in names:
        if not isinstance(name, str):
            what = f"{axis.name}: {described(name)}, not a state"
            raise ValueRefused(what, "a set of states is a list of names")
    try:
        return canonical_states(names)
    except KeyError as error:
        word = str(error.args[0])
        hint = did_you_mean(word, {ALL, *PRESETS, *STATE_NAMES})
        raise ValueRefused(f"{axis.name}: state '{_shortened(word)}' is unknown", hint) from error


def _ds_value(name: str, raw: Any) -> Any:
    _check_json(raw)
    fix = unreadable(name.removeprefix("ds."), raw)
    if fix:
        raise ValueRefused(f"{name}: {described(raw)}", fix)
    return canonical_number(raw)


def _check_json(raw: Any) -> None:
    if isinstance(raw, float) and not math.isfinite(raw):
        raise ValueRefused(f"{raw} cannot stand in a DeepSpeed configuration", "write a finite number")
    for item in raw.values() if isinstance(raw, dict) else raw if isinstance(raw, list) else ():
        _check_json(item)


def _env_value(raw: Any) -> str:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw)
    if not isinstance(raw, str):
        raise ValueRefused(
            f"{described(raw)}; an environment variable is a string", "quote it as it is to be"
        )
    if "\0" in raw:
        raise ValueRefused("an environment variable cannot hold a zero byte")
    return raw


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


_READERS = {
    AxisType.BOOLEAN: _boolean,
    AxisType.INTEGER: _integer,
    AxisType.NUMBER: _number,
    AxisType.STRING: _string,
    AxisType.STATES: _states,
}
