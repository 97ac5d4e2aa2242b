"""In what do the stacks differ that two groups of jobs ran on?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

NOT_DESCRIBING = frozenset({"environment_id", "uid", "created_at"})
JSON_COLUMNS = ("variables", "packages")
MIXED = " | "


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One property that differs; several values of one side are joined, ``-`` is "not recorded"."""

    what: str
    a: str
    b: str


def environment_differences(a: DataFrame, b: DataFrame) -> tuple[EnvironmentDifference, ...]:
    """Properties whose set of values differs between two frames of ``environment`` rows.

    A side on which nothing ran differs in nothing.
    """
    if a.empty or b.empty:
        return ()
    left, right = _properties(a), _properties(b)
    names = [*left, *(name for name in right if name not in left)]
    return tuple(
        EnvironmentDifference(name, MIXED.join(left.get(name, ["-"])), MIXED.join(right.get(name, ["-"])))
        for name in names
        if left.get(name, ["-"]) != right.get(name, ["-"])
    )


def _properties(frame: DataFrame) -> dict[str, list[str]]:
    """Property -> its distinct values, sorted; entries of the JSON columns by their dotted name."""
    import pandas as pd

    found: dict[str, set[str]] = {}
    for row in frame.to_dict("records"):
        for column, value in row.items():
            name = str(column)
            if name in NOT_DESCRIBING or pd.isna(value):
                continue
            if name in JSON_COLUMNS:
                for key, entry in json.loads(value).items():
                    found.setdefault(f"{name}.{key}", set()).add(str(entry))
            else:
                found.setdefault(name, set()).add(_text(value))
    return {name: sorted(values) for name, values in found.items()}


def _text(value: object) -> str:
    # A missing integer elsewhere in the column makes pandas read floats.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
