"""What does an editor need to complete and check a sweep file? Its JSON Schema, draft 2020-12."""

from __future__ import annotations

import re
from typing import Any

from pydantic import TypeAdapter

from orchestrator.spec.axes import AXES, STATE_NAMES, Axis, AxisType
from orchestrator.spec.conditions import OPERATORS
from orchestrator.spec.document import NAME_PATTERN, SECONDS
from orchestrator.spec.models import ARCHITECTURES
from orchestrator.spec.options import ENGINE_SETTINGS, LauncherOptions, Limits
from orchestrator.spec.presets import ALL, PRESETS
from orchestrator.spec.values import BIGINT_AXES, DTYPE_ALIASES, LARGEST_BIGINT, LARGEST_INTEGER

Schema = dict[str, Any]
_ANYTHING: Schema = {}
_ENV_VALUE: Schema = {"type": ["string", "integer", "null"]}


def json_schema() -> Schema:
    """The schema of a sweep file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "orch sweep",
        "description": "A sweep over DeepSpeed's offload_states and reload_states",
        "type": "object",
        "properties": _properties(),
        "patternProperties": {"^x-": {"description": "a template for anchors; not read"}},
        "additionalProperties": False,
        "$defs": {
            "assignment": _assignment(_value, _ANYTHING, "an axis and its value"),
            "lists": _assignment(_list_of_values, _ANYTHING, "an axis and its values"),
            "condition": _assignment(_clause, _ANYTHING, "all of it must hold"),
        },
    }


def _properties() -> Schema:
    def described(text: str, **schema: Any) -> Schema:
        return {"description": text, **schema}

    def nullable(schema: Schema) -> Schema:
        return {"anyOf": [schema, {"type": "null"}]}

    def listed(name: str) -> Schema:
        return {"type": ["array", "null"], "items": {"$ref": f"#/$defs/{name}"}}

    axis = {"type": "string", "anyOf": [{"enum": [a.name for a in AXES]}, {"pattern": r"^(ds|env)\."}]}
    rule = {
        "type": "object",
        "properties": {
            "axis": {"anyOf": [axis, {"type": "array", "items": axis}]},
            "if": {"$ref": "#/$defs/condition"},
        },
        "required": ["axis", "if"],
        "additionalProperties": False,
    }
    return {
        "name": described(
            "the sweep's identity; the same name continues it", type="string", pattern=NAME_PATTERN
        ),
        "defaults": described("one value per axis", **nullable({"$ref": "#/$defs/assignment"})),
        "matrix": described("axis: list of values; every combination", **nullable({"$ref": "#/$defs/lists"})),
        "zip": described("groups of axes whose lists advance together", **listed("lists")),
        "when": described(
            "where the condition does not hold the axis is inactive", type=["array", "null"], items=rule
        ),
        "exclude": described("combinations to leave out", **listed("condition")),
        "cells": described("extra cells over defaults; exclude leaves them in", **listed("assignment")),
        "repeats": described("jobs of each cell", type="integer", minimum=1, default=1),
        "order": described(
            "interleave: a round over all cells for each repeat",
            enum=["interleave", "random", "sequential"],
            default="interleave",
        ),
        "seed": described("of the random order", type="integer", default=0),
        "limits": described("when a job or the sweep is given up", **nullable(_limits())),
        "engine": described("where jobs run", anyOf=_engines()),
        "launcher": described("how ranks become processes", anyOf=_launchers()),
        "ds": described(
            "DeepSpeed configuration of every cell: keys, or @file.json",
            anyOf=[{"type": "string", "pattern": "^@."}, {"type": "object"}, {"type": "null"}],
        ),
        "env": described(
            "environment variables of every cell", type=["object", "null"], additionalProperties=_ENV_VALUE
        ),
    }


def _assignment(schema_of: Any, other: Schema, description: str) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {
            **{axis.name: {"description": axis.help, **schema_of(axis)} for axis in AXES},
            "ds": {"type": "object", "description": "DeepSpeed configuration keys, dotted or nested"},
            "env": {"type": "object", "description": "environment variables"},
        },
        "patternProperties": {r"^ds\.": other, r"^env\.": other},
        "additionalProperties": False,
    }


def _list_of_values(axis: Axis) -> Schema:
    return {"type": "array", "minItems": 1, "items": _value(axis)}


def _clause(axis: Axis) -> Schema:
    value = _value(axis)
    compared = {
        "type": "object",
        "properties": {name: {"anyOf": [value, {"type": "array", "items": value}]} for name in OPERATORS},
        "additionalProperties": False,
        "minProperties": 1,
    }
    return {"anyOf": [value, {"type": "array", "minItems": 1, "items": value}, compared]}


def _value(axis: Axis) -> Schema:
    """The values of one axis; null means the default."""
    match axis.type:
        case AxisType.BOOLEAN:
            return {"type": ["boolean", "null"]}
        case AxisType.INTEGER:
            largest = LARGEST_BIGINT if axis.name in BIGINT_AXES else LARGEST_INTEGER
            return {"type": ["integer", "null"], **_range(axis, largest)}
        case AxisType.NUMBER:
            return {"type": ["number", "null"], **_range(axis, None)}
        case AxisType.STATES:
            return _states()
        case AxisType.STRING:
            return _string(axis)


def _range(axis: Axis, largest: int | None) -> Schema:
    maximum = axis.maximum if axis.maximum is not None else largest
    bounds = {"minimum": axis.minimum, "maximum": maximum}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _states() -> Schema:
    one = {"enum": [ALL, *STATE_NAMES, *PRESETS]}
    joined = {"type": "string", "pattern": rf"^({'|'.join(STATE_NAMES)})(\+({'|'.join(STATE_NAMES)}))*$"}
    return {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}, joined, {"type": "null"}]}


def _string(axis: Axis) -> Schema:
    if axis.name == "dtype":
        names = [*axis.choices, *DTYPE_ALIASES]
        return {"enum": [*names, *(f"torch.{name}" for name in names), None]}
    if axis.choices:
        return {"enum": [*axis.choices, None]}
    if axis.name == "numa":
        return {"type": ["string", "integer", "null"], "examples": ["none", "device", 0]}
    schema: Schema = {"type": ["string", "null"], "minLength": 1}
    if axis.name == "model":
        schema["examples"] = ["linear", "transformer", *ARCHITECTURES, "package.module:factory"]
    return schema


def _limits() -> Schema:
    """A time under its documented key; the alias with its unit is marked, so that editors do not offer it."""
    schema = _described(Limits)
    described = schema["properties"]
    for name in SECONDS:
        described[name] = described[f"{name}_s"]
        described[f"{name}_s"] = {**described[name], "description": f"as {name}", "deprecated": True}
    return schema


def _engines() -> list[Schema]:
    with_options = []
    for name, settings in ENGINE_SETTINGS.items():
        schema = _described(settings)
        schema["properties"] = {"name": {"const": name}, **schema["properties"]}
        with_options.append({**schema, "required": ["name"]})
    return [{"enum": [*ENGINE_SETTINGS]}, *with_options]


def _launchers() -> list[Schema]:
    schema = _described(LauncherOptions)
    return [schema["properties"]["name"], {**schema, "required": ["name"]}]


def _described(options: type[Any]) -> Schema:
    """A dataclass' schema with its docstring's lines as descriptions."""
    schema = TypeAdapter(options).json_schema()
    schema.pop("title", None)
    for name, text in re.findall(r"^ {4,8}(\w+): (.+)$", options.__doc__ or "", re.MULTILINE):
        if name in schema["properties"]:
            schema["properties"][name]["description"] = text
    for field in schema["properties"].values():
        field.pop("title", None)
    return schema
