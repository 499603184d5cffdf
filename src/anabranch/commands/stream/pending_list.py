"""XPENDING: the pending entries of a group or of one consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from librt.strings import BytesWriter

from anabranch.commands.stream.options import interval_end, interval_start, stream_and_group
from anabranch.commands.stream.pending_rows import pending_rows, pending_rows_steps
from anabranch.engine import texts
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import array_header, bulk, null, null_array, write_bulk
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import text
from anabranch.stream.groups.frozen_pending import FrozenEntries
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList, first_of, ranked, walk

ROWS_AT_ONCE = 1000
"""More rows than this are written in several steps."""


def xpending(ctx: Context, args: list[bytes]) -> bytes | None:
    """A summary, or the entries of an ID interval."""
    if len(args) == 3:
        _, group = stream_and_group(ctx, args[1], args[2])
        return _summary(group, ctx.resp3)
    if len(args) < 6 or len(args) > 9:
        raise CommandError(texts.SYNTAX)
    at = 3
    min_idle = 0
    if args[3].upper() == b"IDLE":
        min_idle = integer(args[4])
        if len(args) < 8:
            raise CommandError(texts.SYNTAX)
        at = 5
    count = integer(args[at + 2])
    start = interval_start(args[at])
    end = interval_end(args[at + 1])
    _, group = stream_and_group(ctx, args[1], args[2])
    lists = group.pending.lists
    if len(args) > at + 3:
        consumer = group.consumers.get(args[at + 3])
        if consumer is None:
            return ctx.reply([])
        lists = consumer.pending
    if count > ROWS_AT_ONCE < sum([len(each.entries) for each in lists.values()]):
        return ctx.in_slices(args, _xpending(lists, start, end, count, ctx.now_ms, min_idle))
    count = max(count, 0)
    if min_idle > 0:
        idle = _idle_pieces(_alone(walk(lists, start, end)), ctx.now_ms, min_idle)
        entries = list(chain.from_iterable(_first_of(idle, count)))
    else:
        entries = first_of(lists, start, end, count)
    return pending_rows(entries, _tails_of_xpending(ctx.now_ms))


def _xpending(
    lists: dict[int, PendingList], start: int, end: int, count: int, now_ms: int, min_idle: int
) -> Steps[list[bytes]]:
    """Very many rows, of the moment of the first step."""
    frozen = FrozenEntries(ranked(lists), start, end)
    try:
        pieces = frozen.pieces()
        if min_idle > 0:
            pieces = _idle_pieces(pieces, now_ms, min_idle)
        rows = _first_of(pieces, count)
        return (yield from pending_rows_steps(rows, _tails_of_xpending(now_ms)))
    finally:
        frozen.release()


def _first_of(pieces: Iterable[list[PendingEntry]], count: int) -> Iterator[list[PendingEntry]]:
    """The first entries of a list that comes in pieces.

    Those with one ID stay together: the next call begins behind the ID.
    """
    last_id = -1
    for piece in pieces:
        cut = min(count, len(piece))
        while cut < len(piece) and piece[cut].entry_id == (
            piece[cut - 1].entry_id if cut else last_id
        ):
            cut += 1
        yield piece[:cut]
        if cut < len(piece):
            return
        count = max(count - cut, 0)
        last_id = piece[-1].entry_id if piece else last_id


def _alone(entries: Iterable[PendingEntry]) -> Iterator[list[PendingEntry]]:
    for entry in entries:
        yield [entry]


def _idle_pieces(
    pieces: Iterable[list[PendingEntry]], now_ms: int, min_idle: int
) -> Iterator[list[PendingEntry]]:
    """The entries of each piece that are idle for so long, and released entries."""
    for piece in pieces:
        yield [
            entry
            for entry in piece
            if entry.consumer is None or max(now_ms - entry.delivery_ms, 0) >= min_idle
        ]


def _tails_of_xpending(now_ms: int) -> Callable[[PendingEntry], bytes]:
    def tail(entry: PendingEntry) -> bytes:
        if entry.consumer is None:
            return b"$0\r\n\r\n:-1\r\n:%d\r\n" % entry.delivery_count
        idle_ms = max(now_ms - entry.delivery_ms, 0)
        name = entry.consumer.name
        return b"$%d\r\n%b\r\n:%d\r\n:%d\r\n" % (
            len(name),
            name,
            idle_ms,
            entry.delivery_count,
        )

    return tail


def _summary(group: Group, resp3: bool) -> bytes:
    """The count, the lowest and the highest ID, and the count of each consumer that has entries."""
    first, last = group.pending.first(), group.pending.last()
    if first is None or last is None:
        return b"*4\r\n:0\r\n%b%b%b" % (null(resp3), null(resp3), null_array(resp3))
    consumers = group.consumers
    rows = BytesWriter()
    total = known = 0
    share = b""  # as text, as in Redis
    for name in sorted(consumers):
        count = consumers[name].pending_count
        if count:
            if count != known:  # neighbours often have as many
                known, share = count, bulk(b"%d" % count)
            total += 1
            rows.write(b"*2\r\n")
            write_bulk(rows, name)
            rows.write(share)
    return b"".join(
        [
            b"*4\r\n:%d\r\n" % group.pending.count,
            bulk(text(first.entry_id)),
            bulk(text(last.entry_id)),
            array_header(total),
            rows.getvalue(),
        ]
    )
