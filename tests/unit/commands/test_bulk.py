"""AB.OFFSETS, AB.EXPORT, AB.IMPORT and AB.LEDGER: streams by position."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any
from zlib import crc32

import pytest
import pyzstd

from anabranch.region.maintenance import RECORDS_MAX
from anabranch.scheduling import TURN_NS
from anabranch.stream.compression import BlockCache
from tests.support.compressing import compress_all, whatever_it_gains
from tests.support.streams import Streams

Row = tuple[int, bytes, list[bytes]]
"""Position, ID, fields."""


def exported(server: Streams, *args: object) -> tuple[int, list[Row]]:
    """What AB.EXPORT gives, decoded by the page and nothing else: (next position, rows)."""
    data: bytes = server.do("AB.EXPORT", *args)
    version, codec, _, chunks, following = struct.unpack_from("<BBHIQ", data)
    assert version == 2
    if codec:
        assert (codec, args[-2:]) == (1, ("CODEC", "zstd"))
        data = data[:16] + pyzstd.decompress(data[16:])
    at = 16
    rows: list[Row] = []
    for _ in range(chunks):
        count, form, width, flags, _, base_ms, first, end_base, size = struct.unpack_from(
            "<IBBBBQQQQ", data, at
        )
        at += 40

        def take(kind: str, count: int = count) -> tuple[int, ...]:
            nonlocal at
            numbers = struct.unpack_from(f"<{count}{kind}", data, at)
            at += struct.calcsize(f"<{count}{kind}")
            return numbers

        if form == 2:
            assert (args[-2:], flags, width) == (("CODEC", "nodes"), 0, 0)
            rows += _node(pyzstd.decompress(data[at : at + size]), count, first)
            at += size
            continue
        if form == 0:
            ids = [(base_ms + (word >> 24), word & 0xFFFFFF) for word in take("Q")]
        else:
            ids = list(zip(take("Q"), take("Q"), strict=True))
        positions = take("Q") if flags & 1 else tuple(range(first, first + count))
        assert positions[0] == first
        ends = [end - end_base for end in take({2: "H", 8: "Q"}[width])]
        fragments = data[at : at + size]
        at += size
        assert ends[-1] == size
        for position, (ms, seq), (low, high) in zip(
            positions, ids, pairwise([0, *ends]), strict=True
        ):
            entry_id = b"%d-%d" % (ms, seq)
            rows.append((position, entry_id, _fields(fragments[low:high], entry_id)))
    assert at == len(data)
    return following, rows


def _node(whole: bytes, count: int, first: int) -> Iterator[Row]:
    """The entries of a chunk of form 2."""
    base_ms, word, known, kind, written = struct.unpack_from("<QQIcB", whole)
    assert known == count
    at = 22
    words = range(word, word + count)
    if written:
        planes = [bytes(count)] * 8
        for byte in range(8):
            if written & 1 << byte:
                planes[byte] = whole[at : at + count]
                at += count
        words = [int.from_bytes(some, "little") for some in zip(*planes, strict=True)]
    ids = [b"%d-%d" % (base_ms + (word >> 24), word & 0xFFFFFF) for word in words]
    if kind == b"C":
        rows = _columns(whole[at:], count)
    else:
        sizes = struct.unpack_from(f"<{count}{kind.decode()}", whole, at)
        at += struct.calcsize(f"<{count}{kind.decode()}")
        bounds = pairwise(accumulate(sizes, initial=at))
        rows = [
            _fields(whole[low:high], each) for each, (low, high) in zip(ids, bounds, strict=True)
        ]
        assert at + sum(sizes) == len(whole)
    yield from zip(range(first, first + count), ids, rows, strict=True)


def _columns(whole: bytes, count: int) -> list[list[bytes]]:
    """The fields of entries with the same names."""
    (end,) = struct.unpack_from("<H", whole)
    schema, at = whole[2 : 2 + end], 2 + end
    names, sizes = [], []
    while schema:
        (size,) = struct.unpack_from("<H", schema)
        name, width = schema[2 : 2 + size], schema[2 + size]
        schema = schema[3 + size :]
        names.append(name)
        kind = f"<{count}{' BH'[width]}" if width else "<H"
        some = struct.unpack_from(kind, whole, at)
        sizes.append(some if width else some * count)
        at += struct.calcsize(kind)
    rows: list[list[bytes]] = [[] for _ in range(count)]
    for name, column in zip(names, sizes, strict=True):
        for row, size in zip(rows, column, strict=True):
            row += name, whole[at : at + size]
            at += size
    assert at == len(whole)
    return rows


def _fields(fragment: bytes, entry_id: bytes) -> list[bytes]:
    head = b"*2\r\n$%d\r\n%b\r\n*" % (len(entry_id), entry_id)
    assert fragment.startswith(head)
    count, rest = fragment[len(head) :].split(b"\r\n", 1)
    fields = []
    for _ in range(int(count)):
        size, rest = rest[1:].split(b"\r\n", 1)
        fields.append(rest[: int(size)])
        assert rest[int(size) :][:2] == b"\r\n"
        rest = rest[int(size) + 2 :]
    assert rest == b""
    return fields


def payload(*rows: list[bytes]) -> bytes:
    """The last argument of AB.IMPORT."""
    parts = [part(row) for row in rows]
    return struct.pack(f"<{len(parts) + 1}I", len(parts), *accumulate(map(len, parts))) + b"".join(
        parts
    )


def part(row: list[bytes]) -> bytes:
    """One row as it stands in an entry."""
    return b"*%d\r\n" % len(row) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in row)


@pytest.fixture
def server() -> Streams:
    """A region with small nodes, so that there are several."""
    server = Streams()
    server.do("CONFIG", "SET", "stream-node-max-entries", 7)
    return server


def offsets(server: Streams, key: str = "s") -> list[Any]:
    """The one region of a stream."""
    ((region,),) = server.do("AB.OFFSETS", "STREAMS", key)
    return region


# -- AB.OFFSETS -------------------------------------------------------------------------------


def test_offsets_tell_where_a_stream_stands(server: Streams) -> None:
    assert server.do("AB.OFFSETS", "STREAMS", "s") == [None]
    for number in range(1, 21):
        server.do("XADD", "s", f"{number}-0", "f", "v")
    assert offsets(server) == [b"", 0, 0, 20, b"20-0", 20, 0, 0]
    server.do("XDEL", "s", "1-0", "20-0")
    assert offsets(server) == [b"", 0, 1, 20, b"20-0", 18, 0, 0]
    server.do("XTRIM", "s", "MAXLEN", "5")
    assert offsets(server) == [b"", 0, 14, 20, b"20-0", 5, 14, 0]
    server.do("XTRIM", "s", "MAXLEN", "0")
    assert offsets(server) == [b"", 0, 20, 20, b"20-0", 0, 19, 0]
    server.do("SET", "k", "v")
    assert server.error("AB.OFFSETS", "STREAMS", "s", "k").startswith("WRONGTYPE")
    assert server.error("AB.OFFSETS", "s", "k") == "ERR syntax error"


def test_a_stream_that_another_value_has_replaced_is_one_that_was_deleted(server: Streams) -> None:
    for number in range(1, 4):
        server.do("XADD", "s", f"{number}-0", "f", "v")
    server.do("XDEL", "s", "1-0")
    server.do("SET", "s", "v")
    gone = [b"", 3, 3, 3, b"0-0", -1, 3, 0]
    assert offsets(server) == gone
    ((row,),) = server.do("AB.OFFSETS", "FROM", '[{"": 2}]', "LIMIT", 1, "STREAMS", "s")
    assert row == [*gone, 3, b"0-0", 0, 0, b"0-0"]
    assert server.error("AB.EXPORT", "s", "", 0, 9) == "ERR no such key"
    server.do("DEL", "s")
    assert offsets(server) == gone
    server.do("XADD", "s", "1-0", "f", "v")
    assert offsets(server) == [b"", 3, 3, 4, b"1-0", 1, 3, 0]
    server.do("SET", "never", "v")
    forgotten = ("AB.OFFSETS", "FROM", '[{"": 2}]', "LIMIT", 1, "STREAMS", "never")
    assert server.do(*forgotten) == [None]


def test_positions_are_never_used_twice_for_a_key(server: Streams) -> None:
    server.do("XADD", "s", "1-0", "f", "v")
    server.do("XADD", "s", "2-0", "f", "v")
    seen = 0
    for line in (
        "DEL s",
        "FLUSHALL",
        "RENAME t s",
        "COPY t s REPLACE",
        "SET s v",
        "EXPIREAT s 1",
        "RESTORE s",
    ):
        before = offsets(server)
        assert before[1] >= seen
        seen = before[3]
        server.do("XADD", "t", "1-0", "f", "v")
        if line == "RESTORE s":
            server.do("RESTORE", "s", 0, server.do("DUMP", "t"), "REPLACE")
        else:
            server.raw(*line.split())
            server.raw("SET", "s", "v", "NX") if line == "SET s v" else None
        if server.do("TYPE", "s") == b"string":
            server.do("DEL", "s")
        if server.do("EXISTS", "s") == 0:
            server.do("XADD", "s", "*", "f", "v")
        after = offsets(server)
        assert after[1] > before[1], line
        assert after[1] >= before[3], line
        server.do("DEL", "t")
    server.check()


def test_offsets_wait_until_something_is_added(server: Streams) -> None:
    server.do("XADD", "s", "1-0", "f", "v")
    other = server.connect()
    server.raw("AB.OFFSETS", "BLOCK", 100, "AFTER", 1, "STREAMS", "s", "t", session=other)
    assert server.replies(other) == []
    server.do("XADD", "t", "1-0", "f", "v")
    ((first, second),) = server.replies(other)
    total = first[0][3] + second[0][3]
    assert (first[0][3], second[0][3] - second[0][1]) == (1, 1)
    server.raw("AB.OFFSETS", "BLOCK", 100, "AFTER", total, "STREAMS", "s", "t", session=other)
    server.do("XDEL", "s", "1-0")
    assert server.replies(other) == []
    server.advance(100)
    (late,) = server.replies(other)
    assert late[0][0][3] == 1
    assert server.do("AB.OFFSETS", "BLOCK", 0, "AFTER", 99, "STREAMS", "s")
    assert server.error("AB.OFFSETS", "BLOCK", -1, "AFTER", 1, "STREAMS", "s")


def limited(server: Streams, vector: object, limit: int, *keys: str) -> list[Any]:
    """For each stream the position and the ID that its rows end with."""
    words = ("FROM", json.dumps(vector), "LIMIT", limit, "STREAMS", *keys)
    rows = server.do("AB.OFFSETS", *words)
    plain = server.do("AB.OFFSETS", "STREAMS", *keys)
    assert [some and [row[:8] for row in some] for some in rows] == plain
    return [some and some[0][8:10] for some in rows]


def test_offsets_tell_how_far_a_reader_gets_with_so_many_entries(server: Streams) -> None:
    for number in range(1, 101):
        server.do("XADD", "s", f"{number}-0", "f", "v")
    server.do("XADD", "t", "1-0", "f", "v")
    server.do("DEL", "t")
    for number in range(1, 11):
        server.do("XADD", "t", f"{number}-0", "f", "v")
    base = offsets(server, "t")[1]
    assert base
    assert limited(server, [{}], 30, "s") == [[30, b"30-0"]]
    assert limited(server, [{"": 30}], 30, "s") == [[60, b"60-0"]]
    assert limited(server, [{"": 90}], 30, "s") == [[100, b"100-0"]]
    assert limited(server, [{"": 100}], 30, "s") == [[100, b"100-0"]]
    assert limited(server, [{}, {"": base}], 11, "s", "t") == [[10, b"10-0"], [base + 1, b"1-0"]]
    assert limited(server, [{"": 100}, {}], 4, "s", "t") == [[100, b"100-0"], [base + 4, b"4-0"]]
    assert limited(server, [{}, {}, {}], 200, "s", "none", "t") == [
        *([100, b"100-0"], None, [base + 10, b"10-0"]),
    ]
    # none waits for ever, whatever the limit
    assert limited(server, [{}, {}], 1, "s", "t") == [[1, b"1-0"], [base + 1, b"1-0"]]
    assert limited(server, [{}, {"": base + 10}], 1, "s", "t") == [
        *([1, b"1-0"], [base + 10, b"10-0"]),
    ]
    # below the beginning, and beyond the end, where nothing is
    assert limited(server, [{"": base - 1}], 4, "t") == [[base + 4, b"4-0"]]
    assert limited(server, [{"": base + 11}], 4, "t") == [[base + 10, b"10-0"]]
    # what is gone does not count towards the limit
    server.do("XTRIM", "t", "MAXLEN", "=", "6")
    assert limited(server, [{}], 4, "t") == [[base + 8, b"8-0"]]
    assert limited(server, [{"": base + 1}], 4, "t") == [[base + 8, b"8-0"]]
    server.do("XDEL", "t", "6-0", "7-0", "8-0")
    assert limited(server, [{}], 2, "t") == [[base + 9, b"9-0"]]
    words = ("FROM", json.dumps([{"": base + 3}]), "LIMIT", 9, "STREAMS", "t")
    # three are left, of which trimming kept none below its position; 3-0, before, is gone
    assert server.do("AB.OFFSETS", *words)[0][0][10:] == [3, 0, b"0-0"]
    server.do("XTRIM", "t", "MAXLEN", "=", "0")
    assert limited(server, [{}], 4, "t") == [[base + 10, b"10-0"]]
    server.check()


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_that_goes_from_limit_to_limit_reads_everything_once(
    server: Streams, seed: int
) -> None:
    rng = random.Random(seed)
    left: dict[str, list[bytes]] = {}
    for key in "stu":
        ids = [server.do("XADD", key, "*", "f", "v") for _ in range(rng.randrange(1, 60))]
        gone = [each for each in ids if rng.random() < rng.choice((0.1, 0.5, 0.9))]
        server.do("XDEL", key, *gone, b"0-1")
        left[key] = [each for each in ids if each not in gone]
    vector: list[dict[str, int]] = [{}, {}, {}]
    found: dict[str, list[bytes]] = {key: [] for key in "stu"}
    limit = rng.randrange(3, 40)
    for _ in range(200):
        stops = limited(server, vector, limit, *"stu")
        count = 0
        for key, cursor, (stop, entry_id) in zip("stu", vector, stops, strict=True):
            _, rows = exported(server, key, "", cursor.get("", 0), stop)
            found[key] += [row[1] for row in rows]
            count += len(rows)
            if rows:
                assert entry_id == rows[-1][1] or stop == offsets(server, key)[3]
            cursor[""] = stop
        assert count <= limit
        if vector == [{"": offsets(server, key)[3]} for key in "stu"]:
            break
    assert found == left


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["FROM", "[{}]"], "syntax error"),
        (["FROM", "[{}]", "UPTO", "1"], "syntax error"),
        (["FROM", "[{}]", "LIMIT"], "value is not an integer"),
        (["LIMIT", "1"], "syntax error"),
        (["FROM", "[{}]", "LIMIT", "0"], "LIMIT must be a positive integer"),
        (["FROM", "[{}]", "LIMIT", "x"], "value is not an integer"),
        (["FROM", "", "LIMIT", "1"], "Invalid vector"),
        (["FROM", "[{]", "LIMIT", "1"], "Invalid vector"),
        (["FROM", "{}", "LIMIT", "1"], "Invalid vector"),
        (["FROM", "[]", "LIMIT", "1"], "Invalid vector"),
        (["FROM", "[{},{}]", "LIMIT", "1"], "Invalid vector"),
        (["FROM", '[{"":"1"}]', "LIMIT", "1"], "Invalid vector"),
        (["FROM", '[{"":1.5}]', "LIMIT", "1"], "Invalid vector"),
        (["FROM", b'[{"\xff":1}]', "LIMIT", "1"], "Invalid vector"),
        (["FROM", b"[" * 100_000, "LIMIT", "1"], "Invalid vector"),
    ],
)
def test_a_vector_that_is_none_is_refused(server: Streams, words: list[str], refusal: str) -> None:
    server.do("XADD", "s", "1-0", "f", "v")
    assert refusal in server.error("AB.OFFSETS", *words, "STREAMS", "s")


def test_waiting_and_limiting_go_together(server: Streams) -> None:
    server.do("XADD", "s", "1-0", "f", "v")
    other = server.connect()
    words = ("BLOCK", 100, "AFTER", 1, "FROM", '[{"":1}]', "LIMIT", 1, "STREAMS", "s")
    server.raw("AB.OFFSETS", *words, session=other)
    assert server.replies(other) == []
    server.do("XADD", "s", "2-0", "f", "v")
    assert server.replies(other) == [[[[b"", 0, 0, 2, b"2-0", 2, 0, 0, 2, b"2-0", 1, 0, b"1-0"]]]]


# -- AB.EXPORT --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_an_export_is_the_live_entries_of_a_range(server: Streams, seed: int) -> None:
    rng = random.Random(seed)
    server.do("CONFIG", "SET", "stream-node-max-entries", rng.choice((1, 3, 7, 100)))
    expected: dict[int, tuple[bytes, list[bytes]]] = {}
    ms = 1
    for position in range(rng.randrange(1, 150)):
        ms += rng.choice((0, 1, 50, 1 << 41)) if rng.random() < 0.3 else 1
        fields = [rng.randbytes(rng.randrange(5)) for _ in range(2 * rng.randrange(1, 4))]
        entry_id = server.do("XADD", "s", f"{ms}-*", *fields)
        expected[position] = entry_id, fields
    if rng.random() < 0.5:
        with whatever_it_gains():
            compress_all(server.region.keyspace, server.region.keyspace.block_cache)
    for position in list(expected):
        if rng.random() < rng.choice((0.0, 0.2, 0.9)):
            server.do("XDEL", "s", expected.pop(position)[0])
    base = offsets(server)[1]
    end = offsets(server)[3]
    low = rng.randrange(end + 1)
    high = rng.randrange(low, end + 20)
    rows: list[Row] = []
    at = base + low
    while at < min(base + high, end):
        following, some = exported(
            *(server, "s", "", at, base + high, "MAXBYTES", rng.choice((1, 200))),
            *rng.choice(((), ("CODEC", "none"), ("CODEC", "nodes"), ("CODEC", "zstd"))),
        )
        assert some or following == min(base + high, end)
        assert at < following <= min(base + high, end)
        rows += some
        at = following
    assert rows == [
        (base + position, *entry) for position, entry in expected.items() if low <= position < high
    ]


@pytest.mark.parametrize("ms", [2**63 - 1, 2**63, 2**64 - 2])
def test_the_times_of_ids_may_have_64_bits(server: Streams, ms: int) -> None:
    server.do("CONFIG", "SET", "stream-node-max-entries", 3)
    ids = [b"%d-%d" % (ms + number // 4, number) for number in range(1, 8)]
    for entry_id in ids:
        server.do("XADD", "s", entry_id, "f", "v")
    for _ in range(2):  # open and closed blocks, then compressed ones
        for codec in ("none", "nodes", "zstd"):
            _, rows = exported(server, "s", "", 0, 10, "CODEC", codec)
            assert [row[1] for row in rows] == ids
        compress_all(server.region.keyspace, BlockCache(1 << 20))


def test_export_refuses_what_is_not_there(server: Streams) -> None:
    assert server.error("AB.EXPORT", "s", "", 0, 1) == "ERR no such key"
    server.do("XADD", "s", "1-0", "f", "v")
    assert exported(server, "s", "", 0, 100) == (1, [(0, b"1-0", [b"f", b"v"])])
    assert exported(server, "s", "mars", 0, 100) == (0, [])
    assert exported(server, "s", "", 1, 100) == (1, [])
    assert server.error("AB.EXPORT", "s", "", 0, "x").startswith("ERR value is not an integer")
    assert server.error("AB.EXPORT", "s", "", 0, 1, "MAXBYTES") == "ERR syntax error"
    assert server.error("AB.EXPORT", "s", "", 0, 1, "CODEC") == "ERR syntax error"
    assert server.error("AB.EXPORT", "s", "", 0, 1, "CODEC", "zstd", "x") == "ERR syntax error"
    assert server.error("AB.EXPORT", "s", "", 0, 1, "CODEC", "lz4") == (
        "ERR unknown codec, it is NONE, NODES or ZSTD"
    )
    server.do("SET", "k", "v")
    assert server.error("AB.EXPORT", "k", "", 0, 1).startswith("WRONGTYPE")


def test_an_export_is_compressed_if_that_makes_it_smaller(server: Streams) -> None:
    server.do("XADD", "s", "1-0", "f", "v")
    nothing = server.do("AB.EXPORT", "s", "", 1, 100)
    assert nothing[:2] == b"\2\0"
    assert server.do("AB.EXPORT", "s", "", 1, 100, "CODEC", "zstd") == nothing
    for number in range(2, 100):
        server.do("XADD", "s", f"{number}-0", "sensor", "one and the same")
    for words in (("CODEC", "none"), ("MAXBYTES", 1 << 20, "codec", "NONE")):
        assert server.do("AB.EXPORT", "s", "", 0, 100, *words)[:2] == b"\2\0"
    whole = server.do("AB.EXPORT", "s", "", 0, 100)
    smaller = server.do("AB.EXPORT", "s", "", 0, 100, "CODEC", "Zstd", "MAXBYTES", 1 << 20)
    assert smaller[:2] == b"\2\1"
    assert smaller[2:16] + pyzstd.decompress(smaller[16:]) == whole[2:]
    assert len(smaller) < len(whole) / 4


@pytest.mark.parametrize("names", [("x",), ("x", "y")], ids=["as columns", "as they are"])
def test_compressed_nodes_are_exported_as_they_are_held(
    server: Streams, names: tuple[str, ...]
) -> None:
    for number in range(1, 251):
        name = names[number % len(names)]
        what = ("sensor", "one and the same" * (number % 30), name, number % 9)
        server.do("XADD", "s", f"{number}-{number % 3}", *what)
    plain = exported(server, "s", "", 0, 250)
    assert server.do("AB.EXPORT", "s", "", 0, 250, "CODEC", "nodes")[16 + 4] == 0
    cache = BlockCache(1 << 20)
    assert compress_all(server.region.keyspace, cache) == 35
    assert exported(server, "s", "", 0, 250, "CODEC", "nodes") == plain
    assert cache.opens == 0
    limited = exported(server, "s", "", 0, 250, "MAXBYTES", 1, "CODEC", "nodes")
    assert limited == (7, plain[1][:7])
    assert exported(server, "s", "", 50, 250, "CODEC", "nodes") == (250, plain[1][50:])


# -- AB.IMPORT --------------------------------------------------------------------------------

ROWS = [[b"f", b"%d" % number, b"\r\n$1", b""] for number in range(20)]


def test_an_import_adds_what_xadd_would(server: Streams) -> None:
    other = Streams()
    other.do("CONFIG", "SET", "stream-node-max-entries", 7)
    reply = server.do("AB.IMPORT", "s", payload(*ROWS))
    ids = [other.do("XADD", "s", "*", *row) for row in ROWS]
    assert reply == [1, 20, 0, ids[0], ids[-1]]
    assert server.do("XRANGE", "s", "-", "+") == other.do("XRANGE", "s", "-", "+")
    for each in (server, other):
        each.check()
    blocks, others = (
        [
            (block.slots, block.weight)
            for block in each.region.keyspace.databases[0].values[b"s"].local.blocks
        ]
        for each in (server, other)
    )
    assert blocks == others
    assert server.do("AB.IMPORT", "s", payload()) == [1, 0, 0]
    assert server.do("AB.IMPORT", "s", "MAXLEN", "=", "3", payload(ROWS[0]))[:2] == [1, 1]
    assert server.do("XLEN", "s") == 3


@pytest.mark.parametrize("fields", [1, 2, 3, 40])
@pytest.mark.parametrize("size", [0, 1, 5000, 70_000])
def test_an_entry_weighs_the_same_whichever_way_it_came(fields: int, size: int) -> None:
    server = Streams()
    row = [word for number in range(fields) for word in (b"f%d" % number, b"v" * size)]
    server.do("XADD", "added", "*", *row)
    server.do("AB.IMPORT", "imported", payload(row))
    server.do("RESTORE", "restored", "0", server.do("DUMP", "added"))
    streams = server.region.keyspace.databases[0].values
    weights = [
        [block.weight for block in streams[key].local.blocks]
        for key in (b"added", b"imported", b"restored")
    ]
    assert weights[0][0] > size // 2
    assert weights == [weights[0]] * 3


def test_others_are_served_while_rows_are_checked_and_see_all_or_none(server: Streams) -> None:
    """With a slice for each step: the reply comes when all rows are in."""
    region, other = server.region, server.connect()
    data = payload(*([b"f", b"%d" % number] for number in range(10_000)))
    region.scheduler.drive(lambda: None)
    server.clock.tick_ns = TURN_NS // 2  # no two steps in one turn
    region.execute(server.session, [[b"AB.IMPORT", b"s", data]])
    steps = 0
    while server.session.sliced is not None:
        steps += 1
        assert not server.session.outbox
        assert server.do("XLEN", "s", session=other) == 0
        region.scheduler.run_turn()
    assert steps >= 3
    assert server.replies(server.session)[0][:2] == [1, 10_000]
    assert server.do("XLEN", "s", session=other) == 10_000
    assert offsets(server)[5] == 10_000
    server.check()


@pytest.mark.parametrize("at", [0, 4_000, 9_999])
def test_one_row_that_is_none_refuses_all(server: Streams, at: int) -> None:
    rows = [[b"f", b"%d" % number] for number in range(10_000)]
    whole = payload(*rows)
    begin = whole.index(part(rows[at]))
    broken = whole[:begin] + b"-" + whole[begin + 1 :]
    assert server.error("AB.IMPORT", "s", broken) == "ERR invalid payload"
    ends = list(struct.unpack_from("<10000I", whole, 4))
    ends[at], ends[5_000] = ends[5_000], ends[at]
    broken = whole[:4] + struct.pack("<10000I", *ends) + whole[40_004:]
    assert server.error("AB.IMPORT", "s", broken) == "ERR invalid payload"
    assert server.do("EXISTS", "s") == 0


def test_a_batch_is_added_once(server: Streams) -> None:
    def bring(batch: int, expected: int, rows: list[list[bytes]]) -> list[Any]:
        return server.do(
            *("AB.IMPORT", "s", "PRODUCER", "p", "BATCH", batch, "EXPECT", expected),
            payload(*rows),
        )

    first = crc32(b"".join(map(part, ROWS[:8])))
    both = crc32(b"".join(map(part, ROWS[8:])), first)
    assert bring(4, 0, ROWS[:8])[:3] == [1, 8, first]
    assert bring(4, 0, ROWS[:8]) == [0, 8, first]
    assert bring(4, 8, ROWS[8:])[:3] == [1, 20, both]
    assert bring(3, 0, ROWS) == [-1, 20, both]
    assert bring(5, 20, ROWS) == [0, 0, 0]
    assert bring(5, 0, ROWS[:1])[:2] == [1, 1]
    assert server.do("XLEN", "s") == 21
    assert server.do("AB.LEDGER", "s") == [
        [b"p", 5, 1, crc32(part(ROWS[0])), server.clock.us // 1000]
    ]
    server.do("COPY", "s", "t")
    assert server.do("AB.LEDGER", "t") == server.do("AB.LEDGER", "s")
    assert server.error("AB.LEDGER", "none") == "ERR no such key"


def test_rows_behind_others_than_those_expected_are_not_added(server: Streams) -> None:
    crc = crc32(b"".join(map(part, ROWS[:8])))

    def bring(given: int, rows: list[list[bytes]]) -> list[Any]:
        words = ("PRODUCER", "p", "BATCH", 1, "EXPECT", 0 if rows == ROWS[:8] else 8, "CRC", given)
        return server.do("AB.IMPORT", "s", *words, payload(*rows))

    assert bring(0, ROWS[:8])[:3] == [1, 8, crc]
    assert bring(crc ^ 1, ROWS[8:]) == [0, 8, crc]
    assert server.do("XLEN", "s") == 8
    assert bring(crc, ROWS[8:])[:2] == [1, len(ROWS)]


def bring(server: Streams, pid: str, batch: int = 0) -> None:
    words = ("AB.IMPORT", "s", "PRODUCER", pid, "BATCH", batch, "EXPECT", 0)
    assert server.do(*words, payload(ROWS[0]))[0] == 1


def producers(server: Streams) -> list[bytes]:
    """Those with a record, the longest unused first."""
    return [row[0] for row in server.do("AB.LEDGER", "s")]


def test_records_that_nobody_uses_are_dropped(server: Streams) -> None:
    bring(server, "old")
    bring(server, "used")
    server.advance(1000)
    bring(server, "young")
    server.advance(30 * 24 * 3600 * 1000 - 1000)
    bring(server, "used", 1)
    assert producers(server) == [b"old", b"young", b"used"]
    server.advance(1000)
    assert producers(server) == [b"young", b"used"]
    server.advance(1000)
    assert producers(server) == [b"used"]


def test_how_long_records_are_kept_can_be_changed(server: Streams) -> None:
    bring(server, "p")
    server.do("CONFIG", "SET", "ledger-retention", "0")
    server.advance(400 * 24 * 3600 * 1000)
    assert producers(server) == [b"p"], "0 is for ever"
    bring(server, "q")
    server.do("CONFIG", "SET", "ledger-retention", "60")
    server.advance(60_000)
    assert producers(server) == [b"q"]
    server.advance(1000)
    assert producers(server) == []


def test_a_clock_that_is_off_drops_no_records(server: Streams) -> None:
    server.settings.ledger_retention = 60
    bring(server, "p")
    server.region.context.ids.refusal = "ERR the clock is off"
    server.advance(100_000)
    assert producers(server) == [b"p"]
    server.region.context.ids.refusal = ""
    server.advance(1000)
    assert producers(server) == []


def test_many_records_are_dropped_bit_by_bit(server: Streams) -> None:
    server.settings.ledger_retention = 60
    for number in range(RECORDS_MAX + 1):
        bring(server, f"p{number}")
    server.advance(61_000)
    assert producers(server) == [b"p%d" % RECORDS_MAX]
    server.advance(1000)
    assert producers(server) == []


def test_how_many_records_there_are_is_shown_last_and_only_if_there_are_any(
    server: Streams,
) -> None:
    def shown(*words: str) -> list[Any]:
        return server.do("XINFO", "STREAM", "s", *words)

    server.do("XADD", "s", "1-0", "f", "v")
    server.do("XGROUP", "CREATE", "s", "g", "0")
    before, full = shown(), shown("FULL")
    assert b"ledger-records" not in before + full
    assert server.do("AB.INFO", "s")[-2:] == [b"ledger-records", 0]
    bring(server, "p")
    bring(server, "q")
    assert [shown()[::2], shown("FULL")[::2]] == [
        [*before[::2], b"ledger-records"],
        [*full[::2], b"ledger-records"],
    ]
    for reply in (shown(), shown("FULL"), server.do("AB.INFO", "s")):
        assert reply[-2:] == [b"ledger-records", 2]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\1\0\0",
        struct.pack("<I", 1),
        struct.pack("<2I", 1, 0),
        struct.pack("<I", 1 << 31),
        payload(ROWS[0])[:-1],
        payload(ROWS[0]) + b"x",
        struct.pack("<3I", 2, 40, 20) + b"x" * 20,
        *(
            struct.pack("<2I", 1, len(row)) + row
            for row in (
                b"*0\r\n",
                b"*1\r\n$1\r\nf\r\n",
                b"*2\r\n$1\r\nf\r\n",
                b"*2\r\n$1\r\nf\r\n$2\r\nv\r\n",
                b"*2\r\n$1\r\nf\r\n$-1\r\n",
                b"*2\r\n$01\r\nf\r\n$1\r\nv\r\n",
                b"*2\r\n$1\r\nf\r\n:1\r\nv\r\n",
                b"*2\r\n$1\r\nf\r\n$1\r\nvxx",
                b"*+2\r\n$1\r\nf\r\n$1\r\nv\r\n",
                b"*2\r\n$9999999999999999\r\nf\r\n",
            )
        ),
    ],
)
def test_a_payload_that_is_none_changes_nothing(server: Streams, bad: bytes) -> None:
    assert server.error("AB.IMPORT", "s", bad) == "ERR invalid payload"
    assert server.do("EXISTS", "s") == 0


def test_import_options_are_checked(server: Streams) -> None:
    good = payload(ROWS[0])
    for words in (
        ["PRODUCER", "p", good],
        ["PRODUCER", "p", "BATCH", "1", good],
        ["PRODUCER", "p", "EXPECT", "0", "BATCH", "0", good],
        ["PRODUCER", "p", "BATCH", "0", "EXPECT", "0", "CRC", good],
        ["NOTHING", good],
        ["MAXLEN", good],
    ):
        assert server.error("AB.IMPORT", "s", *words) == "ERR syntax error"
    assert "non-empty" in server.error(
        *("AB.IMPORT", "s", "PRODUCER", "", "BATCH", "1", "EXPECT", "0", good)
    )
    assert server.error(*("AB.IMPORT", "s", "PRODUCER", "p", "BATCH", "-1", "EXPECT", "0", good))
    words = ("PRODUCER", "p", "BATCH", "0", "EXPECT", "0", "CRC")
    assert "positive" in server.error("AB.IMPORT", "s", *words, "-1", good)
    assert "not an integer" in server.error("AB.IMPORT", "s", *words, "x", good)
    server.do("XADD", "s", "18446744073709551615-18446744073709551615", "f", "v")
    assert "exhausted" in server.error("AB.IMPORT", "s", good)
    server.do("DEL", "s")
    server.do("XADD", "s", "1-0", "f", "v")
    server.do("AB.SEAL", "s")
    assert server.error("AB.IMPORT", "s", good).startswith("SEALED")
    server.do("SET", "k", "v")
    assert server.error("AB.IMPORT", "k", good).startswith("WRONGTYPE")


def test_an_import_of_too_many_rows_is_refused_whole(server: Streams) -> None:
    row = [b"f", b"v"]
    refusal = "ERR the payload has more than 10000 rows: bring it in several commands"
    assert server.error("AB.IMPORT", "s", payload(*[row] * 10_001)) == refusal
    assert server.do("EXISTS", "s") == 0
    assert server.do("AB.IMPORT", "s", payload(*[row] * 10_000))[:2] == [1, 10_000]


def test_an_export_gives_no_more_than_its_bound_and_says_where_to_go_on(server: Streams) -> None:
    for _ in range(20):
        server.do("XADD", "s", "*", "f", b"x" * (1 << 20))
    reached, rows = exported(server, "s", "", 0, 20, "MAXBYTES", 1 << 30)
    assert 0 < reached < 20
    assert len(rows) == reached
    assert sum(len(fields[1]) for *_, fields in rows) <= 9 << 20
