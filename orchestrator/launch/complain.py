"""A word on standard error that can never do harm."""

from __future__ import annotations

import contextlib
import sys


def complain(text: str) -> None:
    """Say it if that can be done: a log on a full disk must not take down who writes to it."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
