"""One stream in the state that a start would restore, from files that are not changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from anabranch.cli.inspect_files import Failed
from anabranch.cli.inspect_values import (
    as_text,
    entries_of,
    figures_of,
    id_text,
    when,
)
from anabranch.cli.progress import Progress
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.overlay import Overlay
from anabranch.oplog.recovery import Recovery, recover
from anabranch.server.disk import Directory
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream

Figures = dict[str, Any]


def recovered(
    directory: Directory, databases: int, replica: Replica | None = None
) -> tuple[Keyspace, Recovery]:
    """The contents of the directory; raises what recovery raises.

    For the directory of a region ``replica`` is given, and is filled.
    """
    keyspace = Keyspace(databases, replica)
    report = Recovery()
    with Progress("recovering", None) as progress:
        for report in recover(Overlay(directory), keyspace):
            progress.total = report.bytes_total
            progress.update(report.bytes_done)
    return keyspace, report


def stream_in(keyspace: Keyspace, db: int, key: bytes) -> tuple[Stream, int | None]:
    """The stream under a key, and the key's deadline; :class:`Failed` if there is none."""
    database = keyspace.databases[db]
    value = database.values.get(key)
    shown = as_text(key, full=True)
    if value is None:
        elsewhere = [str(each.index) for each in keyspace.databases if key in each.values]
        hint = (
            f"There is one in database {', '.join(elsewhere)}: see --db"
            if elsewhere
            else (f"Database {db} holds {len(database.values):,} keys")
        )
        raise Failed(f"no key {shown} in database {db}. {hint}")
    if not isinstance(value, Stream):
        raise Failed(f"{shown} is no stream but a {value.type_name.decode()}")
    return value, database.deadlines.get(key)


def stream_object(
    stream: Stream, deadline: int | None, *, db: int, key: bytes, pending: int
) -> Figures:
    """What XINFO STREAM FULL shows, with at most so many pending entries of each group."""
    return {
        "db": db,
        "key": key,
        "deadline": when(deadline),
        "length": stream.length,
        **figures_of(stream),
        "first-entry": next(entries_of(stream, limit=1), None),
        "last-entry": next(entries_of(stream, stream.last_live_id), None),
        "groups": [
            _group(stream, name, group, pending) for name, group in sorted(stream.groups.items())
        ],
    }


def _group(stream: Stream, name: bytes, group: Group, limit: int) -> Figures:
    return {
        "name": name,
        "last-delivered-id": id_text(group.progress.last_delivered_id),
        "entries-read": group.progress.read_count(stream),
        "lag": group.progress.lag(stream),
        "pel-count": group.pending.count,
        "nacked-count": len(group.pending.released),
        "consumers": [
            {
                "name": consumer.name,
                "pel-count": consumer.pending_count,
                "seen-time": when(consumer.seen_ms),
                "active-time": when(consumer.active_ms) if consumer.active_ms >= 0 else None,
            }
            for consumer in sorted(group.consumers.values(), key=lambda each: each.name)
        ],
        "pending": [
            {
                "id": id_text(entry.entry_id),
                "consumer": entry.consumer.name if entry.consumer is not None else None,
                "delivered": when(entry.delivery_ms),
                "count": entry.delivery_count,
            }
            for entry in islice(group.pending.between(MIN_ID, MAX_ID), limit)
        ],
    }


def stream_lines(figures: Figures, *, full: bool) -> Iterator[str]:
    """The figures of a stream as lines that people read."""
    width = max(map(len, figures))
    for name, value in figures.items():
        if name != "groups":
            yield f"{name:<{width}}  {_shown(value, full=full)}"
    for group in figures["groups"]:
        yield ""
        yield f"group {as_text(group['name'], full=full)}"
        for name, value in group.items():
            if name not in ("name", "consumers", "pending"):
                yield f"  {name:<{width - 2}}  {_shown(value, full=full)}"
        for consumer in group["consumers"]:
            yield (
                f"  consumer {as_text(consumer['name'], full=full)}: "
                f"{consumer['pel-count']:,} pending, seen {consumer['seen-time']}, "
                f"active {consumer['active-time'] or 'never'}"
            )
        for entry in group["pending"]:
            owner = entry["consumer"]
            yield (
                f"  pending {entry['id']}: "
                f"{'released' if owner is None else as_text(owner, full=full)}, "
                f"delivered {entry['delivered']}, count {entry['count']}"
            )
        rest = group["pel-count"] - len(group["pending"])
        if rest:
            yield f"  and {rest:,} more pending: see --limit"


def _shown(value: Any, *, full: bool) -> str:
    if isinstance(value, dict):  # an entry
        return f"{value['id']} {as_text(value['fields'], full=full)}"
    return as_text(value, full=full)
