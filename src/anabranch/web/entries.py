"""``/api/entries``: a walk through the entries of one stream, with a filter, a part a request.

The page asks again with the place where a part ended, shows how far it is, and stops when it likes:
so a filter looks at the whole of a long stream, and no request takes long. Entries are read by
``XRANGE`` and ``XREVRANGE`` as the user, some at a time; between two reads all others are served.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.keyspace.replica import region_of
from anabranch.node.node import Node
from anabranch.region.region import Region
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, MIN_ID, InvalidId, parse, text
from anabranch.stream.stream import Stream
from anabranch.web.answers import as_json, bad, number_of, place_of, shown_bytes
from anabranch.web.conversation import REPLY_BYTES_MAX, Conversation, ErrorReply, TooLarge
from anabranch.web.identity import identify, may_see, require
from anabranch.web.stream_metrics import find_stream

SHOWN_MAX: Final = 200
"""The most entries of one answer."""

LOOKED_AT_MAX: Final = 5_000
"""An answer ends after so many entries, whether they match or not: some 50 ms of work."""

READ_BYTES_MAX: Final = 8 * 1024 * 1024
SHOWN_BYTES_MAX: Final = 1024 * 1024
"""An answer ends with the read that reaches one of these sizes."""

READ_ENTRIES: Final = 200
READ_BYTES: Final = 128 * 1024
"""One read ends before the entry that exceeds this; it has one entry at least."""

FRAME_BYTES: Final = 32
"""More than a reply has before its entries."""


class Wanted(NamedTuple):
    """Which entries a viewer wants. With nothing but defaults: all."""

    field: bytes = b""
    """The name of a field; empty: any field."""
    value: bytes | None = None
    """None: any value."""
    is_part: bool = False
    """Whether it is enough that the value contains it."""

    def accepts(self, fields: list[bytes]) -> bool:
        """Whether an entry with these names and values is wanted."""
        name, value = self.field, self.value
        if not name and value is None:
            return True
        for at in range(0, len(fields), 2):
            if name and fields[at] != name:
                continue
            if (
                value is None
                or fields[at + 1] == value
                or (self.is_part and value in fields[at + 1])
            ):
                return True
        return False


def wanted_of(request: Request) -> Wanted:
    """The parameters ``field``, ``value`` and ``match`` (``equal`` or ``part``)."""
    asked = request.query_params
    match = asked.get("match", "equal")
    if match not in {"equal", "part"}:
        raise bad("match is equal or part")
    value = asked.get("value")
    return Wanted(
        asked.get("field", "").encode("utf-8", "surrogatepass"),
        None if value is None else value.encode("utf-8", "surrogatepass"),
        match == "part",
    )


def described_entry(stream: Stream | None, entry_id: int, fields: list[Any]) -> dict[str, Any]:
    """An entry for JSON: its ID, its fields as they are given, and the region that wrote it."""
    entry: dict[str, Any] = {"id": text(entry_id).decode(), "fields": fields}
    found = None if stream is None else stream.find(entry_id)
    if found is not None:
        replica_id, block, index = found
        entry["replica_id"] = replica_id
        entry["region"] = region_of(replica_id)
        entry["number"] = block.number(index)
    return entry


def fitting(
    stream: Stream | None, low: int, high: int, most: int, bytes_max: int, *, newest_first: bool
) -> tuple[int, int, int]:
    """How many of the first entries of a range fit into a reply, and which one comes first.

    Returns the count, and ID and size of the first entry (0 and 0 if the range is empty).
    """
    count = size = first_id = first_size = 0
    if stream is None:
        return 0, 0, 0
    spans = stream.spans_reversed if newest_first else stream.spans
    for block, start, end in spans(low, high, most):
        sizes = block.sizes(start, end)
        if not first_size:
            at = end - 1 if newest_first else start
            first_id, first_size = block.ids[at], sizes[-1 if newest_first else 0]
        for each in reversed(sizes) if newest_first else sizes:
            size += each
            if size > bytes_max - FRAME_BYTES or count == most:
                return count, first_id, first_size
            count += 1
    return count, first_id, first_size


class Walk:
    """One part of a walk, from one place in one direction."""

    def __init__(
        self, region: Region, conversation: Conversation, db: int, key: bytes, wanted: Wanted
    ) -> None:
        self._region = region
        self._conversation = conversation
        self._db = db
        self._key = key
        self._wanted = wanted
        self._entries: list[dict[str, Any]] = []
        self._looked_at = 0
        self._read_bytes = 0
        self._shown_bytes = 0

    async def part(self, place: int, limit: int, *, newest_first: bool) -> dict[str, Any]:
        """Entries from an ID on, until there are enough, or enough was looked at.

        ``older`` and ``newer`` say from which ID on the walk goes on; None: nothing is there.
        """
        at: int | None = place
        while at is not None and not self._is_full(limit):
            at = await self._read(at, limit - len(self._entries), newest_first=newest_first)
            await asyncio.sleep(0)
        back = place + 1 if newest_first else place - 1
        edges = [at, back if MIN_ID <= back <= MAX_ID else None]
        older, newer = edges if newest_first else reversed(edges)
        return {
            "entries": self._entries,
            "looked_at": self._looked_at,
            "older": None if older is None else text(older).decode(),
            "newer": None if newer is None else text(newer).decode(),
        }

    def _is_full(self, limit: int) -> bool:
        return (
            len(self._entries) >= limit
            or self._looked_at >= LOOKED_AT_MAX
            or self._read_bytes >= READ_BYTES_MAX
            or self._shown_bytes >= SHOWN_BYTES_MAX
        )

    async def _read(self, at: int, missing: int, *, newest_first: bool) -> int | None:
        """Read some entries; returns where the next read begins, or None at the end."""
        low, high = (MIN_ID, at) if newest_first else (at, MAX_ID)
        stream = find_stream(self._region.keyspace, self._db, self._key)
        most = missing if self._wanted == Wanted() else READ_ENTRIES
        count, first_id, first_size = fitting(
            stream, low, high, min(most, READ_ENTRIES), READ_BYTES, newest_first=newest_first
        )
        ends = (text(high), text(low)) if newest_first else (text(low), text(high))
        name = b"XREVRANGE" if newest_first else b"XRANGE"
        rows: list[Any] | None = None
        if first_size <= REPLY_BYTES_MAX - FRAME_BYTES:
            rows = await self._rows(name, ends, max(count, 1))
        if rows is None:
            self._pass_over(first_id, first_size)
            last = first_id
        elif rows:
            last = self._take(stream, rows, missing)
        else:
            return None
        edge = last - 1 if newest_first else last + 1
        return edge if MIN_ID <= edge <= MAX_ID else None

    async def _rows(self, name: bytes, ends: tuple[bytes, bytes], count: int) -> list[Any] | None:
        """The reply; with entries of very many fields one entry, and None if that is too large."""
        for each in (count, 1):
            try:
                found: list[Any] = await self._conversation.call(
                    name, self._key, *ends, b"COUNT", b"%d" % each
                )
            except TooLarge:
                continue
            return found
        return None

    def _take(self, stream: Stream | None, rows: list[Any], missing: int) -> int:
        """Take what is wanted until nothing is missing; returns the ID of the last entry.

        Entries with one ID stay together: the walk goes on beyond it.
        """
        last = -1
        for raw, fields in rows:
            entry_id = parse(raw)
            if missing <= 0 and entry_id != last:
                break
            last = entry_id
            size = sum(map(len, fields or ()))
            self._looked_at += 1
            self._read_bytes += size
            if self._wanted.accepts(fields or []):
                shown = [shown_bytes(each) for each in fields or ()]
                self._entries.append(described_entry(stream, entry_id, shown))
                self._shown_bytes += size
                missing -= 1
        return last

    def _pass_over(self, entry_id: int, size: int) -> None:
        """Name an entry that is too large to be read; whether it matches is not known."""
        self._looked_at += 1
        self._entries.append({"id": text(entry_id).decode(), "fields": [], "too_large": size})


class EntryParts:
    """The route ``/api/entries``."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.routes = [Route("/api/entries", self._part)]

    async def _part(self, request: Request) -> Response:
        viewer = await identify(self._node, request)
        region = self._node.region
        place = place_of(request)
        if place is None:
            raise bad("key names the stream")
        newest_first = _is_older(request)
        start = _start_of(request, newest_first=newest_first)
        limit = max(number_of(request, "limit", 100, SHOWN_MAX), 1)
        db, key = place
        for name in (b"XRANGE", b"XREVRANGE"):
            require(region, viewer.user, name, key, b"-", b"+")
        conversation = Conversation(self._node, viewer.address, viewer.local, viewer.user)
        conversation.session.db = db
        try:
            walk = Walk(region, conversation, db, key, wanted_of(request))
            part = await walk.part(start, limit, newest_first=newest_first)
        except ErrorReply as refusal:
            return as_json({"error": str(refusal)})
        finally:
            conversation.close()
        if may_see(region, viewer.user)(key):
            stream = find_stream(region.keyspace, db, key)
            part["length"] = 0 if stream is None else stream.length
        return as_json(part)


def _is_older(request: Request) -> bool:
    direction = request.query_params.get("direction", "older")
    if direction not in {"older", "newer"}:
        raise bad("direction is older or newer")
    return direction == "older"


def _start_of(request: Request, *, newest_first: bool) -> int:
    """The parameter ``from``: an ID, or milliseconds for all IDs of that time."""
    asked = request.query_params.get("from", "")
    if not asked:
        return MAX_ID if newest_first else MIN_ID
    try:
        return parse(asked.encode("utf-8", "surrogatepass"), MAX_SEQ if newest_first else 0)
    except InvalidId:
        raise bad("from is the ID of an entry, or a time in milliseconds") from None
