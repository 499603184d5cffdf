"""Makes images of streams (:mod:`anabranch.stream.image`), and streams of images.

A block becomes a node and a node becomes a block, so approximate trimming removes the same entries
before and after. The streams of several regions become one sequence of entries, in nodes that this
module makes. What is read from an image belongs to this region.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hiredis import Reader, pack_command

from anabranch.scheduling import Steps
from anabranch.stream.block import Block
from anabranch.stream.counters import estimate
from anabranch.stream.entry_id import SEQ_BITS, text
from anabranch.stream.frozen_log import FrozenLog
from anabranch.stream.groups.frozen_pending import FrozenPending
from anabranch.stream.groups.group import LOCAL_REPLICA_ID, Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    NodeImage,
    PendingImage,
    ProducerImage,
    StreamImage,
)
from anabranch.stream.merge import merge_labelled
from anabranch.stream.producer import Producers
from anabranch.stream.region_log import entry_weight
from anabranch.stream.renumbering import Renumbering
from anabranch.stream.stream import Stream

_MERGED_NODE_ENTRIES = 100
"""Redis's default for ``stream-node-max-entries``."""

_STEP = 500
"""Pending entries made in one step."""

_Entries = list[tuple[int, list[bytes]]]

_Named = tuple[int, int, int]
"""Replica ID and number of an entry, and the ID that it has in the stream."""

# -- to an image ------------------------------------------------------------------------------


class ImageBuilder:
    """The image of a stream as it was when this object was made.

    The nodes, and then the pending entries of each group, are made on request, once. Where entries
    have equal IDs (:mod:`anabranch.stream.renumbering`) the image is complete when all of them were
    read.
    """

    def __init__(self, stream: Stream) -> None:
        producers = stream.producers
        self._logs = {each: FrozenLog(stream.logs[each]) for each in stream.ranked()}
        self._renumbering = Renumbering()
        self._groups = [
            _FrozenGroup(stream, name, group, self._logs, self._renumbering)
            for name, group in stream.groups.items()
        ]
        self.image = StreamImage(
            length=stream.length,
            last_id=stream.last_id,
            first_id=stream.first_id,
            max_deleted_id=stream.max_deleted_id,
            entries_added=stream.entries_added,
            groups=[group.image for group in self._groups],
            idmp_duration=producers.duration_s,
            idmp_maxsize=producers.maxsize,
            iids_added=producers.iids_added,
            iids_duplicates=producers.duplicates,
            producers=[
                ProducerImage(pid, [(iid, entry_id) for iid, (entry_id, _) in table.items()])
                for pid, table in producers.tables.items()
            ],
        )

    def nodes(self) -> Iterator[NodeImage]:
        """The entries in nodes, ascending."""
        if len(self._logs) == 1:
            (log,) = self._logs.values()
            for block in log.blocks:
                entries: _Entries = []
                for low, high in block.runs(0, block.count):
                    entries += _entries(block, low, high, block.ids[low:high])
                yield NodeImage(entries, block.slots)
            return
        renumbering = self._renumbering
        node = NodeImage([], 0)
        sources = {replica_id: log.spans() for replica_id, log in self._logs.items()}
        for replica_id, (block, low, high) in merge_labelled(sources):
            ids = renumbering.assign(replica_id, block, low, high)
            for entry in _entries(block, low, high, ids):
                if node.slots == _MERGED_NODE_ENTRIES:
                    yield node
                    node = NodeImage([], 0)
                node.entries.append(entry)
                node.slots += 1
        if node.entries:
            yield node
        self.image.last_id = max(self.image.last_id, renumbering.last)
        for group in self._groups:
            group.image.last_id = renumbering.behind(group.image.last_id)

    def pending(self) -> list[Iterator[PendingImage]]:
        """The pending entries of each group, ascending."""
        return [group.pending() for group in self._groups]

    def release(self) -> None:
        """Release what was not read."""
        for log in self._logs.values():
            log.release()
        for group in self._groups:
            group.release()


class _FrozenGroup:
    """A group as Redis knows it, with one cursor.

    Entries below the cursor that must still be delivered (*late* entries) become released entries
    without a delivery, after all others. So consumers get them by a claim.
    """

    def __init__(
        self,
        stream: Stream,
        name: bytes,
        group: Group,
        logs: Mapping[int, FrozenLog],
        renumbering: Renumbering,
    ) -> None:
        self._late = _late(stream, group)
        read = group.progress.read_count(stream)
        self.image = GroupImage(
            name,
            group.progress.last_delivered_id,
            None if read is None else min(read + len(self._late), stream.entries_added),
            consumers=[
                ConsumerImage(consumer.name, consumer.seen_ms, consumer.active_ms)
                for consumer in group.consumers.values()
            ],
        )
        self._logs = logs
        self._renumbering = renumbering
        self._lists = {
            replica_id: FrozenPending(each) for replica_id, each in group.pending.lists.items()
        }
        self._is_plain = len(logs) == 1 >= len(self._lists) and not self._late
        if self._is_plain:
            self.image.nacked = [entry.entry_id for entry in group.pending.released]
        else:
            released = [
                (group.pending.region_of(entry), entry.number, entry.entry_id)
                for entry in group.pending.released
            ]
            self._unowned = [*released, *self._late]

    def pending(self) -> Iterator[PendingImage]:
        """The pending entries, ascending."""
        if self._is_plain:
            for pending in self._lists.values():
                for piece in pending.pieces():  # all of it at once: later its entries may change
                    yield from list(map(_pending_image, piece))
            return
        images = heapq.merge(
            *(self._of(replica_id) for replica_id in self._lists),
            [(id_, (replica_id, number, id_), None) for replica_id, number, id_ in self._late],
            key=_old_id,
        )
        shown: set[_Named] = set()
        last_id = -1
        for entry_id, named, image in self._in_order(images):
            if entry_id == last_id:  # neither entry exists, so it does not matter whose it was
                continue
            last_id = entry_id
            if image is None or image.consumer is None:
                shown.add(named)
            yield image or PendingImage(entry_id, 0, 0, None)
        id_of = self._renumbering.id_of
        self.image.nacked = [id_of(*named) for named in self._unowned if named in shown]

    def _of(self, replica_id: int) -> Iterator[tuple[int, _Named, PendingImage]]:
        for piece in self._lists[replica_id].pieces():
            yield from [
                (entry.entry_id, (replica_id, entry.number, entry.entry_id), _pending_image(entry))
                for entry in piece
            ]

    def _in_order(
        self, images: Iterable[tuple[int, _Named, PendingImage | None]]
    ) -> Iterable[tuple[int, _Named, PendingImage | None]]:
        """The entries under their new IDs, without deleted ones whose ID another entry has."""
        told = self._told(images)
        return sorted(told, key=_old_id) if self._renumbering.moved else told

    def _told(
        self, images: Iterable[tuple[int, _Named, PendingImage | None]]
    ) -> Iterator[tuple[int, _Named, PendingImage | None]]:
        renumbering, logs = self._renumbering, self._logs
        for entry_id, named, image in images:
            replica_id, number, _ = named
            log = logs.get(replica_id)
            live = None if log is None else log.live_number(entry_id)
            if live is not None and number in (0, live):  # 0: only its ID is known
                now = renumbering.id_of(*named)
                if image is not None:
                    image.entry_id = now
                yield now, named, image
            elif entry_id not in renumbering.ids and all(
                log.live_number(entry_id) is None for log in logs.values()
            ):
                yield entry_id, named, image

    def release(self) -> None:
        """Release what was not read."""
        for pending in self._lists.values():
            pending.release()


def _pending_image(entry: PendingEntry) -> PendingImage:
    return PendingImage(
        entry.entry_id,
        entry.delivery_ms,
        entry.delivery_count,
        None if entry.consumer is None else entry.consumer.name,
    )


def _old_id(image: tuple[int, _Named, PendingImage | None]) -> int:
    return image[0]


def _entries(block: Block, low: int, high: int, ids: Sequence[int]) -> _Entries:
    """IDs and fields of the live entries ``[low, high)``."""
    reader = Reader()
    reader.feed(bytes(block.slice(low, high)))
    return [(entry_id, reader.gets()[1]) for entry_id in ids]


def _late(stream: Stream, group: Group) -> list[_Named]:
    """Entries below the cursor that must be delivered and are not pending, ascending."""
    found = []
    for replica_id, (block, low, high) in group.progress.late(stream.logs):
        pending = group.pending.lists.get(replica_id, PendingList())
        for entry_id, number in zip(block.ids[low:high], block.numbers_of(low, high), strict=True):
            entry = pending.get(entry_id)
            if entry is None or entry.number != number:
                found.append((replica_id, number, entry_id))
    return sorted(found, key=lambda named: named[2])


# -- from an image ----------------------------------------------------------------------------


class ImageLoader:
    """Makes a stream of an image that comes in parts: first the nodes, then the rest.

    Images do not contain when idempotent IDs were recorded. The time in the ID of their entry
    counts, or now if that is in the future; IDs past their age are left out. The two limits apply
    where the image has none.
    """

    def __init__(self, now_ms: int, idmp_duration_s: int, idmp_maxsize: int) -> None:
        self._now_ms = now_ms
        self._limits = idmp_duration_s, idmp_maxsize
        self._stream = Stream(idmp_duration_s, idmp_maxsize)

    def add_node(self, node: NodeImage) -> None:
        """Add the entries of the next node, which are above those of the one before."""
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
        # The image does not say where deleted entries were; as the newest they do no harm.
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
    group = stream.new_group(image.last_id, read)
    for consumer in image.consumers:
        group.consumers[consumer.name] = Consumer(
            consumer.name, consumer.seen_time_ms, consumer.active_time_ms
        )
    released: dict[int, PendingImage] = {}
    image.pending.reverse()  # so that each can be released
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
    group.pending.assign(
        LOCAL_REPLICA_ID,
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
