"""``anabranch version``: the versions of this installation, for people and for bug reports."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import click

from anabranch.cli.options import json_option
from anabranch.server.process import is_compiled
from anabranch.version import REDIS_VERSION, __version__


@click.command(help="Show versions: the package, the Redis it follows, Python, the event loop.")
@json_option()
def command(as_json: bool) -> None:
    """Print the versions of the server, of Redis and of what it runs on."""
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        loop = "asyncio"
    facts = {
        "anabranch": __version__,
        "redis": REDIS_VERSION,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "loop": loop,
        "core": "compiled" if is_compiled() else "interpreted",
    }
    if as_json:
        print(json.dumps(facts))
        return
    print(f"anabranch {facts.pop('anabranch')}")
    for name, value in facts.items():
        print(f"  {name:<9} {value}")
