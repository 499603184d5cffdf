"""Streams: image to bytes and back, and every inconsistency that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from anabranch.rdb import listpack
from anabranch.rdb.chunk_reader import ChunkReader
from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.kinds import StreamType
from anabranch.rdb.lengths import Cursor
from anabranch.rdb.stream_codec import encode_stream
from anabranch.rdb.stream_node import decode_node, encode_node
from anabranch.rdb.values import decode_value
from anabranch.rdb.walk import WALKS
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    NodesCheck,
    PendingCheck,
    PendingImage,
    ProducerImage,
    StreamImage,
)

V1, V2, V5 = StreamType.V1, StreamType.V2, StreamType.V5


def _decode(data: bytes, stream_type: StreamType = V5) -> StreamImage:
    cursor = Cursor(data)
    image = decode_value(cursor, stream_type)
    assert isinstance(image, StreamImage)
    assert not cursor.remaining
    return image


def _nodes(master_id: int, packed: bytes) -> list[NodeImage]:
    return list(decode_node(master_id, listpack.decode(packed), Cursor(b"").spend))


def _sample() -> StreamImage:
    """Three entries; a group with two consumers, an entry each, and one given back; a producer."""
    entries = [(number << 64, [b"f", b"v%d" % number]) for number in (1, 2, 3)]
    pending = [
        PendingImage(1 << 64, 1000, 1, b"a"),
        PendingImage(2 << 64, 1000, 1, b"b"),
        PendingImage(3 << 64, 0, 1, None),
    ]
    consumers = [ConsumerImage(b"a", 1000, 1000), ConsumerImage(b"b", 1000, -1)]
    return StreamImage(
        nodes=[NodeImage(entries[:2], 2), NodeImage(entries[2:], 1)],
        length=3,
        last_id=3 << 64,
        first_id=1 << 64,
        entries_added=3,
        groups=[GroupImage(b"g", 3 << 64, 3, pending, consumers, [3 << 64])],
        idmp_duration=100,
        idmp_maxsize=100,
        iids_added=2,
        producers=[ProducerImage(b"p", [(b"i1", 1 << 64), (b"i2", 2 << 64)])],
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(list(StreamType)))
def test_images_come_back(
    stream_images: Callable[[StreamType], SearchStrategy[StreamImage]],
    data: st.DataObject,
    stream_type: StreamType,
) -> None:
    image = data.draw(stream_images(stream_type))
    image.check()
    assert _decode(encode_stream(image, stream_type), stream_type) == image


def test_the_sample_is_sound() -> None:
    assert _decode(encode_stream(_sample())) == _sample()


def test_type_15_gets_counters_and_asks_for_estimates() -> None:
    image = _sample()
    image.max_deleted_id = 7
    image.entries_added = 9
    del image.groups[0].pending[2]
    image.groups[0].nacked = []
    old = _decode(encode_stream(image, V1), V1)
    assert (old.entries_added, old.max_deleted_id, old.first_id) == (3, 0, 1 << 64)
    assert old.groups[0].entries_read is None
    assert old.groups[0].estimate_entries_read
    assert old.idmp_duration is old.idmp_maxsize is None


def test_an_unknown_count_of_read_entries_needs_no_estimate() -> None:
    image = _sample()
    image.groups[0].entries_read = None
    again = _decode(encode_stream(image))
    assert again.groups[0].entries_read is None
    assert not again.groups[0].estimate_entries_read


def test_unstated_settings_are_written_as_the_defaults() -> None:
    image = _sample()
    image.idmp_duration = image.idmp_maxsize = None
    again = _decode(encode_stream(image))
    assert (again.idmp_duration, again.idmp_maxsize) == (100, 100)


def test_going_back_leaves_out_what_has_no_place() -> None:
    image = _sample()
    del image.groups[0].pending[2]
    image.groups[0].nacked = []
    old = _decode(encode_stream(image, V2), V2)
    assert not old.producers
    assert old.iids_added == 0
    assert [consumer.active_time_ms for consumer in old.groups[0].consumers] == [1000, 1000]


def test_going_back_with_nacked_entries_is_refused() -> None:
    with pytest.raises(ValueError, match="NACKed"):
        encode_stream(_sample(), V2)


@pytest.mark.parametrize("stream_type", StreamType)
def test_a_stream_of_every_type_is_passed_without_decoding_it(stream_type: StreamType) -> None:
    image = _sample()
    if not stream_type.has_nacked:
        del image.groups[0].pending[2]
        image.groups[0].nacked = []
    data = encode_stream(image, stream_type)
    reader = ChunkReader([data])
    WALKS[stream_type](reader)
    assert reader.offset == len(data)


def test_producers_whose_ids_expired_are_skipped() -> None:
    data = encode_stream(_sample())
    tail = bytes.fromhex("01 0170 02 026931 0100 026932 0200 02 00")
    assert data.endswith(tail)
    again = _decode(data[: -len(tail)] + bytes.fromhex("02 0170 00 0171 01 026931 0100 02 00"))
    assert again.producers == [ProducerImage(b"q", [(b"i1", 1 << 64)])]


def test_a_node_of_deleted_entries_alone_is_dropped() -> None:
    packed = listpack.encode([0, 1, 1, b"f", 0, 3, 0, 0, b"v", 4])
    assert [node.entries for node in _nodes(1 << 64, packed)] == [[]]
    data = b"\x01\x10" + (1 << 64).to_bytes(16, "big") + bytes((len(packed),)) + packed
    assert _decode(data + bytes(4), V1).nodes == []


def test_differences_of_ids_wrap_around() -> None:
    low, high = 1 << 64, (2**64 - 1) << 64 | (2**64 - 1)
    node = NodeImage([(low + 5, [b"f", b"1"]), (2 << 64, [b"f", b"2"]), (high, [b"f", b"3"])], 3)
    assert _nodes(*encode_node(node)) == [node]


def test_a_very_large_node_becomes_several() -> None:
    entries = [(number << 64, [b"f", b"%d" % number]) for number in range(1, 20_001)]
    pieces = _nodes(*encode_node(NodeImage(entries, 20_003)))
    assert [entry for node in pieces for entry in node.entries] == entries
    assert sum(node.slots for node in pieces) == 20_003
    assert max(node.slots for node in pieces) < 5000


@pytest.mark.parametrize(
    "elements",
    [
        [],
        [1],
        [1, 0],
        [1, 0, 1, b"f"],
        [1, 0, 1, b"f", 1, 2, 0, 0, b"v", 4],  # master entry not terminated
        [1, 0, 1, b"f", b"", 2, 0, 0, b"v", 4],
        [2, 0, 1, b"f", 0, 2, 0, 0, b"v", 4],  # counts
        [0, 1, 1, b"f", 0, 2, 0, 0, b"v", 4],
        [b"x", 0, 1, b"f", 0, 2, 0, 0, b"v", 4],
        [1, 0, -1, b"f", 0, 2, 0, 0, b"v", 4],
        [1, 0, 2**40, b"f", 0, 2, 0, 0, b"v", 4],
        [1, 0, 1, b"f", 0, 4, 0, 0, b"v", 4],  # flags
        [1, 0, 1, b"f", 0, -1, 0, 0, b"v", 4],
        [1, 0, 1, b"f", 0, b"x", 0, 0, b"v", 4],
        [1, 0, 1, b"f", 0, 2, b"x", 0, b"v", 4],
        [1, 0, 1, b"f", 0, 2, 0, b"x", b"v", 4],
        [1, 0, 1, b"f", 0, 2, 0, 0, b"v", 5],  # size of the entry
        [1, 0, 1, b"f", 0, 2, 0, 0, b"v"],
        [1, 0, 1, b"f", 0, 2, 0, 0],
        [1, 0, 1, b"f", 0, 0, 0, 0, 1, b"f", b"v", 5],
        [1, 0, 1, b"f", 0, 0, 0, 0, -1, 2],
        [1, 0, 1, b"f", 0, 0, 0, 0, 2**60, b"f", b"v", 6],
        [1, 0, 1, b"f", 0, 2, 0, 0, b"v", 4, 7],
    ],
)
def test_nodes_that_are_refused(elements: list[int | bytes]) -> None:
    with pytest.raises(PayloadFormatError):
        _nodes(1 << 64, listpack.encode(elements))


Spoil = Callable[[StreamImage], object]

_BROKEN_IMAGES: dict[str, Spoil] = {
    "entries out of order": lambda image: image.nodes.reverse(),
    "entry twice": lambda image: image.nodes[0].entries.insert(0, image.nodes[0].entries[0]),
    "entry 0-0": lambda image: image.nodes[0].entries.insert(0, (0, [b"f", b"v"])),
    "length": lambda image: setattr(image, "length", 4),
    "last ID": lambda image: setattr(image, "last_id", (3 << 64) - 1),
    "entries added": lambda image: setattr(image, "entries_added", 2),
    "entries added huge": lambda image: setattr(image, "entries_added", 2**63),
    "no pairs": lambda image: image.nodes[1].entries.__setitem__(0, (3 << 64, [])),
    "group twice": lambda image: image.groups.append(deepcopy(image.groups[0])),
    "entries read": lambda image: setattr(image.groups[0], "entries_read", 2**63),
    "pending out of order": lambda image: image.groups[0].pending.reverse(),
    "pending twice": lambda image: image.groups[0].pending.insert(
        0, deepcopy(image.groups[0].pending[0])
    ),
    "consumer twice": lambda image: image.groups[0].consumers.append(ConsumerImage(b"a", 1, 1)),
    "active time": lambda image: setattr(image.groups[0].consumers[0], "active_time_ms", -2),
    "nacked twice": lambda image: image.groups[0].nacked.append(3 << 64),
    "nacked but owned": lambda image: image.groups[0].nacked.__setitem__(0, 1 << 64),
    "nacked but not pending": lambda image: image.groups[0].nacked.append(9),
    "unowned but not nacked": lambda image: image.groups[0].nacked.clear(),
    "duration": lambda image: setattr(image, "idmp_duration", 86_401),
    "duration 0": lambda image: setattr(image, "idmp_duration", 0),
    "maxsize": lambda image: setattr(image, "idmp_maxsize", 10_001),
    "too many iids": lambda image: setattr(image, "idmp_maxsize", 1),
    "producer twice": lambda image: image.producers.append(deepcopy(image.producers[0])),
    "producer unnamed": lambda image: setattr(image.producers[0], "pid", b""),
    "iid twice": lambda image: image.producers[0].iids.append((b"i1", 5)),
    "iid empty": lambda image: image.producers[0].iids.append((b"", 5)),
    "iids added": lambda image: setattr(image, "iids_added", 2**63),
}


@pytest.mark.parametrize("name", _BROKEN_IMAGES)
def test_inconsistent_streams_are_refused_in_both_directions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = _sample()
    _BROKEN_IMAGES[name](image)
    with pytest.raises(ValueError):  # noqa: PT011 -- each has its own text
        encode_stream(image)
    with monkeypatch.context() as patch:
        patch.setattr(StreamImage, "check_rest", lambda _: None)
        for check in (NodesCheck, PendingCheck):
            patch.setattr(check, "add", lambda *_: None)
            patch.setattr(check, "end", lambda *_: None)
        data = encode_stream(image)
    with pytest.raises(PayloadFormatError):
        _decode(data)


def test_images_that_no_payload_can_spell_fail_their_check() -> None:
    for spoil in (
        lambda image: setattr(image.nodes[0], "slots", 1),
        lambda image: image.nodes.append(NodeImage([], 1)),
        lambda image: image.nodes[0].entries[0][1].append(b"odd"),
        lambda image: setattr(image, "first_id", 2 << 64),
        lambda image: setattr(image.groups[0].pending[0], "consumer", b"nobody"),
        lambda image: setattr(image.groups[0].pending[0], "delivery_time_ms", -1),
        lambda image: setattr(image.producers[0], "iids", []),
        lambda image: setattr(image, "last_id", 2**128),
    ):
        image = _sample()
        spoil(image)
        with pytest.raises(ValueError):  # noqa: PT011 -- each has its own text
            image.check()


def _group(pending: str, consumers: str, nacked: str = "00") -> bytes:
    """A stream without entries (last ID 9-0) and with one group, spelled in hexadecimal."""
    head = "00 00 0900 0000 0000 00 01 0167 0900 00"
    return bytes.fromhex(head + pending + consumers + nacked + "4064 4064 00 00 00")


def _raw(number: int) -> str:
    return (number << 64).to_bytes(16, "big").hex()


_TIME = "e803000000000000"


def test_the_hexadecimal_group_is_sound() -> None:
    pending = f"02 {_raw(1)}{_TIME}01 {_raw(2)}{_TIME}01"
    image = _decode(_group(pending, f"01 0161 {_TIME}{_TIME} 02 {_raw(1)}{_raw(2)}"))
    assert [item.consumer for item in image.groups[0].pending] == [b"a", b"a"]


@pytest.mark.parametrize(
    ("consumers", "nacked"),
    [
        pytest.param(
            f"02 0161 {_TIME}{_TIME} 01 {_raw(1)} 0162 {_TIME}{_TIME} 01 {_raw(1)}",
            "00",
            id="two consumers own one entry",
        ),
        pytest.param(f"01 0161 {_TIME}{_TIME} 02 {_raw(1)}{_raw(1)}", "00", id="owned twice"),
        pytest.param(
            f"01 0161 {_TIME}{_TIME} 02 {_raw(1)}{_raw(2)}", "00", id="owned but not pending"
        ),
        pytest.param("00", "00", id="nobody owns it"),
        pytest.param(f"01 0161 {_TIME}{_TIME} 01 {_raw(1)}", f"01 {_raw(1)}", id="owned, nacked"),
        pytest.param("00", f"02 {_raw(1)}{_raw(1)}", id="nacked twice"),
        pytest.param("00", f"02 {_raw(1)}{_raw(2)}", id="nacked but not pending"),
        pytest.param(f"01 0161 {'ff' * 8}{_TIME} 01 {_raw(1)}", "00", id="seen before 1970"),
    ],
)
def test_inconsistent_groups_are_refused(consumers: str, nacked: str) -> None:
    with pytest.raises(PayloadFormatError):
        _decode(_group(f"01 {_raw(1)}{_TIME}01", consumers, nacked))


def test_a_count_of_deliveries_beyond_the_maximum_is_the_maximum() -> None:
    pending = f"01 {_raw(1)}{_TIME} 818000000000000000"
    image = _decode(_group(pending, f"01 0161 {_TIME}{_TIME} 01 {_raw(1)}"))
    assert image.groups[0].pending[0].delivery_count == 2**63 - 1


def test_a_deleted_id_may_be_above_the_last() -> None:
    """XDEL of 3-0, then XSETID 2-0: Redis 7.0 keeps 3-0 as the highest deleted ID."""
    image = _sample()
    image.max_deleted_id = 9 << 64
    assert _decode(encode_stream(image)).max_deleted_id == 9 << 64


def test_a_wrong_first_id_is_corrected() -> None:
    data = bytes.fromhex("00 00 0900 0700 0000 00 00 4064 4064 00 00 00")
    assert _decode(data).first_id == 0


def test_node_keys_are_ids() -> None:
    with pytest.raises(PayloadFormatError, match="key"):
        _decode(b"\x01\x0f" + bytes(40))
