"""Between a living stream and its image (:mod:`anabranch.stream.image`).

A block becomes a node and a node a block, so approximate trimming behaves alike before and after.
Streams of several regions are written as one sequence of entries, in nodes of this module's own
making; what is read back belongs to this region.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hiredis import Reader, pack_command

from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.block import Block, entry_weight
from anabranch.stream.counters import entries_read, estimate
from anabranch.stream.entry_id import SEQ_BITS, text
from anabranch.stream.frozen_log import FrozenLog
from anabranch.stream.frozen_pending import FrozenPending
from anabranch.stream.group import LOCAL_REGION, Consumer, Group
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)
from anabranch.stream.merge import merge_spans
from anabranch.stream.pending import PendingEntry, PendingList
from anabranch.stream.producer import Producers
from anabranch.stream.stream import Stream

__all__ = ["FrozenImage", "StreamMaker", "image_of", "stream_from_image"]

_MERGED_NODE_ENTRIES = 100
"""Redis's default for ``stream-node-max-entries``."""

_STEP = 500
"""Pending entries made in one step."""

_Entries = list[tuple[int, list[bytes]]]

# -- to an image ------------------------------------------------------------------------------


class FrozenImage:
    """What :class:`StreamImage` shows of a stream, as it was when this was made.

    The nodes, and the pending entries of each group, are made as they are asked for, once.
    """

    def __init__(self, stream: Stream) -> None:
        producers = stream.producers
        groups = list(stream.groups.items())
        late = {name: _late(stream, group) for name, group in groups}
        self.image = StreamImage(
            length=stream.length,
            last_id=stream.last_id,
            first_id=stream.first_id,
            max_deleted_id=stream.max_deleted_id,
            entries_added=stream.entries_added,
            groups=[_group_image(stream, name, group, late[name]) for name, group in groups],
            idmp_duration=producers.duration_s,
            idmp_maxsize=producers.maxsize,
            iids_added=producers.iids_added,
            iids_duplicates=producers.duplicates,
            producers=[
                ProducerImage(pid, [(iid, entry_id) for iid, (entry_id, _) in table.items()])
                for pid, table in producers.tables.items()
            ],
        )
        self._logs = [FrozenLog(stream.logs[each]) for each in stream.ranked()]
        self._late = list(late.values())
        self._pending = [
            [FrozenPending(pending) for pending in group.pending.values()] for _, group in groups
        ]

    def nodes(self) -> Iterator[NodeImage]:
        """The nodes, ascending."""
        if len(self._logs) == 1:
            for block in self._logs[0].blocks:
                entries: _Entries = []
                for low, high in block.runs(0, len(block.ids)):
                    entries += _entries(block, low, high)
                yield NodeImage(entries, block.slots)
            return
        node = NodeImage([], 0)
        for block, low, high in merge_spans([log.spans() for log in self._logs]):
            for entry in _entries(block, low, high):
                if node.slots == _MERGED_NODE_ENTRIES:
                    yield node
                    node = NodeImage([], 0)
                node.entries.append(entry)
                node.slots += 1
        if node.entries:
            yield node

    def pending(self) -> list[Iterator[PendingImage]]:
        """The pending entries of each group, ascending."""
        return [
            _one_an_id(
                heapq.merge(
                    *map(_pending_images, lists),
                    [PendingImage(entry_id, 0, 0, None) for entry_id in late],
                    key=_entry_id,
                )
            )
            for lists, late in zip(self._pending, self._late, strict=True)
        ]

    def release(self) -> None:
        """Nobody will read the rest."""
        for log in self._logs:
            log.release()
        for lists in self._pending:
            for pending in lists:
                pending.release()


def _pending_images(pending: FrozenPending) -> Iterator[PendingImage]:
    for piece in pending.pieces():
        for entry in piece:
            yield PendingImage(
                entry.entry_id,
                entry.delivery_ms,
                entry.delivery_count,
                None if entry.consumer is None else entry.consumer.name,
            )


def _one_an_id(images: Iterable[PendingImage]) -> Iterator[PendingImage]:
    """Of those with one ID the last; see :func:`_named`."""
    last: PendingImage | None = None
    for image in images:
        if last is not None and last.entry_id != image.entry_id:
            yield last
        last = image
    if last is not None:
        yield last


def _entry_id(pending: PendingImage) -> int:
    return pending.entry_id


def image_of(stream: Stream) -> StreamImage:
    """A stream as plain values; shares nothing with it."""
    frozen = FrozenImage(stream)
    image = frozen.image
    image.nodes = list(frozen.nodes())
    for group, pending in zip(image.groups, frozen.pending(), strict=True):
        group.pending = list(pending)
    frozen.release()
    return image


def _entries(block: Block, low: int, high: int) -> _Entries:
    """IDs and fields of the live entries ``[low, high)``."""
    reader = Reader()
    reader.feed(bytes(block.slice(low, high)))
    return [(entry_id, reader.gets()[1]) for entry_id in block.ids[low:high]]


def _group_image(stream: Stream, name: bytes, group: Group, late: dict[int, None]) -> GroupImage:
    """A group as Redis knows it, with one cursor, but for its pending entries.

    Entries below the cursor that are still to be delivered (``late``) are released ones that were
    delivered at no time, behind all others: so they are handed out when somebody claims.
    """
    lists = list(group.pending.values())
    nacked = dict.fromkeys(
        entry.entry_id for entry in group.released if _named(lists, entry.entry_id) is entry
    )
    read = entries_read(stream, group)
    return GroupImage(
        name,
        group.last_delivered_id,
        None if read is None else min(read + len(late), stream.entries_added),
        consumers=[
            ConsumerImage(consumer.name, consumer.seen_ms, consumer.active_ms)
            for consumer in group.consumers.values()
        ],
        nacked=list(nacked | late),
    )


def _named(lists: list[PendingList], entry_id: int) -> PendingEntry | None:
    """The pending entry that is named of those with one ID: that of the last list."""
    found = None
    for pending in lists:
        found = pending.entries.get(entry_id, found)
    return found


def _late(stream: Stream, group: Group) -> dict[int, None]:
    """IDs of the entries below the cursor that are to be delivered and not pending, ascending."""
    found = {i for _, (block, low, high) in group.late(stream.logs) for i in block.ids[low:high]}
    return dict.fromkeys(sorted(i for i in found if group.find(i) is None))


# -- from an image ----------------------------------------------------------------------------


def stream_from_image(
    image: StreamImage, *, now_ms: int, idmp_duration_s: int, idmp_maxsize: int
) -> Stream:
    """The stream an image shows; see :class:`StreamMaker`."""
    maker = StreamMaker(now_ms, idmp_duration_s, idmp_maxsize)
    for node in image.nodes:
        maker.add_node(node)
    groups = [replace(group, pending=group.pending[:]) for group in image.groups]
    return in_one_go(maker.finish(replace(image, groups=groups)))


class StreamMaker:
    """Makes a stream of an image that comes in parts: first the nodes, then the rest.

    Images do not say when idempotent IDs were recorded: at the time of their entry's ID, or now
    if that lies in the future; those past their age by now are left out. The two limits apply
    where the image states none.
    """

    def __init__(self, now_ms: int, idmp_duration_s: int, idmp_maxsize: int) -> None:
        self._now_ms = now_ms
        self._limits = idmp_duration_s, idmp_maxsize
        self._stream = Stream(idmp_duration_s, idmp_maxsize)

    def add_node(self, node: NodeImage) -> None:
        """The next node."""
        _add_node(self._stream, node)

    def finish(self, image: StreamImage) -> Steps[Stream]:
        """The stream, in short steps; the image loses its pending entries."""
        stream = self._stream
        duration_s, maxsize = self._limits
        stream.producers = Producers(
            duration_s if image.idmp_duration is None else image.idmp_duration,
            maxsize if image.idmp_maxsize is None else image.idmp_maxsize,
        )
        stream.last_id = image.last_id
        stream.max_deleted_id = image.max_deleted_id
        stream.entries_added = image.entries_added
        for group_image in image.groups:
            stream.groups[group_image.name] = yield from _group(stream, group_image)
        _add_producers(stream, image, self._now_ms)
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


def _group(stream: Stream, image: GroupImage) -> Steps[Group]:
    read = image.entries_read
    if image.estimate_entries_read:
        read = estimate(stream, image.last_id)
    if read is not None:  # payloads may claim more than was ever added
        read = min(read, stream.entries_added)
    group = Group(image.last_id, read)
    for consumer in image.consumers:
        group.consumers[consumer.name] = Consumer(
            consumer.name, consumer.seen_time_ms, consumer.active_time_ms
        )
    released: dict[int, PendingImage] = {}
    image.pending.reverse()  # so that they can be let go of from the end
    while image.pending:
        for _ in range(min(_STEP, len(image.pending))):
            pending = image.pending.pop()
            if pending.consumer is None:
                released[pending.entry_id] = pending
            else:
                _assign(group, pending, group.consumers[pending.consumer])
        yield
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
