"""Payloads of three generations of Redis: what they hold is what those servers showed.

``fixtures/streams.jsonl``: ``expect`` is XINFO STREAM FULL after RESTORE into the newest of them.
What XINFO does not show (the order of NACKed entries, the idempotent IDs) is written out below.
"""

from __future__ import annotations

from typing import Any

from anabranch.rdb.kinds import StreamType
from anabranch.rdb.lengths import Cursor
from anabranch.rdb.values import decode_value
from anabranch.stream.entry_id import parse, text
from anabranch.stream.image import GroupImage, StreamImage
from tests.support.payloads import decode_payload, encode_payload

Record = dict[str, Any]
_FUTURE = 88_888_888_888_888 << 64


def _latin(value: bytes) -> str:
    return value.decode("latin-1")


def _id(entry_id: int) -> str:
    return text(entry_id).decode()


def _group_view(group: GroupImage) -> Record:
    held: dict[bytes, list[str]] = {consumer.name: [] for consumer in group.consumers}
    for item in group.pending:
        if item.consumer is not None:
            held[item.consumer].append(_id(item.entry_id))
    return {
        "name": _latin(group.name),
        "last": _id(group.last_id),
        "read": group.entries_read,
        "nacked": len(group.nacked),
        "pending": [
            [
                _id(item.entry_id),
                _latin(item.consumer or b""),
                item.delivery_time_ms,
                item.delivery_count,
            ]
            for item in group.pending
        ],
        "consumers": [
            [_latin(one.name), one.seen_time_ms, one.active_time_ms, held[one.name]]
            for one in group.consumers
        ],
    }


def _view(image: StreamImage) -> Record:
    """An image as XINFO STREAM FULL would show it."""
    return {
        "length": image.length,
        "last": _id(image.last_id),
        "first": _id(image.first_id),
        "max-deleted": _id(image.max_deleted_id),
        "added": image.entries_added,
        "nodes": len(image.nodes),
        "idmp": [
            image.idmp_duration or 100,
            image.idmp_maxsize or 100,
            len(image.producers),
            sum(len(producer.iids) for producer in image.producers),
            image.iids_added,
            image.iids_duplicates,
        ],
        "entries": [
            [_id(entry_id), [_latin(part) for part in pairs]]
            for node in image.nodes
            for entry_id, pairs in node.entries
        ],
        "groups": [_group_view(group) for group in image.groups],
    }


def _decode(record: Record) -> StreamImage:
    image = decode_payload(bytes.fromhex(record["payload"]))
    assert isinstance(image, StreamImage)
    return image


def _newest(records: list[Record], name: str) -> StreamImage:
    (record,) = [one for one in records if one["name"] == name and one["type"] == 27]
    return _decode(record)


def test_all_generations_are_there(recorded_streams: list[Record]) -> None:
    assert {record["type"] for record in recorded_streams} == {19, 21, 27}


def test_payloads_hold_what_the_servers_showed(recorded_streams: list[Record]) -> None:
    for record in recorded_streams:
        assert _view(_decode(record)) == record["expect"], (record["name"], record["type"])


def test_encoding_again_gives_the_bytes_of_the_server(recorded_streams: list[Record]) -> None:
    """Up to compression, and up to what deleted entries held."""
    compared = 0
    for record in recorded_streams:
        image = _decode(record)
        theirs = bytes.fromhex(record["payload"])
        ours = encode_payload(image, rdb_version=record["rdb"])
        strings = []
        tails = []
        for payload in (theirs, ours):
            cursor = Cursor(payload, 1)
            strings.append([cursor.string() for _ in range(2 * cursor.length())])
            tails.append(payload[cursor.position : -8])
        assert tails[0] == tails[1], record["name"]
        if all(node.slots == len(node.entries) for node in image.nodes):
            assert strings[0] == strings[1], record["name"]
            compared += 1
    assert compared > 40


def test_encoding_again_loses_nothing(recorded_streams: list[Record]) -> None:
    for record in recorded_streams:
        image = _decode(record)
        again = encode_payload(image, rdb_version=record["rdb"])
        assert decode_payload(again) == image, record["name"]


def test_deleted_entries_keep_their_room(recorded_streams: list[Record]) -> None:
    image = _newest(recorded_streams, "every second deleted")
    assert [(len(node.entries), node.slots) for node in image.nodes] == [(10, 20)]


def test_settings_of_older_types_are_not_stated(recorded_streams: list[Record]) -> None:
    for record in recorded_streams:
        image = _decode(record)
        assert (image.idmp_duration is None) == (record["type"] < 26)


def test_active_time_of_type_19_is_the_seen_time(recorded_streams: list[Record]) -> None:
    consumers = [
        consumer
        for record in recorded_streams
        if record["type"] == 19
        for group in _decode(record).groups
        for consumer in group.consumers
    ]
    assert consumers
    assert all(consumer.active_time_ms == consumer.seen_time_ms for consumer in consumers)


def test_a_consumer_that_never_read_was_never_active(recorded_streams: list[Record]) -> None:
    (group,) = _newest(recorded_streams, "consumers without pending").groups
    assert -1 in [consumer.active_time_ms for consumer in group.consumers]


def test_nacked_entries_are_in_the_order_of_the_nacks(recorded_streams: list[Record]) -> None:
    (group,) = _newest(recorded_streams, "nacked").groups  # XNACK 3-0 1-0, then XNACK 2-0
    assert group.nacked == [parse(b"3-0"), parse(b"1-0"), parse(b"2-0")]
    assert [(item.delivery_time_ms, item.delivery_count) for item in group.pending[:3]] == [
        (0, 1),
        (0, 0),  # SILENT takes the delivery back
        (0, 1),
    ]


def test_fatal_and_forced_nacks(recorded_streams: list[Record]) -> None:
    g, h = _newest(recorded_streams, "nacked, all modes, two groups").groups
    assert g.nacked == [parse(b"4-0"), parse(b"1-0")]
    assert {item.entry_id: item.delivery_count for item in g.pending}[parse(b"4-0")] == 2**63 - 1
    assert h.nacked == [parse(b"2-0"), parse(b"5-0")]
    assert not h.consumers


def test_producers_remember_in_order(recorded_streams: list[Record]) -> None:
    image = _newest(recorded_streams, "idempotent producers")
    assert [(producer.pid, producer.iids) for producer in image.producers] == [
        (b"p", [(b"i1", _FUTURE + 1), (b"i2", _FUTURE + 2)]),
        (b"q", [(b"i1", _FUTURE + 3)]),
    ]
    assert (image.iids_added, image.iids_duplicates) == (3, 1)


def test_computed_ids_and_settings(recorded_streams: list[Record]) -> None:
    image = _newest(recorded_streams, "idempotent, IDMPAUTO and settings")
    assert (image.idmp_duration, image.idmp_maxsize) == (86_400, 3)
    (producer,) = image.producers  # four were added, the first had to go
    assert [entry_id for _, entry_id in producer.iids] == [_FUTURE + 2, _FUTURE + 3, _FUTURE + 4]
    assert all(len(iid) == 16 for iid, _ in producer.iids)
    assert (image.iids_added, image.iids_duplicates) == (4, 1)


def test_producers_outlive_their_entries(recorded_streams: list[Record]) -> None:
    image = _newest(recorded_streams, "idempotent, entries deleted")
    assert image.length == 0
    assert image.producers[0].iids == [(b"i1", _FUTURE + 1), (b"i2", _FUTURE + 2)]


def test_types_between_are_the_newest_without_its_news(recorded_streams: list[Record]) -> None:
    """Type 26 was not recorded; it is type 27 without the NACKed entries of each group."""
    image = _newest(recorded_streams, "idempotent producers")
    payload = bytearray(
        bytes.fromhex(
            next(
                record["payload"]
                for record in recorded_streams
                if record["name"] == "idempotent producers" and record["type"] == 27
            )
        )
    )
    assert not image.groups
    payload[0] = StreamType.V4
    payload[-8:] = bytes(8)
    assert decode_payload(bytes(payload)) == image


def test_values_out_of_real_files(recorded_values: list[Record]) -> None:
    for record in recorded_values:
        body = bytes.fromhex(record["body"])
        cursor = Cursor(body)
        value = decode_value(cursor, record["type"])
        assert not cursor.remaining
        shown: object
        if isinstance(value, bytes):
            shown = _latin(value)
        elif isinstance(value, list):
            shown = [_latin(item) for item in value]
        else:
            assert isinstance(value, set)
            shown = sorted(_latin(member) for member in value)
        assert shown == record["expect"], record["name"]
