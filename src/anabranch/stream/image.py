"""The image of one stream: plain values without behaviour.

DUMP, RESTORE, COPY, snapshots and files of other servers all need a whole stream as data. An image
is this data. It does not depend on how the engine stores a stream or how a payload encodes it:
:mod:`anabranch.stream.image_conversion` makes an image of a stream and a stream of an image,
:mod:`anabranch.rdb` makes bytes of an image and an image of bytes.

Entry IDs are integers ``(ms << 64) | seq``; times are milliseconds since 1970. Images that come
from outside are checked by :meth:`StreamImage.check`; other code may check its images, too.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from anabranch.stream.producer import DURATION_MAX_S, MAXSIZE_MAX

_MAX_ID: Final = (1 << 128) - 1
_MAX_COUNT: Final = (1 << 63) - 1  # every counter ends up as a signed 64-bit RESP integer


class NodeImage(Struct):
    """A run of neighbouring entries that are stored, and approximately trimmed, together."""

    entries: list[tuple[int, list[bytes]]]
    """The live entries, ascending: ID, and fields and values in turn (never empty, always even)."""
    slots: int
    """The count of live and deleted entries; a deleted entry counts until its node is removed."""


class PendingImage(Struct):
    """One entry that was delivered and is not acknowledged."""

    entry_id: int
    delivery_time_ms: int
    delivery_count: int
    consumer: bytes | None
    """The owner; None when the entry was given back (NACK)."""


class ConsumerImage(Struct):
    """One consumer of a group. Its pending entries are in ``pending`` of the group."""

    name: bytes
    seen_time_ms: int
    active_time_ms: int
    """Last successful read; -1 when there was none."""


class GroupImage(Struct):
    """A consumer group as Redis writes it in a DUMP payload or an RDB file."""

    name: bytes
    last_id: int
    entries_read: int | None
    """How many entries the group has read since the stream began; None when unknown."""
    pending: list[PendingImage] = field(default_factory=list)
    """Ascending by entry ID; the entry itself may have been deleted."""
    consumers: list[ConsumerImage] = field(default_factory=list)
    nacked: list[int] = field(default_factory=list)
    """IDs of the pending entries without consumer, in the order in which they will be delivered."""
    estimate_entries_read: bool = False
    """The source predates the counter: ``entries_read`` is None and the loader has to estimate it
    from ``last_id`` (as opposed to None because the group itself did not know)."""

    @property
    def late(self) -> int:
        """The count of pending entries that were never delivered.

        A region writes entries below last-delivered-id in this way if it must still deliver them.
        XNACK SILENT does the same.
        """
        return sum(item.consumer is None and not item.delivery_count for item in self.pending)


class ProducerImage(Struct):
    """An idempotent producer and its latest IDs."""

    pid: bytes
    iids: list[tuple[bytes, int]]
    """Idempotent IDs with the IDs of their entries, which may be deleted; oldest first, never
    empty."""


class StreamImage(Struct):
    """A stream as Redis writes it in a DUMP payload or an RDB file."""

    nodes: list[NodeImage] = field(default_factory=list)
    length: int = 0
    last_id: int = 0
    first_id: int = 0
    """ID of the first live entry, 0 without one."""
    max_deleted_id: int = 0
    entries_added: int = 0
    groups: list[GroupImage] = field(default_factory=list)
    idmp_duration: int | None = None
    """Seconds; None (here and in ``idmp_maxsize``): not given, the default of the server applies.
    """
    idmp_maxsize: int | None = None
    iids_added: int = 0
    iids_duplicates: int = 0
    producers: list[ProducerImage] = field(default_factory=list)

    def check(self) -> None:
        """Raise ValueError for the first broken promise. Linear in the size."""
        nodes = NodesCheck()
        for node in self.nodes:
            nodes.add(node)
        nodes.end(self)
        self.check_rest()
        for group in self.groups:
            pending = PendingCheck(group)
            for item in group.pending:
                pending.add(item)
            pending.end()

    def check_rest(self) -> None:
        """Check everything except nodes and pending entries."""
        _in_range("last ID", self.last_id, _MAX_ID)
        _in_range("entries added", self.entries_added, _MAX_COUNT)
        # It may be above the last ID: XSETID lowers the last ID without a look at it.
        _in_range("highest deleted ID", self.max_deleted_id, _MAX_ID)
        if self.entries_added < self.length:
            raise ValueError("fewer entries were added than there are")
        _unique("group", [group.name for group in self.groups])
        for group in self.groups:
            _check_group(group)
        self._check_producers()

    def _check_producers(self) -> None:
        if self.idmp_duration is not None:
            _in_range("IDMP duration", self.idmp_duration, DURATION_MAX_S, 1)
        if self.idmp_maxsize is not None:
            _in_range("IDMP maxsize", self.idmp_maxsize, MAXSIZE_MAX, 1)
        _in_range("iids added", self.iids_added, _MAX_COUNT)
        _in_range("iids duplicates", self.iids_duplicates, _MAX_COUNT)
        _unique("producer", [producer.pid for producer in self.producers])
        iids_max = self.idmp_maxsize or MAXSIZE_MAX
        for producer in self.producers:
            if not producer.pid or not producer.iids:
                raise ValueError("a producer without ID or without idempotent IDs")
            if len(producer.iids) > iids_max:
                raise ValueError("a producer with more idempotent IDs than the maximum")
            _unique("idempotent ID", [iid for iid, _ in producer.iids])
            for iid, entry_id in producer.iids:
                if not iid:
                    raise ValueError("an empty idempotent ID")
                _in_range("entry ID", entry_id, _MAX_ID)


class NodesCheck:
    """Checks the nodes of a stream one after the other; raises as :meth:`StreamImage.check`."""

    __slots__ = ("_length", "_previous", "first_id")

    def __init__(self) -> None:
        self._previous = self.first_id = self._length = 0  # 0-0 is no entry's ID: each is above it

    def add(self, node: NodeImage) -> None:
        """Check the next node; raises :class:`ValueError`."""
        entries = node.entries
        if not entries:
            raise ValueError("a node without live entries")
        if node.slots < len(entries):
            raise ValueError("a node with fewer slots than entries")
        previous = self._previous
        for entry_id, pairs in entries:
            if entry_id <= previous:
                raise ValueError("entries out of order")
            if not pairs or len(pairs) % 2:
                raise ValueError("an entry without field/value pairs")
            previous = entry_id
        self._previous = previous
        self._length += len(entries)
        self.first_id = self.first_id or entries[0][0]

    def end(self, image: StreamImage) -> None:
        """The nodes are complete: compare them with the counters of the image."""
        if self._length != image.length:
            raise ValueError("the length is not the number of live entries")
        if self.first_id != image.first_id:
            raise ValueError("the first ID is not that of the first live entry")
        if self._previous > image.last_id:
            raise ValueError("an entry above the last ID")


class PendingCheck:
    """Checks the pending entries of a group one by one, ascending; raises :class:`ValueError`."""

    __slots__ = ("_group", "_names", "_previous", "_unowned")

    def __init__(self, group: GroupImage) -> None:
        self._group = group
        self._names = {consumer.name for consumer in group.consumers}
        self._previous = -1
        self._unowned: set[int] = set()

    def add(self, pending: PendingImage) -> None:
        """Check the next pending entry; raises :class:`ValueError`."""
        if pending.entry_id <= self._previous:
            raise ValueError("pending entries out of order")
        self._previous = pending.entry_id
        _in_range("delivery time", pending.delivery_time_ms, _MAX_COUNT)
        _in_range("delivery count", pending.delivery_count, _MAX_COUNT)
        if pending.consumer is None:
            self._unowned.add(pending.entry_id)
        elif pending.consumer not in self._names:
            raise ValueError("a pending entry of an unknown consumer")

    def end(self) -> None:
        """Compare all that came with the NACKed entries of the image."""
        _in_range("pending ID", max(self._previous, 0), _MAX_ID)
        nacked = self._group.nacked
        if len(nacked) != len(self._unowned) or set(nacked) != self._unowned:
            raise ValueError("the NACKed entries are not the pending entries without consumer")


def _check_group(group: GroupImage) -> None:
    _in_range("group ID", group.last_id, _MAX_ID)
    if group.entries_read is not None:
        _in_range("entries read", group.entries_read, _MAX_COUNT)
    _unique("consumer", [consumer.name for consumer in group.consumers])
    for consumer in group.consumers:
        _in_range("seen time", consumer.seen_time_ms, _MAX_COUNT)
        _in_range("active time", consumer.active_time_ms, _MAX_COUNT, -1)


def _in_range(what: str, value: int, maximum: int, minimum: int = 0) -> None:
    if not minimum <= value <= maximum:
        raise ValueError(f"{what} out of range")


def _unique(what: str, names: list[bytes]) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"a {what} twice")
