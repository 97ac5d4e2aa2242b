"""How one value is written: for a person in a table, exactly in a file.

A column's unit is the end of its name (``_bytes _s _share _gbps``), as everywhere in this project.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

Scalar = bool | int | float | str | None
"""What a field holds after ``plain``."""

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
# What a spreadsheet takes for the start of a formula, with the full-width forms some accept.
_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")


def plain(value: object) -> Scalar:
    """A driver's value as one of five plain types; a decimal becomes the number it is."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if hasattr(value, "item"):  # a numpy scalar
        return plain(value.item())
    return str(value)


def counted(many: int, what: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{many} {what}" if many == 1 else f"{many} {what}s"


def nonfinite_word(value: float) -> str:
    """``NaN``, ``inf`` or ``-inf``: the words that CSV, JSON and tables use."""
    if math.isnan(value):
        return "NaN"
    return "inf" if value > 0 else "-inf"


def human_bytes(value: float) -> str:
    """Bytes in powers of 1000, three digits: ``35.4 GB``."""
    size, unit = abs(float(value)), 0
    while size >= 999.5 and unit < len(_SIZES) - 1:
        size, unit = size / 1000, unit + 1
    digits = f"{size:.0f}" if unit == 0 else three_digits(size)
    return f"{'-' if value < 0 else ''}{digits} {_SIZES[unit]}"


def human_seconds(value: float) -> str:
    """Seconds, three digits; ms, minutes, hours and days where seconds are not read at a glance."""
    size = abs(value)
    if 0 < size < 0.00995:
        return f"{three_digits(value * 1000)} ms"
    if size >= 48 * 3600:
        return f"{three_digits(value / 86400)} d"
    if size >= 2 * 3600:
        return f"{three_digits(value / 3600)} h"
    if size >= 600:
        return f"{three_digits(value / 60)} min"
    return f"{three_digits(value)} s"


def three_digits(value: float) -> str:
    """Three significant digits, never an exponent: ``0.642``, ``14.6``, ``1234``."""
    if value == 0:
        return "0"
    before = int(f"{abs(value):.2e}".partition("e")[2]) + 1  # after rounding: 999.6 has four
    text = f"{value:.{min(max(3 - before, 0), 6)}f}"
    return "0" if float(text) == 0 else text


def exact(value: Scalar) -> str:
    """A value without loss: integers whole, floats so that they read back equal, None empty."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else nonfinite_word(value)
    return str(value)


def human(column: str, value: Scalar) -> str:
    """A value for a table: sizes and times short, yes/no for a boolean, a dash for nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite_word(value)
    if isinstance(value, (int, float)):
        return _human_number(column, value)
    return value


def _human_number(column: str, value: float) -> str:
    if column.endswith("_bytes"):
        return human_bytes(value)
    if column.endswith("_s") or "_s_" in column:
        return human_seconds(value)
    if column.endswith("_share"):
        return f"{value * 100:.0f} %" if abs(value) >= 0.1 or value == 0 else f"{value * 100:.1f} %"
    if column.endswith("_gbps"):
        return f"{three_digits(value)} GB/s"
    return exact(value)


def interval_text(column: str, value: float, low: float, high: float) -> str:
    """``0.642 s (0.640–0.655)``: the unit once where all three have the same."""
    text, least, greatest = human(column, value), human(column, low), human(column, high)
    if least.rpartition(" ")[2] == greatest.rpartition(" ")[2] == text.rpartition(" ")[2]:
        least, greatest = least.rpartition(" ")[0] or least, greatest.rpartition(" ")[0] or greatest
    return f"{text} ({least}–{greatest})"


def csv_field(value: Scalar) -> str:
    """A value for CSV, quoted where it must be.

    A label that a spreadsheet would run as a formula gets an apostrophe before it. An empty text is ``""``
    where a missing value is nothing at all.
    """
    if not isinstance(value, str):
        return exact(value)
    text = "'" + value if value.startswith(_FORMULA_STARTS) and not _is_number(value) else value
    # The csv module leaves a lone carriage return unquoted, which readers take for the end of a row.
    if text and text.isalnum():
        return text
    if not text or text != text.strip() or any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _is_number(text: str) -> bool:
    if text != text.strip():
        return False
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def json_value(value: Scalar) -> Scalar:
    """A value for JSON, which has no NaN: NaN and infinities are the strings NaN, inf, -inf."""
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite_word(value)
    return value


_MARKDOWN = str.maketrans(
    {
        "\\": "\\\\",
        "|": "\\|",
        "`": "\\`",
        "*": "\\*",
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
        "[": "\\[",
        "]": "\\]",
        "~": "\\~",
    }
)


def markdown_field(text: str) -> str:
    """Text that stays inside its cell of a markdown table, whatever it holds."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "<br>".join(visible(line).translate(_MARKDOWN) for line in lines)


def visible(text: str) -> str:
    """Text whose control characters are written out, so that a label cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character == "\n" or not unicodedata.category(character).startswith(("C", "Zl", "Zp"))
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def unique_names(columns: Sequence[str]) -> list[str]:
    """Column names made distinct (``x``, ``x_2``), so that no column of a query is lost in JSON."""
    names: list[str] = []
    for column in columns:
        name, count = column, 1
        while name in names:
            count += 1
            name = f"{column}_{count}"
        names.append(name)
    return names
