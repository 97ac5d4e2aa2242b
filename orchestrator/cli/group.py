"""A group of commands that says what was meant where an option or a command is misplaced or misspelt."""

from __future__ import annotations

import difflib
import shlex

import click


class HelpfulGroup(click.Group):
    """Options come after the command; where one stands before it, or a name is misspelt, say so."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what stands before the command.

        Raises:
            click.UsageError: with the line that was meant, where a command takes the option.
        """
        written = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as refused:
            meant = self._meant(ctx, written, refused.option_name)
            if meant is None:
                raise
            text = f"{refused.option_name} is an option of a command and comes after it: {meant}"
            raise click.UsageError(text, ctx) from refused

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command.

        Raises:
            click.UsageError: there is none of that name; names the nearest.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as refused:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 3, 0.6)
            # click of some versions names the nearest itself.
            if not near or getattr(refused, "possibilities", None):
                raise
            text = f"{refused.message} Did you mean {', '.join(near)}?"
            raise click.UsageError(text, ctx) from refused

    def _meant(self, ctx: click.Context, args: list[str], option: str) -> str | None:
        """The line with the command first; None if no command takes the option."""
        found: list[str] = []
        rest = list(args)
        command: click.Command | None = self
        while isinstance(command, click.Group):
            names = command.list_commands(ctx)
            name = next((word for word in rest if word in names), None)
            if name is None:
                break
            rest.remove(name)
            found.append(name)
            command = command.get_command(ctx, name)
        if command is None or not _takes(command, ctx, option):
            return None
        if isinstance(command, click.Group):
            found, rest = [*found, "COMMAND"], [option, "…"]
        return " ".join(
            [ctx.command_path, *found, *(word if word == "…" else shlex.quote(word) for word in rest)]
        )


def _takes(command: click.Command, ctx: click.Context, option: str) -> bool:
    if isinstance(command, click.Group):
        inner = (command.get_command(ctx, name) for name in command.list_commands(ctx))
        return any(_takes(one, ctx, option) for one in inner if one is not None)
    return any(option in parameter.opts for parameter in command.params)
