"""Streams that do not exist but of which something must be remembered, mostly of deleted keys.

While a member is away, a region remembers each deleted key until that member has the tombstone, so
there may be millions. The streams that were used last are objects. The others, as far as they have
nothing but tombstones and counters, are *packed*: bytes, as in a snapshot, in a
:class:`PackedTable`. Who asks for a packed stream gets an object again.

A stream may be packed while somebody still refers to the object: use such a reference only until
some other streams were used, or ask again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from anabranch.keyspace.last_positions import LastPositions
from anabranch.keyspace.memory import key_bytes, scaled
from anabranch.keyspace.packed_table import PackedTable, Sweep
from anabranch.keyspace.replica import Replica
from anabranch.stream.frozen import StreamBuilder, head_of
from anabranch.stream.shared import Dot
from anabranch.stream.stream import Stream

OBJECTS_MAX = 2000
"""The most streams that are objects, of those that can be packed, except for a batch."""

BATCH = 64
"""Streams that are packed together."""

_SAMPLES: Final = 3
"""Streams that are measured for an estimate of all."""

_SHARED: Final = 5
_TOMBSTONES: Final = 0
"""Where the head of a stream (:mod:`anabranch.stream.frozen`) has tombstones."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Remembered:
    """Streams of one database by key. Where no other region writes there is none."""

    def __init__(self, replica: Replica, index: int, last_positions: LastPositions) -> None:
        self._replica = replica
        self._last_positions = last_positions
        self._index = index
        self.objects: dict[bytes, Stream] = {}
        """The streams that are not packed; the one that was used last is the last one."""
        self._packed = PackedTable()
        self._absent: bytes | None = None  # a key that is known not to be packed
        self._pack_at = 0  # do not look for streams to pack before there are so many objects
        self.marked = 0
        """How many packed streams have tombstones."""
        self.marks = 0
        """How many tombstones these have."""
        self._sweep = Sweep(self._dropping)

    def __len__(self) -> int:
        return len(self.objects) + len(self._packed)

    def __contains__(self, key: bytes) -> bool:
        return key in self.objects or self._packed.get(key) is not None

    def __iter__(self) -> Iterator[bytes]:
        """All keys; streams may be used meanwhile."""
        yield from list(self.objects)
        yield from self._packed

    @property
    def used_bytes(self) -> int:
        """An estimate of the memory of all of them."""
        return self._packed.size + scaled(self.objects.items(), _object_bytes, _SAMPLES)

    @property
    def packed(self) -> list[bytes]:
        """The others: chunks of a :class:`PackedTable`. A row is the encoded head of a stream."""
        return self._packed.chunks

    def packed_of(self, keys: Collection[bytes]) -> list[tuple[bytes, list[bytes]]]:
        """The chunks that have these keys, if any has them; see :meth:`PackedTable.chunks_of`."""
        return self._packed.chunks_of(keys)

    def _head_of(self, key: bytes) -> list[Any] | None:
        row = None if key == self._absent else self._packed.get(key)
        return None if row is None else _decode(row)

    def get(self, key: bytes) -> Stream | None:
        """The stream of a key, or None."""
        stream = self.objects.pop(key, None)
        if stream is None:
            head = self._head_of(key)
            if head is None:
                self._absent = key
                return None
            self._packed.remove((key,))
            self._count(head, -1)
            stream = _stream_of(head, self._replica.own)
            if stream.shared.tombstones:
                self._replica.tombstoned[self._index, key] = None
        self.add(key, stream)
        return stream

    def __setitem__(self, key: bytes, stream: Stream) -> None:
        """Remember the stream of a key; forget another one."""
        self.discard(key)
        self.add(key, stream)

    def discard(self, key: bytes) -> bool:
        """Forget a key; returns whether it was here."""
        if self.objects.pop(key, None) is not None:
            return True
        head = self._head_of(key)
        if head is not None:
            self._packed.remove((key,))
            self._count(head, -1)
        return head is not None

    def forget(self, key: bytes, stream: Stream) -> None:
        """Forget all of a stream but where its logs end; it may not be here."""
        self._last_positions.note(key, stream)
        self.discard(key)

    def items(self) -> Iterator[tuple[bytes, Stream]]:
        """All streams with their keys, to be read: changes of a packed one are lost.

        Streams may be used meanwhile; one that is packed then may come twice.
        """
        yield from list(self.objects.items())
        for rows in self._packed.pages():
            for key, row in rows.items():
                yield key, _stream_of(_decode(row), self._replica.own)

    def restore(self, rows: Mapping[bytes, bytes]) -> None:
        """Add packed streams from their heads, which are encoded."""
        self._packed.update(rows)
        self._absent = None
        for row in rows.values():
            self._count(_decode(row), 1)

    def packed_dots(self) -> Iterator[Dot]:
        """The tombstones of packed streams."""
        for rows in self._packed.pages():
            for row in rows.values():
                for replica_id, number, _ in _tombstones(_decode(row)):
                    yield replica_id, number

    # -- packing ------------------------------------------------------------------------------

    def add(self, key: bytes, stream: Stream) -> None:
        """Remember the stream of a key that is not here."""
        objects = self.objects
        objects[key] = stream
        if len(objects) >= max(OBJECTS_MAX + BATCH, self._pack_at):
            self._pack()

    def _pack(self) -> None:
        """Pack some of the streams that were used longest ago."""
        objects = self.objects
        tombstoned = self._replica.tombstoned
        rows: dict[bytes, bytes] = {}
        for key in list(islice(objects, BATCH)):
            stream = objects.pop(key)
            if _can_be_packed(stream):
                rows[key] = self._packed_head(stream)
                tombstoned.pop((self._index, key), None)
            else:
                objects[key] = stream
        self._packed.update(rows)
        self._absent = None
        self._pack_at = 0 if rows else len(objects) + BATCH

    def _packed_head(self, stream: Stream) -> bytes:
        head = head_of(stream)
        self._count(head, 1)
        return _encode(head)

    def _count(self, head: list[Any], by: int) -> None:
        tombstones = len(_tombstones(head))
        self.marks += by * tombstones
        if tombstones:
            self.marked += by

    # -- dropping -----------------------------------------------------------------------------

    def begin_sweep(self) -> None:
        """Tombstones may have become stable: look at all packed streams again, in slices."""
        self._sweep.begin()

    def sweep(self) -> None:
        """Do a slice: drop what every member has, as :meth:`Keyspace.prune` does with the rest."""
        self._sweep.go_on()

    def _dropping(self) -> Iterator[None]:
        for rows in self._packed.pages():
            replica = self._replica
            watermark = replica.watermark
            changed: dict[bytes, bytes] = {}
            gone: list[bytes] = []
            for key, row in rows.items():
                head = _decode(row)
                if not any(
                    number <= watermark.get(each, 0) for each, number, _ in _tombstones(head)
                ):
                    continue
                self._count(head, -1)
                stream = _stream_of(head, replica.own)
                if not stream.prune(watermark, replica.own) and stream.is_blank:
                    self._last_positions.note(key, stream)
                    gone.append(key)
                else:
                    changed[key] = self._packed_head(stream)
            self._packed.remove(gone)
            self._packed.update(changed)
            yield


def _object_bytes(item: tuple[bytes, Stream]) -> int:
    return key_bytes(*item)


def _stream_of(head: list[Any], own: int) -> Stream:
    """The stream that was packed; ``own`` is the present replica ID of this region."""
    return StreamBuilder(head, own).stream


def _tombstones(head: list[Any]) -> list[list[Any]]:
    tombstones: list[list[Any]] = head[_SHARED][_TOMBSTONES]
    return tombstones


def _can_be_packed(stream: Stream) -> bool:
    """Whether nothing is left but tombstones and counters.

    A blank stream is just being made, or is dropped soon.
    """
    return not stream.exists and stream.has_only_tombstones and not stream.is_blank
