"""How does a result get into a file? Whole or not at all, and a folder that is missing is said so."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from orchestrator.errors import OrchError


def write_text(text: str, output: Path | None) -> None:
    """Write the text to the file, or to stdout if there is none."""
    if output is None:
        sys.stdout.write(text)
        return
    with written_whole(output) as out:
        out.write(text)


@contextmanager
def written_whole(output: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """A stream whose text becomes the file when the block ends; an error leaves the file as it was.

    Raises:
        OrchError: the folder is not there or not writable.
    """
    if output.exists() and not output.is_file():  # /dev/null, a pipe: not to be replaced by a file
        with _opened(output, binary) as out:
            yield out
        return
    try:
        handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    except OSError as error:
        raise _refused(output, error) from error
    temporary = Path(name)
    try:
        with _opened(handle, binary) as out:
            yield out
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(output)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _opened(file: Path | int, binary: bool) -> IO[Any]:
    if binary:
        return open(file, "wb")  # noqa: PTH123 - a descriptor as well
    return open(file, "w", encoding="utf-8", newline="")  # noqa: PTH123


def _refused(output: Path, error: OSError) -> OrchError:
    return OrchError(f"cannot be written ({error.strerror})", str(output), "choose another file with -o")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
