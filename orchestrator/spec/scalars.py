"""What does a plain YAML scalar mean? The YAML 1.2 core schema, and the look-alikes that are refused.

ruamel.yaml reads some YAML 1.1 forms as numbers or dates and leaves some 1.2 numbers (``1e-6``) as
strings, differently from version to version. The text decides here instead.
"""

from __future__ import annotations

import re

Scalar = bool | int | float | str | None

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
_NAN = re.compile(r"\.(?:nan|NaN|NAN)")

_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_UNDERSCORE = re.compile(
    r"(?=.*_)[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9_]+)?|0x[0-9a-fA-F_]+|0o[0-7_]+)"
)
_BINARY = re.compile(r"[-+]?0b[01_]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ]+[0-9].*)?")

_MAX_DIGITS = 400


class ScalarRefused(ValueError):
    """The scalar is read differently by YAML 1.1 and 1.2; the arguments are what and fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar.

    Raises:
        ScalarRefused: for what a reader might take for another type.
    """
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] not in "+-.0123456789":
        return text
    number = _number(text)
    if number is not None:
        return number
    _refuse_look_alikes(text)
    return text


def _number(text: str) -> int | float | None:
    is_number = _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text)
    if (is_number or _HEXADECIMAL.fullmatch(text) or _OCTAL.fullmatch(text)) and len(text) > _MAX_DIGITS:
        raise ScalarRefused(f"a number of {len(text)} digits", f"at most {_MAX_DIGITS} are read")
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _INFINITY.fullmatch(text):
        return float("-inf") if text[0] == "-" else float("inf")
    if _NAN.fullmatch(text):
        return float("nan")
    return None


def _refuse_look_alikes(text: str) -> None:
    if _LEADING_ZERO.fullmatch(text):
        raise ScalarRefused(
            f"'{text}' has a leading zero: octal in YAML 1.1, decimal in 1.2",
            f"write {text.lstrip('+-0') or '0'}, or quote it if it is a string",
        )
    if _UNDERSCORE.fullmatch(text):
        raise ScalarRefused(
            f"'{text}' has an underscore: a number in YAML 1.1, a string in 1.2",
            f"write {text.replace('_', '')}, or quote it if it is a string",
        )
    if _BINARY.fullmatch(text):
        raise ScalarRefused(
            f"'{text}' is a number in YAML 1.1, a string in 1.2",
            f"write {int(text.replace('_', ''), 2)}, or quote it if it is a string",
        )
    if _DATE.fullmatch(text):
        raise ScalarRefused(f"'{text}' is a date", f'quote it if it is a string: "{text}"')
    if _SEXAGESIMAL.fullmatch(text):
        raise ScalarRefused(
            f"'{text}' is a base-60 number in YAML 1.1, a string in 1.2",
            f'write the number in full, or quote it if it is a string: "{text}"',
        )
