"""The timeline and the tail of one stream: which entries arrived, of which region, and when.

Entries are read as the user, by ``AB.READ``, which misses nothing that other regions send late. An
entry is *late* if its ID is below one that was here before it: a reader by ``XREAD`` skips it.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Any, Final

# The handlers of AB.READ and AB.TOKEN: the first request must not wait for an import.
import anabranch.commands.extensions.regional_read  # noqa: F401
from anabranch.engine.holding import retention_state
from anabranch.node.node import Node
from anabranch.stream.entry_id import MAX_ID, parse, text
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream
from anabranch.web.answers import shown_bytes, shown_name
from anabranch.web.conversation import REPLY_BYTES_MAX, Conversation, ErrorReply, TooLarge
from anabranch.web.entries import Wanted, described_entry, fitting
from anabranch.web.identity import Viewer, may_run, may_see
from anabranch.web.stream_metrics import find_stream

FIRST: Final = 150
"""Entries that are shown at first."""

AT_ONCE: Final = 200
"""The most entries of one message; further entries are counted and not shown."""

BYTES_MAX: Final = REPLY_BYTES_MAX // 2
"""The most bytes of one message: the entry that reaches the limit is the last one."""

FIELDS_MAX: Final = 16
VALUE_BYTES_MAX: Final = 200
GROUPS_MAX: Final = 20


class Watch:
    """What one viewer has seen of one stream."""

    def __init__(
        self, node: Node, viewer: Viewer, place: tuple[int, bytes], wanted: Wanted
    ) -> None:
        """``place``: database and key. Entries that are not wanted are told, and marked."""
        self._region = node.region
        self._conversation = Conversation(node, viewer.address, viewer.local, viewer.user)
        self._db, self._key = place
        self._conversation.session.db = self._db
        self._wanted = wanted
        self._user = viewer.user
        self._cursor = b""
        self._newest = 0  # the greatest ID that has been here
        self._added = 0  # entries that the stream had been given at the last look

    def close(self) -> None:
        """Release the session."""
        self._conversation.close()

    async def look(self) -> dict[str, Any]:
        """Entries that arrived since the last call; ``error`` if the user may not read them."""
        is_first = not self._cursor
        try:
            try:
                rows = await (self._first() if is_first else self._next())
            except TooLarge:  # because of one entry
                rows, self._cursor = [], await self._read(b"$")
        except ErrorReply as refusal:
            return {"error": str(refusal), "entries": []}
        now_ms = self._region.clock.now_us() // 1000
        entries = []
        stream = self._stream()
        newest = self._newest
        for raw, fields in rows:
            entry_id = parse(raw)
            entry = self._entry(stream, entry_id, fields or [])
            entry["late"] = not is_first and entry_id < self._newest
            entry["at"] = entry_id >> 64 if is_first else now_ms
            entries.append(entry)
            newest = max(newest, entry_id)
        added = 0 if stream is None else stream.entries_added
        came, self._added = added - self._added, added
        passed_over = 0 if is_first else max(came - len(entries), 0)
        self._newest = max(newest, 0 if stream is None or not passed_over else stream.last_id)
        return {
            "entries": entries,
            "first": is_first,
            "now_ms": now_ms,
            "passed_over": passed_over,
            **self._about(stream),
        }

    async def _first(self) -> list[Any]:
        """The newest entries. Later calls return every entry that arrives after them, once."""
        self._cursor = await self._read(b"$")
        count, _, _ = fitting(self._stream(), 0, MAX_ID, FIRST, REPLY_BYTES_MAX, newest_first=True)
        if not count:
            return []
        rows: list[Any] = await self._conversation.call(
            b"XREVRANGE", self._key, b"+", b"-", b"COUNT", b"%d" % count
        )
        return rows[::-1]

    async def _next(self) -> list[Any]:
        limits = b"COUNT", b"%d" % AT_ONCE, b"MAXSIZE", b"%d" % BYTES_MAX
        reply: dict[bytes, Any] = await self._conversation.call(
            b"AB.READ", *limits, b"STREAMS", self._key, self._cursor
        )
        ((cursor, rows),) = reply.values()
        size = sum(len(each) for _, fields in rows for each in fields or ())
        if len(rows) >= AT_ONCE or size > BYTES_MAX // 2:
            cursor = await self._read(b"$")  # faster than anybody reads: go on at the end
        self._cursor = cursor
        found: list[Any] = rows
        return found

    async def _read(self, cursor: bytes) -> bytes:
        reply = await self._conversation.call(b"AB.READ", b"STREAMS", self._key, cursor)
        found: bytes = next(iter(reply.values()))[0]
        return found

    def _stream(self) -> Stream | None:
        return find_stream(self._region.keyspace, self._db, self._key)

    def _entry(self, stream: Stream | None, entry_id: int, fields: list[bytes]) -> dict[str, Any]:
        first = fields[: 2 * FIELDS_MAX]
        return {
            **described_entry(stream, entry_id, [_cut(each) for each in first]),
            "left_out": max(len(fields) // 2 - FIELDS_MAX, 0),
            "is_cut": any(len(each) > VALUE_BYTES_MAX for each in first),
            "wanted": self._wanted.accepts(fields),
        }

    def _about(self, stream: Stream | None) -> dict[str, Any]:
        """The stream, and the cursors of its groups, as far as the user may see them."""
        about: dict[str, Any] = {"groups": []}
        if may_see(self._region, self._user)(self._key):
            about["length"] = 0 if stream is None else stream.length
            about["added"] = 0 if stream is None else stream.entries_added
            timetables = self._region.keyspace.databases[self._db].timetables
            about["scheduled"] = timetables.count(self._key)
            if stream is not None:
                about["retention"] = _retention(stream, self._region.clock.now_us() // 1000)
        if stream is not None and may_run(self._region, self._user, b"XINFO", b"GROUPS", self._key):
            names = nsmallest(GROUPS_MAX, stream.groups)
            about["groups"] = [_group(stream, name, stream.groups[name]) for name in names]
        return about


def _group(stream: Stream, name: bytes, group: Group) -> dict[str, Any]:
    return {
        "name": shown_name(name),
        "at": text(group.progress.last_delivered_id).decode(),
        "lag": sum(group.progress.exact_lag(stream.logs).values()),
        "pending": group.pending.count,
        "consumers": len(group.consumers),
    }


def _retention(stream: Stream, now_ms: int) -> dict[str, Any] | None:
    """What the stream keeps to, and which groups need the oldest of its entries."""
    state = retention_state(stream, now_ms)
    if state is None:
        return None
    return {
        "policies": state.policies,
        "held_back": state.held_back.entries,
        "needed_by": [
            [shown_name(name), text(entry_id).decode()]
            for entry_id, name in state.held_back.needs[:GROUPS_MAX]
        ],
    }


def _cut(raw: bytes) -> Any:
    if len(raw) > VALUE_BYTES_MAX:
        return shown_bytes(raw[:VALUE_BYTES_MAX].decode("utf-8", "ignore").encode()) or ""
    return shown_bytes(raw)
