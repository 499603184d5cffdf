"""What may grow: entries, pending entries, streams, groups and consumers; and what is asked then.

Only commands that Redis does in O(log n) or better are asked: their cost should not depend on the
size. Requests choose places at random, so that no cache holds what they need.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.versus_redis.load import Request, Word
from benchmarks.versus_redis.load import request as _request
from benchmarks.versus_redis.workloads import sensor_id

from .stage import Ask, Dimension, Operation, Sample

KEY, GROUP, CONSUMER = "bench:scaling", "group", "consumer"
FIELDS = ("temperature", "21.5", "humidity", "54.2")
LATER_MS = 1_900_000_000_000
"""Entries that samples add have IDs after those of the fill, in each server the same."""
ENTRIES_OF_A_STREAM = 16
ENTRIES_OF_GROUPS = 20_000
BATCH = 10


def request(*words: Word) -> Request:
    """Encode a command whose reply is parsed and not counted in lines."""
    return _request(*words, lines=0)


def dimensions() -> list[Dimension]:
    """Return everything that may grow."""
    thousands = (1_000, 10_000, 100_000, 1_000_000)
    return [
        Dimension(
            "entries",
            (10_000, 100_000, 1_000_000, 10_000_000),
            (1_000, 10_000, 100_000),
            _entries,
            _of_entries(),
        ),
        Dimension("pending entries", thousands, thousands[:2], _pending, _of_pending()),
        Dimension("streams", (1, 100, 10_000, 100_000), (1, 100, 10_000), _streams, _of_streams()),
        Dimension("groups", (1, 100, 10_000), (1, 100, 1_000), _groups, _of_groups()),
        Dimension("consumers", (1, 100, 10_000), (1, 100, 1_000), _consumers, _of_consumers()),
    ]


def _entries(size: int) -> Iterator[Request]:
    for index in range(size):
        yield request("XADD", KEY, sensor_id(index), *FIELDS)
    yield request("XGROUP", "CREATE", KEY, GROUP, "0")


def _pending(size: int) -> Iterator[Request]:
    yield from _entries(size)
    for _ in range(0, size, 1_000):
        yield _take(1_000)


def _streams(size: int) -> Iterator[Request]:
    for number in range(size):
        for index in range(ENTRIES_OF_A_STREAM):
            yield request("XADD", f"{KEY}:{number}", sensor_id(index), *FIELDS)


def _groups(size: int) -> Iterator[Request]:
    for index in range(ENTRIES_OF_GROUPS):
        yield request("XADD", KEY, sensor_id(index), *FIELDS)
    for number in range(size):
        yield request("XGROUP", "CREATE", KEY, f"{GROUP}-{number}", "0")


def _consumers(size: int) -> Iterator[Request]:
    yield from _entries(ENTRIES_OF_GROUPS)
    for number in range(size):
        yield request("XGROUP", "CREATECONSUMER", KEY, GROUP, f"{CONSUMER}-{number}")


def _of_entries() -> tuple[Operation, ...]:
    def delete(sample: Sample) -> list[Request]:
        chance = sample.chance()
        return [
            request("XDEL", KEY, sensor_id(chance.randrange(sample.size)))
            for _ in range(sample.count // 4)
        ]

    def reads(sample: Sample) -> int:
        return min(sample.count, sample.size // BATCH // 2)

    def put_back(sample: Sample) -> list[Request]:
        """Move the group to a place behind which the whole sample can be read."""
        place = sample.chance().randrange(sample.size - reads(sample) * BATCH)
        return [request("XGROUP", "SETID", KEY, GROUP, sensor_id(place))]

    def take(sample: Sample) -> list[Request]:
        return [_take(BATCH, "NOACK")] * reads(sample)

    claim = _at("XCLAIM", KEY, GROUP, CONSUMER, 0, "ID", "FORCE", "JUSTID")

    def idempotent(sample: Sample) -> list[Request]:
        return [
            request("XADD", KEY, "IDMP", "producer", f"{sample.turn}-{index}", "*", *FIELDS)
            for index in range(sample.count)
        ]

    def trimming(sample: Sample) -> list[Request]:
        return [request("XADD", KEY, "MAXLEN", "~", sample.size, "*", *FIELDS)] * sample.count

    return (
        Operation("XADD", _add),
        Operation("XADD IDMP", idempotent, only_ours=True),
        Operation("XRANGE COUNT 1", _at("XRANGE", KEY, "ID", "+", "COUNT", 1)),
        Operation("XRANGE COUNT 10", _at("XRANGE", KEY, "ID", "+", "COUNT", BATCH)),
        Operation("XREVRANGE COUNT 10", _at("XREVRANGE", KEY, "ID", "-", "COUNT", BATCH)),
        Operation("XREAD COUNT 10", _at("XREAD", "COUNT", BATCH, "STREAMS", KEY, "ID")),
        Operation("XREADGROUP NOACK COUNT 10", take, setup=put_back),
        Operation("XCLAIM FORCE", claim),
        Operation("XACK", _at("XACK", KEY, GROUP, "ID"), setup=claim),
        Operation("XDEL", delete),
        Operation("XLEN", _at("XLEN", KEY)),
        Operation("XINFO STREAM", _at("XINFO", "STREAM", KEY)),
        Operation("XADD MAXLEN ~", trimming),  # the last one: it removes what others ask for
    )


def _of_pending() -> tuple[Operation, ...]:
    def ids(sample: Sample) -> list[str]:
        """IDs behind all others, and behind those of the rounds before."""
        return [f"{LATER_MS + sample.turn}-{index}" for index in range(sample.count)]

    def deliver(sample: Sample) -> list[Request]:
        """Add entries and take them, so that each sample finds as many pending ones."""
        added = [request("XADD", KEY, one, *FIELDS) for one in ids(sample)]
        return [*added, _take(len(added))]

    def acknowledge(sample: Sample) -> list[Request]:
        shuffled = ids(sample)
        sample.chance().shuffle(shuffled)
        return [request("XACK", KEY, GROUP, one) for one in shuffled]

    history = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", BATCH, "STREAMS", KEY, "ID")
    claim = ("XCLAIM", KEY, GROUP, CONSUMER, 0, "ID", "JUSTID")
    claim_all = ("XAUTOCLAIM", KEY, GROUP, CONSUMER, 0, "ID", "COUNT", BATCH, "JUSTID")
    return (
        Operation("XACK", acknowledge, setup=deliver),
        Operation("XPENDING of ten", _at("XPENDING", KEY, GROUP, "ID", "+", BATCH)),
        Operation("XPENDING", _at("XPENDING", KEY, GROUP)),
        Operation("XCLAIM", _at(*claim)),
        Operation("XAUTOCLAIM COUNT 10", _at(*claim_all)),
        Operation("XREADGROUP of its own ten", _at(*history)),
        Operation("XINFO GROUPS", _at("XINFO", "GROUPS", KEY)),
    )


def _of_streams() -> tuple[Operation, ...]:
    def of_one(*words: Word) -> Ask:
        """Words in which `KEY` stands for a stream chosen at random."""

        def ask(sample: Sample) -> list[Request]:
            chance = sample.chance()
            names = (f"{KEY}:{chance.randrange(sample.size)}" for _ in range(sample.count))
            return [request(*(name if word == "KEY" else word for word in words)) for name in names]

        return ask

    return (
        Operation("XADD", of_one("XADD", "KEY", "MAXLEN", ENTRIES_OF_A_STREAM, "*", *FIELDS)),
        Operation("XRANGE COUNT 10", of_one("XRANGE", "KEY", "-", "+", "COUNT", BATCH)),
        Operation("XLEN", of_one("XLEN", "KEY")),
        Operation("EXISTS", of_one("EXISTS", "KEY")),
    )


def _of_groups() -> tuple[Operation, ...]:
    def read(sample: Sample) -> list[Request]:
        """Read one entry by each of many groups; no group comes to the end of the stream."""
        chance = sample.chance()
        return [
            request(
                *("XREADGROUP", "GROUP", f"{GROUP}-{chance.randrange(sample.size)}", CONSUMER),
                *("COUNT", 1, "NOACK", "STREAMS", KEY, ">"),
            )
            for _ in range(sample.count)
        ]

    return (Operation("XADD", _add), Operation("XREADGROUP NOACK COUNT 1", read))


def _of_consumers() -> tuple[Operation, ...]:
    def read(sample: Sample) -> list[Request]:
        chance = sample.chance()
        return [
            request(
                *("XREADGROUP", "GROUP", GROUP, f"{CONSUMER}-{chance.randrange(sample.size)}"),
                *("COUNT", 1, "STREAMS", KEY, ">"),
            )
            for _ in range(sample.count)
        ]

    return (Operation("XREADGROUP COUNT 1", read),)


def _at(*words: Word) -> Ask:
    """Words in which `ID` stands for the ID of an entry that others precede and follow."""

    def ask(sample: Sample) -> list[Request]:
        chance = sample.chance()
        places = (chance.randrange(BATCH, sample.size - BATCH) for _ in range(sample.count))
        return [
            request(*(sensor_id(place) if word == "ID" else word for word in words))
            for place in places
        ]

    return ask


def _add(sample: Sample) -> list[Request]:
    return [request("XADD", KEY, "*", *FIELDS)] * sample.count


def _take(count: int, *options: Word) -> Request:
    return request(
        *("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", count, *options, "STREAMS", KEY, ">")
    )
