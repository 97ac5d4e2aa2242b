"""Files that others read while they are written: there whole, or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path


def publish(path: Path, document: object, mode: int = 0o644) -> None:
    """Write a JSON file that appears whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(document))
    os.replace(temporary, path)
