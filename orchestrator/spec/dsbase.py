"""What does ``ds: @file.json`` read? A DeepSpeed configuration as the base of every cell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.problems import Mark

_UNQUOTED = re.compile(r"^(ds:[ ]+)(@[^\s#\"']\S*)", re.MULTILINE)


def quote_reference(text: str) -> str:
    """``ds: @file.json`` with quotes: YAML reserves a leading ``@``, people write it all the same."""
    return _UNQUOTED.sub(lambda match: match[1] + json.dumps(match[2], ensure_ascii=False), text)


def read_base(reference: str, folder: Path, mark: Mark) -> dict[str, Any]:
    """The JSON object in the file that ``@file.json`` names, relative to the sweep file's folder.

    Raises:
        SpecError: the reference is none, or the file is missing or no JSON object.
    """
    if not reference.startswith("@") or len(reference) == 1:
        raise SpecError(f"ds: '{reference}' is neither keys nor a file", str(mark), "write ds: @file.json")
    path = folder / reference[1:]
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise SpecError(f"{path} cannot be read: {reason}", str(mark)) from error
    try:
        base = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise SpecError(f"is not JSON: {error.msg}", place) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(str(error) or "is nested too deeply", str(path)) from error
    if not isinstance(base, dict):
        raise SpecError("holds no JSON object", str(path), "a DeepSpeed configuration begins with {")
    return base


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"duplicate key '{twice}'")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
