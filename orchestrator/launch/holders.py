"""Which process has a file open or mapped?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def holders_of(paths: Iterable[Path], proc: Path = Path("/proc")) -> dict[Path, int]:
    """Which of ``paths`` some process has open or mapped, and one such process."""
    wanted = {}
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        wanted[(status.st_dev, status.st_ino)] = path
    found: dict[Path, int] = {}
    for process in proc.iterdir():
        if process.name.isdigit():
            for identity in _open_files(process):
                if identity in wanted:
                    found.setdefault(wanted[identity], int(process.name))
    return found


def mapped_in(folder: str, pids: Iterable[int]) -> set[Path]:
    """Files directly in the folder that one of the processes has mapped."""
    found = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            where = line.find(f" {folder}/")
            if where >= 0:
                found.add(Path(line[where + 1 :]))
    return {path for path in found if str(path.parent) == folder}


def _open_files(process: Path) -> set[tuple[int, int]]:
    """Device and inode of what the process has open or mapped, as far as this user may see."""
    found = set()
    try:
        for entry in (process / "fd").iterdir():
            try:
                status = entry.stat()
            except OSError:
                continue
            found.add((status.st_dev, status.st_ino))
        for line in (process / "maps").read_text(errors="replace").splitlines():
            _, _, _, device, inode, *_ = line.split(maxsplit=5)
            if inode != "0":
                major, minor = device.split(":")
                found.add((os.makedev(int(major, 16), int(minor, 16)), int(inode)))
    except OSError:
        pass
    return found
