"""The entries of a stream that is written again under new numbers: RENAME, COPY, MOVE, RESTORE.

Where several regions write, these commands add all entries anew, by effects of some thousand
entries each. Most of the work is done in short steps before the one moment at which keys change: it
makes the bytes that the log gets of an effect, and the blocks that the effect adds. Others go on in
between and may change the stream. So a prepared effect stands for all entries with IDs in an
interval, and is used only if these are the same entries still; what is missing is made anew.

A block that a :class:`FrozenLog` shares never changes, so the same block means the same entries.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, cast

from anabranch.effects import kinds
from anabranch.effects.apply_stream import node_shares
from anabranch.effects.recorded import Recorded
from anabranch.effects.streams import begun_stream
from anabranch.keyspace.keyspace import Keyspace
from anabranch.scheduling import Steps
from anabranch.stream.block import Block, block_index, full_block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.frozen_log import FrozenLog
from anabranch.stream.merge import merge_labelled
from anabranch.stream.packed_ids import PackedIds
from anabranch.stream.region_log import Span
from anabranch.stream.renumbering import Renumbering, renamed
from anabranch.stream.stream import Stream

RUN_ENTRIES_MAX: Final = 3000
RUN_BYTES_MAX: Final = 1 << 20
"""An effect with at least so many entries ends with the block of the last one."""

LITTLE: Final = 2000
"""Fewer entries than this are not prepared."""

ROUNDS_MAX: Final = 8
"""The most rounds. Each prepares what changed during the round before; the rest is prepared in one
step."""


class RewritingRegion(Protocol):
    """What writing again needs of the deciding region."""

    keyspace: Keyspace
    record: Recorded | None
    encode_ahead: Callable[[kinds.AddRun], None]


class Rewriting:
    """Writes the entries of a stream to a key again, in the state of one moment."""

    def __init__(self, writer: RewritingRegion, source: Stream, db: int, key: bytes) -> None:
        self.source = source
        self.renumbering = Renumbering()
        """The count of all entries; known after :meth:`effects`."""
        self._writer = writer
        self._db = db
        self._key = key
        self._prepared: list[_Prepared] = []  # ascending
        self._frozen: list[FrozenLog] = []
        self._target: Stream | None = None  # kept, so that its positions are not forgotten
        self._floor = 0  # when preparing began, no position from here on was in use

    # -- before the moment --------------------------------------------------------------------

    def prepare(self) -> Steps[None]:
        """Prepare effects in short steps; call :meth:`release` afterwards."""
        writer = self._writer
        for _ in range(ROUNDS_MAX):
            segments = self._segments()
            if sum(self._count(each) for each in segments if isinstance(each, _IdRange)) <= LITTLE:
                return
            if self._target is None:
                self._target = begun_stream(writer.keyspace, self._db, self._key)
                self._floor = self._most()
            yield from self._fill(segments)

    def release(self) -> None:
        """Drop what was prepared, in slices."""
        deferred_free = self._writer.keyspace.deferred_free
        deferred_free.defer(_dropping(self._prepared))
        for frozen in self._frozen:
            deferred_free.defer(frozen.releasing())
        self._prepared = []
        self._frozen = []
        target, self._target = self._target, None
        remembered = self._writer.keyspace.databases[self._db].remembered
        if target is not None and target.is_blank and remembered.get(self._key) is target:
            remembered.forget(self._key, target)

    def _count(self, gap: _IdRange) -> int:
        """The count of live entries in an interval."""
        return sum(log.count(gap.low + 1, gap.high) for log in self.source.logs.values())

    def _segments(self) -> list[_Prepared | _IdRange]:
        """The valid effects, ascending, and the intervals of IDs without a valid effect."""
        views = _views(self.source)
        segments: list[_Prepared | _IdRange] = []
        low = 0
        for each in self._prepared:
            if each.counts(views):
                if each.low > low:
                    segments.append(_IdRange(low, each.low))
                segments.append(each)
                low = each.high
        segments.append(_IdRange(low, MAX_ID))
        return segments

    def _fill(self, segments: list[_Prepared | _IdRange]) -> Steps[None]:
        before, self._frozen = self._frozen, []
        self._prepared = []
        position = self._begin(segments, self._most())
        views = {}
        for replica_id in self.source.ranked():
            frozen = FrozenLog(self.source.logs[replica_id])
            self._frozen.append(frozen)
            views[replica_id] = _LogView(frozen.blocks)
        for each in before:
            self._writer.keyspace.deferred_free.defer(each.releasing())
        renumbering = Renumbering()
        for segment in segments:
            if isinstance(segment, _Prepared) and segment.fits(renumbering.last):
                segment.remember(views)
                self._prepared.append(segment)
                renumbering.follow(segment.renumbering)
                if self._encode(segment.effect, position):
                    yield
                position += len(segment.effect.ids)
                continue
            low = segment.low
            for run in _runs(views, segment, renumbering):
                made = _Prepared(run, low, views, self._db, self._key)
                self._prepared.append(made)
                low = run.newest
                yield
                if self._encode(made.effect, position):
                    yield
                position += len(made.effect.ids)

    def _encode(self, effect: kinds.AddRun, position: int) -> bool:
        """Make the bytes that the log gets of an effect, unless they are there."""
        if self._writer.record is None or (
            effect.encoded is not None and effect.position == position
        ):
            return False
        effect.position = position
        _unpack(effect)
        self._writer.encode_ahead(effect)
        _pack(effect)
        return True

    # -- at the moment ------------------------------------------------------------------------

    def effects(self) -> Iterator[kinds.AddRun]:
        """Effects that add all entries in their present state; the key must have none."""
        segments = self._segments()
        views = _views(self.source)
        position = self._begin(segments, self._least())
        last: kinds.AddRun | None = None
        for effect in self._all(segments, views):
            if last is not None:
                yield last
            last = effect
            if effect.position != position:
                effect.position = position
                effect.encoded = None
                _unpack(effect)
            position += len(effect.ids)
        if last is not None:
            if last.nodes:
                last.nodes[-1].reopen()  # each other effect begins with a node of its own
            yield last

    def _all(self, segments: list[_Prepared | _IdRange], views: _Views) -> Iterator[kinds.AddRun]:
        renumbering = self.renumbering
        for segment in segments:
            if isinstance(segment, _Prepared) and segment.fits(renumbering.last):
                renumbering.follow(segment.renumbering)
                yield segment.effect
            else:
                for run in _runs(views, segment, renumbering):
                    yield run.effect(self._db, self._key)

    # -- positions ----------------------------------------------------------------------------

    def _most(self) -> int:
        """The number of the next effect; it is above all positions that were ever used."""
        replica = self._writer.keyspace.replica
        return replica.vector.get(replica.own, 0) + 1

    def _least(self) -> int:
        """The lowest position that may come next for the key; a new log begins at a number."""
        database = self._writer.keyspace.databases[self._db]
        target = database.values.get(self._key) or database.remembered.get(self._key)
        if type(target) is Stream and target.local.next_position:
            return target.local.next_position
        return self._floor if target is self._target and target is not None else self._most()

    def _begin(self, segments: Sequence[_Prepared | _IdRange], otherwise: int) -> int:
        """The first position: that of the effect which was encoded first, if the key allows it."""
        for each in segments:
            if isinstance(each, _Prepared) and each.effect.encoded is not None:
                before = self._count(_IdRange(0, each.low))
                if self._least() <= each.effect.position - before <= self._most():
                    return each.effect.position - before
                break
        return otherwise


# -- views of a stream ------------------------------------------------------------------------


class _IdRange(NamedTuple):
    """IDs above ``low`` and up to ``high``."""

    low: int
    high: int


class _LogView(NamedTuple):
    """The blocks of a region log at one moment."""

    blocks: list[Block]

    def between(self, low: int, high: int) -> list[Block]:
        """The blocks that may have entries with IDs above ``low`` and up to ``high``."""
        at = max(block_index(self.blocks, low), 0)
        return self.blocks[at : block_index(self.blocks, high) + 1]

    def spans(self, low: int, high: int) -> Iterator[Span]:
        """Live entries with IDs above ``low`` and up to ``high``, ascending."""
        for block in self.between(low, high):
            for first, stop in block.runs(block.index_after(low), block.index_after(high)):
                yield block, first, stop


_Views = dict[int, _LogView]


def _views(source: Stream) -> _Views:
    """The entries of a stream at this moment; invalid after the next change."""
    views = {}
    for replica_id in source.ranked():
        log = source.logs[replica_id]
        views[replica_id] = _LogView(log.blocks)
    return views


def _numbers(blocks: list[Block], low: int, high: int) -> list[int]:
    """The numbers of live entries with IDs above ``low`` and up to ``high``."""
    numbers: list[int] = []
    for block in blocks:
        for first, stop in block.runs(block.index_after(low), block.index_after(high)):
            numbers += block.numbers_of(first, stop)
    return numbers


# -- runs of entries --------------------------------------------------------------------------


class _Prepared:
    """An effect that writes the entries with IDs above ``low`` and up to ``high`` again."""

    def __init__(self, run: _RewrittenRun, low: int, views: _Views, db: int, key: bytes) -> None:
        self.low = low
        self.high = run.newest
        self._oldest = run.oldest
        self._last = run.last
        self.renumbering = run.renumbering
        self.effect = run.effect(db, key)
        self.effect.nodes = list(_nodes(self.effect))
        self.remember(views)

    def remember(self, views: _Views) -> None:
        """Keep the blocks of these views that have the entries, as shared blocks."""
        self._blocks = {
            replica_id: view.between(self.low, self.high) for replica_id, view in views.items()
        }

    def counts(self, views: _Views) -> bool:
        """Whether these views have the same entries in the interval of this effect."""
        low, high = self.low, self.high
        for replica_id in {**self._blocks, **views}:
            was = self._blocks.get(replica_id, [])
            now = views[replica_id].between(low, high) if replica_id in views else []
            if was != now and _numbers(was, low, high) != _numbers(now, low, high):
                return False
        return True

    def fits(self, last: int) -> bool:
        """Whether its entries keep their new IDs if the entry before them got ``last``."""
        return last == self._last or (not self.renumbering.moved and last < self._oldest)


def _dropping(prepared: list[_Prepared]) -> Iterator[bool]:
    """Free effects, in steps."""
    while prepared:
        prepared.pop()
        yield True


def _pack(effect: kinds.AddRun) -> None:
    """Make arrays of the columns: lists of a million numbers are visited by each collection."""
    effect.ids = cast("Sequence[int]", PackedIds.pack(effect.ids) or effect.ids)
    effect.sizes = array("Q", effect.sizes)
    effect.weights = array("Q", effect.weights)
    effect.opens = array("Q", effect.opens)


def _unpack(effect: kinds.AddRun) -> None:
    """Make lists of the columns, for the log."""
    effect.sizes = list(effect.sizes)
    effect.weights = list(effect.weights)
    effect.opens = list(effect.opens)


def _nodes(effect: kinds.AddRun) -> Iterator[Block]:
    """The blocks that an effect adds, closed."""
    for low, high, data, ends, _ in node_shares(effect):
        weight = sum(effect.weights[low:high])
        yield full_block(effect.ids[low:high], data, ends, weight)


def _runs(
    views: _Views, gap: _Prepared | _IdRange, renumbering: Renumbering
) -> Iterator[_RewrittenRun]:
    """The entries of an interval, ascending; entries with equal IDs are in one run."""
    run = _RewrittenRun(renumbering.last)
    sources = {replica_id: view.spans(gap.low, gap.high) for replica_id, view in views.items()}
    for replica_id, span in merge_labelled(sources):
        for block, low, high in _pieces(span):
            if run.is_full and block.ids[low] > run.newest:
                renumbering.follow(run.renumbering)
                yield run
                run = _RewrittenRun(renumbering.last)
            run.add_run(replica_id, block, low, high)
    if run.ids:
        renumbering.follow(run.renumbering)
        yield run


def _pieces(span: Span) -> Iterator[Span]:
    """The entries of a span together, or one by one if they are large."""
    block, low, high = span
    if sum(block.sizes(low, high)) < RUN_BYTES_MAX:
        yield span
        return
    for index in range(low, high):
        yield block, index, index + 1


class _RewrittenRun:
    """Entries that are written again with one effect, as columns."""

    def __init__(self, last: int) -> None:
        """``last`` is the new ID of the entry before."""
        self.last = last
        self.oldest = 0
        self.newest = 0  # these two are former IDs of entries
        self.renumbering = Renumbering(last)
        self.ids: list[int] = []
        self._data: list[bytes] = []
        self._sizes: list[int] = []
        self._size = 0
        self._weights: list[int] = []
        self._opens: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether the effect has enough entries."""
        return len(self.ids) >= RUN_ENTRIES_MAX or self._size >= RUN_BYTES_MAX

    def add_run(self, replica_id: int, block: Block, low: int, high: int) -> None:
        """Add neighbouring entries of a block; they share a node if it has room."""
        given = self.renumbering.assign(replica_id, block, low, high)
        self.oldest = self.oldest or block.ids[low]
        self.newest = block.ids[high - 1]
        slots = block.slots
        count = len(self.ids)
        opens_at = self._opens[-1] + slots if self._opens else 0
        self._opens += range(max(opens_at, count), count + high - low, slots)
        self.ids += given
        if given[0] == block.ids[low]:  # then all have kept their IDs
            self._add(block.slice(low, high), block.sizes(low, high))
        else:
            for fragment, entry_id in zip(block.fragments(low, high), given, strict=True):
                shown = renamed(fragment, entry_id)
                self._add(shown, [len(shown)])
        self._weights += [block.weight // slots] * (high - low)

    def _add(self, data: bytes, sizes: list[int]) -> None:
        self._data.append(data)
        self._sizes += sizes
        self._size += len(data)

    def effect(self, db: int, key: bytes) -> kinds.AddRun:
        """The effect that adds these entries."""
        data = b"".join(self._data)
        return kinds.AddRun(db, key, self.ids, data, self._sizes, self._weights, self._opens)
