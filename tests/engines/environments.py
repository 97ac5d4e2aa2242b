"""Python environments that link to the packages of this one, or to all but some."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

HEAVY = ("torch", "deepspeed")


def make_environment(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """The Python of a new environment in ``folder``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    there = folder.joinpath(*Path(sysconfig.get_paths()["purelib"]).parts[-3:])
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if entry.suffix != ".pth" and entry.name.partition("-")[0] not in without:
            (there / entry.name).symlink_to(entry)
    return folder / "bin" / "python"
