"""Adds orders, two a second; one that is not answered is sent again, to the next region too.

An order has an ID of its own (IDMP), so one that was taken although the answer got lost is not
added twice: the region answers with the entry that is there.
"""

from __future__ import annotations

import os
import sys
import time

import redis

STREAM = "orders"
PAUSE_S = 0.5


def main() -> None:
    """Until it is stopped."""
    name = sys.argv[1]
    producer = f"{name}-{time.time_ns()}"  # its numbers begin anew with every start
    servers = [connect(address) for address in os.environ["SERVERS"].split()]
    number = 0
    while True:
        number += 1
        entry_id, place = add(servers, producer, number, name)
        print(f"{name}: order {number} is {entry_id} in {place}", flush=True)
        time.sleep(PAUSE_S)


def connect(address: str) -> redis.Redis:
    """A client that gives up soon: there is another region to ask."""
    host, _, port = address.rpartition(":")
    return redis.Redis(
        host=host,
        port=int(port),
        password=os.environ.get("PASSWORD") or None,
        socket_timeout=2,
        socket_connect_timeout=2,
        retry=None,
        decode_responses=True,
    )


def add(servers: list[redis.Redis], producer: str, number: int, name: str) -> tuple[str, str]:
    """The ID under which an order is kept, and where it was taken."""
    while True:
        for server in servers:
            place = server.get_connection_kwargs()["host"]
            try:
                entry_id = server.execute_command(
                    *("XADD", STREAM, "MAXLEN", "~", 10000, "IDMP", producer, number),
                    *("*", "region", name, "order", number),
                )
            except redis.RedisError as problem:
                print(f"{name}: order {number}, {place}: {problem}", flush=True)
                continue
            return entry_id, place
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
