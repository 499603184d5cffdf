"""What streams lose on the way to an older version, and what they keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from anabranch.rdb.kinds import StreamType
from anabranch.rdb.older import NACKED_CONSUMER, losses, without_losses
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)
from tests.support.payloads import decode_payload, encode_payload

VERSIONS = {StreamType.V2: 10, StreamType.V3: 11, StreamType.V4: 13, StreamType.V5: 14}


def image(**changes: object) -> StreamImage:
    """Three entries and a group; the second and the third are nobody's."""
    group = GroupImage(
        b"g",
        3,
        3,
        [PendingImage(1, 50, 1, b"a"), PendingImage(2, 60, 4, None), PendingImage(3, 0, 2, None)],
        [ConsumerImage(b"a", 50, 50), ConsumerImage(b"z", 70, -1)],
        [3, 2],
    )
    made = StreamImage([NodeImage([(n, [b"f", b"v"]) for n in (1, 2, 3)], 3)], 3, 3, 1)
    made.entries_added = 3
    made.groups = [group, GroupImage(b"h", 0, 0)]
    for name, value in changes.items():
        setattr(made, name, value)
    made.check()
    return made


@pytest.mark.parametrize(
    ("changes", "stream_type", "expected"),
    [
        ({}, StreamType.V5, []),
        ({}, StreamType.V4, ["2 NACKed entries"]),
        ({}, StreamType.V2, ["2 NACKed entries"]),
        ({"groups": []}, StreamType.V2, []),
        ({"groups": [], "iids_added": 1}, StreamType.V4, []),
        ({"groups": [], "iids_added": 1}, StreamType.V3, []),
        (
            {"groups": [], "producers": [ProducerImage(b"p", [(b"i", 1)])], "iids_added": 1},
            StreamType.V3,
            ["1 idempotent ID and their counters"],
        ),
        ({"groups": [], "idmp_duration": 100, "idmp_maxsize": 100}, StreamType.V3, []),
        ({"groups": [], "idmp_duration": 7}, StreamType.V3, ["IDMP settings"]),
        (
            {"idmp_maxsize": 7, "iids_duplicates": 1},
            StreamType.V2,
            ["2 NACKed entries", "IDMP settings"],
        ),
    ],
)
def test_losses_are_named(
    changes: dict[str, object], stream_type: StreamType, expected: list[str]
) -> None:
    assert losses(image(**changes), stream_type) == expected


def test_nacked_entries_stay_pending_under_a_name() -> None:
    original = image()
    older = without_losses(original, StreamType.V2)
    older.check()
    (group, other) = older.groups
    assert [(item.entry_id, item.consumer) for item in group.pending] == [
        (1, b"a"),
        (2, NACKED_CONSUMER),
        (3, NACKED_CONSUMER),
    ]
    assert [item.delivery_count for item in group.pending] == [1, 4, 2]
    assert [consumer.name for consumer in group.consumers] == [b"a", NACKED_CONSUMER, b"z"]
    assert group.nacked == []
    assert other == original.groups[1]
    assert original == image(), "the original is left alone"


def test_a_consumer_of_that_name_gets_them_too() -> None:
    original = image()
    original.groups[0].consumers[1].name = NACKED_CONSUMER
    older = without_losses(original, StreamType.V4)
    older.check()
    assert [consumer.name for consumer in older.groups[0].consumers] == [b"a", NACKED_CONSUMER]


@given(st.data())
def test_every_stream_can_be_written_for_every_version(
    stream_images: Callable[[StreamType], SearchStrategy[StreamImage]], data: st.DataObject
) -> None:
    original = data.draw(stream_images(StreamType.V5))
    for stream_type, version in VERSIONS.items():
        older = without_losses(original, stream_type)
        again = decode_payload(encode_payload(older, rdb_version=version))
        assert isinstance(again, StreamImage)
        assert again.nodes == original.nodes
        assert losses(again, stream_type) == []
        if not losses(original, stream_type) and stream_type.has_producers:
            assert again == older
            if stream_type.has_nacked or not any(group.nacked for group in original.groups):
                assert older == original
