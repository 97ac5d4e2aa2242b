"""``--where`` conditions: ``axis=value``, ``axis>=4096``, over the columns of a report's jobs.

They are parsed here and compared in Python: nothing of them reaches SQL or ``eval``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import SpecError
from orchestrator.spec.axes import AXIS_BY_NAME, AxisType
from orchestrator.spec.presets import JOIN
from orchestrator.spec.values import ValueRefused, read_value

Value = bool | int | float | str | None

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.\-]*)\s*(!=|<=|>=|==|=|<|>)(.*)", re.DOTALL)
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_RELATIONS = "write axis=value, or one of != < <= > >="
_AND = re.compile(r"\s(?:and|&&?|or|\|\|?)\s+[A-Za-z_][\w.]*\s*[=<>!]", re.IGNORECASE)
_WORDS: dict[str, Value] = {"true": True, "yes": True, "false": False, "no": False, "null": None}


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value, or with any of several."""

    column: str
    relation: str
    texts: tuple[str, ...]

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the job's value satisfies it; a missing value satisfies only ``=null`` and ``!=x``."""
        value = values.get(self.column)
        if self.relation == "=":
            return self._is_any(value)
        if self.relation == "!=":
            return not self._is_any(value)
        if value is None or isinstance(value, bool):
            return False
        if isinstance(
            value, str
        ):  # times are ISO-8601, so their order is that of the text; no other word has one
            return _is_time(self.column) and _compare_text(value, self.relation, self.texts[0])
        return _ORDER[self.relation](value, float(self.texts[0]))

    def _is_any(self, value: Value) -> bool:
        # A cell may be given by its first letters, as every output shows it.
        if self.column == "cell" and isinstance(value, str):
            return any(value.removeprefix("v1:").startswith(t.removeprefix("v1:")) for t in self.texts if t)
        return any(_equal(value, text) for text in self.texts)


def parse_conditions(texts: Sequence[str], columns: Collection[str]) -> tuple[Condition, ...]:
    """Conditions of which all must hold.

    Raises:
        SpecError: not a condition, an unknown column, or an order asked of a word.
    """
    return tuple(_parse(text, columns) for text in texts)


def _parse(text: str, columns: Collection[str]) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise SpecError(f"'{text}' is not a condition", "--where", _RELATIONS)
    column, relation, value = match[1], match[2].replace("==", "="), match[3].strip()
    if value.startswith((">", "<", "=")) or _AND.search(value):
        fix = "of several conditions each has a --where of its own" if _AND.search(value) else _RELATIONS
        raise SpecError(f"'{text}' is not a condition", "--where", fix)
    if column not in columns:
        raise SpecError(f"'{column}' is no column of a job", "--where", nearest(column, columns))
    if relation in _ORDER:
        axis = AXIS_BY_NAME.get(column)
        if axis is not None and axis.type not in (AxisType.INTEGER, AxisType.NUMBER):
            raise SpecError(f"'{text}': {column} has no order", "--where", "ask for = or !=")
        return Condition(column, relation, (value,) if _is_time(column) else (_number(text, value),))
    parts = tuple(part.strip() for part in value.split(","))
    for part in parts:
        _check(text, column, part)
    return Condition(column, relation, tuple(_canonical(column, part) for part in parts))


def _canonical(column: str, part: str) -> str:
    """A word as the database has it: ``bf16`` is bfloat16, a preset its states; unknown ones as they are."""
    axis = AXIS_BY_NAME.get(column)
    if axis is None or axis.type not in (AxisType.STRING, AxisType.STATES) or part.lower() == "null":
        return part
    try:
        raw: object = part.split(JOIN) if axis.type is AxisType.STATES else part
        return str(read_value(column, raw))
    except ValueRefused:
        return part


def _check(text: str, column: str, part: str) -> None:
    """Refuse what no value of the axis equals: a slip of the pen would select nothing, in silence."""
    axis = AXIS_BY_NAME.get(column)
    if not part:
        raise SpecError(f"'{text}' compares with nothing", "--where", "write null for inactive")
    if axis is None or part.lower() == "null":
        return
    if axis.type is AxisType.BOOLEAN and part.lower() not in (*_WORDS, "0", "1"):
        raise SpecError(f"'{text}': {column} is true or false", "--where")
    if axis.type in (AxisType.INTEGER, AxisType.NUMBER):
        _number(text, part)


def _is_time(column: str) -> bool:
    return column.endswith("_at")


def _number(text: str, value: str) -> str:
    try:
        float(value)
    except ValueError as e:
        raise SpecError(f"'{text}' compares with '{value}', which is no number", "--where") from e
    return value


def nearest(word: str, columns: Collection[str]) -> str:
    """``did you mean …?`` for a misspelt column: by spelling, then by what begins with the word."""
    import difflib

    plain = {column.lower(): column for column in columns}
    asked = word.lower().replace("-", "_")
    longer = sorted((name for name in plain if name.startswith(asked)), key=lambda name: "median" not in name)
    close = [] if len(longer) > 2 else difflib.get_close_matches(asked, list(plain), 3)
    near = list(dict.fromkeys([*(name for name in close if name == asked), *longer, *close]))[:3]
    if not near:
        return "see: orch sql 'select * from job_summary limit 1'"
    return f"did you mean {', '.join(plain[name] for name in near)}?"


def _equal(value: Value, text: str) -> bool:
    word = text.lower()
    if value is None:
        return word == "null"
    if isinstance(value, bool):
        return (word in _WORDS and _WORDS[word] is value) or word == str(int(value))
    if isinstance(value, (int, float)):
        try:
            # Whole numbers are compared whole: 2**53 + 1 is no float.
            return value == int(text) if text.lstrip("+-").isdigit() else float(value) == float(text)
        except ValueError:
            return False
    return value == text


def _compare_text(value: str, relation: str, text: str) -> bool:
    return {"<": value < text, "<=": value <= text, ">": value > text, ">=": value >= text}[relation]
