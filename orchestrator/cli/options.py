"""Options that several commands share, as decorators."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

AnyFunction = Callable[..., Any]
Command = TypeVar("Command", bound=AnyFunction)

DEFAULT_DB = "sqlite:///orch.db"


def db_option(command: Command) -> Command:
    """``--db``, passed as ``db``: a file name or a URL, for ``open_store``."""
    return click.option(
        "--db",
        metavar="FILE|URL",
        envvar="ORCH_DB",
        default=DEFAULT_DB,
        help="Results database: a SQLite file or postgresql://user@host/name; else $ORCH_DB, else orch.db.",
    )(command)


def format_options(*formats: str, default: str = "table") -> Callable[[AnyFunction], AnyFunction]:
    """``--format`` and ``--json``, passed as ``output_format``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(*args: Any, json_format: bool, output_format: str, **options: Any) -> Any:
            return command(*args, output_format="json" if json_format else output_format, **options)

        with_json = click.option("--json", "json_format", is_flag=True, help="The same as --format json.")(
            run
        )
        return click.option(
            "--format",
            "output_format",
            type=click.Choice(formats),
            default=default,
            show_default=True,
            help="Output format.",
        )(with_json)

    return decorate


class FiniteSeconds(click.FloatRange):
    """A range of numbers without ``nan``, which no bound catches, and ``inf``."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class SpecPath(click.Path):
    """A sweep file, or the name of one that comes with orch where no such file exists."""

    name = "sweep file"

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The file's path; says on stderr when it is another than the one written."""
        from orchestrator.spec.shipped import find_spec

        written = Path(str(super().convert(value, param, ctx)))
        path = find_spec(written)
        if path != written:
            click.echo(f"reading {path}", err=True)
        return path


def output_option(command: Command) -> Command:
    """``-o``, passed as ``output``: a path, or None for stdout."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write to this file instead of stdout.",
    )(command)


def no_color_option(command: Command) -> Command:
    """``--no-color``; passes nothing: rich and click are told."""
    return click.option(
        "--no-color",
        is_flag=True,
        expose_value=False,
        callback=_turn_color_off,
        help="No colour, even on a terminal.",
    )(command)


def _turn_color_off(ctx: click.Context, _param: click.Parameter, no_color: bool) -> None:
    if no_color:
        ctx.color = False
        os.environ["NO_COLOR"] = "1"


def confirm(question: str, option: str) -> None:
    """Ask a person, on stderr; return if the answer is yes.

    Args:
        question: without its question mark.
        option: what answers yes beforehand.

    Raises:
        OrchError: the answer is no, or stdin ends without one, as in a script or a job.
    """
    from orchestrator.errors import OrchError

    try:
        agreed = click.confirm(f"{question}?", err=True)
    except click.Abort as stopped:
        if not isinstance(stopped.__context__, EOFError):  # Ctrl-C
            raise
        click.echo(err=True)
        raise OrchError(f"nobody answers: {question}", fix=f"say yes with {option}") from stopped
    if not agreed:
        raise OrchError(f"not done: {question}")
