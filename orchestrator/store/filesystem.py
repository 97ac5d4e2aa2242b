"""Does a file lie on a network file system? SQLite's locks cannot be trusted there."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/self/mounts")

_NETWORK = frozenset(
    "nfs nfs4 lustre gpfs cifs smb3 smbfs smb2 beegfs ceph glusterfs 9p afs orangefs pvfs2 panfs wekafs"
    " gfs2 ocfs2 ncpfs coda davfs virtiofs acfs quobyte moosefs".split()
)


def network_file_system(path: Path, mounts: Path | None = None) -> str | None:
    """The type of the network file system that holds ``path``; None if it is a local one."""
    kind = file_system(path, MOUNTS if mounts is None else mounts)
    # What lies under a fuse mount is anybody's guess, and mostly a network (sshfs, s3fs, gcsfuse).
    return kind if kind in _NETWORK or kind.split(".")[0] in ("fuse", "fuseblk") else None


def file_system(path: Path, mounts: Path) -> str:
    """The file system type of the deepest mount over ``path``; empty if unknown."""
    real = path.resolve()
    best, kind = -1, ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(_unescaped(fields[1]))
        # A later line mounted over an earlier one at the same point.
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
