"""Are idempotent producers safe: refused duplicates, short memories, rows that are there twice.

    python producers.py redis://127.0.0.1:6379 --streams orders
    python producers.py eu=redis://eu:6379 us=redis://us:6379 --near 0.2

A region that does not have an entry yet accepts it again from a producer that failed over. The
servers find that out when they exchange effects, and AB.PRODUCERS shows it: the same idempotent ID
of two regions, or rows of the same batch of the exactly-once sink. One region knows of all. The
program exits with 1 if both copies are there.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis


@dataclass(frozen=True, order=True)
class Double:
    """A message or batch of a producer that more than one region accepted."""

    stream: str
    producer: str
    what: str
    """``idempotent ID ...``, or ``batch 7, rows 0 to 99``."""
    regions: tuple[str, ...]
    """Who accepted it: a region's number, with the epoch if that is not the first."""
    ids: tuple[str, ...]
    """The entries, for an idempotent ID."""
    live: int
    """The present count of copies."""

    def __str__(self) -> str:
        """For people."""
        places = zip(self.regions, self.ids or ("",) * len(self.regions), strict=True)
        accepted = " and ".join(f"{at} as {entry}" if entry else at for at, entry in places)
        word = "TWICE" if self.live > 1 else "collapsed"
        return f"{word}: {self.stream} {self.producer}: {self.what}, accepted by regions {accepted}"


@dataclass(frozen=True)
class StreamMemory:
    """The idempotent IDs of one stream, as one server reports them."""

    place: str
    """Stream and server."""
    duration_s: int
    maxsize: int
    """What each producer's memory holds at most."""
    producers: int
    iids: int
    added: int
    """Ever."""
    refused: int
    """Duplicates ever refused, of all producers: servers do not count them one by one."""

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.place}: {self.producers} producers, {self.iids} IDs remembered for "
            f"{self.duration_s} s ({self.maxsize} of each), {self.refused} duplicates refused"
        )


@dataclass(frozen=True)
class ProducerMemory:
    """The idempotent IDs of one producer in one stream, as one server remembers them."""

    stream: StreamMemory
    producer: str
    iids: int
    remembers_s: float
    """From its oldest remembered ID to now: a repetition that comes later is taken for new."""
    forgotten_in_s: float
    """Until the last of its IDs expires, if nothing is added."""

    def __str__(self) -> str:
        """For people."""
        return (
            f"{self.stream.place} {self.producer}: {self.iids} of {self.stream.maxsize} IDs, which "
            f"reach back {self.remembers_s:.0f} s; all is forgotten in {self.forgotten_in_s:.0f} s"
        )


@dataclass
class Findings:
    """What all servers report."""

    memories: list[StreamMemory] = field(default_factory=list)
    """Of streams that have, or had, idempotent producers."""
    producers: set[tuple[str, str]] = field(default_factory=set)
    """Stream and name of each, bulk producers as well."""
    near_capacity: list[ProducerMemory] = field(default_factory=list)
    """Their oldest IDs are, or nearly are, replaced by new ones before they expire."""
    near_expiry: list[ProducerMemory] = field(default_factory=list)
    """All of their IDs expire soon."""
    doubles: dict[tuple[str, str, str], Double] = field(default_factory=dict)

    @property
    def twice(self) -> list[Double]:
        """Accepted by two regions, and both copies are there."""
        return sorted(each for each in self.doubles.values() if each.live > 1)

    @property
    def collapsed(self) -> list[Double]:
        """Accepted by two regions, one copy removed since."""
        return sorted(each for each in self.doubles.values() if each.live <= 1)


def examine(
    urls: Mapping[str, str], streams: Sequence[str] = (), pattern: str = "*", near: float = 0.1
) -> Findings:
    """Ask servers (name to address) for the producers of streams, or of those of a pattern.

    `near`: the part of capacity or duration that counts as nearly used up. Raises
    `redis.RedisError`.
    """
    found = Findings()
    for name, url in urls.items():
        with redis.Redis.from_url(url, protocol=2) as client:
            keys = [each.encode() for each in streams]
            keys = keys or sorted(client.scan_iter(pattern, count=1000, _type="stream"))
            seconds, us = client.time()
            for key in keys:
                _add(found, client, key, name, seconds * 1000 + us // 1000, near)
    return found


def _add(
    found: Findings, client: redis.Redis, key: bytes, server: str, now: int, near: float
) -> None:
    """Add what one server knows of the producers of one stream."""
    try:
        about: Any = client.xinfo_stream(key)
        rows: Any = client.execute_command("AB.PRODUCERS", key)
    except redis.ResponseError as error:
        if "no such key" not in str(error):
            raise
        return
    stream = _text(key)
    figures = ("idmp-duration", "idmp-maxsize", "pids-tracked", "iids-tracked")
    figures += ("iids-added", "iids-duplicates")
    memory = StreamMemory(
        f"{stream} at {server}" if server else stream, *(about[each] for each in figures)
    )
    if memory.added:
        found.memories.append(memory)
    for row in rows or ():
        facts = {name.decode(): value for name, value in zip(row[::2], row[1::2], strict=True)}
        name = _text(facts["producer"])
        found.producers.add((stream, name))
        for double in _doubles(stream, name, facts):
            place = (stream, name, double.what)
            # A region that is behind shows more copies, one of which will be removed.
            if double.live < found.doubles.setdefault(place, double).live:
                found.doubles[place] = double
        if facts["iids"]:
            left_ms = facts["newest-ms"] + memory.duration_s * 1000 - now
            producer = ProducerMemory(
                *(memory, name, facts["iids"], (now - facts["oldest-ms"]) / 1000),
                max(left_ms, 0) / 1000,
            )
            if producer.iids >= memory.maxsize * (1 - near):
                found.near_capacity.append(producer)
            if producer.forgotten_in_s <= memory.duration_s * near:
                found.near_expiry.append(producer)


def _doubles(stream: str, producer: str, facts: Mapping[str, Any]) -> Iterator[Double]:
    for iid, entries in facts["conflicts"]:
        yield Double(
            *(stream, producer, f"idempotent ID {_shown(iid)}"),
            tuple(_region(number, epoch) for number, epoch, *_ in entries),
            tuple(entry_id.decode() for _, _, entry_id, *_ in entries),
            sum(bool(live) for *_, live in entries),
        )
    batches: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for number, epoch, batch, rows, *_ in facts["batches"]:
        if rows:
            batches[batch].append((_region(number, epoch), rows))
    for batch, accepted in sorted(batches.items()):
        if len(accepted) > 1:
            rows = sorted(rows for _, rows in accepted)[-2]  # rows that at least two regions have
            what = f"batch {batch}, rows 0 to {rows - 1}"
            yield Double(stream, producer, what, tuple(each for each, _ in accepted), (), 2)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _shown(iid: bytes) -> str:
    """IDs that are derived from content are sixteen arbitrary bytes."""
    shown = _text(iid)
    return shown if shown.isascii() and shown.isprintable() else f"0x{iid.hex()}"


def _region(number: int, epoch: int) -> str:
    return f"{number}.{epoch}" if epoch else str(number)


def main() -> None:
    """Examine by the words of the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("servers", nargs="+", help="an address, or NAME=ADDRESS of each region")
    parser.add_argument("--streams", default="", help="keys, separated by commas; all by default")
    parser.add_argument("--pattern", default="*", help="a glob of keys instead")
    parser.add_argument("--near", type=float, default=0.1, help="what counts as nearly used up")
    given = parser.parse_args()
    found = examine(
        dict(
            each.split("=", 1) if "=" in each.partition(":")[0] else ("", each)
            for each in given.servers
        ),
        given.streams.split(",") if given.streams else (),
        given.pattern,
        given.near,
    )
    print(*found.memories, *found.twice, *found.collapsed, sep="\n")
    for each in found.near_capacity:
        print(f"nearly full: {each}")
    for each in found.near_expiry:
        print(f"expires soon: {each}")
    sys.exit(bool(found.twice))


if __name__ == "__main__":
    main()
