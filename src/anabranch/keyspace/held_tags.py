"""Tags of idempotent producers that some region may lack, kept to find conflicts.

A *tag* says that a producer's idempotent ID stands for an entry. The tags that a stream remembers
for retries are limited by count and age. But regions that accept the same message concurrently must
find that out however long they were disconnected. So every tag is *held* until it is below the
watermark: until every member has it on its disk, and no effect without it in its context can arrive
any more.

Tags are held by replica ID, in the order of their numbers. Older tags are packed, about 1,000 to a
chunk of bytes; snapshots and full syncs contain these chunks. A table for look-ups is built only
when effects arrive whose contexts lack many of the tags, and is dropped afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS
from anabranch.stream.shared import Dot

CHUNK_TAGS: Final = 1024
"""Tags of a chunk."""

_SCANNED: Final = 16
"""Up to so many tags are compared one by one, without a table."""

OPEN_TAG_BYTES: Final = 320
"""The approximate memory of an unpacked tag, without its idempotent ID."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class HeldTag(NamedTuple):
    """One effect :class:`kinds.Remember`, and its context."""

    replica_id: int
    number: int
    db: int
    key: bytes
    pid: bytes
    iid: bytes
    entry_id: int
    entry: Dot
    """The effect that added the entry; (0, 0) if the entry was gone already."""
    at_ms: int
    yields: bool
    """Whether the entry is removed if another region accepted the same ID for a smaller entry."""
    context: Mapping[int, int]

    @property
    def dot(self) -> Dot:
        """Replica ID and number of the effect that made the tag."""
        return self.replica_id, self.number

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Of several tags for one idempotent ID the one with the smallest rank wins."""
        return self.entry_id, self.replica_id & 0xFF, self.replica_id, self.number

    def knows(self, dot: Dot) -> bool:
        """Whether another effect is in the context of this one."""
        replica_id, number = dot
        if replica_id == self.replica_id:
            return number < self.number
        return number <= self.context.get(replica_id, 0)


def are_concurrent(one: HeldTag, other: HeldTag) -> bool:
    """Whether neither is in the context of the other."""
    return one.dot != other.dot and not (one.knows(other.dot) or other.knows(one.dot))


_number = attrgetter("number")


class _Chunk(NamedTuple):
    first: int
    last: int
    tags: int
    data: bytes


class HeldTags:
    """The held tags of one replica ID, ascending by number."""

    __slots__ = ("_asked", "_chunks", "_open", "_read", "_table", "_table_low", "_table_top")

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._open: list[HeldTag] = []
        self._read: tuple[bytes, list[HeldTag]] | None = None  # the chunk that was unpacked last
        self._table: dict[int, int | list[int]] | None = None  # hash -> numbers
        self._table_low = self._table_top = 0  # the table has the numbers above low up to top
        self._asked: int | None = None  # the lowest recent ``after`` of find()

    def __len__(self) -> int:
        return sum([chunk.tags for chunk in self._chunks]) + len(self._open)

    def __iter__(self) -> Iterator[HeldTag]:
        return self.after(0)

    @property
    def size(self) -> int:
        """About how many bytes of memory they take."""
        packed = sum([len(chunk.data) for chunk in self._chunks])
        table = 0 if self._table is None else 120 * len(self._table)
        return packed + table + sum([OPEN_TAG_BYTES + len(tag.iid) for tag in self._open])

    @property
    def newest(self) -> int:
        """The number of the newest tag, 0 if there is none."""
        if self._open:
            return self._open[-1].number
        return self._chunks[-1].last if self._chunks else 0

    @property
    def oldest(self) -> int:
        """The number of the oldest tag, 0 if there is none."""
        if self._chunks:
            return self._chunks[0].first
        return self._open[0].number if self._open else 0

    def add(self, tag: HeldTag) -> None:
        """Hold a tag, which is newer than all that are held."""
        self._open.append(tag)

    def drop_upto(self, number: int) -> None:
        """Drop the tags up to a number; all tags of a chunk are dropped together."""
        chunks = self._chunks
        while chunks and chunks[0].last <= number:
            chunks.popleft()
        tags = self._open
        if tags and tags[0].number <= number:
            del tags[: bisect_right(tags, number, key=_number)]
        if not tags and not chunks:
            self._table = self._read = None

    def drop_oldest(self) -> int:
        """Drop about a chunk of the oldest tags; returns their count."""
        if self._chunks:
            return self._chunks.popleft().tags
        count = min(len(self._open), CHUNK_TAGS)
        del self._open[:count]
        return count

    def pack(self, keep: int = CHUNK_TAGS) -> bool:
        """Pack a chunk of the older tags, if there are more than ``keep`` beyond it."""
        if len(self._open) < CHUNK_TAGS + keep:
            return False
        some = self._open[:CHUNK_TAGS]
        self._chunks.append(_Chunk(some[0].number, some[-1].number, CHUNK_TAGS, _packed(some)))
        del self._open[:CHUNK_TAGS]
        return True

    def rest(self) -> None:
        """Drop the look-up table if it was not used lately, or if most of it is not needed."""
        asked = self._asked
        if asked is None or 2 * asked > self._table_low + self._table_top + 2 * CHUNK_TAGS:
            self._table = None
        self._asked = None

    def after(self, number: int) -> Iterator[HeldTag]:
        """The tags with greater numbers, ascending."""
        for chunk in list(self._chunks):
            if chunk.last > number:
                tags = self._unpacked(chunk)
                yield from tags[bisect_right(tags, number, key=_number) :]
        tags = self._open
        yield from tags[bisect_right(tags, number, key=_number) :]

    def find(self, tag: HeldTag, after: int) -> list[HeldTag]:
        """Tags for the same idempotent ID with numbers above ``after``."""
        if self.newest <= after:
            return []
        wanted = tag.db, tag.key, tag.pid, tag.iid
        newest = self._open[-_SCANNED:]
        is_all = not self._chunks and len(newest) == len(self._open)
        if is_all or (newest and newest[0].number <= after):
            return [each for each in newest if each.number > after and each[2:6] == wanted]
        numbers = self._looked_up(hash(wanted), after)
        found = [self.of_number(number) for number in numbers if number > after]
        return [each for each in found if each is not None and each[2:6] == wanted]

    def chunks(self) -> list[bytes]:
        """All tags in the form of files; :meth:`read` is the reverse."""
        data = [chunk.data for chunk in self._chunks]
        tags = self._open
        data += [_packed(tags[at : at + CHUNK_TAGS]) for at in range(0, len(tags), CHUNK_TAGS)]
        return data

    def read(self, replica_id: int, data: bytes) -> None:
        """Take over a chunk, newer than any here."""
        tags = _unpacked(replica_id, data)
        if len(tags) == CHUNK_TAGS and not self._open:
            self._chunks.append(_Chunk(tags[0].number, tags[-1].number, len(tags), data))
        else:
            self._open += tags

    # -- looking up ---------------------------------------------------------------------------

    def _looked_up(self, key: int, after: int) -> Sequence[int]:
        self._asked = after if self._asked is None else min(self._asked, after)
        newest = self.newest
        table = self._table
        if table is None:
            table = self._table = {}
            self._table_low = self._table_top = after
        if after < self._table_low:
            self._fill(table, after, self._table_low)
            self._table_low = after
        if newest > self._table_top:
            self._fill(table, self._table_top, newest)
            self._table_top = newest
        found = table.get(key, ())
        return [found] if isinstance(found, int) else found

    def _fill(self, table: dict[int, int | list[int]], low: int, high: int) -> None:
        for tag in self.after(low):
            if tag.number > high:
                return
            key = hash(tag[2:6])
            known = table.setdefault(key, tag.number)
            if known != tag.number:
                several = known if isinstance(known, list) else [known]
                table[key] = [*several, tag.number]

    def of_number(self, number: int) -> HeldTag | None:
        """The tag with this number, or None."""
        for chunk in self._chunks:
            if chunk.last >= number:
                tags = self._unpacked(chunk)
                break
        else:
            tags = self._open
        at = bisect_right(tags, number, key=_number) - 1
        return tags[at] if at >= 0 and tags[at].number == number else None

    def _unpacked(self, chunk: _Chunk) -> list[HeldTag]:
        if self._read is None or self._read[0] is not chunk.data:
            replica_id = _decode(chunk.data)[0]
            self._read = chunk.data, _unpacked(replica_id, chunk.data)
        return self._read[1]


def _packed(tags: Sequence[HeldTag]) -> bytes:
    """Pack tags in columns: each place, producer and context once, other values for each tag."""
    places: dict[tuple[int, bytes], int] = {}
    pids: dict[bytes, int] = {}
    contexts: list[list[int]] = []
    before: Mapping[int, int] | None = None
    which: list[int] = []
    for tag in tags:
        places.setdefault((tag.db, tag.key), len(places))
        pids.setdefault(tag.pid, len(pids))
        if tag.context is not before and tag.context != before:
            contexts.append([edge for pair in sorted(tag.context.items()) for edge in pair])
            which.append(len(which))
        before = tag.context
    starts: list[int] = []
    before = None
    for index, tag in enumerate(tags):
        if tag.context is not before and tag.context != before:
            starts.append(index)
        before = tag.context
    numbers = [tag.number for tag in tags]
    return _encode(
        [
            tags[0].replica_id,
            [list(place) for place in places],
            list(pids),
            [starts, contexts],
            [numbers[0], *[high - low for low, high in pairwise(numbers)]],
            [places[tag.db, tag.key] for tag in tags],
            [pids[tag.pid] for tag in tags],
            [tag.iid for tag in tags],
            [tag.entry_id >> SEQ_BITS for tag in tags],
            [tag.entry_id & MAX_SEQ for tag in tags],
            [(tag.entry_id >> SEQ_BITS) - tag.at_ms for tag in tags],
            [
                tag.number - tag.entry[1] if tag.entry[0] == tag.replica_id else list(tag.entry)
                for tag in tags
            ],
            [int(tag.yields) for tag in tags],
        ]
    )


def _unpacked(replica_id: int, data: bytes) -> list[HeldTag]:
    _, places, pids, (starts, contexts), numbers, *columns = _decode(data)
    known = [dict(zip(edges[::2], edges[1::2], strict=True)) for edges in contexts]
    tags = []
    number = 0
    for index, (step, place, pid, iid, ms, seq, age, entry, yields) in enumerate(
        zip(numbers, *columns, strict=True)
    ):
        number += step
        tags.append(
            HeldTag(
                replica_id,
                number,
                places[place][0],
                places[place][1],
                pids[pid],
                iid,
                ms << SEQ_BITS | seq,
                (replica_id, number - entry) if isinstance(entry, int) else (entry[0], entry[1]),
                ms - age,
                bool(yields),
                known[bisect_right(starts, index) - 1],
            )
        )
    return tags
