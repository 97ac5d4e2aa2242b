"""What is printed where the terminal or pipe takes no UTF-8: plain signs instead of a crash."""

from __future__ import annotations

import codecs
import io
from typing import IO

_PLAIN = {
    "→": "->", "·": "-", "×": "x", "–": "-", "…": "...", "✓": "ok", "✗": "x", "▶": ">", "─": "-", "│": "|",
    "≤": "<=", "≥": ">=", "μ": "u", "µ": "u", "±": "+-",
}  # fmt: skip
_HANDLER = "orch_plain"


def make_printable(*streams: IO[str] | None) -> None:
    """Let these streams write any text: what their encoding lacks becomes a plain sign or an escape."""
    codecs.register_error(_HANDLER, _plain)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and not _is_unicode(stream.encoding):
            stream.reconfigure(errors=_HANDLER)


def _is_unicode(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith("utf-")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # it is for writing only
    letters = error.object[error.start : error.end]
    return "".join(
        _PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in letters
    ), error.end
