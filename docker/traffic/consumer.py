"""Processes the orders of all regions, as the consumer of a group that belongs to its region.

After a start it goes on with what it had taken and not acknowledged.
"""

from __future__ import annotations

import os
import sys
import time

import redis

STREAM = "orders"
PAUSE_S = 1.0


def main() -> None:
    """Until it is stopped."""
    name = sys.argv[1]
    host, _, port = os.environ["SERVER"].rpartition(":")
    server = redis.Redis(
        host=host,
        port=int(port),
        password=os.environ.get("PASSWORD") or None,
        socket_timeout=10,
        decode_responses=True,
        protocol=2,
    )
    while True:
        try:
            consume(server, name)
        except redis.RedisError as problem:
            print(f"{name}: {problem}", flush=True)
            time.sleep(PAUSE_S)


def consume(server: redis.Redis, name: str) -> None:
    """Until the server fails."""
    try:
        server.xgroup_create(STREAM, name, id="0", mkstream=True)
    except redis.ResponseError as problem:
        if not str(problem).startswith("BUSYGROUP"):
            raise
    after = "0"  # first what is pending, then what is new
    while True:
        streams = server.xreadgroup(name, "worker", {STREAM: after}, count=10, block=2000)
        entries = [entry for _, rows in streams for entry in rows]
        if not entries:
            after = ">"
        for entry_id, fields in entries:
            order = f"order {fields['order']} of {fields['region']}" if fields else "deleted"
            print(f"{name}: {entry_id}, {order}", flush=True)
            server.xack(STREAM, name, entry_id)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
