"""The one tree of errors that a user may see.

OrchError                 exit 2 unless a subclass says otherwise
├── SpecError             the sweep file, an option or an axis value is wrong        exit 2
├── DatabaseError         the results database cannot be used                        exit 3
│   ├── DatabaseLocked        busy beyond the timeout
│   ├── DatabaseUnreachable   no server, wrong password, no such file
│   ├── DatabaseFull          no space left, read-only, quota
│   ├── DatabaseIntegrity     a constraint was violated: a bug or a foreign writer
│   └── DatabaseVersion       made by a newer orch, or an older one not yet upgraded
├── SweepRunning          that sweep is already being run by a living orch           exit 4
└── EngineError           the engine (Slurm, Ray, the local one) cannot do its work  exit 2
"""


class OrchError(Exception):
    """One message for the user: what is wrong, where, and what mends it.

    Args:
        what: one sentence without a trailing period.
        where: ``file:line:column``, an option, or a database; may be empty.
        fix: what to do about it; may be empty.
    """

    exit_status = 2

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(self.render())

    def render(self) -> str:
        """The message as printed: ``where: what; fix``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text


class SpecError(OrchError):
    """The sweep file, an option or an axis value is wrong."""


class DatabaseError(OrchError):
    """The results database cannot be used."""

    exit_status = 3


class DatabaseLocked(DatabaseError):
    """Another writer kept the database busy beyond the timeout."""


class DatabaseUnreachable(DatabaseError):
    """No server answers, the credentials are wrong, or the file is not there."""


class DatabaseFull(DatabaseError):
    """The disk is full or the database is read-only."""


class DatabaseIntegrity(DatabaseError):
    """A constraint was violated."""


class DatabaseVersion(DatabaseError):
    """The database's schema is not the one this orch knows."""


class SweepRunning(OrchError):
    """A living orch runs that sweep already."""

    exit_status = 4


class EngineError(OrchError):
    """The engine cannot do its work."""
