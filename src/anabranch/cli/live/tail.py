"""``anabranch tail``: follow the entries of all regions, none left out, coloured by region.

XREAD goes by one ID and skips entries of other regions that arrive late; AB.READ goes by a position
in every region. Its cursor stays valid over restarts and in other regions.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import click
import redis
from rich.console import Console
from rich.text import Text

from anabranch.cli.live.shared import Regions, json_option, on_server, print_json, running, shown
from anabranch.cli.transfer.client import message

__all__ = ["command"]

BLOCK_MS: Final = 1000
PAGE: Final = 500
AGAIN_S: Final = 1.0


@click.command(
    help="""Follow streams: print each entry as it arrives, of every region, none left out.

A line has time, region, key, ID and fields. The region is that which made the ID; it is left out
for a server on its own. When the server does not answer, the command tries again and goes on
behind the last entry that it printed.

\b
Examples:
  anabranch tail orders
  anabranch tail orders payments --from -10
  anabranch tail orders --from 0 --json | jq .fields
""",
)
@click.argument("keys", nargs=-1, required=True)
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
    keys: tuple[str, ...],
    begin: str,
    count: int | None,
    as_json: bool,
    db: int | None,
    **options: Any,
) -> None:
    """Read and print."""
    last = 0
    if begin not in {"$", "0"}:
        if not (begin.startswith("-") and begin[1:].isdigit() and int(begin)):
            raise click.UsageError("--from takes $, 0 or a negative number like -10")
        last = int(begin[1:])
    with running(db, options) as client:
        follower = _Follower(client, [key.encode() for key in keys], _Printer(client, as_json))
        follower.begin("0" if begin == "0" else "$", last)
        follower.follow(count)


class _Printer:
    """Entries as lines."""

    def __init__(self, client: Any, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console()
        self._regions = Regions(client)

    def entry(self, key: bytes, entry_id: bytes, fields: list[bytes]) -> None:
        """Print one."""
        region = self._regions.of(entry_id)
        texts = [shown(each) for each in fields]
        pairs = list(zip(texts[::2], texts[1::2], strict=True))
        if self._as_json:
            print_json(
                {"key": shown(key), "id": entry_id.decode(), "region": region, "fields": pairs}
            )
            return
        moment = datetime.fromtimestamp(int(entry_id.partition(b"-")[0]) / 1000, UTC).astimezone()
        line = Text(f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d} ", style="dim")
        if region:
            line.append(f"{region} ", style=f"bold {self._regions.colour(region)}")
        line.append(f"{shown(key)} {entry_id.decode()}", style="default")
        for name, value in pairs:
            line.append(f" {name}=", style="dim")
            line.append(value, style="default")
        self._console.print(line, soft_wrap=True, highlight=False)


class _Follower:
    """Keeps a cursor for each key."""

    def __init__(self, client: Any, keys: list[bytes], printer: _Printer) -> None:
        self._client = client
        self._keys = keys
        self._printer = printer
        self._cursors: list[bytes] = []
        self._shown: set[tuple[bytes, bytes]] = set()  # printed although behind the cursor

    def begin(self, cursor: str, last: int) -> None:
        """Begin at the cursors, then print the last entries before them."""
        if cursor == "0":
            self._cursors = [b"0"] * len(self._keys)
            return
        rows = self._read("$" for _ in self._keys)
        self._cursors = [row[1] for row in rows]
        for key in self._keys if last else ():
            for entry_id, fields in reversed(
                self._client.execute_command("XREVRANGE", key, "+", "-", "COUNT", last)
            ):
                self._print(key, entry_id, fields)
                self._shown.add((key, entry_id))

    def _read(self, cursors: Any, *words: str | int) -> list[Any]:
        found: list[Any] = self._client.execute_command(
            "AB.READ", *words, "STREAMS", *self._keys, *cursors
        )
        return found

    def follow(self, count: int | None) -> None:
        """Print entries as they arrive, until so many were printed."""
        left = count
        if left is not None:
            left -= len(self._shown)
        is_lost = False
        while left is None or left > 0:
            try:
                rows = self._read(self._cursors, "COUNT", PAGE, "BLOCK", BLOCK_MS)
            except (redis.ConnectionError, redis.TimeoutError) as problem:
                if not is_lost:
                    print(f"anabranch: {message(problem)}; trying again", file=sys.stderr)
                is_lost = True
                time.sleep(AGAIN_S)
                continue
            is_lost = False
            for key, _, entries in rows:
                for entry_id, fields in entries:
                    if (key, entry_id) in self._shown:
                        self._shown.discard((key, entry_id))
                    elif left is None or left > 0:
                        self._print(key, entry_id, fields)
                        left = None if left is None else left - 1
            self._cursors = [row[1] for row in rows]

    def _print(self, key: bytes, entry_id: bytes, fields: list[bytes]) -> None:
        self._printer.entry(key, entry_id, fields)
