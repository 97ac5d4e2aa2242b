"""Tells when files in a folder change (inotify), so that spools need no polling.

Where inotify cannot be had (limits, some network file systems) the caller polls.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable
from pathlib import Path

_IN_MODIFY = 0x2
_IN_CREATE = 0x100
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Folders and whom to call when a file in one of them grows."""

    def __init__(self) -> None:
        descriptor = _libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self.descriptor: int = descriptor
        self._callbacks: dict[int, Callable[[], None]] = {}

    def add(self, folder: Path, changed: Callable[[], None]) -> int:
        """Watch a folder; its number for ``remove``. OSError if that cannot be done."""
        number = _libc.inotify_add_watch(self.descriptor, os.fsencode(folder), _IN_MODIFY | _IN_CREATE)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        self._callbacks[number] = changed
        return int(number)

    def remove(self, number: int) -> None:
        """Forget a folder."""
        if self._callbacks.pop(number, None) is not None:
            _libc.inotify_rm_watch(self.descriptor, number)

    def read(self) -> None:
        """Call back for every folder with news, each once."""
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            return
        numbers = set()
        offset = 0
        while offset < len(data):
            number, _, _, length = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size + length
            numbers.add(number)
        for number in numbers:
            callback = self._callbacks.get(number)
            if callback is not None:
                callback()
