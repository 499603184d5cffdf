"""XINFO: what a stream, its groups and their consumers look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from anabranch.commands.execution.context import Context
from anabranch.commands.request import texts
from anabranch.commands.request.arguments import integer
from anabranch.commands.request.help import wrong_subcommand
from anabranch.commands.stream.entries import entries_ascending
from anabranch.commands.stream.pending_rows import pending_rows
from anabranch.errors import CommandError
from anabranch.resp.encode import bulk
from anabranch.resp.values import Map, Raw
from anabranch.stream.entry_id import MAX_ID, MIN_ID, text
from anabranch.stream.group import Group
from anabranch.stream.pending import Consumer, PendingEntry
from anabranch.stream.stream import Stream

__all__ = ["consumers_info", "groups_info", "stream_info"]

FULL_COUNT = 10
"""Entries and pending entries that XINFO STREAM FULL lists without COUNT."""


def _existing(ctx: Context, key: bytes) -> Stream:
    stream = ctx.read_stream(key)
    if stream is None:
        raise CommandError(texts.NO_SUCH_KEY)
    return stream


def _group_names(stream: Stream) -> list[bytes]:
    return sorted(stream.groups)


def _figures(stream: Stream) -> list[tuple[str, Any]]:
    """The thirteen pairs that both forms of XINFO STREAM begin with; tools rely on the order."""
    producers = stream.producers
    nodes = stream.node_count
    return [
        ("length", stream.length),
        ("radix-tree-keys", nodes),
        ("radix-tree-nodes", nodes + 1),
        ("last-generated-id", text(stream.last_id)),
        ("max-deleted-entry-id", text(stream.max_deleted_id)),
        ("entries-added", stream.entries_added),
        ("recorded-first-entry-id", text(stream.first_id)),
        ("idmp-duration", producers.duration_s),
        ("idmp-maxsize", producers.maxsize),
        ("pids-tracked", len(producers.tables)),
        ("iids-tracked", producers.tracked),
        ("iids-added", producers.iids_added),
        ("iids-duplicates", producers.duplicates),
    ]


def stream_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO STREAM key [FULL [COUNT n]]."""
    stream = _existing(ctx, args[2])
    if len(args) == 3:
        return ctx.reply(_summary(stream))
    if args[3].upper() != b"FULL" or len(args) not in (4, 6):
        raise wrong_subcommand(args)
    count = FULL_COUNT
    if len(args) == 6:
        if args[4].upper() != b"COUNT":
            raise wrong_subcommand(args)
        count = integer(args[5])
        if count < 0:
            count = FULL_COUNT
    return ctx.reply(_full(stream, count))


def _ledger(stream: Stream) -> list[tuple[str, Any]]:
    """A pair of ours at the very end, only where bulk producers write.

    There are clients that refuse a reply with a pair they do not know.
    """
    records = stream.ledger.records
    return [("ledger-records", len(records))] if records else []


def _summary(stream: Stream) -> Map:
    first = stream.fragment(stream.first_id)
    last = stream.fragment(stream.last_live_id)
    return Map(
        [
            *_figures(stream),
            ("groups", len(stream.groups)),
            ("first-entry", None if first is None else Raw(first)),
            ("last-entry", None if last is None else Raw(last)),
            *_ledger(stream),
        ]
    )


def _full(stream: Stream, count: int) -> Map:
    limit = count or -1
    return Map(
        [
            *_figures(stream),
            ("entries", Raw(entries_ascending(stream.spans(MIN_ID, MAX_ID, limit)))),
            (
                "groups",
                [
                    _full_group(stream, name, stream.groups[name], limit)
                    for name in _group_names(stream)
                ],
            ),
            *_ledger(stream),
        ]
    )


def _full_group(stream: Stream, name: bytes, group: Group, limit: int) -> Map:
    return Map(
        [
            ("name", name),
            ("last-delivered-id", text(group.last_delivered_id)),
            ("entries-read", group.read_count(stream)),
            ("lag", group.lag(stream)),
            ("pel-count", group.pending_count),
            ("nacked-count", len(group.released)),
            ("pending", _pending(group.between(MIN_ID, MAX_ID), limit, _owned_tail, 4)),
            (
                "consumers",
                [_full_consumer(group.consumers[n], limit) for n in sorted(group.consumers)],
            ),
        ]
    )


def _full_consumer(consumer: Consumer, limit: int) -> Map:
    return Map(
        [
            ("name", consumer.name),
            ("seen-time", consumer.seen_ms),
            ("active-time", consumer.active_ms),
            ("pel-count", consumer.pending_count),
            ("pending", _pending(consumer.between(MIN_ID, MAX_ID), limit, _tail, 3)),
        ]
    )


def _pending(
    entries: Iterable[PendingEntry],
    limit: int,
    tail_of: Callable[[PendingEntry], bytes],
    fields: int,
) -> Raw:
    some = entries if limit < 0 else islice(entries, limit)
    return Raw(pending_rows(some, tail_of, fields))


def _tail(entry: PendingEntry) -> bytes:
    return b":%d\r\n:%d\r\n" % (entry.delivery_ms, entry.delivery_count)


def _owned_tail(entry: PendingEntry) -> bytes:
    return bulk(b"" if entry.consumer is None else entry.consumer.name) + _tail(entry)


def groups_info(ctx: Context, args: list[bytes]) -> bytes:
    """XINFO GROUPS key."""
    stream = _existing(ctx, args[2])
    return ctx.reply(
        [
            Map(
                [
                    ("name", name),
                    ("consumers", len(group.consumers)),
                    ("pending", group.pending_count),
                    ("last-delivered-id", text(group.last_delivered_id)),
                    ("entries-read", group.read_count(stream)),
                    ("lag", group.lag(stream)),
                ]
            )
            for name, group in ((name, stream.groups[name]) for name in _group_names(stream))
        ]
    )


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
    return ctx.reply(
        [
            Map(
                [
                    ("name", name),
                    ("pending", consumer.pending_count),
                    ("idle", max(now_ms - consumer.seen_ms, 0)),
                    ("inactive", -1 if consumer.active_ms < 0 else now_ms - consumer.active_ms),
                ]
            )
            for name, consumer in sorted(group.consumers.items())
        ]
    )
