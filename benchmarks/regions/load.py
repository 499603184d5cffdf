"""What is written to regions: streams of one content after another, encoded before the clock runs.

Contents are those that `versus_redis` weighs, and random bytes, which nothing makes smaller.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.versus_redis import memory
from benchmarks.versus_redis.load import Connection, Request, Window, request, windows
from benchmarks.versus_redis.workloads import ADD_LINES, dice

CHUNK = 50_000
"""Entries that are encoded at a time; more of them would only fill the memory."""

BATCH = 256
"""Commands sent in one call: a region makes one batch of them."""

DELETED_AT_ONCE = 16
"""IDs of one XDEL."""

RANDOM_BYTES = 100


@dataclass(frozen=True, slots=True)
class Content:
    """A kind of entry: what it is called and how the fields of one are made."""

    name: str
    make: Callable[[random.Random], Sequence[str | bytes]]


def contents() -> list[Content]:
    """Return the contents whose way over the wire is measured."""
    sensors, document = memory.shapes()[1:]
    return [Content(each.name, each.make) for each in (sensors, document)] + [RANDOM]


def _random_fields(chance: random.Random) -> list[str | bytes]:
    return ["v", chance.randbytes(RANDOM_BYTES - 1)]


RANDOM = Content(f"{RANDOM_BYTES} random bytes", _random_fields)
"""Field and value together."""


def script(
    key: str, content: Content, entries: int, depth: int = BATCH
) -> tuple[list[Window], int]:
    """Encode the addition of entries; return it with the bytes of their fields and values."""
    chance = dice()
    fields = [content.make(chance) for _ in range(entries)]
    adds = [request("XADD", key, "*", *words, lines=ADD_LINES) for words in fields]
    return windows(adds, depth), sum(len(word) for words in fields for word in words)


def add(
    connection: Connection, key: str, content: Content, entries: int, depth: int = BATCH
) -> int:
    """Add entries to a stream, so many under way; return the bytes of their fields and values.

    After a :data:`CHUNK` the same contents come again: batches are smaller by far.
    """
    whole, rest = divmod(entries, CHUNK)
    size = 0
    for count, times in ((CHUNK, whole), (rest, 1)):
        if count and times:
            encoded, its_size = script(key, content, count, depth)
            for _ in range(times):
                connection.replay(encoded)
            size += times * its_size
    return size


def add_and_delete(connection: Connection, key: str, ids: Iterator[int], entries: int) -> None:
    """Add entries with IDs that are given, delete each of them in another order."""
    chance = dice()
    numbers = [next(ids) for _ in range(entries)]
    adds = [
        request("XADD", key, f"{number}-0", *RANDOM.make(chance), lines=ADD_LINES)
        for number in numbers
    ]
    connection.replay(windows(adds, BATCH))
    chance.shuffle(numbers)
    deletes = [
        request(
            "XDEL", key, *(f"{number}-0" for number in numbers[first : first + DELETED_AT_ONCE])
        )
        for first in range(0, entries, DELETED_AT_ONCE)
    ]
    connection.replay(windows(deletes, BATCH // DELETED_AT_ONCE))


def one_by_one(connection: Connection, script: list[Window]) -> list[float]:
    """Play windows of one command each; return the seconds that each took to be answered."""
    taken = []
    for window in script:
        began = time.perf_counter()
        connection.send(window.payload)
        connection.drain(window.lines)
        taken.append(time.perf_counter() - began)
    return taken


def sensor_adds(key: str, entries: int) -> list[Request]:
    """Return XADDs of three sensor fields, IDs from the clock."""
    chance = dice()
    make = memory.shapes()[1].make
    return [request("XADD", key, "*", *make(chance), lines=ADD_LINES) for _ in range(entries)]
