"""A block: a run of entries of one region log, encoded once and copied out ever after.

``XRANGE``, ``XREAD``, ``XREADGROUP`` and ``XCLAIM`` send an entry in the same bytes in RESP2 and
RESP3: ``*2 $id *2n $field $value ...``. A block keeps these *fragments* one behind the other, so
a range over live entries is one slice of memory.

A block is also a Redis *node*: approximate trimming drops whole blocks, and
``stream-node-max-entries`` / ``-bytes`` decide where one ends. ``slots`` and ``weight`` are the
two figures those limits look at; they count deleted entries too, as Redis does. Entries are
appended by the region log.

The newest block of a log is *open*: its fragments and IDs are in lists (``parts``, ``ids``), where
adding one is cheapest. When the next block opens, the block is *closed*: one ``bytes`` of all
fragments, their end offsets and their IDs in compact arrays. That takes a tenth of a microsecond an
entry. Objects of a few hundred entries come and go in the same memory: the heap stays compact.

A closed block may be *packed*: compressed, or lightly so (:meth:`Block.compress`). Whoever reads
``ids``, ``ends`` or ``data`` opens it: they are there again, beside the packed form, until the
cache has no room.
If entries are compressed as columns, only the fragments that are read are made, as long as they are
fewer than the entries of the block. Then all of them are.
The compressed form may be *offloaded* to a file (:mod:`anabranch.stream.offloading`).

Invariants (see :meth:`Block.check`): IDs ascend strictly; in a closed block ``ends`` are the end
offsets of the fragments in ``data``; ``dead`` holds indexes of removed entries.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import sub
from struct import pack
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.columnar import Columns
from anabranch.stream.compression import BlockCache, expanded, opened
from anabranch.stream.entry_id import SEQ_BITS
from anabranch.stream.offloading import Offloaded, frame_of
from anabranch.stream.packed_ids import PackedIds, index_of
from anabranch.stream.selecting import Where

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_NO_SHIFT: Final = -(1 << 62)  # of a block that stores its numbers; no difference is below 0
_NONE: Final[frozenset[int]] = frozenset()  # most blocks have no dead entry: they share this one
_NO_IDS: Final[list[int]] = []  # of a block that is not open
_ID_BYTES: Final = -getsizeof(1 << 127) // 16 * -16  # rounded up, as it is when it is allocated
_FEW: Final = 8  # so many fragments are made one by one
_REWRITE_DEAD_MIN: Final = 64  # below this a rewrite saves less than it costs
_MS_MAX: Final = (1 << 62) - 1  # later milliseconds do not fit into a register


@mypyc_attr(acyclic=True)
class Block:
    """Up to a few hundred consecutive entries of one region log."""

    __slots__ = (
        "_closed_count",
        "_columns",
        "_data",
        "_ends",
        "_ids",
        "cache",
        "dead",
        "digest",
        "first_id",
        "first_ms",
        "first_position",
        "gaps",
        "is_dense",
        "is_read",
        "numbers",
        "open_ids",
        "packed",
        "parts",
        "positions",
        "shared",
        "shift",
        "weight",
    )

    def __init__(self, first_id: int, first_position: int, shift: int = 1) -> None:
        self.first_id = first_id  # key in the region log; stays when the first entry is deleted
        self.first_ms: i64 = ms_of(first_id)
        self.open_ids: list[int] = []  # of the fragments in ``parts``
        self.first_position = first_position
        self.parts: list[bytes] | None = []  # the fragments; None once closed
        self._closed_count = 0  # of entries, once closed
        # Positions relative to the first one, as soon as they are not simply 0, 1, 2 ...
        self.positions: list[int] | None = None
        # The number of each entry, as soon as numbers and positions do not ascend alike. Before,
        # ``shift`` is the difference between number and position, afterwards unlike all of them.
        self.numbers: array[int] | None = None
        self.shift = shift
        # The contents of a closed block; None while it is open, and while it is shut.
        self._ids: list[int] | PackedIds | None = None
        self._ends: array[int] | None = None
        self._data: bytes | None = None
        self._columns: Columns | None = None  # instead of ends and data, in an opened block
        self.dead: set[int] | frozenset[int] = _NONE
        self.gaps = 0  # deleted entries whose room a rewrite has removed
        self.weight = 0
        self.shared = 0  # snapshots that still have to read it: RegionLog copies before changing
        # Digest of the live entries, see keyspace/agreement.py; None: not computed, or entries were
        # added.
        self.digest: int | None = None
        self.is_read = False  # entries were read since this was set to False
        self.is_dense = False  # it is compressed, or would hardly become smaller
        # While the block is packed: its contents, and the cache of opened blocks.
        self.packed: bytes | Offloaded | None = None
        self.cache: BlockCache | None = None

    # -- positions and numbers, see region_log.py; mostly both run evenly, and are not stored ------

    @property
    def count(self) -> int:
        """The count of entries, dead or live; does not open the block."""
        if self.parts is not None:
            return len(self.parts)
        return self._closed_count

    def position(self, index: int) -> int:
        """The position of an entry: its rank among all that its region ever added to the key."""
        return self.first_position + (index if self.positions is None else self.positions[index])

    def keep_positions(self) -> None:
        """Store every position, because the next entry does not have the next position."""
        if self.positions is None:
            self.positions = list(range(self.count))

    def number(self, index: int) -> int:
        """Number of an entry, see :mod:`anabranch.stream.region_log`."""
        numbers = self.numbers
        return self.position(index) + self.shift if numbers is None else numbers[index]

    def numbers_of(self, low: int, high: int) -> Sequence[int]:
        """Numbers of the entries ``[low, high)``."""
        if self.numbers is not None:
            return self.numbers[low:high]
        first = self.first_position + self.shift
        if self.positions is None:
            return range(first + low, first + high)
        return [first + offset for offset in self.positions[low:high]]

    def index_above(self, number: int) -> int:
        """Index of the first entry, dead or live, with a greater number; O(log n)."""
        if self.numbers is not None:
            return bisect_right(self.numbers, number)
        offset = number - self.first_position - self.shift
        if self.positions is not None:
            return bisect_right(self.positions, offset)
        return min(max(offset + 1, 0), self.count)

    def keep_numbers(self) -> array[int]:
        """Store every number, because the next entry has another distance to its position."""
        return self.numbers or self.store_numbers(array("Q", self.numbers_of(0, self.count)))

    def store_numbers(self, numbers: array[int]) -> array[int]:
        """Store the number of each entry, instead of their distance to the positions."""
        self.numbers = numbers
        self.shift = _NO_SHIFT
        return numbers

    # -- contents ---------------------------------------------------------------------------------

    @property
    def ids(self) -> list[int] | PackedIds:
        """The IDs of all entries, dead or live; opens the block."""
        if self.parts is not None:
            return self.open_ids
        if self._ids is None:
            self._open()
        assert self._ids is not None
        return self._ids

    @property
    def ends(self) -> array[int]:
        """Where each fragment of a closed block ends in ``data``; opens the block."""
        if self._ends is None:
            self._open_whole()
        assert self._ends is not None
        return self._ends

    @property
    def data(self) -> bytes:
        """The fragments of a closed block; opens the block."""
        if self._data is None:
            self._open_whole()
        assert self._data is not None
        return self._data

    @property
    def is_open(self) -> bool:
        """Whether entries may be added: the newest block of its log."""
        return self.parts is not None

    @property
    def slots(self) -> int:
        """Entries ever put into the block, deleted ones included."""
        return self.count + self.gaps

    @property
    def live(self) -> int:
        """Entries that are not deleted."""
        return self.count - len(self.dead)

    # -- finding ------------------------------------------------------------------------------

    def index_from(self, entry_id: int) -> int:
        """Index of the first entry, dead or live, with an ID >= ``entry_id``; O(log n)."""
        ids = self.ids
        if type(ids) is PackedIds:
            return ids.index_from(entry_id)
        return bisect_left(ids, entry_id)

    def index_after(self, entry_id: int) -> int:
        """Index of the first entry, dead or live, with an ID > ``entry_id``; O(log n)."""
        return self.index_from(entry_id + 1)

    def find(self, entry_id: int) -> int:
        """Index of the live entry with this ID, or -1."""
        index = index_of(self.ids, entry_id)
        return -1 if index in self.dead else index

    def first_live(self) -> int:
        """Index of the oldest live entry; the block must have one."""
        index = 0
        dead = self.dead
        while index in dead:
            index += 1
        return index

    def last_live(self) -> int:
        """Index of the newest live entry; the block must have one."""
        index = self.count - 1
        dead = self.dead
        while index in dead:
            index -= 1
        return index

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The runs of live entries in ``[low, high)`` as pairs of indexes, ascending."""
        gaps = sorted(index for index in self.dead if low <= index < high) if self.dead else []
        for gap in gaps:
            if low < gap:
                yield low, gap
            low = gap + 1
        if low < high:
            yield low, high

    # -- reading ------------------------------------------------------------------------------

    def fragment(self, index: int) -> bytes:
        """The wire bytes of one entry."""
        self.is_read = True
        if self.parts is not None:
            return self.parts[index]
        columns = self._columns_for(1)
        if columns is not None:
            return columns.fragments(index, index + 1)
        ends = self.ends
        return self.data[ends[index - 1] if index else 0 : ends[index]]

    def fragments(self, low: int, high: int) -> list[bytes]:
        """The wire bytes of the entries ``[low, high)``, one by one."""
        self.is_read = True
        if self.parts is not None:
            return self.parts[low:high]
        if high - low <= _FEW and (columns := self._columns_for(high - low)) is not None:
            return [columns.fragments(index, index + 1) for index in range(low, high)]
        data = self.data
        begin = self.ends[low - 1] if low else 0
        fragments: list[bytes] = []
        for end in self.ends[low:high].tolist():
            fragments.append(data[begin:end])
            begin = end
        return fragments

    def slice(self, low: int, high: int) -> bytes:
        """The wire bytes of the entries ``[low, high)``, which must all be live."""
        self.is_read = True
        data, ends = self._data, self._ends
        if data is None or ends is None:
            if self.parts is not None:
                return b"".join(self.parts[low:high])
            columns = self._columns_for(high - low)
            if columns is not None:
                return columns.fragments(low, high)
            data, ends = self.data, self.ends
        if low == 0 and high == len(ends):
            return data  # machine code would copy it to make a slice
        return data[ends[low - 1] if low else 0 : ends[high - 1]]

    def selected(self, where: Where, low: int, high: int) -> list[int]:
        """The indexes in ``[low, high)`` of entries for which a condition holds, dead or live.

        A block that is shut is opened for this alone: the cache stays as it is.
        """
        if self.parts is not None:
            return where.among_parts(self.parts, low, high)
        data, ends, columns = self._data, self._ends, self._columns
        if self.packed is not None and self._ids is None:
            _, columns, ends, data = opened(frame_of(self.packed))
        if columns is not None:
            return columns.selected(where, low, high)
        assert data is not None
        assert ends is not None
        return where.among(data, ends, low, high)

    def sizes(self, low: int, high: int) -> list[int]:
        """The size in bytes of each of the entries ``[low, high)``."""
        if self.parts is not None:
            return list(map(len, self.parts[low:high]))
        ends = self.ends[low:high]
        return list(map(sub, ends, [self.ends[low - 1] if low else 0, *ends]))

    def end_offsets(self) -> Sequence[int]:
        """Where each fragment ends, counted from the block's first byte."""
        if self.parts is not None:
            return list(accumulate(map(len, self.parts)))
        return self.ends

    # -- opening and closing ------------------------------------------------------------------

    def close(self) -> None:
        """Store the entries compactly, because no more entries are added.

        Has no effect on a closed block.
        """
        if self.parts is None:
            return
        self._store(self.open_ids, b"".join(self.parts), accumulate(map(len, self.parts)))
        numbers = self.numbers
        if (
            numbers is not None
            and self.positions is None
            and numbers[-1] - numbers[0] == len(numbers) - 1
        ):
            self.shift = numbers[0] - self.first_position
            self.numbers = None

    def fill(self, ids: Sequence[int], data: bytes, ends: list[int], weight: int) -> None:
        """Fill an empty block with entries that are given in one piece, and close it."""
        self._store(ids, data, ends)
        self.weight = weight

    def _store(self, ids: Sequence[int], data: bytes, ends: Iterable[int]) -> None:
        packed = PackedIds.pack(ids)
        form = "H" if len(data) < 1 << 16 else "Q"
        offsets = array(form, pack(f"{len(ids)}{form}", *ends))  # faster than item by item
        self.hold(list(ids) if packed is None else packed, offsets, data)

    def hold(self, ids: list[int] | PackedIds, ends: array[int], data: bytes) -> None:
        """Take these contents as a closed block."""
        self._ids, self._ends, self._data = ids, ends, data
        self.is_dense = False
        self._closed_count = len(ends)
        self.parts = None
        self.open_ids = _NO_IDS

    def reopen(self) -> None:
        """Allow additions again, because the block after this one was removed."""
        self.digest = None
        self._expand()
        if self.parts is None:
            ids = self.ids
            parts = self.fragments(0, len(ids))
            self.open_ids = list(ids)
            self.parts = parts
            self._ids = self._ends = self._data = None

    # -- compressing --------------------------------------------------------------------------

    def compress(
        self, cache: BlockCache, *, if_smaller: bool = True, lightly: bool = False
    ) -> bool:
        """Hold the contents of a closed block in packed form; returns whether they are.

        Compressed, or with ``lightly`` in a form that costs little to open, if they are not packed
        already. Not if they would hardly be smaller, unless ``if_smaller`` is false, and not with
        IDs that do not fit into words.
        """
        if self.packed is not None and (lightly or self.is_dense):
            return True
        if self.parts is not None:
            return False
        self.is_dense = not lightly
        before = self.content_bytes
        ids, ends, data = self.contents()
        if not isinstance(ids, PackedIds):
            return False
        packed = cache.compress(ids, ends, data, if_smaller=if_smaller, lightly=lightly)
        if packed is None:
            return False
        if self.packed is not None:
            cache.discard(self)
        self.packed = packed
        self.cache = cache
        self.shut()
        cache.compressions += 1
        cache.saved += before - self.content_bytes
        return True

    def offload(self, cache: BlockCache) -> int | None:
        """Move the contents of a closed block to a file; returns the saved bytes of memory.

        0 if they are in the file already or cannot be compressed, None if the file has no room.
        """
        before = self.content_bytes
        if not self.compress(cache, if_smaller=False) or isinstance(self.packed, Offloaded):
            return 0
        assert self.packed is not None
        offloaded = cache.offload(self.packed)
        if offloaded is None:
            return None
        self.packed = offloaded
        return before - self.content_bytes

    @property
    def content_bytes(self) -> int:
        """Memory of IDs, end offsets and fragments; the cache counts its own."""
        if self.packed is not None:
            return getsizeof(self.packed)
        ids = self.ids
        if self.parts is not None:
            size = getsizeof(self.parts) + sum(map(getsizeof, self.parts))
        else:
            size = getsizeof(self.ends) + getsizeof(self.data)
        if isinstance(ids, PackedIds):
            return size + getsizeof(ids) + ids.packed_bytes
        return size + getsizeof(ids) + len(ids) * _ID_BYTES

    def shut(self) -> None:
        """Keep the compressed form alone; for the cache that has opened the block."""
        self._ids = self._ends = self._data = self._columns = None

    def _open(self) -> None:
        """Hold the contents beside the compressed form, as columns if they are compressed so."""
        assert self.packed is not None
        assert self.cache is not None
        ids, columns, ends, data = opened(frame_of(self.packed))
        self._ids = ids
        self._columns = columns
        if columns is None:
            self._ends, self._data = ends, data
            self.cache.add(self, len(data) + ids.packed_bytes + getsizeof(ends))
        else:
            self.cache.add(self, columns.nbytes_beside(self.packed) + ids.packed_bytes)

    def _open_whole(self) -> None:
        """Hold ends and fragments beside the compressed form."""
        if self._ids is None:
            self._open()
        columns = self._columns
        if columns is not None and self.cache is not None:
            ends, data = columns.whole()
            ids = self.ids
            assert isinstance(ids, PackedIds)
            self._ends, self._data = ends, data
            self._columns = None
            self.cache.resize(self, len(data) + ids.packed_bytes + getsizeof(ends))

    def _columns_for(self, count: int) -> Columns | None:
        """Columns of which to make so many fragments; None if all fragments are there, or due."""
        if self._data is not None or self.packed is None:
            return None
        if self._ids is None:
            self._open()
        columns = self._columns
        if columns is None:
            return None
        columns.made += count
        return columns if columns.made < self._closed_count else None

    def _expand(self) -> BlockCache | None:
        """Store the contents uncompressed, because they will change; returns their cache."""
        cache = self.cache
        if self.packed is not None and cache is not None:
            self._ids, self._ends, self._data = self.contents()
            self._columns = None
            self.is_dense = False
            self.packed = self.cache = None
            cache.discard(self)
        return cache

    def contents(self) -> tuple[list[int] | PackedIds, array[int], bytes]:
        """IDs, end offsets and fragments for one read, without a change of the cache."""
        if self.parts is not None:
            return self.open_ids, array("Q", self.end_offsets()), b"".join(self.parts)
        if self._ids is None and self.packed is not None:
            return expanded(frame_of(self.packed))
        if self._columns is not None:
            return self.ids, *self._columns.whole()
        return self.ids, self.ends, self.data

    # -- removing -----------------------------------------------------------------------------

    def kill_all(self, indexes: list[int]) -> None:
        """Remove live entries, each named once; the result is that of removing them one by one.

        The caller drops the block when ``live`` reaches 0.
        """
        self.digest = None
        dead = self.dead
        if isinstance(dead, set):
            dead.update(indexes)
        else:
            self.dead = set(indexes)
        if len(self.dead) >= _REWRITE_DEAD_MIN and len(self.dead) > self.live:
            self._rewrite(keeps_last=True)

    def _rewrite(self, *, keeps_last: bool) -> None:
        """Remove the bytes and IDs of dead entries; slots and positions are still counted.

        ``keeps_last``: the last slot stays, dead or live: ``MINID ~`` looks at it.
        """
        if not self.live:
            return
        before, was_dense = self.packed, self.is_dense
        cache = self._expand()
        last = self.count - 1 if keeps_last else -1
        keep = [index for index in range(self.count) if index == last or index not in self.dead]
        is_closed = self.parts is None
        offsets = self.positions
        self.positions = [index if offsets is None else offsets[index] for index in keep]
        self.gaps += self.count - len(keep)
        ids = self.ids
        parts = [self.fragment(index) for index in keep]
        self.open_ids = [ids[index] for index in keep]
        self.parts = parts
        if self.numbers is not None:
            self.numbers = array("Q", [self.numbers[index] for index in keep])
        self.dead = {len(keep) - 1} if last in self.dead else _NONE
        if is_closed:
            self.close()
        if cache is not None:
            self.compress(cache, lightly=not was_dense)
            if isinstance(before, Offloaded):
                self.offload(cache)

    def drop_dead(self) -> None:
        """Rewrite at once, whatever the share of dead entries (see ``RegionLog.reopen_at``)."""
        if self.dead:
            self._rewrite(keeps_last=False)

    def copy(self) -> Block:
        """An independent copy."""
        other = Block(self.first_id, self.first_position, self.shift)
        # What a closed block consists of never changes, so it can be shared.
        if self.parts is not None:
            other.parts = self.parts.copy()
            other.open_ids = self.open_ids.copy()
        elif self.packed is None:
            other.hold(self.ids, self.ends, self.data)
        else:
            other.parts = None
            other.open_ids = _NO_IDS
            other.packed = self.packed
            other._closed_count = self._closed_count
            other.cache = self.cache
        other.is_dense = self.is_dense
        other.dead = self.dead if self.dead is _NONE else set(self.dead)
        other.gaps = self.gaps
        other.weight = self.weight
        other.positions = None if self.positions is None else self.positions.copy()
        other.numbers = None if self.numbers is None else self.numbers[:]
        return other

    def check(self) -> None:
        """Assert every invariant of a block."""
        assert all(a < b for a, b in zip(self.ids, self.ids[1:], strict=False))
        ends = self.end_offsets()
        assert len(self.ids) == len(ends)
        assert all(a < b for a, b in pairwise(ends))
        assert self.parts is not None or ends[-1] == len(self.data)
        assert all(0 <= index < len(self.ids) for index in self.dead)
        assert not self.ids or self.first_id <= self.ids[0]
        assert self.first_ms == ms_of(self.first_id)
        assert self.gaps or not self.ids or self.first_id == self.ids[0]
        assert self.positions is None or len(self.positions) == len(self.ids)
        if self.numbers is not None:
            assert len(self.numbers) == len(self.ids)
            assert all(a < b for a, b in pairwise(self.numbers))


def full_block(ids: Sequence[int], data: bytes, ends: list[int], weight: int) -> Block:
    """A closed block of these entries."""
    block = Block(ids[0], 0)
    block.fill(ids, data, ends, weight)
    return block


def ms_of(entry_id: int) -> i64:
    """The milliseconds of an ID, or the greatest number that fits."""
    return min(entry_id >> SEQ_BITS, _MS_MAX)


def block_index(blocks: list[Block], entry_id: int) -> int:
    """Index of the block that would hold an ID; -1 if it is below the first. O(log n).

    Milliseconds are compared in registers, and whole IDs only where these are the same.
    """
    ms = ms_of(entry_id)
    low: i64 = 0
    high: i64 = len(blocks)
    while low < high:
        middle = (low + high) >> 1
        block = blocks[middle]
        if block.first_ms < ms or (block.first_ms == ms and block.first_id <= entry_id):
            low = middle + 1
        else:
            high = middle
    return low - 1
