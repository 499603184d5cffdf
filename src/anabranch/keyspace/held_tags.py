"""Tags of idempotent producers that some region may lack, kept to find conflicts.

A *tag* says that a producer's idempotent ID stands for an entry. The tags that a stream remembers
for retries are limited by count and age. But regions that accept the same message concurrently must
find that out however long they were disconnected. So every tag is *held* until it is below the
watermark: until every member has it on its disk, and no effect without it in its context can arrive
any more.

Tags are held by replica ID, in the order of their numbers. Older tags are packed in a
:class:`PackedTable`, which snapshots and full syncs contain. A table for look-ups is built only
when effects arrive whose contexts lack many of the tags, and is dropped afterwards.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from anabranch.keyspace.packed_table import ROWS_MAX, PackedRows, PackedTable, rows_in_chunk
from anabranch.stream.entry_id import make, split
from anabranch.stream.shared import Dot

CHUNK_TAGS: Final = 1024
"""Tags that are packed together."""

_SCANNED: Final = 16
"""Up to so many tags are compared one by one, without a table."""

OPEN_TAG_BYTES: Final = 320
"""The approximate memory of an unpacked tag, without its idempotent ID."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(
    tuple[int, bytes, bytes, bytes, list[int], Dot, int, bool, dict[int, int]]
).decode


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


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _packed(tags: Sequence[HeldTag]) -> PackedRows:
    return {_key(tag.number): _encode([*tag[2:6], split(tag.entry_id), *tag[7:]]) for tag in tags}


class HeldTags:
    """The held tags of one replica ID, ascending by number."""

    __slots__ = (
        *("_asked", "_open", "_packed", "_replica_id"),
        *("_table", "_table_low", "_table_top", "newest"),
    )

    def __init__(self, replica_id: int) -> None:
        self._replica_id = replica_id
        self._packed = PackedTable()  # by number
        self._open: list[HeldTag] = []  # the newest ones
        self.newest = 0
        """The number of the newest tag that was held, 0 if there was none."""
        self._table: dict[int, int | list[int]] | None = None  # hash -> numbers
        self._table_low = self._table_top = 0  # the table has the numbers above low up to top
        self._asked: int | None = None  # the lowest recent ``after`` of find()

    def __len__(self) -> int:
        return len(self._packed) + len(self._open)

    def __iter__(self) -> Iterator[HeldTag]:
        return self.after(0)

    @property
    def size(self) -> int:
        """About how many bytes of memory they take."""
        table = 0 if self._table is None else 120 * len(self._table)
        return (
            self._packed.size + table + sum([OPEN_TAG_BYTES + len(tag.iid) for tag in self._open])
        )

    @property
    def oldest(self) -> int:
        """The number of the oldest tag, 0 if there is none."""
        if (first := self._packed.first) is not None:
            return int.from_bytes(first, "big")
        return self._open[0].number if self._open else 0

    def add(self, tag: HeldTag) -> None:
        """Hold a tag, which is newer than all that are held."""
        self._open.append(tag)
        self.newest = tag.number

    def drop_upto(self, number: int) -> None:
        """Drop the tags up to a number, of packed ones whole chunks."""
        tags = self._open
        if tags and tags[0].number <= number:
            del tags[: bisect_right(tags, number, key=_number)]
        self._packed.drop_before(_key(number + 1))
        if not len(self):
            self._table = None

    def drop_oldest(self) -> int:
        """Drop about a chunk of the oldest tags; returns their count."""
        before = len(self)
        if len(self._packed):
            self._packed.drop_first(CHUNK_TAGS // ROWS_MAX)
        else:
            del self._open[:CHUNK_TAGS]
        return before - len(self)

    def pack(self, keep: int = CHUNK_TAGS) -> bool:
        """Pack some of the older tags, if there are more than ``keep`` beyond them."""
        if len(self._open) < CHUNK_TAGS + keep:
            return False
        self._packed.update(_packed(self._open[:CHUNK_TAGS]))
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
        for rows in self._packed.pages(_key(number)):
            for key, row in rows.items():
                yield self._unpacked(key, row)
        tags = self._open
        yield from tags[bisect_right(tags, number, key=_number) :]

    def find(self, tag: HeldTag, after: int) -> list[HeldTag]:
        """Tags for the same idempotent ID with numbers above ``after``."""
        if self.newest <= after:
            return []
        wanted = tag.db, tag.key, tag.pid, tag.iid
        newest = self._open[-_SCANNED:]
        is_all = not len(self._packed) and len(newest) == len(self._open)
        if is_all or (newest and newest[0].number <= after):
            return [each for each in newest if each.number > after and each[2:6] == wanted]
        numbers = self._looked_up(hash(wanted), after)
        found = [self.of_number(number) for number in numbers if number > after]
        return [each for each in found if each is not None and each[2:6] == wanted]

    def chunks(self) -> list[bytes]:
        """All tags as chunks of a :class:`PackedTable`; :meth:`read` is the reverse."""
        rest = PackedTable()
        rest.update(_packed(self._open))
        return [*self._packed.chunks, *rest.chunks]

    def read(self, chunk: bytes) -> None:
        """Take over a chunk, newer than any here; ValueError if it is none."""
        rows = rows_in_chunk(chunk)
        self._packed.update(rows)
        self.newest = max(self.newest, int.from_bytes(max(rows, default=b""), "big"))

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
        tags = self._open
        if tags and number >= tags[0].number:
            at = bisect_right(tags, number, key=_number) - 1
            return tags[at] if tags[at].number == number else None
        key = _key(number)
        row = self._packed.get(key)
        return None if row is None else self._unpacked(key, row)

    def _unpacked(self, key: bytes, row: bytes) -> HeldTag:
        db, name, pid, iid, pair, entry, at_ms, yields, context = _decode(row)
        number, entry_id = int.from_bytes(key, "big"), make(*pair)
        names = db, name, pid, iid
        return HeldTag(self._replica_id, number, *names, entry_id, entry, at_ms, yields, context)
