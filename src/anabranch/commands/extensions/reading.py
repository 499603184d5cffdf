"""What the two forms of AB.READ share: options, and taking entries of one stream.

:mod:`anabranch.commands.extensions.regional_read` has the form with a cursor for each stream,
:mod:`anabranch.commands.extensions.joint_read` that with one for all of them.

With WHERE a call looks at so many entries only (:data:`EFFORT`), and its cursor moves past those
that do not match. So a call is short whatever the stream has, and it may return fewer entries than
COUNT allows, or none, although more follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.commands.stream.read_request import ReadRequest, ReplyBudget, parse_read
from anabranch.engine.context import Context
from anabranch.engine.key_extraction import options_before, streams_at
from anabranch.errors import CommandError
from anabranch.keyspace.replica import ALONE, epoch_of, region_of
from anabranch.keyspace.values import Value
from anabranch.resp.encode import array_header, bulk, integer
from anabranch.stream.block import Block
from anabranch.stream.groups.group import LOCAL_REPLICA_ID
from anabranch.stream.numbering import Gaps, newest_position_number, number_of, spans_behind
from anabranch.stream.selecting import Where
from anabranch.stream.stream import Stream

EFFORT = 50_000
"""How many entries a call with WHERE looks at: some milliseconds, compiled. Long ones count more
than once (:data:`_EFFORT_BYTES`). Tests change it."""

_EFFORT_BYTES: Final = 128
_SPAN_EFFORT: Final = 50
"""What opening a compressed block costs, in entries."""
_AT_ONCE: Final = 500
"""Entries that are looked at without asking how many may be."""

_ENDED: Final = array_header(1) + bulk(b"end")
_GAP: Final = bulk(b"gap")
_ALIEN: Final = "ERR This cursor or token is from a server {} regions, and means nothing here"
_OPERATOR: Final = "ERR WHERE is followed by 'field = value' or by 'field ^ prefix', each in a word"


def check_origin(ctx: Context, vector: Mapping[int, int]) -> None:
    """Refuse a version vector of a server with regions on one without, and the other way."""
    ours = ctx.replica.is_regional
    if any((region_of(replica_id) != ALONE) != ours for replica_id in vector):
        raise CommandError(_ALIEN.format("without" if ours else "with"))


def applied(ctx: Context, stream: Stream | None) -> Mapping[int, int]:
    """The version vector that covers what this region has applied of a stream."""
    if stream is None or ctx.replica.vector:
        return ctx.replica.vector
    return {LOCAL_REPLICA_ID: newest_position_number(stream)}


class EntryRequest:
    """A parsed AB.READ. ``joint`` and ``glob`` are the arguments of FROM and PATTERN."""

    def __init__(self, args: list[bytes], now_ms: int) -> None:
        self.where: Where | None = None
        self.notes = False
        self.joint: bytes | None = None
        self.glob: bytes | None = None
        first = names_at(args)
        words = [args[0]] if first else args
        for word, given in options_before(args, first):
            if word == b"NOTES":
                self.notes = True
            elif word == b"WHERE":
                self.where = _condition(given)
            elif word == b"FROM" and len(given) > 1:
                self.joint = given[1]
            else:
                words += given
        names = args[first:] if first else []
        if first and args[first - 1].upper() == b"PATTERN":
            if self.joint is None or len(names) != 1:
                raise CommandError("ERR PATTERN takes one pattern, and FROM cursor before it")
            self.glob = names[0]
        if self.joint is not None:
            names = names + [self.joint] * len(names)
        if first:
            words += [b"STREAMS", *names]
        self.request: ReadRequest = parse_read(words, grouped=False, now_ms=now_ms)
        self.keys = self.request.keys


def names_at(args: list[bytes]) -> int:
    """The index behind STREAMS or PATTERN, 0 without."""
    return streams_at(args, (b"STREAMS", b"PATTERN"))


def keys_of_read(args: list[bytes]) -> list[tuple[int, str]]:
    """The keys of a request. All names behind STREAMS are keys, unless each has a cursor."""
    first = names_at(args)
    if not first or args[first - 1].upper() == b"PATTERN":
        return []
    stop = first + (len(args) - first) // 2
    if any(word in (b"FROM", b"GROUP") for word, _ in options_before(args, first)):
        stop = len(args)
    return [(index, "RO access") for index in range(first, stop)]


def _condition(words: list[bytes]) -> Where:
    if len(words) < 4 or words[2] not in (b"=", b"^"):
        raise CommandError(_OPERATOR)
    return Where(words[1], words[3], is_prefix=words[2] == b"^")


class CallLimits:
    """What is left of the limits of one call."""

    def __init__(self, options: EntryRequest) -> None:
        self.where = options.where
        request = options.request
        self.budget = ReplyBudget(request) if request.is_limited else None
        self.effort = EFFORT

    @property
    def is_reached(self) -> bool:
        """Whether no further entry may be returned, or looked at."""
        return self.effort <= 0 or (self.budget is not None and self.budget.exhausted)


class Taking:
    """The entries of one stream that a call returns, and how far the reader stands behind them."""

    def __init__(
        self,
        ctx: Context,
        key: bytes,
        stream: Stream,
        seen: Mapping[int, int],
        gaps: Gaps | None = None,
    ) -> None:
        """``gaps`` collects what the reader misses, if it wants to know."""
        self.key = key
        self.chunks: list[bytes] = []
        self.count = 0
        self.reached = dict(seen)
        self.is_done = False
        """Nothing follows that this region has."""
        self.has_ended = False
        """The stream is sealed, and no entry follows."""
        self.stream = stream
        self._ctx = ctx
        self._gaps = gaps

    def take(self, limits: CallLimits, most: int) -> int:
        """Take at most so many entries more (-1: all) within the limits; returns how many.

        The stream may have changed since the last time.
        """
        before = self.count
        spans = spans_behind(self.stream, self.reached)
        found = next(spans, None)
        if limits.budget is not None and not before:
            limits.budget.begin_stream(self.key)
        while found is not None:
            left = -1 if most < 0 else most - self.count + before
            if not left or limits.is_reached:
                break
            replica_id, (block, low, high) = found
            if limits.where is None:
                stop = self._copy(block, low, high, left, limits)
            else:
                stop = self._select(block, low, min(high, low + _AT_ONCE), left, limits)
            if stop > low:
                self.reached[replica_id] = number_of(self.stream, block, stop - 1)
                if self._gaps is not None:
                    self._gaps.reach(replica_id, block, low, stop)
            more = replica_id, (block, stop, high)
            found = more if stop < high else next(spans, None)
        if found is None and not self.is_done:
            self._end()
        return self.count - before

    def _copy(self, block: Block, low: int, high: int, left: int, limits: CallLimits) -> int:
        """Take entries of a span; returns where what was taken ends."""
        stop = high if left < 0 else min(high, low + left)
        if limits.budget is not None:
            stop = limits.budget.cut(block, low, stop)
        if stop > low:
            self.chunks.append(block.slice(low, stop))
            self.count += stop - low
        return stop

    def _select(self, block: Block, low: int, high: int, left: int, limits: CallLimits) -> int:
        """The same for those that match; returns where what was looked at ends."""
        where, budget = limits.where, limits.budget
        assert where is not None
        size = block.weight * (high - low) // max(block.slots, 1)
        limits.effort -= _SPAN_EFFORT + high - low + size // _EFFORT_BYTES
        found = block.selected(where, low, high)
        if 0 <= left < len(found):
            high = found[left]
            del found[left:]
        if budget is not None:
            for at, index in enumerate(found):
                if budget.exhausted:
                    high = index
                    del found[at:]
                    break
                budget.spend(len(block.fragment(index)))
        at = 0
        while at < len(found):  # neighbours in one piece
            first = found[at]
            stop = first
            while at < len(found) and found[at] == stop:
                stop += 1
                at += 1
            self.chunks.append(block.slice(first, stop))
        self.count += len(found)
        return high

    def _end(self) -> None:
        """These were all entries: others that were applied here are deleted."""
        self.is_done = True
        for replica_id, number in applied(self._ctx, self.stream).items():
            self.reached[replica_id] = max(number, self.reached.get(replica_id, 0))
        self.has_ended = self.stream.is_sealed
        if self._gaps is not None:
            self._gaps.end()

    @property
    def places(self) -> Mapping[int, int]:
        """What the reader has come to in each log, if it wants to know of gaps."""
        return {} if self._gaps is None else dict(self._gaps.reached)

    @property
    def gaps(self) -> list[tuple[int, int, int]]:
        """Replica ID, first and last of removed entries that the reader had not reached."""
        return [] if self._gaps is None else self._gaps.found


def notes_of(gaps: list[tuple[int, int, int]], *, has_ended: bool) -> bytes:
    """The list of notes about a stream; each is a list that begins with its name.

    Where several regions write, a gap names the region and its epoch.
    """
    out = [array_header(len(gaps) + has_ended)]
    for replica_id, low, high in gaps:
        region, epoch = region_of(replica_id), epoch_of(replica_id)
        where = b"" if region == ALONE else integer(region) + integer(epoch)
        out.append(array_header(5 if where else 3) + _GAP + integer(low) + integer(high) + where)
    if has_ended:
        out.append(_ENDED)
    return b"".join(out)


def is_stream(value: Value | None) -> bool:
    """A blocked reader keeps waiting while its key is missing or of another type."""
    return type(value) is Stream
