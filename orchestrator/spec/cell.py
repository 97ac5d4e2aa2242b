"""How is a cell identified? A resolved combination of axes, and the key that names it for ever."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.spec.axes import AXES, AXIS_BY_NAME, AxisValue

KEY_PREFIX = "v1:"
SHORT_LENGTH = 6


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the matrix.

    Attributes:
        values: every axis of ``AXES``; ``None`` is "inactive" (or, for a nullable axis, "same as").
        ds: nested DeepSpeed overrides, constants and axes merged; empty if there are none.
        env: environment variables, constants and axes merged; empty if there are none.
        key: ``v1:`` and the SHA-256 of the canonical JSON of what is not an identity default.
    """

    values: Mapping[str, AxisValue]
    ds: Mapping[str, object]
    env: Mapping[str, str]
    key: str

    @property
    def short(self) -> str:
        """The first six hexadecimal digits, as printed."""
        return short_key(self.key)

    @property
    def ranks(self) -> int:
        """Ranks over all nodes."""
        return self.num_gpus * self.num_nodes

    @property
    def num_gpus(self) -> int:
        """Ranks on each node."""
        return int(self.effective("num_gpus") or 1)

    @property
    def num_nodes(self) -> int:
        """Nodes."""
        return int(self.effective("num_nodes") or 1)

    @property
    def contention(self) -> int:
        """Copies of the job that run at once on each node, the measured one included."""
        return int(self.effective("contention") or 1)

    def effective(self, axis: str) -> AxisValue:
        """The value a worker uses: an inactive axis acts as its built-in default."""
        value = self.values[axis]
        return AXIS_BY_NAME[axis].default if value is None else value

    def parameters(self) -> dict[str, object]:
        """One flat mapping: every axis, then ``ds.*`` and ``env.*`` by their dotted names."""
        flat: dict[str, object] = dict(self.values)
        flat.update({f"ds.{path}": value for path, value in flatten(self.ds)})
        flat.update({f"env.{name}": value for name, value in self.env.items()})
        return flat


def make_cell(
    values: Mapping[str, AxisValue],
    ds: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Cell:
    """A cell with its key; axes that ``values`` leaves out take their built-in default."""
    complete = {axis.name: values.get(axis.name, axis.default) for axis in AXES}
    unknown = values.keys() - complete.keys()
    if unknown:
        raise KeyError(f"not an axis: {', '.join(sorted(unknown))}")
    ds, env = dict(ds or {}), dict(env or {})
    return Cell(complete, ds, env, cell_key(complete, ds, env))


def cell_key(values: Mapping[str, AxisValue], ds: Mapping[str, object], env: Mapping[str, str]) -> str:
    """The identity of a resolved cell; see the design of the sweep file for what enters it."""
    identity: dict[str, object] = {
        axis.name: values[axis.name] for axis in AXES if values[axis.name] != axis.identity_default
    }
    if ds:
        identity["ds"] = ds
    if env:
        identity["env"] = env
    return KEY_PREFIX + hashlib.sha256(canonical_json(identity).encode("utf-8")).hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys, no spaces and whole floats written as integers (``1.0`` as ``1``)."""
    return json.dumps(
        canonical_number(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def canonical_number(value: object) -> object:
    """``value`` with every whole float, however deep, made an integer; minus zero becomes 0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: canonical_number(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical_number(item) for item in value]
    return value


def short_key(key: str) -> str:
    """``3f9ac1`` for ``v1:3f9ac1...``."""
    return key.removeprefix(KEY_PREFIX)[:SHORT_LENGTH]


def flatten(nested: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Dotted path and value of every leaf; a list or an empty mapping is a leaf."""
    leaves: list[tuple[str, object]] = []
    for key, value in nested.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            leaves.extend(flatten(value, path + "."))
        else:
            leaves.append((path, value))
    return leaves
