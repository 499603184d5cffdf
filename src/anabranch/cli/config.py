"""``anabranch config``: the settings that a start would have, and the source of each."""

from __future__ import annotations

import json
import os
import sys

import click

from anabranch.cli.serve import Directives
from anabranch.config.load import CommandLineError, Loaded, load
from anabranch.config.settings import ROWS
from anabranch.errors import ConfigError

_SECRET = "(hidden)"  # noqa: S105 - what is shown instead of one


@click.command(
    cls=Directives,
    help="""Show the settings that 'anabranch serve' would run with, given the same arguments and
environment; nothing is started. Passwords are not shown.

--changed leaves out what has its default, --json prints one object.
""",
    context_settings={"max_content_width": 100},
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Load the settings as the server would, and print them."""
    own = {"--json", "--changed"}
    options = own.intersection(ctx.args)
    try:
        loaded = load([word for word in ctx.args if word not in own], os.environ)
    except ConfigError as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        ctx.exit(2 if isinstance(problem, CommandLineError) else 1)
    names = [name for name in ROWS if "--changed" not in options or name in loaded.sources]
    for note in loaded.notes:
        print(f"anabranch: {note}", file=sys.stderr)
    if "--json" in options:
        shown = {
            name: {"value": _shown(loaded, name), "source": loaded.source(name)} for name in names
        }
        print(json.dumps(shown, indent=2))
        return
    width = max((len(name) for name in names), default=0)
    for name in names:
        value = _shown(loaded, name) or '""'
        print(f"{name:<{width}}  {value:<24}  {loaded.source(name)}".rstrip())


def _shown(loaded: Loaded, name: str) -> str:
    text = loaded.settings.text(name)
    return _SECRET if ROWS[name].secret and text else text
