"""A server whose effects are recorded, and all that a keyspace holds, for comparing two."""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Any

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.timetables import written
from anabranch.keyspace.values import ListValue, SetValue, StringValue
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream
from tests.support.recording import Recording
from tests.support.streams import Streams, words

__all__ = ["OTHER_LINES", "Recorder", "everything_in"]

OTHER_LINES = """
DEL {k}
DEL {k} {l} {k} nobody
MSET {k} {n} {l} {i} {k} {j}
MSETNX {k} {n} {l} {i}
EXPIRE {k} {n}
PERSIST {k}
RENAME {k} {l}
COPY {k} {l} REPLACE
MOVE {k} {n}
SWAPDB 0 {n}
AB.POLICY SET {k} redeliver first
AB.POLICY SET PATTERN {k}* GROUP {g} redeliver first
AB.POLICY DEL {k}
SET {k} {n}
INCR {k}
RPUSH {k} {n}
LPUSH {k} {n} {i}
LPOP {k}
SADD {k} {n} {i}
APPEND {k} {n}
SETRANGE {k} {n} {i}
RPOP {k}
LMOVE {k} {l} LEFT RIGHT
LREM {k} 0 {n}
LTRIM {k} 1 -1
SREM {k} {n}
SMOVE {k} {l} {n}
RESTORE
ADVANCE {i}000
AB.SCHEDULE {k} IN {i}00 ID {n} f v
AB.SCHEDULE {k} CRON '* * * * *' ID {n} f v
AB.SCHEDULE CANCEL {k} {n}
ABIMPORT {i}
""".strip().splitlines()
"""What :func:`tests.support.random_lines.random_lines` may do beside stream commands."""


class Recorder:
    """A server whose effects are recorded."""

    def __init__(self) -> None:
        self.server = Streams(now_ms=1)  # so that "*" makes IDs of the same range as the others
        self.server.do("CONFIG", "SET", "stream-node-max-entries", 3)
        self.server.settings.ledger_retention = 3
        self.effects: list[kinds.Effect] = []
        self.server.region.effects.record = Recording(self.effects)

    def run(self, line: str) -> None:
        server = self.server
        name, *rest = words(line)
        if name == "ADVANCE":
            server.advance(int(rest[0]))
        elif name == "RESTORE":
            if payload := server.do("DUMP", "s"):
                server.raw("RESTORE", "t", 0, payload, "REPLACE")
        elif name == "FUNCTIONLOAD":
            code = "#!lua name=library\nredis.register_function('f', function() return 1 end)"
            server.raw("FUNCTION", "LOAD", "REPLACE", code)
        elif name == "ABIMPORT":
            self._import(int(rest[0]) if rest else 3)
        elif "BLOCK" in rest:
            server.raw(name, *rest, session=server.connect())
        else:
            server.raw(name, *rest)

    def _import(self, count: int) -> None:
        """A bulk producer's batch of so many rows, from where its last one ended."""
        rows = [b"*2\r\n$1\r\nf\r\n$1\r\n%d\r\n" % (number % 10) for number in range(count)]
        payload = struct.pack(f"<{count + 1}I", count, *accumulate(map(len, rows)))
        batch = len(self.effects)
        self.server.raw(
            *("AB.IMPORT", "s", "PRODUCER", f"p{batch % 3}", "BATCH", batch, "EXPECT", 0),
            payload + b"".join(rows),
        )


def everything_in(keyspace: Keyspace) -> list[Any]:
    """Everything but the times at which keys were used and consumers seen."""
    return [
        (
            database.index,
            {key: _value(value) for key, value in database.values.items()},
            dict(database.deadlines),
        )
        for database in keyspace.databases
        if database.values
    ] + [
        [each.policies.written() for each in keyspace.databases],
        [sorted(written(each.timetables.entries.items())) for each in keyspace.databases],
        dict(keyspace.users),
        dict(keyspace.libraries),
        keyspace.incarnations.next,
    ]


def _value(value: object) -> Any:
    if isinstance(value, StringValue):
        return value.data
    if isinstance(value, ListValue):
        return list(value.items)
    if isinstance(value, SetValue):
        return set(value.members)
    assert isinstance(value, Stream)
    producers = value.producers
    return {
        "incarnation": value.incarnation,
        "ledger": list(value.ledger.records.items()),
        "counters": (value.last_id, value.max_deleted_id, value.entries_added, value.length),
        "logs": {region: _log(log) for region, log in value.logs.items()},
        "groups": {name: _group(group) for name, group in value.groups.items()},
        "producers": (
            producers.duration_s,
            producers.maxsize,
            [(pid, list(table.items())) for pid, table in producers.tables.items()],
            producers.iids_added,
            producers.duplicates,
        ),
    }


def _log(log: RegionLog) -> Any:
    blocks = []
    for block in log.blocks:
        rows = [
            (block.ids[index], block.position(index), bytes(block.fragment(index)))
            for low, high in block.runs(0, len(block.ids))
            for index in range(low, high)
        ]
        blocks.append((block.first_id, block.slots, block.weight, rows))
    return log.next_position, log.trimmed, blocks


def _group(group: Group) -> Any:
    return {
        "cursor": group.progress.last_delivered_id,
        "read": group.progress.entries_read,
        "consumers": [(c.name, c.active_ms) for c in group.consumers.values()],
        "policies": None if group.policed is None else group.policed.policy.texts,
        "released": [entry.entry_id for entry in group.pending.released],
        "pending": [
            (e.entry_id, e.consumer and e.consumer.name, e.delivery_ms, e.delivery_count)
            for e in group.pending.between(0, MAX_ID)
        ],
        "by age": [
            each.entry_id
            for each in sorted(group.pending.between(0, MAX_ID), key=_age)
            if each.consumer is not None
        ],
    }


def _age(entry: PendingEntry) -> tuple[int, int]:
    return entry.delivery_ms, entry.stamp
