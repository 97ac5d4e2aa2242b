"""Recorded outputs: written anew with ORCH_RECORD_GOLDEN=1, compared otherwise."""

from __future__ import annotations

import os
import re
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """The text equals the recorded one; long decimals to nine digits, as maths libraries differ."""
    shortened = re.sub(r"\d+\.\d{6,}(e-?\d+)?", lambda match: f"{float(match[0]):.9g}", text)
    path = GOLDEN / name
    if os.environ.get("ORCH_RECORD_GOLDEN"):
        path.write_text(shortened, encoding="utf-8")
    assert shortened == path.read_text(encoding="utf-8")
