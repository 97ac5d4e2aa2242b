"""What does ``ds: @file.json`` read? A DeepSpeed configuration as the base of every cell."""

from __future__ import annotations

import json
import re
from pathlib import Path

from orchestrator.errors import SpecError
from orchestrator.spec.jsontext import parse_json
from orchestrator.spec.problems import Mark
from orchestrator.spec.source import Node

_UNQUOTED = re.compile(r"^(ds:[ ]+)(@[^\s#\"']\S*)", re.MULTILINE)


def quote_reference(text: str) -> str:
    """``ds: @file.json`` with quotes: YAML reserves a leading ``@``, people write it all the same."""
    return _UNQUOTED.sub(lambda match: match[1] + json.dumps(match[2], ensure_ascii=False), text)


def read_base(reference: str, folder: Path, mark: Mark) -> Node:
    """The JSON object, with its places, in the file that ``@file.json`` names, beside the sweep file.

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
    base = parse_json(text, str(path))
    if not base.is_mapping:
        raise SpecError("holds no JSON object", str(base.mark), "a DeepSpeed configuration begins with {")
    return base
