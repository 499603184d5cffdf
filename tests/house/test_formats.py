"""`docs/formats.md` can be followed: a reader made from that page alone reads what is written."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import Any

import msgspec
import pyzstd
from xxhash import xxh3_64_intdigest

from anabranch.effects.apply import EFFECTS
from anabranch.oplog import batch, segment, snapshot
from anabranch.oplog.inspection import Survey
from anabranch.replication import frames
from anabranch.replication.framing import FrameType
from anabranch.simulator.disk import MemoryStorage
from tests.house.formats import formats_page
from tests.house.markdown import pages
from tests.support.logged_server import LoggedServer

LONG = "x" * 2000


def life() -> LoggedServer:
    """Short and long bodies, local and numbered effects, one of each kind of record."""
    one = LoggedServer()
    one.run(
        "XADD s 1-0 f v", f"XADD s 2-0 f {LONG}", "XADD s IDMP p i * f v", "XGROUP CREATE s g 0"
    )
    one.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >", "SET k v", "ACL SETUSER ann on")
    one.run("RPUSH l 1 2", "SADD m 1", "EXPIRE m 100", "XDEL s 1-0")
    one.snapshot()
    return one


def files() -> dict[str, bytes]:
    storage = life().storage
    assert isinstance(storage, MemoryStorage)
    return storage.files()


# -- the page, as a reader ------------------------------------------------------------------------


def after_header(data: bytes, magic: bytes, version: int, position: int) -> io.BytesIO:
    file = io.BytesIO(data)
    header = file.read(32)
    assert struct.unpack("<8sHHIQ", header[:24]) == (magic, version, 1, 0, position)
    assert struct.unpack("<Q", header[24:]) == (xxh3_64_intdigest(header[:24]),)
    return file


def body_of(data: bytes, *, compressed: bool) -> list[Any]:
    if compressed:
        data = pyzstd.decompress(data)
    return list(msgspec.msgpack.decode(data))


def effects_in(file: io.BytesIO) -> Iterator[tuple[int, bool, list[Any]]]:
    """``(number, local, effect)``."""
    due = 1
    while header := file.read(41):
        magic, version, flags, region, epoch, first, count, _, size = struct.unpack(
            "<2sBBBIQIQI", header[:33]
        )
        assert (magic, version, region, epoch) == (b"AB", 1, 0, 0)
        data = file.read(size)
        assert struct.unpack("<Q", header[33:]) == (xxh3_64_intdigest(header[:33] + data),)
        dependencies, effects = body_of(data, compressed=bool(flags & 4))
        assert dependencies == []
        assert first == due
        due = first + count
        for effect in effects:
            yield first, bool(flags & 1), effect
            if not flags & 1:
                first += sum(effect[3][2::3]) if effect[0] == 7 else 1
        assert first == due


def records_in(file: io.BytesIO) -> Iterator[list[Any]]:
    while frame := file.read(13):
        flags, size, checksum = struct.unpack("<BIQ", frame)
        data = file.read(size)
        assert checksum == xxh3_64_intdigest(data)
        yield body_of(data, compressed=bool(flags & 1))


def test_a_segment_is_as_the_page_says() -> None:
    data = files()["log-00000000000000000000.ablog"]
    found = list(effects_in(after_header(data, b"ANABRLOG", 2, 0)))
    kinds = {kind.__struct_config__.tag: kind.__name__ for kind in EFFECTS}
    survey = Survey(MemoryStorage({"log-00000000000000000000.ablog": data}))
    walked = list(survey.walk())
    assert [kinds[effect[0]] for _, _, effect in found] == [
        type(effect).__name__
        for item in walked
        for effect in item.effects  # type: ignore[union-attr]
    ]
    (run, *_) = [effect for _, _, effect in found if effect[0] == 7]
    _, database, key, runs, fragments, sizes, *_ = run
    assert (database, key, runs, len(fragments)) == (0, b"s", [1, 0, 1, 2, 0, 2], sum(sizes))
    assert fragments.startswith(b"*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
    assert {effect[0] for _, local, effect in found if local} == {24, 27, 60}


def test_a_snapshot_is_as_the_page_says() -> None:
    name, data = max(files().items())
    position = int(name.removeprefix("snapshot-").removesuffix(".absnap"))
    records = list(records_in(after_header(data, b"ANABRSNP", 1, position)))
    assert [records[0][0], records[-1]] == [0, [8, len(records) - 1]]
    assert sorted(record[0] for record in records[1:-1]) == [1, 2, 3, 4, 5, 6, 7]
    by_type = {record[0]: record[1:] for record in records}
    assert by_type[1] == [0, b"k", None, b"v"]
    assert by_type[2] == [0, b"l", None, [b"1", b"2"]]
    assert by_type[3][3] == [b"1"]
    assert by_type[7][0] == b"ann"
    counters, producers, logs, groups, ledger, shared = by_type[4][3]
    assert shared is None
    assert counters[:2] == [[2, 1], [1, 0]]
    assert producers[4][0][:1] == [b"p"]
    assert (len(logs), ledger) == (1, [])
    assert groups[0][:3] == [b"g", [[0, [2, 0]]], 2]
    assert by_type[5][:6] == [0, 0, [b"c"], [1, 2], [0, 0], [0, 0]]
    region, (block,) = by_type[6]
    first, _, ids, fragments, wide, ends, dead, *_ = block
    assert (region, first, ids, dead) == (0, [1, 0], [[1, 2, 2], [0, 0, 1]], [0])
    offsets = struct.unpack(f"<3{'Q' if wide else 'H'}", ends)
    assert offsets[-1] == len(fragments)
    assert fragments[: offsets[1]].endswith(b"$2000\r\n" + LONG.encode() + b"\r\n")


# -- the numbers on the page ----------------------------------------------------------------------


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    page = pages()["docs/formats.md"].partition("## Wire format")[0]
    rows = dict(re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", page, re.MULTILINE))
    assert {int(number): getattr(snapshot, name) for number, name in rows.items()} == {
        number: number for number in range(18)
    }
    flags = re.findall(r"(\d) `([A-Z_]+)`", page)
    assert {name: getattr(batch, name) for _, name in flags} == {
        name: int(number) for number, name in flags
    }
    assert {name for _, name in flags} == {"LOCAL", "CONTINUES", "COMPRESSED", "UNIT_CONTINUES"}
    assert f"begin with {segment.SEGMENT_HEADER_BYTES} bytes" in page
    assert f"{batch.HEADER_BYTES} bytes and a body" in page
    versions = (batch.BATCH_VERSION, segment.FORMAT_VERSION, snapshot.FORMAT_VERSION)
    assert versions == (1, 2, 1), "the page says so"


def test_every_kind_of_effect_is_in_the_table() -> None:
    page = formats_page()
    for kind in EFFECTS:
        assert f"| {kind.__struct_config__.tag} | `{kind.__name__}`" in page


# -- frames between regions -----------------------------------------------------------------------


def test_every_frame_is_in_the_table_with_its_fields() -> None:
    table = (
        pages()["docs/formats.md"].partition("| Type | Frame | Fields |")[2].partition("\n\n")[0]
    )
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \| ([^|]*)\|", table, re.MULTILINE)
    shown = {(int(number), name): re.findall(r"`(\w+)`", fields) for number, name, fields in rows}
    sent = {
        kind: [field.name for field in msgspec.structs.fields(struct)]
        for kind, struct in frames.STRUCTS.items()
    }
    assert shown == {
        (each.value, each.name): sent.get(each, [])  # a batch and a piece of a snapshot have none
        for each in FrameType
    }
    row = ", ".join(field.name for field in msgspec.structs.fields(frames.StatusRow))
    assert f"A status row is `[{row}]`" in pages()["docs/formats.md"]
