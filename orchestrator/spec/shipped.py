"""Which sweep files come with orch? They are found by name, wherever orch is installed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path


@cache
def shipped_sweeps() -> dict[str, Path]:
    """Name (``quickstart``) and file of every sweep that comes with orch."""
    folder = Path(str(files("orchestrator").joinpath("sweeps")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def spec_word(path: str) -> str:
    """How a command names this file anywhere: a shipped sweep by its bare name."""
    return next((name for name, file in shipped_sweeps().items() if str(file) == path), path)


def find_spec(path: Path) -> Path:
    """``path`` if it exists, else the shipped sweep that it names: ``full`` or ``sweeps/full.yaml``."""
    if path.exists() or path.is_absolute():
        return path
    if path.parent not in (Path(), Path("sweeps")) or path.suffix not in ("", ".yaml"):
        return path
    return shipped_sweeps().get(path.stem, path)
