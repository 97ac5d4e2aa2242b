"""The sweep files that come with orch, by their names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def shipped_sweeps() -> dict[str, Path]:
    """Name → file, as installed."""
    # Read through the package, so that it works from a checkout and from a wheel alike.
    folder = Path(str(files("orchestrator") / "sweeps"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_shipped(spec: Path) -> Path | None:
    """The shipped sweep that a bare name means; None if a file of that name exists or none is shipped."""
    if spec.exists() or spec.name != str(spec):
        return None
    return shipped_sweeps().get(spec.name.removesuffix(".yaml"))
