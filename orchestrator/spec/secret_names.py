"""Does a variable hold a secret? Told by its name, since nobody can tell by its value."""

from __future__ import annotations

import re

_WORD = re.compile(
    r"(?:API|ACCESS|PRIVATE|SECRET)?(?:KEY|TOKEN|SECRET)S?|PASS(?:WORD|WD|PHRASE|CODE)?S?|CRED(?:ENTIAL)?S?"
    r"|AUTH(?:ORIZATION|ENTICATION)?|PWD"
)
_FOLDERS = {"PWD", "OLDPWD"}


def looks_secret(name: str) -> bool:
    """Whether a word of the name says so: ``HF_TOKEN`` does, ``TOKENIZERS_PARALLELISM`` does not."""
    words = re.split(r"[^A-Z0-9]+", name.upper())
    return name.upper() not in _FOLDERS and any(_WORD.fullmatch(word) for word in words)
