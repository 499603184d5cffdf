"""Orders are accepted once and shipped once: a small service on Redis streams.

``accept`` may be retried with the same order number, in any region: there is one entry.
``ship_some`` reads with a consumer group and acknowledges what it has shipped; what a worker that
died left behind is taken over by another after `PATIENCE_MS`.
"""

from __future__ import annotations

from collections.abc import Callable

import redis

STREAM = "orders"
GROUP = "shipping"
PATIENCE_MS = 30_000

Ship = Callable[[dict[str, str]], None]


def set_up(client: redis.Redis) -> None:
    """Make the stream and its consumer group, if they are not there."""
    try:
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def accept(client: redis.Redis, number: str, item: str) -> str:
    """Accept an order; returns the ID of its entry, also when it was accepted before."""
    words = ("XADD", STREAM, "IDMP", "shop", number, "*", "number", number, "item", item)
    return str(client.execute_command(*words))


def ship_some(client: redis.Redis, worker: str, ship: Ship, *, count: int = 10) -> int:
    """Ship what waits, at most `count` orders; returns how many."""
    _, left_behind, _ = client.xautoclaim(STREAM, GROUP, worker, PATIENCE_MS, count=count)
    todo = list(left_behind)
    if len(todo) < count:
        found = client.xreadgroup(GROUP, worker, {STREAM: ">"}, count=count - len(todo))
        todo += [entry for _, entries in found for entry in entries]
    for entry_id, order in todo:
        ship(order)
        client.xack(STREAM, GROUP, entry_id)
    return len(todo)
