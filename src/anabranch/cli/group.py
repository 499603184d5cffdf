"""The ``anabranch`` command as a group of sub-commands.

A sub-command's module is imported only when it is called, so that the others do not pay for it.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from anabranch.cli.failures import Failed
from anabranch.cli.interrupts import INTERRUPTED, ended_by_ctrl_c
from anabranch.errors import AnabranchError
from anabranch.version import __version__

_SUBCOMMANDS = {
    "serve": ("serve", "Run the server."),
    "demo": ("demo", "See several regions diverge and converge, with live traffic."),
    "cluster": ("cluster", "Run several regions on this machine; cut, kill and heal them."),
    "top": ("live.top", "Show regions and the busiest streams, live."),
    "tail": ("live.tail", "Follow entries of all regions; none are left out."),
    "groups": ("live.groups", "Show consumer groups: lag, pending entries, age of the oldest."),
    "policies": ("live.policies", "Show the policies of keys and patterns, and what they did."),
    "pending": ("live.pending", "Show, release or move pending entries of a group."),
    "load": ("live.load", "Make traffic of a given shape and measure it."),
    "region": ("region", "Salvage the data that only a removed region had."),
    "config": ("config", "Show the settings that a start would have, and their sources."),
    "health": ("health", "Check that a server answers; exit with 0 or 1."),
    "import": ("import_", "Import keys from an RDB file or a running Redis into a server."),
    "export": ("export", "Write the keys of a server to an RDB file or another server."),
    "inspect": ("inspect", "Inspect the files of a log, running or not; cut damaged ones."),
    "restore": ("restore", "Mark files put back from a backup, for a region to start from."),
    "simulate": ("simulate", "Run clusters in virtual time with faults, and check invariants."),
    "spark": ("spark", "Pipelines on Apache Spark, and a check of the installation."),
    "version": ("version", "Show versions."),
}
"""Module and summary of each."""


class NearestGroup(click.Group):
    """A group; not every version of click names the nearest command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The sub-command; :class:`click.UsageError` with the nearest name if there is none."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, known, n=1)
            advice = f"Did you mean '{near[0]}'?" if near else "The help lists all of them."
            ctx.fail(f"No such command '{name}'. {advice}")
        return super().resolve_command(ctx, args)


class _Lazy(NearestGroup):
    """Sub-commands by module name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order for newcomers."""
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of the sub-command."""
        if name not in _SUBCOMMANDS:
            return None
        with ended_by_ctrl_c():
            module = import_module(f"anabranch.cli.{_SUBCOMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a sub-command; a failure is one line and exit code 1, Ctrl-C is exit code 130."""
        try:
            return super().invoke(ctx)
        except AnabranchError as problem:
            raise Failed(str(problem).removeprefix("ERR ")) from None
        except KeyboardInterrupt:
            eval("None")  # noqa: S307 - one that was interrupted would choose the exit code
            print("anabranch: interrupted", file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list above, without imports."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _SUBCOMMANDS.items()])


@click.group(
    cls=_Lazy,
    help="A stream server that speaks the Redis protocol.",
    epilog="'anabranch COMMAND --help' describes a command.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-v", "--version", prog_name="anabranch")
def command() -> None:
    """The group itself has nothing to do."""
