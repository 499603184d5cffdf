"""``<CONTAINER> HELP`` for every command with sub-commands, made from the command table.

A container lists :func:`help_row` among its sub-commands and has its help; syntax and summary of
the rows are the text.
"""

from __future__ import annotations

from anabranch.engine.context import Context
from anabranch.engine.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.values import Status


def help_lines(container: Command) -> list[Status]:
    """A head line, then two lines for each sub-command."""
    lines = [f"{container.name.upper()} <subcommand> [<argument> ...]. Subcommands are:"]
    for name, sub in sorted(container.subcommands.items()):
        lines.append(f"{name.decode().upper()} {sub.syntax}".rstrip())
        lines.append(f"    {sub.summary}")
    return [Status(line) for line in lines]


def _help(ctx: Context, args: list[bytes]) -> bytes:
    entry = ctx.server.dispatcher.find(args[:1])
    assert entry is not None
    return ctx.reply(help_lines(entry.command))


def help_row(since: str, categories: str) -> Command:
    """The HELP sub-command of a container; the words are those of its row."""
    return Command(
        "help",
        _help,
        arity=2,
        flag_words=("loading", "stale"),
        own_categories=categories,
        since=since,
        group="server",
        summary="Lists the sub-commands.",
    )


def wrong_subcommand(args: list[bytes]) -> CommandError:
    """The error for a known sub-command with arguments that fit none of its forms."""
    word = args[1][:128]
    return CommandError(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try %b HELP."
        % (word, args[0].upper())
    )
