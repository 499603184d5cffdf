"""``anabranch groups``: how consumer groups stand: lag, pending entries, the oldest of them."""

from __future__ import annotations

from typing import Any

import click
import redis

from anabranch.cli.live.shared import (
    BYTES,
    on_server,
    print_json,
    print_table,
    running,
    streams_of,
)
from anabranch.cli.options import json_option
from anabranch.cli.terminal import age, shown
from anabranch.cli.transfer.client import fields_of


@click.command(
    help="""Show the consumer groups of streams: lag, pending entries, and the age of the oldest.

Without a KEY the command looks at up to 1,000 streams. The lag is exact (AB.LAG).""",
)
@click.argument("keys", type=BYTES, nargs=-1)
@json_option()
@on_server
def command(keys: tuple[bytes, ...], as_json: bool, db: int | None, **options: Any) -> None:
    """Print the groups of these streams, or of all that are found."""
    with running(db, options) as client:
        names = list(keys) or streams_of(client)[0]
        rows = [row for key in names for row in groups_of(client, key)]
    if as_json:
        print_json({"groups": rows})
        return
    print_table(
        ["key", "group", "consumers", "lag", "pending", "oldest idle", "last delivered"],
        [
            [
                *(row["key"], row["group"], str(row["consumers"]), f"{row['lag']:,}"),
                *(f"{row['pending']:,}", age(row["oldest_idle_ms"]), row["last_delivered_id"]),
            ]
            for row in rows
        ],
    )


def groups_of(client: Any, key: bytes) -> list[dict[str, Any]]:
    """The groups of a stream; none if it was just deleted and was not named by the user."""
    lags = {
        facts[b"name"]: facts[b"lag"]
        for facts in map(fields_of, client.execute_command("AB.LAG", key))
    }
    rows = []
    for facts in client.xinfo_groups(key):
        name = facts["name"]
        oldest_ms = None
        if facts["pending"]:
            try:
                (oldest,) = client.xpending_range(key, name, "-", "+", 1)
                oldest_ms = oldest["time_since_delivered"]
            except (ValueError, redis.ResponseError):
                pass  # it has just been acknowledged
        rows.append(
            {
                "key": shown(key),
                "group": shown(name),
                "consumers": facts["consumers"],
                "lag": lags.get(name, 0),
                "pending": facts["pending"],
                "oldest_idle_ms": oldest_ms,
                "last_delivered_id": facts["last-delivered-id"].decode(),
            }
        )
    return rows
