"""A block: a run of entries of one region log, encoded once and copied out ever after.

``XRANGE``, ``XREAD``, ``XREADGROUP`` and ``XCLAIM`` send an entry in the same bytes in RESP2 and
RESP3: ``*2 $id *2n $field $value ...``. A block keeps these *fragments* one behind the other, so
a range over live entries is one slice of memory.

A block is also a Redis *node*: approximate trimming drops whole blocks, and
``stream-node-max-entries`` / ``-bytes`` decide where one ends. ``slots`` and ``weight`` are the
two figures those limits look at; they count deleted entries too, as Redis does. Entries are
appended by the region log.

Invariants (see :meth:`Block.check`): IDs ascend strictly; ``ends`` are the end offsets of the
fragments in ``data``; ``dead`` holds indexes of removed entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["Block"]

_REWRITE_DEAD_MIN = 64  # below this a rewrite saves less than it costs


class Block:
    """Up to a few hundred consecutive entries of one region log."""

    __slots__ = (
        "data",
        "dead",
        "ends",
        "first_id",
        "first_position",
        "gaps",
        "ids",
        "positions",
        "weight",
    )

    def __init__(self, first_id: int, first_position: int) -> None:
        self.first_id = first_id  # key in the region log; stays when the first entry dies
        self.first_position = first_position
        self.ids: list[int] = []
        self.ends: list[int] = []
        self.data = bytearray()
        self.dead: set[int] = set()
        self.gaps = 0  # deleted entries that a rewrite has closed up
        self.weight = 0
        # Positions relative to the first, once they are not simply 0, 1, 2 ... any more.
        self.positions: list[int] | None = None

    @property
    def slots(self) -> int:
        """Entries ever put into the block, deleted ones included."""
        return len(self.ids) + self.gaps

    @property
    def live(self) -> int:
        """Entries that are not deleted."""
        return len(self.ids) - len(self.dead)

    # -- finding ------------------------------------------------------------------------------

    def index_from(self, entry_id: int) -> int:
        """Index of the first entry, dead or live, with an ID >= ``entry_id``; O(log n)."""
        return bisect_left(self.ids, entry_id)

    def index_after(self, entry_id: int) -> int:
        """Index of the first entry, dead or live, with an ID > ``entry_id``; O(log n)."""
        return bisect_right(self.ids, entry_id)

    def find(self, entry_id: int) -> int:
        """Index of the live entry with this ID, or -1."""
        index = bisect_left(self.ids, entry_id)
        if index < len(self.ids) and self.ids[index] == entry_id and index not in self.dead:
            return index
        return -1

    def position(self, index: int) -> int:
        """Rank of an entry among all that its region ever added to the key."""
        return self.first_position + (index if self.positions is None else self.positions[index])

    def keep_positions(self) -> None:
        """Note every position, because the next entry's will not simply follow."""
        if self.positions is None:
            self.positions = list(range(len(self.ids)))

    @property
    def last_slot_id(self) -> int:
        """ID of the newest slot, dead or live (what ``MINID ~`` looks at)."""
        return self.ids[-1]

    def first_live(self) -> int:
        """Index of the oldest live entry; the block must have one."""
        index = 0
        dead = self.dead
        while index in dead:
            index += 1
        return index

    def last_live(self) -> int:
        """Index of the newest live entry; the block must have one."""
        index = len(self.ids) - 1
        dead = self.dead
        while index in dead:
            index -= 1
        return index

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The live stretches of ``[low, high)`` as index pairs, ascending."""
        if not self.dead:
            if low < high:
                yield low, high
            return
        for gap in sorted(index for index in self.dead if low <= index < high):
            if low < gap:
                yield low, gap
            low = gap + 1
        if low < high:
            yield low, high

    # -- reading ------------------------------------------------------------------------------

    def fragment(self, index: int) -> bytearray:
        """The wire bytes of one entry."""
        ends = self.ends
        return self.data[ends[index - 1] if index else 0 : ends[index]]

    def slice(self, low: int, high: int) -> bytearray:
        """The wire bytes of the entries ``[low, high)``, which must all be live."""
        ends = self.ends
        return self.data[ends[low - 1] if low else 0 : ends[high - 1]]

    # -- removing -----------------------------------------------------------------------------

    def kill(self, index: int) -> None:
        """Remove one live entry; the caller drops the block when ``live`` reaches 0."""
        self.dead.add(index)
        if len(self.dead) >= _REWRITE_DEAD_MIN and len(self.dead) > self.live:
            self._rewrite()

    def _rewrite(self) -> None:
        """Close the gaps: bytes and IDs of dead entries go, slots and positions stay counted."""
        if not self.live:
            return
        keep = [index for index in range(len(self.ids)) if index not in self.dead]
        slots = self.positions
        data = bytearray()
        ends = []
        for index in keep:
            data += self.fragment(index)
            ends.append(len(data))
        self.positions = [index if slots is None else slots[index] for index in keep]
        self.gaps += len(self.dead)
        self.ids = [self.ids[index] for index in keep]
        self.ends = ends
        self.data = data
        self.dead = set()

    def forget_dead(self) -> None:
        """Rewrite at once, whatever the share of dead entries (see ``RegionLog.reopen_at``)."""
        if self.dead:
            self._rewrite()

    def copy(self) -> Block:
        """An independent copy."""
        other = Block(self.first_id, self.first_position)
        other.ids = self.ids.copy()
        other.ends = self.ends.copy()
        other.data = self.data.copy()
        other.dead = self.dead.copy()
        other.gaps = self.gaps
        other.weight = self.weight
        other.positions = None if self.positions is None else self.positions.copy()
        return other

    def check(self) -> None:
        """Assert every invariant of a block."""
        assert len(self.ids) == len(self.ends)
        assert all(a < b for a, b in zip(self.ids, self.ids[1:], strict=False))
        assert all(a < b for a, b in zip(self.ends, self.ends[1:], strict=False))
        assert not self.ends or self.ends[-1] == len(self.data)
        assert all(0 <= index < len(self.ids) for index in self.dead)
        assert not self.ids or self.first_id <= self.ids[0]
        assert self.positions is None or len(self.positions) == len(self.ids)
