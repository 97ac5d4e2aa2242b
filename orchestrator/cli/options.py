"""Options that several commands share, as decorators."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

AnyFunction = Callable[..., Any]
Command = TypeVar("Command", bound=AnyFunction)

DEFAULT_DB = "sqlite:///orch.db"


def database_url(text: str) -> str:
    """``text`` as a database URL: a plain path means SQLite; ``postgres://`` is ``postgresql://``.

    Raises:
        click.BadParameter: the scheme is neither SQLite's nor PostgreSQL's.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return f"sqlite:///{text}"
    if scheme in ("postgres", "postgresql"):
        return f"postgresql://{rest}"
    if scheme.split("+")[0] not in ("sqlite", "postgresql"):
        raise click.BadParameter(
            f"{scheme}:// is not a database that orch knows; use a file name or postgresql://user@host/name"
        )
    return text


def db_option(command: Command) -> Command:
    """``--db``, passed as ``db``: a URL."""
    return click.option(
        "--db",
        metavar="FILE|URL",
        envvar="ORCH_DB",
        default=DEFAULT_DB,
        callback=lambda _ctx, _param, text: database_url(text),
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
