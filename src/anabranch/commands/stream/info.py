"""XINFO: what a stream, its groups and their consumers look like."""

from __future__ import annotations

from itertools import islice
from typing import Final

from librt.strings import BytesWriter

from anabranch.commands.stream.options import group_in
from anabranch.commands.stream.pending_rows import RowWriter
from anabranch.commands.stream.read import entries
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context, existing
from anabranch.engine.help import wrong_subcommand
from anabranch.resp.encode import array_header, bulk, map_header, null, write_bulk, write_integer
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList, walk
from anabranch.stream.stream import Stream

FULL_COUNT = 10
"""Entries and pending entries that XINFO STREAM FULL lists without COUNT."""


def _group_names(stream: Stream) -> list[bytes]:
    return sorted(stream.groups)


def _template(pairs: str) -> bytes:
    """The bytes of the pairs of a map, ready for ``%``.

    Of each pair the name is given, and what its value is: ``d`` a number, ``t`` a text of which
    the length and the bytes are given, ``v`` a whole reply.
    """
    forms = {"d": b":%d\r\n", "t": b"$%d\r\n%b\r\n", "v": b"%b"}
    words = pairs.split()
    return b"".join(
        [
            bulk(name.encode()) + forms[form]
            for name, form in zip(words[::2], words[1::2], strict=True)
        ]
    )


_FIGURES = _template(
    "length d radix-tree-keys d radix-tree-nodes d last-generated-id t max-deleted-entry-id t"
    " entries-added d recorded-first-entry-id t idmp-duration d idmp-maxsize d pids-tracked d"
    " iids-tracked d iids-added d iids-duplicates d"
)
_FIGURES_COUNT = 13
_TIMES = _template("seen-time d active-time d") + bulk(b"pel-count")
_SUMMARY = _template("groups d first-entry v last-entry v")
_GROUP_COUNT = 6
_CONSUMER_COUNT = 4
_FULL_GROUP_COUNT = 8
_FULL_CONSUMER_COUNT = 5

# Names of pairs.
_NAME: Final = bulk(b"name")
_CONSUMERS: Final = bulk(b"consumers")
_PENDING: Final = bulk(b"pending")
_LAST_DELIVERED: Final = bulk(b"last-delivered-id")
_ENTRIES_READ: Final = bulk(b"entries-read")
_LAG: Final = bulk(b"lag")
_PEL_COUNT: Final = bulk(b"pel-count")
_NACKED_COUNT: Final = bulk(b"nacked-count")
_IDLE: Final = bulk(b"idle")
_INACTIVE: Final = bulk(b"inactive")


def _figures(stream: Stream) -> bytes:
    """The thirteen pairs that both forms of XINFO STREAM begin with; tools rely on the order."""
    producers = stream.producers
    nodes = stream.node_count
    last = text(stream.last_id)
    deleted = text(stream.max_deleted_id)
    first = text(stream.first_id)
    return _FIGURES % (
        stream.length,
        nodes,
        nodes + 1,
        len(last),
        last,
        len(deleted),
        deleted,
        stream.entries_added,
        len(first),
        first,
        producers.duration_s,
        producers.maxsize,
        len(producers.tables),
        producers.tracked,
        producers.iids_added,
        producers.duplicates,
    )


def stream_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO STREAM key [FULL [COUNT n]]."""
    stream = existing(ctx.read_stream(args[2]))
    if len(args) == 3:
        return _summary(ctx, stream)
    if args[3].upper() != b"FULL" or len(args) not in (4, 6):
        raise wrong_subcommand(args)
    count = FULL_COUNT
    if len(args) == 6:
        if args[4].upper() != b"COUNT":
            raise wrong_subcommand(args)
        count = integer(args[5])
        if count < 0:
            count = FULL_COUNT
    return _full(ctx, stream, count)


def _ledger(stream: Stream) -> bytes:
    """A pair of ours at the very end, only where bulk producers write.

    There are clients that refuse a reply with a pair they do not know.
    """
    records = stream.ledger.records
    return b"%b:%d\r\n" % (bulk(b"ledger-records"), len(records)) if records else b""


def _summary(ctx: Context, stream: Stream) -> bytes:
    none = null(ctx.resp3)
    ledger = _ledger(stream)
    return b"".join(
        [
            map_header(_FIGURES_COUNT + 3 + bool(ledger), ctx.resp3),
            _figures(stream),
            _SUMMARY
            % (
                len(stream.groups),
                (stream.fragments(stream.first_id) or [none])[0],
                (stream.fragments(stream.last_live_id) or [none])[-1],
            ),
            ledger,
        ]
    )


def _full(ctx: Context, stream: Stream, count: int) -> bytes:
    ledger = _ledger(stream)
    groups = _FullGroups(stream, count or -1, ctx.resp3)
    for name in _group_names(stream):
        groups.write(name)
    return b"".join(
        [
            map_header(_FIGURES_COUNT + 2 + bool(ledger), ctx.resp3),
            _figures(stream),
            bulk(b"entries"),
            entries(stream, MIN_ID, MAX_ID, count or -1),
            bulk(b"groups"),
            array_header(len(stream.groups)),
            groups.out.getvalue(),
            ledger,
        ]
    )


class _FullGroups:
    """Writes the part of each group in XINFO STREAM FULL, at most ``limit`` rows of each list.

    There may be thousands of consumers, or groups.
    """

    def __init__(self, stream: Stream, limit: int, resp3: bool) -> None:
        """``limit`` of -1: all rows."""
        self.out = BytesWriter()
        self._stream = stream
        self._limit = limit
        self._resp3 = resp3
        self._owned_rows = RowWriter(self.out, _owned_tail, 4)
        self._rows = RowWriter(self.out, _tail, 3)
        self._times = _Times()

    def write(self, name: bytes) -> None:
        """Append a group."""
        out = self.out
        group = self._stream.groups[name]
        out.write(map_header(_FULL_GROUP_COUNT, self._resp3) + _NAME)
        write_bulk(out, name)
        _write_progress(out, self._stream, group, self._resp3)
        out.write(_PEL_COUNT)
        write_integer(out, group.pending.count)
        out.write(_NACKED_COUNT)
        write_integer(out, len(group.pending.released))
        out.write(_PENDING)
        self._owned_rows.write_array(_first_pending(group.pending.lists, self._limit))
        out.write(_CONSUMERS)
        consumers = group.consumers
        out.write(array_header(len(consumers)))
        head = map_header(_FULL_CONSUMER_COUNT, self._resp3) + _NAME
        for consumer_name in sorted(consumers):
            out.write(head)
            self._write_consumer(consumers[consumer_name])

    def _write_consumer(self, consumer: Consumer) -> None:
        out = self.out
        write_bulk(out, consumer.name)
        out.write(self._times.of(consumer))
        write_integer(out, consumer.pending_count)
        out.write(_PENDING)
        self._rows.write_array(_first_pending(consumer.pending, self._limit))


class _Times:
    """The times of a consumer as XINFO STREAM FULL has them; many consumers have the same."""

    def __init__(self) -> None:
        self._seen_ms = self._active_ms = 0
        self._text = b""

    def of(self, consumer: Consumer) -> bytes:
        """The pairs of the times, and the name of the next pair."""
        seen_ms, active_ms = consumer.seen_ms, consumer.active_ms
        if seen_ms != self._seen_ms or active_ms != self._active_ms or not self._text:
            self._seen_ms, self._active_ms = seen_ms, active_ms
            self._text = _TIMES % (seen_ms, active_ms)
        return self._text


def _write_progress(out: BytesWriter, stream: Stream, group: Group, resp3: bool) -> None:
    """What the pairs from ``last-delivered-id`` to ``lag`` are."""
    out.write(_LAST_DELIVERED)
    write_bulk(out, text(group.progress.last_delivered_id))
    read, lag = group.progress.read_count(stream), group.progress.lag(stream)
    out.write(_ENTRIES_READ)
    if read is None:
        out.write(null(resp3))
    else:
        write_integer(out, read)
    out.write(_LAG)
    if lag is None:
        out.write(null(resp3))
    else:
        write_integer(out, lag)


def _first_pending(lists: dict[int, PendingList], limit: int) -> list[PendingEntry]:
    """The first pending entries of some lists, at most ``limit``; -1: all."""
    if len(lists) == 1 and limit >= 0:
        for pending in lists.values():
            return pending.first_between(MIN_ID, MAX_ID, limit)
    some = walk(lists, MIN_ID, MAX_ID)
    return list(some if limit < 0 else islice(some, limit))


def _tail(entry: PendingEntry) -> bytes:
    return b":%d\r\n:%d\r\n" % (entry.delivery_ms, entry.delivery_count)


def _owned_tail(entry: PendingEntry) -> bytes:
    return bulk(b"" if entry.consumer is None else entry.consumer.name) + _tail(entry)


def groups_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO GROUPS key: every group with its counts, last-delivered ID and lag."""
    stream = existing(ctx.read_stream(args[2]))
    out = BytesWriter()
    out.write(array_header(len(stream.groups)))
    head = map_header(_GROUP_COUNT, ctx.resp3) + _NAME
    for name in _group_names(stream):
        group = stream.groups[name]
        out.write(head)
        write_bulk(out, name)
        out.write(_CONSUMERS)
        write_integer(out, len(group.consumers))
        out.write(_PENDING)
        write_integer(out, group.pending.count)
        _write_progress(out, stream, group, ctx.resp3)
    return out.getvalue()


def consumers_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO CONSUMERS key group."""
    stream = existing(ctx.read_stream(args[2]))
    group = group_in(stream, args[2], args[3])
    now_ms = ctx.now_ms
    consumers = group.consumers
    out = BytesWriter()
    out.write(array_header(len(consumers)))
    head = map_header(_CONSUMER_COUNT, ctx.resp3) + _NAME
    for name in sorted(consumers):
        consumer = consumers[name]
        out.write(head)
        write_bulk(out, name)
        out.write(_PENDING)
        write_integer(out, consumer.pending_count)
        out.write(_IDLE)
        write_integer(out, max(now_ms - consumer.seen_ms, 0))
        out.write(_INACTIVE)
        write_integer(out, -1 if consumer.active_ms < 0 else now_ms - consumer.active_ms)
    return out.getvalue()
