"""Is there room again on the disk of the run directories? Asked once an attempt was lost to a full one."""

from __future__ import annotations

import os
from pathlib import Path

_ROOM_BYTES = 1 << 20
"""A job begins with a few files and some kilobytes; with less it would be lost again at once."""


class Room:
    """Whether new attempts may start, as far as the disk goes; and what the user is to hear of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._was_full = False
        self._news: list[str] = []

    def ran_out(self) -> None:
        """An attempt was lost because a disk was full, perhaps another than this one."""
        if not self._was_full and not self._has_room():
            self._was_full = True
            self._news.append(
                f"no space left in {self._folder}: running jobs go on, no new one starts until"
                f" {_ROOM_BYTES >> 20} MB is free there"
            )

    def is_there(self) -> bool:
        """True unless it has run out and has not come back."""
        if self._was_full and self._has_room():
            self._was_full = False
            self._news.append(f"there is space in {self._folder} again")
        return not self._was_full

    def take_news(self) -> list[str]:
        """Lines for the user since the last call."""
        news, self._news = self._news, []
        return news

    def _has_room(self) -> bool:
        try:
            there = os.statvfs(self._folder)
        except OSError:
            return True
        # Some file systems make inodes as they are wanted and count none.
        has_inodes = there.f_files == 0 or there.f_favail > 0
        return there.f_bavail * there.f_frsize >= _ROOM_BYTES and has_inodes
