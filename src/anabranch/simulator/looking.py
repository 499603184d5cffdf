"""The data of a region, read from its keyspace without commands.

A command may change data: reading an expired key removes it. A check must not change anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.timetables import GONE_MS
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.simulator.facts import NEVER
from anabranch.simulator.formulas import Shown
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.frozen import HOME
from anabranch.stream.groups.group import Group
from anabranch.stream.ranges import Ranges
from anabranch.stream.stream import Stream

Dot = tuple[int, int]


class Entry(NamedTuple):
    """One live entry."""

    entry_id: int
    dot: Dot
    token: bytes
    """The value of its last field, which no other XADD has."""


def streams(keyspace: Keyspace) -> dict[bytes, Stream]:
    """The streams of the first database."""
    values = keyspace.databases[0].values
    return {key: value for key, value in values.items() if type(value) is Stream}


def is_over(stream: Stream, now_ms: int) -> bool:
    """Whether the deadline has passed: the key is hidden, removed or not."""
    deadline = stream.shared.deadline_ms
    return deadline is not None and deadline <= now_ms


def entries(stream: Stream) -> list[Entry]:
    """Live entries by replica ID and number."""
    found = []
    for replica_id, log in sorted(stream.logs.items()):
        for block, low, high in log.spans(MIN_ID, MAX_ID):
            found += [
                Entry(entry_id, (replica_id, number), token_of(fragment))
                for entry_id, number, fragment in zip(
                    block.ids[low:high],
                    block.numbers_of(low, high),
                    block.fragments(low, high),
                    strict=True,
                )
            ]
    return found


def token_of(fragment: bytes) -> bytes:
    """The last field's value in an entry as it is sent."""
    return fragment.rstrip(b"\r\n").rpartition(b"\r\n")[2]


def groups(stream: Stream) -> Iterator[tuple[bytes, Group]]:
    """The groups of a stream, in the order of their names."""
    for name in sorted(stream.groups):
        yield name, stream.groups[name]


def acknowledged(group: Group, replica_id: int) -> Ranges:
    """Numbers of a replica ID that were acknowledged under any creation."""
    found = Ranges()
    for by_replica_id in group.shared.acknowledged.values():
        if (ranges := by_replica_id.get(replica_id)) is not None:
            found.update(ranges)
    return found


def visible(keyspace: Keyspace) -> dict[bytes, Any]:
    """By key, all data that must be equal in regions that have applied the same effects."""
    values = keyspace.databases[0].values
    return {key: visible_value(value) for key, value in sorted(values.items())}


def equal(keyspace: Keyspace) -> dict[str, Any]:
    """All that must be equal in regions that have applied the same effects, with settings."""
    return {
        "data": visible(keyspace),
        "limits of idempotent IDs": {
            key: (stream.producers.duration_s, stream.producers.maxsize)
            for key, stream in sorted(streams(keyspace).items())
        },
        "homes": {
            (key, name): sorted(group.home.epochs.items())
            for key, stream in sorted(streams(keyspace).items())
            for name, group in groups(stream)
            if group.home is not None and group.home.epochs
        },
        "policies": {
            subject: dict(sorted(settings.items()))
            for subject, settings in sorted(keyspace.databases[0].policies.live(), key=repr)
        },
        "scheduled": scheduled(keyspace),
    }


def scheduled(keyspace: Keyspace) -> list[tuple[Any, ...]]:
    """The entries that are to be added later."""
    return sorted(
        (database.index, place, entry.identity, entry.at_ms)
        for database in keyspace.databases
        for place, entry in database.timetables.entries.items()
        if entry.at_ms != GONE_MS
    )


def visible_value(value: Value) -> dict[str, Any]:
    """What clients can see of a key, as plain values."""
    if type(value) is Stream:
        return visible_stream(value)
    data: Any = value.data if isinstance(value, StringValue) else None
    if isinstance(value, SetValue):
        data = tuple(sorted(value.members))  # a digest must not depend on an order
    elif isinstance(value, ListValue):
        data = list(value.items)
    deadline = value.shared.small_deadline_of(None)
    return {"value": data, "deadline": deadline, "hidden": value.shared.small_kinds[1:]}


def visible_stream(stream: Stream) -> dict[str, Any]:
    """What clients can see of one stream, as plain values."""
    live = entries(stream)
    shown: dict[str, Any] = {
        "entries": sorted(live),
        "last ID": stream.last_id,
        "entries added": stream.entries_added,
        "max deleted ID": stream.max_deleted_id,
        "deadline": stream.shared.deadline_ms,
        "hidden string": stream.shared.string,
        "hidden": stream.shared.small_kinds,
    }
    shown["groups"] = {}
    for name, group in groups(stream):
        done = {replica_id: acknowledged(group, replica_id) for replica_id in stream.logs}
        dots = [each.dot for each in live if each.dot[1] in done[each.dot[0]]]
        shown["groups"][name] = sorted(group.shared.creations), dots
    return shown


def everything(keyspace: Keyspace) -> dict[str, Any]:
    """All data that a restart must restore, local data of groups included.

    Tombstones are not part of it: those below the watermark are dropped again later.
    """
    replica = keyspace.replica
    return {
        "vector": dict(sorted(replica.vector.items())),
        "own replica ID": replica.own,
        "members": dict(sorted(replica.members.items())),
        "visible": visible(keyspace),
        "local": {
            (key, name): _local(group)
            for key, stream in sorted(streams(keyspace).items())
            for name, group in groups(stream)
        },
        "scheduled": scheduled(keyspace),
    }


def _local(group: Group) -> dict[str, Any]:
    shared = group.shared
    return {
        "consumers": sorted(group.consumers),
        "pending": sorted(
            (
                replica_id,
                entry_id,
                entry.number,
                b"" if entry.consumer is None else entry.consumer.name,
                entry.delivery_ms,
                entry.delivery_count,
            )
            for replica_id, pending in group.pending.lists.items()
            for entry_id, entry in pending.entries.items()
        ),
        "delivered": sorted((o, ranges.flat()) for o, ranges in shared.delivered.items() if ranges),
        "hidden": sorted((o, ranges.flat()) for o, ranges in shared.hidden.items() if ranges),
        "rewound": sorted(shared.rewound),
        "discarded": sorted((o, *sorted(some)) for o, some in group.runs.discarded.items() if some),
        "runs": sorted(
            (replica_id, run.low, run.sent, run.last, run.closed)
            for replica_id, runs in group.runs.by_replica_id.items()
            for run in runs
        ),
        "home": HOME.write(group.home),
    }


# -- the data of a key by the formulas, in the same form ----------------------------------


def due_of(shown: Shown) -> dict[str, Any]:
    """The data by the formulas, in the form of :func:`visible`."""
    deadline = None if shown.deadline == NEVER else shown.deadline
    if shown.is_small:
        small = shown.small
        data = tuple(sorted(small)) if isinstance(small, set) else small
        return {"value": data, "deadline": deadline, "hidden": shown.small_kinds[1:]}
    return {
        "entries": sorted(
            Entry(e.effect.entry_id, e.dot, token_of(e.effect.fragment)) for e in shown.entries
        ),
        "last ID": shown.last_id,
        "entries added": shown.entries_added,
        "max deleted ID": shown.max_deleted_id,
        "deadline": deadline,
        "hidden string": shown.string,
        "hidden": shown.small_kinds,
        "groups": {
            name: (
                sorted(created.dot for created in creations),
                sorted(e.dot for e in shown.entries if shown.is_acknowledged(name, e)),
            )
            for name, creations in sorted(shown.groups.items())
        },
    }


def difference(one: Any, other: Any) -> str:
    """The innermost place where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                return f"{key} {difference(one.get(key), other.get(key))}"
    if type(one) is type(other) and isinstance(one, list | tuple):
        more = [each for each in one if each not in other]
        less = [each for each in other if each not in one]
        return f"has {more} too many, lacks {less}"
    return f"{one} instead of {other}"
