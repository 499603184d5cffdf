"""``anabranch serve``: describes the command; :mod:`.starting` runs the server."""

from __future__ import annotations

from textwrap import wrap

import click

from anabranch.cli.starting import SERVER, asks_for_help, asks_for_version, start
from anabranch.config.kinds import Directive
from anabranch.config.settings import GROUPS, ROWS
from anabranch.version import REDIS_VERSION, __version__

_COMMON = (
    "port bind unixsocket requirepass tls-port dir appendonly appendfsync maxmemory logfile "
    "region-id cluster-create join"
).split()
"""The directives of ``--help``; ``--help-all`` has the others."""


class Directives(click.Command):
    """A command whose options are directives: passed on as they are, described in ``--help``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Pass everything except requests for help or the version to ``config.load``."""
        ctx.obj = "--help-all" in args  # whether help describes every directive
        if asks_for_help(args):
            click.echo(self.get_help(ctx))
            ctx.exit()
        if asks_for_version(args):
            click.echo(_redis_version() if ctx.info_name == SERVER else f"anabranch {__version__}")
            ctx.exit()
        ctx.args = list(args)
        return []

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """The names of directives."""
        return [
            click.shell_completion.CompletionItem(f"--{name}", help=row.sentence)
            for name, row in ROWS.items()
            if f"--{name}".startswith(incomplete) and incomplete.startswith("-")
        ] or super().shell_complete(ctx, incomplete)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The text behind the name of the command."""
        return ["[FILE | -]", "[--DIRECTIVE VALUE ...]..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The common directives, or all of them by group, from the settings table."""
        if not ctx.obj:
            with formatter.section("Common directives (--help-all describes all of them)"):
                formatter.write_dl([(f"--{name}", described(ROWS[name])) for name in _COMMON])
            return
        for group, heading in GROUPS.items():
            rows = [row for row in ROWS.values() if row.group == group]
            with formatter.section(heading):
                if group in {"compatibility", "refused"}:
                    # Not write_text: it would break names at their hyphens.
                    text = ", ".join(row.name for row in rows)
                    for line in wrap(text, formatter.width - 2, break_on_hyphens=False):
                        formatter.write(f"  {line}\n")
                else:
                    formatter.write_dl([(f"--{row.name}", described(row)) for row in rows])


def described(row: Directive) -> str:
    """Sentence, allowed values, default."""
    default = row.default_text or '""'
    return f"{row.sentence} ({row.allowed}; default {default})"


def _redis_version() -> str:
    """The line of ``redis-server --version``: test tools read the first number of it.

    That number is the version of Redis whose behaviour clients find.
    """
    return (
        f"Redis server v={REDIS_VERSION} sha=00000000:0 malloc=libc bits=64 "
        f"build=anabranch-{__version__}"
    )


@click.command(
    cls=Directives,
    help="""Run the server in the foreground until SIGTERM, SIGINT or SHUTDOWN.

FILE is a configuration file in redis.conf syntax, - reads it from standard input. Every directive
may also be given as --DIRECTIVE VALUE, or as an environment variable ANABRANCH_DIRECTIVE with
underscores for dashes. Default < file < environment < command line < CONFIG SET.

\b
Examples:
  anabranch serve
  anabranch serve --port 6380 --dir /var/lib/anabranch
  anabranch serve /etc/anabranch.conf --loglevel debug
  ANABRANCH_PORT=6380 anabranch serve
""",
    epilog="Exit codes: 0 after an orderly stop, 1 if the server cannot start, 2 wrong usage.",
    context_settings={"max_content_width": 100},
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Load the settings, then the server."""
    ctx.exit(start(ctx.args, ctx.info_name or SERVER))
