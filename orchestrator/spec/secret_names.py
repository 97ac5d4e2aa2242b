"""Does a variable hold a secret? Told by its name, since nobody can tell by its value."""

from __future__ import annotations

import re

_WORDS = {
    "KEY", "APIKEY", "TOKEN", "SECRET", "PASS", "PASSWORD", "PASSWD", "PWD", "CREDENTIAL", "CREDENTIALS",
    "AUTH",
}  # fmt: skip
_FOLDERS = {"PWD", "OLDPWD"}


def looks_secret(name: str) -> bool:
    """Whether a word of the name says so: ``HF_TOKEN`` does, ``TOKENIZERS_PARALLELISM`` does not."""
    return name.upper() not in _FOLDERS and not _WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", name.upper()))
