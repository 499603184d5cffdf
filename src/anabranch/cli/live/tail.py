"""``anabranch tail``: follow the entries of all regions, none left out, coloured by region.

XREAD goes by one ID and skips entries of other regions that arrive late; AB.READ goes by a position
in every region. Its cursor stays valid over restarts and in other regions.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click
import redis

from anabranch.cli.failures import message
from anabranch.cli.live.shared import (
    BYTES,
    Regions,
    on_server,
    print_json,
    running,
)
from anabranch.cli.options import json_option
from anabranch.cli.terminal import say, shown, styled
from anabranch.keyspace.replica import ALONE, read_token, region_of
from anabranch.stream.entry_id import parse

BLOCK_MS: Final = 1000
PAGE: Final = 500
AGAIN_S: Final = 1.0


@click.command(
    help="""Follow streams: print each entry as it arrives, of every region, none left out.

A line has time, region, key, ID and fields. The region is that which made the ID; it is left out
for a server on its own. When the server does not answer, the command tries again and goes on
behind the last entry that it printed; if the server has lost that one, from the first one it has.

\b
Examples:
  anabranch tail orders
  anabranch tail orders payments --from -10
  anabranch tail orders --from 0 --json | jq .fields
""",
)
@click.argument("keys", type=BYTES, nargs=-1, required=True)
@click.option(
    "--from",
    "begin",
    default="$",
    show_default=True,
    help="$ is what is new, 0 everything, -10 the last ten of each stream first.",
)
@click.option("--count", type=click.IntRange(1), help="End after so many entries.")
@json_option("Print one JSON object for each entry.")
@on_server
def command(
    keys: tuple[bytes, ...],
    begin: str,
    count: int | None,
    as_json: bool,
    db: int | None,
    **options: Any,
) -> None:
    """Print the entries that were asked for, then each one that arrives."""
    last = 0
    if begin not in {"$", "0"}:
        if not (re.fullmatch(r"-\d{1,9}", begin, re.ASCII) and int(begin)):
            raise click.UsageError("--from takes $, 0 or a negative number like -10")
        last = -int(begin)
    with running(db, options) as client:
        follower = _Follower(client, keys)
        regions = Regions(client)
        for key, entry_id, fields in islice(follower.entries(last, from_start=begin == "0"), count):
            if not as_json:
                say(_shown_entry(regions, key, entry_id, fields))
                continue
            pairs = list(zip(map(shown, fields[::2]), map(shown, fields[1::2]), strict=True))
            about = {"key": shown(key), "id": entry_id.decode(), "region": regions.of(entry_id)}
            print_json(about | {"fields": pairs})


def _shown_entry(regions: Regions, key: bytes, entry_id: bytes, fields: list[bytes]) -> str:
    """An entry as a line."""
    region = regions.of(entry_id)
    words = [styled(_time_of(entry_id), dim=True)]
    if region:
        words.append(styled(region, regions.colour(region), bold=True))
    words += [shown(key), entry_id.decode()]
    pairs = zip(map(shown, fields[::2]), map(shown, fields[1::2]), strict=True)
    words += [styled(f"{name}=", dim=True) + value for name, value in pairs]
    return " ".join(words)


def _time_of(entry_id: bytes) -> str:
    """The local time of an ID; dashes if no calendar has it."""
    try:
        moment = datetime.fromtimestamp(int(entry_id.partition(b"-")[0]) / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return "--:--:--.---"
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"


_Entry = tuple[bytes, bytes, list[bytes]]
"""Key, ID, fields."""


class _Follower:
    """Keeps a cursor for each key, and the ID that was read last."""

    def __init__(self, client: Any, keys: Sequence[bytes]) -> None:
        self._client = client
        # Its one connection is never replaced unseen: a restart is an error of a read.
        self._reader = client.client()
        self._cursors = dict.fromkeys(keys, b"0")
        self._ids = dict.fromkeys(keys, b"0-0")

    def entries(self, last: int, *, from_start: bool = False) -> Iterator[_Entry]:
        """The last entries of each key, or all, and what arrives then, without end."""
        for key in () if from_start else self._cursors:
            words = ("XREVRANGE", key, "+", "-", "COUNT", last)
            self._ids[key], found = self._jump(key, *words)
            for entry_id, fields in reversed(found):
                yield key, entry_id, fields
        is_lost = False
        while True:
            try:
                if is_lost:
                    self._reader.connection.connect()
                    yield from self._found_again()
                is_lost = False
                rows = self._reader.execute_command(
                    *("AB.READ", "COUNT", PAGE, "BLOCK", BLOCK_MS, "STREAMS", *self._cursors),
                    *self._cursors.values(),
                )
            except (redis.ConnectionError, redis.TimeoutError) as problem:
                if not is_lost:
                    print(f"anabranch: {message(problem)}; trying again", file=sys.stderr)
                is_lost = True
                time.sleep(AGAIN_S)
                continue
            for key, cursor, found in rows:
                self._cursors[key] = cursor
                for entry_id, fields in found:
                    self._ids[key] = entry_id
                    yield key, entry_id, fields

    def _found_again(self) -> Iterator[_Entry]:
        """On a server of its own go on by ID: it may have lost data, and count positions again."""
        for key, cursor in list(self._cursors.items()):
            if any(region_of(each) != ALONE for each in read_token(cursor)):
                continue
            is_last = False
            while not is_last:
                behind = self._ids[key]
                words = ("XRANGE", key, b"(" + behind, "+", "COUNT", PAGE)
                newest, found = self._jump(key, *words)
                if parse(newest) < parse(behind):
                    lost = "the server has lost entries; printing from its first one"
                    print(f"anabranch: {shown(key)}: {lost}", file=sys.stderr)
                    self._ids[key] = b"0-0"
                    continue
                for entry_id, fields in found:
                    self._ids[key] = entry_id
                    yield key, entry_id, fields
                is_last = len(found) < PAGE

    def _jump(self, key: bytes, *read: bytes | str | int) -> tuple[bytes, list[Any]]:
        """Set the cursor behind all that there is; the newest ID, and what a read finds before."""
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.execute_command("AB.READ", "STREAMS", key, "$")
            pipeline.xinfo_stream(key)
            pipeline.execute_command(*read)
            [rows, facts, found] = pipeline.execute(raise_on_error=False)
        for reply in (rows, found):
            if isinstance(reply, Exception):
                raise reply
        self._cursors[key] = rows[0][1]
        newest: bytes = facts["last-generated-id"] if isinstance(facts, dict) else b"0-0"
        return newest, found or []
