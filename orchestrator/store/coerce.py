"""Makes a value fit a column on both databases, or says that it does not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import BIGINT, BOOLEAN, INTEGER, Column, Table
from sqlalchemy.types import Double

from orchestrator.store.clock import normal_utc

NONFINITE_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
"""How a spool writes what JSON has no number for."""


class DoesNotFit(ValueError):
    """The value cannot be stored in that column."""


def column_value(column: Column[Any], value: object) -> object:
    """``value`` as the column stores it; NaN is None, minus zero is zero.

    Raises:
        DoesNotFit: it cannot.
    """
    return fitter(column)(value)


@cache
def fitters(table: Table) -> dict[str, Callable[[object], object]]:
    """A function for every column of the table."""
    return {column.name: fitter(column) for column in table.columns}


def fitter(column: Column[Any]) -> Callable[[object], object]:
    """The function that makes a value fit the column."""
    kind = column.type
    if isinstance(kind, BIGINT):
        return lambda value: _integer(value, 2**63)
    if isinstance(kind, INTEGER):
        return lambda value: _integer(value, 2**31)
    if isinstance(kind, Double):
        return _number
    if isinstance(kind, BOOLEAN):
        return _boolean
    return _time if column.name.endswith("_at") else _text


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, str) and value.lower() in NONFINITE_WORDS:
        value = NONFINITE_WORDS[value.lower()]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DoesNotFit(f"{value!r:.60} is not a number")
    try:
        number = float(value)
    except OverflowError as e:
        raise DoesNotFit("the number is too large") from e
    # x + 0.0 turns -0.0 into 0.0.
    return None if math.isnan(number) else number + 0.0


def _integer(value: object, limit: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.lower() in NONFINITE_WORDS:
        return None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if not value.is_integer():
            raise DoesNotFit(f"{value!r} is not an integer")
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DoesNotFit(f"{value!r:.60} is not an integer")
    if not -limit <= value < limit:
        raise DoesNotFit(f"{value} is too large")
    return value


def _boolean(value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    raise DoesNotFit(f"{value!r:.60} is not true or false")


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, (dict, list, tuple)):
        value = json.dumps(value, sort_keys=isinstance(value, dict))
    # PostgreSQL takes no NUL, and neither takes half a surrogate pair.
    return str(value).replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


def _time(value: object) -> str | None:
    if value is None:
        return None
    try:
        return normal_utc(str(value))
    except ValueError as e:
        raise DoesNotFit(f"{value!r:.60} is not a time") from e


def nonfinite_name(value: object) -> str | None:
    """``nan``, ``inf`` or ``-inf`` if the value is that; None for anything else."""
    if isinstance(value, str):
        value = NONFINITE_WORDS.get(value.lower(), 0.0)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return None
