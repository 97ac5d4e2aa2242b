"""``orch``: which commands there are, and how an error becomes an exit status.

Exit status: 0 all ok, 1 some job failed (or ``doctor`` found an error), 2 usage or spec, 3 database,
4 that sweep is already running, 70 a fault in orch itself, 130 SIGINT, 143 SIGTERM.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from orchestrator import __version__
from orchestrator.cli.encoding import make_printable
from orchestrator.cli.group import HelpfulGroup
from orchestrator.errors import OrchError

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("orchestrator.cli.init", "Write a commented starter sweep for this host."),
    "plan": ("orchestrator.cli.plan", "Show the jobs of a sweep file; start and write nothing."),
    "sweep": ("orchestrator.cli.sweep", "Run a sweep, or continue the one of that name."),
    "status": ("orchestrator.cli.status", "Show where a sweep stands."),
    "show": ("orchestrator.cli.show", "Tell one job's whole story."),
    "logs": ("orchestrator.cli.logs", "Print a job's log."),
    "cancel": ("orchestrator.cli.cancel", "Stop a sweep from elsewhere."),
    "repro": ("orchestrator.cli.repro", "Print a stand-alone command that runs a job without orch."),
    "report": ("orchestrator.cli.report", "Show what was measured."),
    "compare": ("orchestrator.cli.compare", "Compare two sweeps cell by cell."),
    "predict": ("orchestrator.cli.predict", "Predict seconds and bytes for a size not measured."),
    "sql": ("orchestrator.cli.sql", "Run a read-only query."),
    "db": ("orchestrator.cli.db", "Check, upgrade, export, import and prune a results database."),
    "doctor": ("orchestrator.cli.doctor", "Say what is wrong with this host, and what mends it."),
    "schema": ("orchestrator.cli.schema", "Print the JSON Schema of the sweep file."),
}
"""Command -> its module and help line: ``orch --help`` imports none of the modules."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_INTERNAL_ERROR, _INTERRUPTED, _BROKEN_PIPE = 70, 130, 141


class LazyGroup(HelpfulGroup):
    """A group that imports a command's module when the command is used, and maps errors once."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """The commands in the order in which one meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, its module imported now; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing the commands."""
        names = [
            CompletionItem(name, help=help_line)
            for name, (_, help_line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        options = click.Command.shell_complete(self, ctx, incomplete) if incomplete.startswith("-") else []
        return names + options

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        """Run the command and leave with its exit status; a command may return that status."""
        extra["standalone_mode"] = False
        _open_closed_streams()
        make_printable(sys.stdout, sys.stderr)
        sys.exit(_run(lambda: super(LazyGroup, self).main(args, **extra)))


def _run(call: Any) -> int:
    """The exit status of ``call``, after saying on stderr what went wrong."""
    stdout = sys.stdout
    try:
        result = call()
        stdout.flush()
        return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except OrchError as error:
        from orchestrator.render.values import visible

        click.echo(f"orch: {visible(error.render())}", err=True)
        return error.exit_status
    except click.ClickException as error:
        error.show()
        return 2
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except BrokenPipeError:
        # Met by the flush above. Python would complain when it flushes again at exit.
        _silence_stdout()
        return _BROKEN_PIPE
    except SystemExit as leaving:
        # click swaps stdout and says 1 when the reader has left (`orch report | head`); here 1 means
        # that a job failed.
        return _BROKEN_PIPE if sys.stdout is not stdout else _status_of(leaving)
    except Exception as error:  # noqa: BLE001 - the one place that may
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            click.echo(f"orch: the output cannot be written ({error.strerror}); make room there", err=True)
            _silence_stdout()
            return OrchError.exit_status
        message = f"orch: a fault in orch itself: {type(error).__name__}: {error}"
        click.echo(f"{message}; the traceback is in {_keep_traceback()}", err=True)
        return _INTERNAL_ERROR


def _open_closed_streams() -> None:
    """Give what the caller has closed (``>&-``, ``<&-``) somewhere to go, and nothing to read."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _status_of(leaving: SystemExit) -> int:
    """The status that ``sys.exit(...)`` asks for."""
    if isinstance(leaving.code, str):
        click.echo(leaving.code, err=True)
        return 1
    return leaving.code or 0


def _silence_stdout() -> None:
    """Let what is still in the buffer go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _keep_traceback() -> str:
    """The file in which the current exception's traceback now lies."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="orch-fault-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(f"orch {__version__}, Python {sys.version}\n{sys.argv}\n\n{traceback.format_exc()}")
    return file.name


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="orch")
def main() -> None:
    """Measure what it costs to put a DeepSpeed engine to sleep and wake it up.

    Results go to stdout, progress to stderr. The database is --db, else $ORCH_DB, else orch.db here.
    """
