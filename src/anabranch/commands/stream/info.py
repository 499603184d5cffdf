"""XINFO: what a stream, its groups and their consumers look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from anabranch.commands.stream.entries import entries_ascending
from anabranch.commands.stream.pending_rows import pending_rows
from anabranch.engine import texts
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.errors import CommandError
from anabranch.resp.encode import array_header, bulk, map_header, null
from anabranch.resp.encode import integer as integer_reply
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import PendingList, walk
from anabranch.stream.stream import Stream

FULL_COUNT = 10
"""Entries and pending entries that XINFO STREAM FULL lists without COUNT."""


def _existing(ctx: Context, key: bytes) -> Stream:
    stream = ctx.read_stream(key)
    if stream is None:
        raise CommandError(texts.NO_SUCH_KEY)
    return stream


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
_SUMMARY = _template("groups d first-entry v last-entry v")
_GROUP = _template("name t consumers d pending d last-delivered-id t entries-read v lag v")
_GROUP_COUNT = 6
_CONSUMER_COUNT = 4
_FULL_GROUP = _template(
    "name t last-delivered-id t entries-read v lag v pel-count d nacked-count d pending v"
    " consumers v"
)
_FULL_GROUP_COUNT = 8
_FULL_CONSUMER = _template("name t seen-time d active-time d pel-count d") + bulk(b"pending")
_FULL_CONSUMER_COUNT = 5


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
    stream = _existing(ctx, args[2])
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
    limit = count or -1
    ledger = _ledger(stream)
    names = _group_names(stream)
    parts = [
        map_header(_FIGURES_COUNT + 2 + bool(ledger), ctx.resp3),
        _figures(stream),
        bulk(b"entries"),
        entries_ascending(stream.spans(MIN_ID, MAX_ID, limit)),
        bulk(b"groups"),
        array_header(len(names)),
    ]
    for name in names:
        _add_group(parts, stream, name, limit, ctx.resp3)
    parts.append(ledger)
    return b"".join(parts)


def _add_group(parts: list[bytes], stream: Stream, name: bytes, limit: int, resp3: bool) -> None:
    """The part of a group in XINFO STREAM FULL."""
    group = stream.groups[name]
    last = text(group.progress.last_delivered_id)
    read, lag = group.progress.read_count(stream), group.progress.lag(stream)
    consumers = group.consumers
    parts.append(map_header(_FULL_GROUP_COUNT, resp3))
    parts.append(
        _FULL_GROUP
        % (
            len(name),
            name,
            len(last),
            last,
            null(resp3) if read is None else integer_reply(read),
            null(resp3) if lag is None else integer_reply(lag),
            group.pending.count,
            len(group.pending.released),
            _pending(group.pending.lists, limit, _owned_tail, 4),
            array_header(len(consumers)),
        )
    )
    header = map_header(_FULL_CONSUMER_COUNT, resp3)
    for consumer_name in sorted(consumers):
        consumer = consumers[consumer_name]
        parts.append(header)
        parts.append(
            _FULL_CONSUMER
            % (
                len(consumer_name),
                consumer_name,
                consumer.seen_ms,
                consumer.active_ms,
                consumer.pending_count,
            )
        )
        parts.append(_pending(consumer.pending, limit, _tail, 3))


def _pending(
    lists: dict[int, PendingList], limit: int, tail_of: Callable[[PendingEntry], bytes], fields: int
) -> bytes:
    """The first pending entries of some lists as rows."""
    if len(lists) == 1 and limit >= 0:
        (pending,) = lists.values()
        some: Iterable[PendingEntry] = pending.first_between(MIN_ID, MAX_ID, limit)
    else:
        some = walk(lists, MIN_ID, MAX_ID)
        if limit >= 0:
            some = islice(some, limit)
    return pending_rows(some, tail_of, fields)


def _tail(entry: PendingEntry) -> bytes:
    return b":%d\r\n:%d\r\n" % (entry.delivery_ms, entry.delivery_count)


def _owned_tail(entry: PendingEntry) -> bytes:
    return bulk(b"" if entry.consumer is None else entry.consumer.name) + _tail(entry)


def groups_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO GROUPS key."""
    stream = _existing(ctx, args[2])
    none = null(ctx.resp3)
    header = map_header(_GROUP_COUNT, ctx.resp3)
    parts = [array_header(len(stream.groups))]
    for name in _group_names(stream):
        group = stream.groups[name]
        last = text(group.progress.last_delivered_id)
        read, lag = group.progress.read_count(stream), group.progress.lag(stream)
        parts.append(header)
        parts.append(
            _GROUP
            % (
                len(name),
                name,
                len(group.consumers),
                group.pending.count,
                len(last),
                last,
                none if read is None else integer_reply(read),
                none if lag is None else integer_reply(lag),
            )
        )
    return b"".join(parts)


def consumers_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO CONSUMERS key group."""
    stream = _existing(ctx, args[2])
    group = stream.groups.get(args[3])
    if group is None:
        raise CommandError(
            b"NOGROUP No such consumer group '%b' for key name '%b'"
            % (texts.shown(args[3]), texts.shown(args[2]))
        )
    now_ms = ctx.now_ms
    consumers = group.consumers
    header = map_header(_CONSUMER_COUNT, ctx.resp3).decode()
    rows: list[str] = []  # as text, which is quicker than bytes in CPython
    for name in sorted(consumers):
        consumer = consumers[name]
        inactive = -1 if consumer.active_ms < 0 else now_ms - consumer.active_ms
        rows.append(
            f"{header}$4\r\nname\r\n${len(name)}\r\n{name.decode('latin-1')}\r\n"
            f"$7\r\npending\r\n:{consumer.pending_count}\r\n"
            f"$4\r\nidle\r\n:{max(now_ms - consumer.seen_ms, 0)}\r\n"
            f"$8\r\ninactive\r\n:{inactive}\r\n"
        )
    return array_header(len(rows)) + "".join(rows).encode("latin-1")
