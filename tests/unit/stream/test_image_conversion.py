"""A stream through its image and back."""

from __future__ import annotations

from hiredis import pack_command
from msgspec.structs import replace

from anabranch.effects.apply_stream import append_entry
from anabranch.keyspace.keyspace import Keyspace
from anabranch.scheduling import in_one_go
from anabranch.stream.entry_id import MAX_ID, make, text
from anabranch.stream.groups.group import group_alone
from anabranch.stream.image import GroupImage, NodeImage, ProducerImage, StreamImage
from anabranch.stream.image_conversion import ImageBuilder, ImageLoader
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream
from tests.support.payloads import decode_payload, encode_payload

NOW_MS = 1_700_000_000_000


def image_of(stream: Stream) -> StreamImage:
    """A stream as plain values."""
    frozen = ImageBuilder(stream)
    image = frozen.image
    image.nodes = list(frozen.nodes())
    for group, pending in zip(image.groups, frozen.pending(), strict=True):
        group.pending = list(pending)
    frozen.release()
    return image


def fragment(entry_id: int, *pairs: bytes) -> bytes:
    name = text(entry_id)
    return b"*2\r\n$%d\r\n%b\r\n%b" % (len(name), name, pack_command(pairs))


def add(stream: Stream, ms: int, *pairs: bytes, opens: bool = False) -> int:
    entry_id = make(ms, 0)
    data = fragment(entry_id, *pairs)
    weight = len(pack_command(pairs)) + 4 - 4 * len(pairs)
    keyspace = Keyspace(1)
    database = keyspace.databases[0]
    append_entry(database, stream, stream.local, entry_id, data, weight, opens, 1)
    stream.last_id = entry_id
    return entry_id


def restored(image: StreamImage, now_ms: int = NOW_MS) -> Stream:
    maker = ImageLoader(now_ms, idmp_duration_s=100, idmp_maxsize=100)
    for node in image.nodes:
        maker.add_node(node)
    groups = [replace(group, pending=group.pending[:]) for group in image.groups]
    stream = in_one_go(maker.finish(replace(image, groups=groups)))
    stream.check()
    return stream


def contents(stream: Stream) -> bytes:
    return b"".join(block.slice(low, high) for block, low, high in stream.spans(0, MAX_ID))


def sample() -> Stream:
    stream = Stream(50, 10)
    for ms in range(1, 8):
        add(stream, ms, b"f", b"value %d" % ms, opens=ms in (1, 4))
    stream.remove(make(2, 0))
    stream.remove(make(5, 0))
    stream.max_deleted_id = make(5, 0)
    return stream


def test_entries_and_counters_survive() -> None:
    stream = sample()
    image = image_of(stream)
    image.check()
    assert [(len(node.entries), node.slots) for node in image.nodes] == [(2, 3), (3, 4)]
    again = restored(image)
    assert contents(again) == contents(stream)
    assert again.length == 5
    assert again.last_id == stream.last_id
    assert again.entries_added == 7
    assert again.max_deleted_id == make(5, 0)
    assert image_of(again) == image


def test_the_image_survives_a_payload() -> None:
    image = image_of(sample())
    assert decode_payload(encode_payload(image)) == image


def test_a_restored_stream_can_be_added_to_and_trimmed() -> None:
    stream = restored(image_of(sample()))
    add(stream, 9, b"f", b"v")
    stream.check()
    log = stream.local
    assert log.next_position == 8
    assert log.tail is not None
    assert log.tail.position(len(log.tail.ids) - 1) == 7
    stream.trim(0, 7)
    assert contents(stream) == fragment(make(9, 0), b"f", b"v")
    stream.check()


def test_blocks_weigh_what_they_weighed() -> None:
    stream = Stream(100, 100)
    add(stream, 1, b"field", b"value", opens=True)
    add(stream, 2, b"", b"x" * 300)
    again = restored(image_of(stream))
    assert [block.weight for block in again.local.blocks] == [
        block.weight for block in stream.local.blocks
    ]


def test_groups_with_pending_and_released_entries() -> None:
    stream = sample()
    group = stream.groups[b"g"] = group_alone(make(6, 0), 6)
    alice, bob = group.consumer(b"alice", 5), group.consumer(b"bob", 6)
    group.pending.deliver(0, [make(1, 0), make(3, 0), make(4, 0), make(6, 0)], alice, 100)
    group.pending.assign(0, make(4, 0), bob, 90, 3)
    group.pending.assign(0, make(6, 0), None, 100, 1)
    group.pending.assign(0, make(1, 0), None, 100, 2)
    image = image_of(stream)
    image.check()
    assert image.groups[0].nacked == [make(6, 0), make(1, 0)]
    again = restored(image)
    assert image_of(again) == image
    assert [entry.entry_id for entry in again.groups[b"g"].pending.released] == [
        make(6, 0),
        make(1, 0),
    ]
    assert again.groups[b"g"].consumers[b"bob"].pending_count == 1


def test_unknown_entries_read_of_old_payloads_is_estimated() -> None:
    entries = [(make(ms, 0), [b"f", b"v"]) for ms in (1, 2, 3)]
    image = StreamImage(
        nodes=[NodeImage(entries, 3)],
        length=3,
        last_id=make(3, 0),
        first_id=make(1, 0),
        entries_added=3,
        groups=[
            GroupImage(b"end", make(3, 0), None, estimate_entries_read=True),
            GroupImage(b"first", make(1, 0), None, estimate_entries_read=True),
            GroupImage(b"middle", make(2, 0), None, estimate_entries_read=True),
            GroupImage(b"unknown", make(3, 0), None),
        ],
    )
    groups = restored(image).groups
    assert groups[b"end"].progress.entries_read == 3
    assert groups[b"first"].progress.entries_read == 1
    assert groups[b"middle"].progress.entries_read is None
    assert groups[b"unknown"].progress.entries_read is None


def test_idempotent_ids_date_from_their_entry() -> None:
    image = StreamImage(
        idmp_duration=10,
        idmp_maxsize=100,
        iids_added=7,
        iids_duplicates=2,
        producers=[
            ProducerImage(b"old", [(b"i", make(NOW_MS - 10_000, 0))]),
            ProducerImage(
                b"p", [(b"young", make(NOW_MS - 9_000, 0)), (b"future", make(NOW_MS * 2, 0))]
            ),
        ],
    )
    stream = restored(image)
    producers = stream.producers
    assert (producers.iids_added, producers.duplicates) == (7, 2)
    assert list(producers.tables) == [b"p"]
    assert producers.find(b"p", b"young", NOW_MS + 999) is not None
    assert producers.find(b"p", b"young", NOW_MS + 1000) is None
    assert producers.find(b"p", b"future", NOW_MS + 9999) is not None
    assert producers.find(b"p", b"future", NOW_MS + 10_000) is None


def test_limits_of_the_server_apply_where_the_image_states_none() -> None:
    producers = restored(StreamImage()).producers
    assert (producers.duration_s, producers.maxsize) == (100, 100)


def test_streams_of_several_regions_become_one_sequence() -> None:
    stream = Stream(100, 100)
    add(stream, 1, b"f", b"here")
    add(stream, 3, b"f", b"here")
    other = stream.logs[1] = RegionLog()
    entry_id = make(2, 1)
    other.append(entry_id, fragment(entry_id, b"f", b"there"), 10, True)
    stream.entries_added += 1
    image = image_of(stream)
    image.check()
    assert [entry_id for node in image.nodes for entry_id, _ in node.entries] == [
        make(1, 0),
        make(2, 1),
        make(3, 0),
    ]
    assert contents(restored(image)) == contents(stream)
