"""``anabranch health``: whether a server answers and can be used; for containers and scripts.

Uses nothing but a socket, so it answers in a few milliseconds. Options are those of redis-cli.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from typing import Any

import click

from anabranch.cli.address import Address, RefusedByServer, ask, server_options
from anabranch.cli.failures import message
from anabranch.cli.options import json_option


@click.command(
    help="""Connect to a server and PING it. Exit 0 if it answers, 1 if not.

A server that is still loading its data is not healthy: the command says how far it is.

A region that is new to its cluster and does not have the data of the others yet is not healthy: the
command says what the region waits for, and exits with 1.

The password may come from ANABRANCH_AUTH or REDISCLI_AUTH; port, Unix socket, TLS and password
also from the variables that configure a server here (ANABRANCH_PORT, ANABRANCH_UNIXSOCKET,
ANABRANCH_TLS_PORT, ANABRANCH_REQUIREPASS).""",
)
@server_options(timeout=2.0)
@json_option()
@click.pass_context
def command(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Ask the server once; print the answer and exit with 0, or the reason and exit with 1."""
    address = Address.of_options(**options)
    started = time.perf_counter()
    try:
        reply = _ping(address)
    except (OSError, RefusedByServer) as problem:
        reason = message(problem, address)
        if as_json:
            print(json.dumps({"healthy": False, "reason": reason}))
        else:
            print(f"anabranch: {address}: {reason}", file=sys.stderr)
        ctx.exit(1)
    spent_ms = round((time.perf_counter() - started) * 1000, 1)
    print(json.dumps({"healthy": True, "ms": spent_ms}) if as_json else reply)


def _ping(address: Address) -> str:
    """PING; raises what the server objects to, or what it waits for."""
    with address.open() as sock:
        try:
            reply = ask(sock, "PING")
        except RefusedByServer as problem:
            if not str(problem).startswith("LOADING"):
                raise
            done = _field(sock, "persistence", "loading_loaded_perc")
            raise RefusedByServer(f"{problem}{f' ({done} %)' if done else ''}") from None
        awaited = _field(sock, "replication", "newcomer_waits_for")
    if awaited:
        raise RefusedByServer(f"this region is new to its cluster and waits for {awaited}")
    return str(reply)


def _field(sock: socket.socket, section: str, field: str) -> str:
    """A field of INFO; empty if there is none, and where INFO is not allowed."""
    try:
        text = str(ask(sock, "INFO", section))
    except RefusedByServer:
        return ""
    found = re.search(rf"^{field}:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""
