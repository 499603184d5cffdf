"""Between a living stream and its image (:mod:`anabranch.stream.image`).

A block becomes a node and a node a block, so approximate trimming behaves alike before and after.
Streams of several regions are written as one sequence of entries, in nodes of this module's own
making; what is read back belongs to this region.
"""

from __future__ import annotations

from hiredis import Reader, pack_command

from anabranch.stream.block import Block, entry_weight
from anabranch.stream.counters import estimate
from anabranch.stream.entry_id import MAX_ID, MIN_ID, SEQ_BITS, text
from anabranch.stream.group import LOCAL_REGION, Consumer, Group
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)
from anabranch.stream.stream import Stream

__all__ = ["image_of", "stream_from_image"]

_MERGED_NODE_ENTRIES = 100
"""Redis's default for ``stream-node-max-entries``."""

_Entries = list[tuple[int, list[bytes]]]

# -- to an image ------------------------------------------------------------------------------


def image_of(stream: Stream) -> StreamImage:
    """A stream as plain values; shares nothing with it."""
    producers = stream.producers
    return StreamImage(
        nodes=_nodes(stream),
        length=stream.length,
        last_id=stream.last_id,
        first_id=stream.first_id,
        max_deleted_id=stream.max_deleted_id,
        entries_added=stream.entries_added,
        groups=[_group_image(stream, name, group) for name, group in stream.groups.items()],
        idmp_duration=producers.duration_s,
        idmp_maxsize=producers.maxsize,
        iids_added=producers.iids_added,
        iids_duplicates=producers.duplicates,
        producers=[
            ProducerImage(pid, [(iid, entry_id) for iid, (entry_id, _) in table.items()])
            for pid, table in producers.tables.items()
        ],
    )


def _nodes(stream: Stream) -> list[NodeImage]:
    nodes: list[NodeImage] = []
    if len(stream.logs) == 1:
        for block in stream.local.live_blocks():
            entries: _Entries = []
            for low, high in block.runs(0, len(block.ids)):
                entries += _entries(block, low, high)
            nodes.append(NodeImage(entries, block.slots))
        return nodes
    for block, low, high in stream.spans(MIN_ID, MAX_ID):
        for entry in _entries(block, low, high):
            if not nodes or nodes[-1].slots == _MERGED_NODE_ENTRIES:
                nodes.append(NodeImage([], 0))
            nodes[-1].entries.append(entry)
            nodes[-1].slots += 1
    return nodes


def _entries(block: Block, low: int, high: int) -> _Entries:
    """IDs and fields of the live entries ``[low, high)``."""
    reader = Reader()
    reader.feed(bytes(block.slice(low, high)))
    return [(entry_id, reader.gets()[1]) for entry_id in block.ids[low:high]]


def _group_image(stream: Stream, name: bytes, group: Group) -> GroupImage:
    """A group as Redis knows it, with one cursor.

    Entries below the cursor that are still to be delivered are released ones that were delivered
    at no time, behind all others: so they are handed out when somebody claims.
    """
    pending = {
        entry.entry_id: PendingImage(
            entry.entry_id,
            entry.delivery_ms,
            entry.delivery_count,
            None if entry.consumer is None else entry.consumer.name,
        )
        for entry in group.between(MIN_ID, MAX_ID)
    }
    nacked = {
        entry.entry_id: None
        for entry in group.released
        if pending[entry.entry_id].consumer is None  # of entries with one ID one is named
    }
    late = {i for _, (block, low, high) in group.late(stream.logs) for i in block.ids[low:high]}
    late -= pending.keys()
    if late:
        pending |= {entry_id: PendingImage(entry_id, 0, 0, None) for entry_id in late}
        pending = dict(sorted(pending.items()))
        nacked |= dict.fromkeys(sorted(late))
    return GroupImage(
        name,
        group.last_delivered_id,
        group.entries_read,
        pending=list(pending.values()),
        consumers=[
            ConsumerImage(consumer.name, consumer.seen_ms, consumer.active_ms)
            for consumer in group.consumers.values()
        ],
        nacked=list(nacked),
    )


# -- from an image ----------------------------------------------------------------------------


def stream_from_image(
    image: StreamImage, *, now_ms: int, idmp_duration_s: int, idmp_maxsize: int
) -> Stream:
    """The stream an image shows.

    Images do not say when idempotent IDs were recorded: at the time of their entry's ID, or now
    if that lies in the future; those past their age by now are left out. The two limits apply
    where the image states none.
    """
    stream = Stream(
        idmp_duration_s if image.idmp_duration is None else image.idmp_duration,
        idmp_maxsize if image.idmp_maxsize is None else image.idmp_maxsize,
    )
    for node in image.nodes:
        _add_node(stream, node)
    stream.last_id = image.last_id
    stream.max_deleted_id = image.max_deleted_id
    stream.entries_added = image.entries_added
    for group_image in image.groups:
        stream.groups[group_image.name] = _group(stream, group_image)
    _add_producers(stream, image, now_ms)
    return stream


def _add_node(stream: Stream, node: NodeImage) -> None:
    log = stream.local
    opens = True
    for entry_id, pairs in node.entries:
        id_text = text(entry_id)
        packed = pack_command(tuple(pairs))  # type: ignore[arg-type]
        fragment = b"*2\r\n$%d\r\n%b\r\n%b" % (len(id_text), id_text, packed)
        log.append(entry_id, fragment, entry_weight(len(packed), len(pairs)), opens)
        opens = False
    deleted = node.slots - len(node.entries)
    if deleted:
        # Where the deleted entries stood is not told; as the newest they do no harm.
        block = log.tail
        assert block is not None
        block.keep_positions()
        block.gaps = deleted
        log.skip_positions(deleted)


def _group(stream: Stream, image: GroupImage) -> Group:
    entries_read = image.entries_read
    if image.estimate_entries_read:
        entries_read = estimate(stream, image.last_id)
    if entries_read is not None:  # payloads may claim more than was ever added
        entries_read = min(entries_read, stream.entries_added)
    group = Group(image.last_id, entries_read)
    for consumer in image.consumers:
        group.consumers[consumer.name] = Consumer(
            consumer.name, consumer.seen_time_ms, consumer.active_time_ms
        )
    released: dict[int, PendingImage] = {}
    for pending in image.pending:
        if pending.consumer is None:
            released[pending.entry_id] = pending
        else:
            _assign(group, pending, group.consumers[pending.consumer])
    for entry_id in image.nacked:
        _assign(group, released[entry_id], None)
    return group


def _assign(group: Group, pending: PendingImage, owner: Consumer | None) -> None:
    group.assign(
        LOCAL_REGION,
        pending.entry_id,
        owner,
        pending.delivery_time_ms,
        pending.delivery_count,
    )


def _add_producers(stream: Stream, image: StreamImage, now_ms: int) -> None:
    producers = stream.producers
    producers.iids_added = image.iids_added
    producers.duplicates = image.iids_duplicates
    oldest_ms = now_ms - producers.duration_s * 1000
    for producer in image.producers:
        inserted_ms = 0  # ascends within a producer, as the order of its IDs does
        for iid, entry_id in producer.iids:
            inserted_ms = max(inserted_ms, min(entry_id >> SEQ_BITS, now_ms))
            if inserted_ms > oldest_ms:
                producers.restore(producer.pid, iid, entry_id, inserted_ms)
