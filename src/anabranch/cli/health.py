"""``anabranch health``: connect, authenticate, PING; for container health checks and scripts.

Uses nothing but a socket, so it answers in a few milliseconds. Options are those of redis-cli.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from anabranch.cli.address import Address, Refused, ask, server_options

__all__ = ["command"]


@click.command(
    help="""Connect to a server and PING it. Exit 0 if it answers, 1 if not.

The password may come from ANABRANCH_AUTH or REDISCLI_AUTH; port, Unix socket, TLS and password
also from the variables that configure a server here (ANABRANCH_PORT, ANABRANCH_UNIXSOCKET,
ANABRANCH_TLS_PORT, ANABRANCH_REQUIREPASS).""",
)
@server_options(timeout=2.0)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Try once."""
    address = Address.of_options(**options)
    started = time.perf_counter()
    try:
        reply = _ping(address)
    except (OSError, Refused) as problem:
        reason = str(problem) or type(problem).__name__
        if as_json:
            print(json.dumps({"healthy": False, "reason": reason}))
        else:
            print(f"anabranch: {address}: {reason}", file=sys.stderr)
        ctx.exit(1)
    spent_ms = round((time.perf_counter() - started) * 1000, 1)
    print(json.dumps({"healthy": True, "ms": spent_ms}) if as_json else reply)


def _ping(address: Address) -> str:
    """PING; raises what the server objects to."""
    with address.open() as sock, sock.makefile("rb", buffering=0) as replies:
        answer = ask(sock, replies, ["PING"])
    if answer != "+PONG":
        raise Refused(answer.lstrip("-") or "the connection was closed")
    return "PONG"
