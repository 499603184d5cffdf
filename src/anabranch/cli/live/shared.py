"""What the live commands share: a connection, failures, names and colours of regions, texts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
import redis

from anabranch.cli.address import Address, server_options
from anabranch.cli.failures import Failed, message
from anabranch.cli.terminal import folded_table, is_terminal, shown
from anabranch.cli.transfer.client import connect, fields_of

COLOURS: Final = ("bright_blue", 208, "green", "magenta", "yellow", "cyan")
"""As :func:`anabranch.cli.terminal.styled` names them; 208 is a dark orange."""
REGION_NUMBERS: Final = 256
"""The sequence number of an ID that a server makes, modulo this, is the number of its region."""

STREAMS_MAX: Final = 1000
"""The most streams that are shown if none are named."""


BYTES: Final = os.fsencode
"""The type of a key or a name on the command line, which need not be UTF-8."""


def on_server(command: Any) -> Any:
    """The options that name the server, and the database."""
    with_db = click.option("-n", "db", type=click.IntRange(0), help="Database.")(command)
    return server_options(timeout=10.0)(with_db)


@contextmanager
def running(db: int | None, options: dict[str, Any]) -> Iterator[Any]:
    """A client of the server; a failure is one line and exit code 1, Ctrl-C ends the command."""
    address = Address.of_options(**options)
    client = connect(address, address.db or 0 if db is None else db)
    for name in ("XRANGE", "XREVRANGE"):  # as they come: a dict would lose fields of equal names
        client.set_response_callback(name, lambda reply, **_: reply)
    try:
        yield client
    except BrokenPipeError:
        raise  # the reader of the output has ended: click ends quietly
    except (redis.RedisError, OSError) as problem:
        raise Failed(f"{address}: {message(problem)}") from None
    except KeyboardInterrupt:
        raise SystemExit(0) from None
    finally:
        client.close()


class Regions:
    """Names and colours of the regions of a cluster; a server on its own has none."""

    def __init__(self, client: Any) -> None:
        self.names: dict[int, str] = {}
        try:
            rows = client.execute_command("AB.REGION", "LIST")
        except redis.ResponseError:
            return
        for row in rows:
            facts = fields_of(row)
            self.names[facts[b"region"]] = shown(facts[b"name"]) or f"region{facts[b'region']}"

    def of(self, entry_id: bytes) -> str:
        """The region that made an ID; empty if the ID does not show it."""
        _, _, sequence = entry_id.partition(b"-")
        return self.names.get(int(sequence) % REGION_NUMBERS, "")

    def colour(self, name: str) -> str | int | None:
        """The colour of a region, the same in every command; None for a name that is no region."""
        names = [self.names[number] for number in sorted(self.names)]
        return COLOURS[names.index(name) % len(COLOURS)] if name in names else None


def streams_of(client: Any) -> tuple[list[bytes], bool]:
    """Keys of streams, at most :data:`STREAMS_MAX`; whether there may be more."""
    keys: list[bytes] = []
    cursor = 0
    while True:
        cursor, page = client.scan(cursor, count=1000, _type="stream")
        keys += page
        if not cursor or len(keys) >= STREAMS_MAX:
            return sorted(keys)[:STREAMS_MAX], bool(cursor) or len(keys) > STREAMS_MAX


def print_table(headings: list[str], rows: list[list[str]]) -> None:
    """A table on a terminal; elsewhere lines with tabs between, the headings first."""
    if is_terminal():
        print("\n".join(folded_table(headings, rows)))
        return
    for row in [headings, *rows]:
        print("\t".join(row))


def fitting(
    headings: list[str], rows: list[list[str]], width: int, *, least: list[str]
) -> list[int]:
    """The numbers of the columns that fit into a terminal; those named first are dropped first."""
    chosen = list(range(len(headings)))
    wide = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    for name in least:
        if sum(wide[number] + 2 for number in chosen) <= width:
            break
        chosen.remove(headings.index(name))
    return chosen


def print_json(facts: object) -> None:
    """Print one JSON object in a line."""
    print(json.dumps(facts), flush=True)
