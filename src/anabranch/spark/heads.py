"""What a server says about streams: which there are, how far they go, what they have lost.

Two kinds of server answer. Ours tells heads of all streams and regions in one reply (AB.OFFSETS)
and finds entries by position; any other is asked stream by stream (XINFO STREAM), has the one
region ``""`` and is read by ID.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from anabranch.errors import AnabranchError
from anabranch.spark.client import Client
from anabranch.spark.exports import parse_export
from anabranch.spark.offsets import (
    BY_ID,
    Cursor,
    Head,
    Heads,
    Vector,
    next_id,
    parse_id,
    previous_id,
)
from anabranch.spark.options import OptionError, ReadOptions

__all__ = ["ADVICE", "PAGE", "DataLossError", "Survey", "head_of", "losses", "stream_key"]

PAGE: Final = 10_000
"""Entries of one XRANGE; larger replies are slower, not quicker."""


ADVICE: Final = "Raise retention, or set failOnDataLoss=false to go on without what is lost."
"""What a user can do about a loss."""


class DataLossError(AnabranchError):
    """Entries are gone that were never read; the text says which and what to do."""


class Survey:
    """Looks at the streams of one read over one connection."""

    def __init__(self, options: ReadOptions, client: Client, *, by_id: bool | None = None) -> None:
        """`by_id`: read by ID even if the server has positions, or by what the server can."""
        self._options = options
        self._client = client
        self.by_id = not client.has_bulk if by_id is None else by_id
        if not self.by_id and not client.has_bulk:
            raise OptionError(
                f"these offsets count positions, which the server at {client.address} does not "
                "have: they belong to an Anabranch server; start with a new checkpoint"
            )
        self._found: list[str] = []
        self._found_at: float | None = None
        self._total = 0

    # ------------------------------------------------------------------------------------ streams

    def streams(self) -> list[str]:
        """The keys to read; for a pattern those that exist, looked up now and then."""
        if self._options.pattern is None:
            return list(self._options.assign or self._options.subscribe)
        now = time.monotonic()
        interval = self._options.discovery_interval_ms / 1000
        if self._found_at is None or now - self._found_at >= interval:
            self._found, self._found_at = self._scan(self._options.pattern), now
        return self._found

    def _scan(self, pattern: str) -> list[str]:
        found: set[str] = set()
        at = b"0"
        while True:
            at, keys = self._client.command(
                *("SCAN", at, "MATCH", pattern, "COUNT", 1000, "TYPE", "stream"), repeatable=True
            )
            found.update(key.decode("utf-8", "surrogateescape") for key in keys)
            if at == b"0":
                return sorted(found)

    def selects(self, stream: str, region: str) -> bool:
        """Whether the options ask for a region of a stream."""
        assign = self._options.assign
        if assign is not None and assign.get(stream):
            return region in assign[stream]
        return self._options.regions is None or region in self._options.regions

    # -------------------------------------------------------------------------------------- heads

    def heads(self, wait_ms: int = 0, known: Vector | None = None) -> Heads:
        """Heads of all streams that exist, from one moment if the server has positions.

        `wait_ms`: wait so long for news after what was last told, or after `known`.
        """
        streams = self.streams()
        if not streams:
            time.sleep(wait_ms / 1000)
            return {}
        if self.by_id:
            if wait_ms and known is not None:
                self._await_entries(streams, known, wait_ms)
            return self._told_one_by_one(streams)
        waiting: tuple[bytes | str | int, ...] = ()
        if wait_ms:
            waiting = ("BLOCK", wait_ms, "AFTER", self._total)
        reply = self._client.command(
            *("AB.OFFSETS", *waiting, "STREAMS", *map(stream_key, streams)),
            repeatable=True,
            wait_ms=wait_ms,
        )
        self._total = sum(row[3] for rows in reply if rows is not None for row in rows)
        found: dict[str, dict[str, Head]] = {}
        for stream, rows in zip(streams, reply, strict=True):
            if rows is not None:
                found[stream] = {
                    name: Head(incarnation, first, stop, last_id.decode(), trimmed)
                    for region, incarnation, first, stop, last_id, _live, trimmed in rows
                    if self.selects(stream, name := region.decode())
                }
        return found

    def _await_entries(self, streams: list[str], known: Vector, wait_ms: int) -> None:
        cursors = [known.get(stream, "") or Cursor(BY_ID, 0) for stream in streams]
        ids = [each.last_id for each in cursors]
        words: list[bytes | str | int] = [*map(stream_key, streams), *ids]
        self._client.command(
            *("XREAD", "COUNT", 1, "BLOCK", wait_ms, "STREAMS"),
            *words,
            repeatable=True,
            wait_ms=wait_ms,
        )

    def _told_one_by_one(self, streams: list[str]) -> dict[str, dict[str, Head]]:
        replies = self._client.pipeline(
            [("XINFO", "STREAM", stream_key(stream)) for stream in streams], repeatable=True
        )
        found: dict[str, dict[str, Head]] = {}
        for stream, reply in zip(streams, replies, strict=True):
            if isinstance(reply, Exception):
                if "no such key" in str(reply):
                    continue
                raise self._client.refusal(reply)
            found[stream] = {"": head_of(reply)} if self.selects(stream, "") else {}
        return found

    # ----------------------------------------------------------------------------- IDs, positions

    def locate(self, stream: str, region: str, head: Head, entry_id: str) -> Cursor:
        """The cursor in front of the first entry with this ID or a greater one."""
        if self.by_id:
            return self._counted(stream, head, entry_id)
        low, high = head.first, head.next
        while low < high:
            middle = (low + high) // 2
            found = self._entry_at(stream, region, middle, high)
            if found is None or parse_id(found[1]) >= parse_id(entry_id):
                high = middle
            else:
                low = found[0] + 1
        return Cursor(head.incarnation, low, self.id_below(stream, region, head, low))

    def id_below(self, stream: str, region: str, head: Head, position: int) -> str:
        """ID of the entry just below a position, ``0-0`` if it is no longer there."""
        if position >= head.next:
            return head.last_id
        found = self._entry_at(stream, region, position - 1, position)
        return found[1] if found is not None else "0-0"

    def id_at(self, stream: str, region: str, head: Head) -> str | None:
        """ID of the first entry there is."""
        if self.by_id:
            return head.first_id
        found = self._entry_at(stream, region, head.first, head.next)
        return found[1] if found is not None else None

    def _entry_at(self, stream: str, region: str, low: int, high: int) -> tuple[int, str] | None:
        """Position and ID of the first live entry in ``[low, high)``."""
        if low < 0 or low >= high:
            return None
        # The server answers with whole stretches of blocks; a narrow range keeps them short.
        reach = min(low + 64, high)
        export = parse_export(
            self._client.command(
                *("AB.EXPORT", stream_key(stream), region, low, reach, "MAXBYTES", 1),
                repeatable=True,
            )
        )
        if len(export):
            return int(export.positions[0]), f"{export.ms[0]}-{export.seq[0]}"
        return self._entry_at(stream, region, reach, high) if reach < high else None

    def _counted(self, stream: str, head: Head, entry_id: str) -> Cursor:
        """Without positions: count what follows, so that limits and losses are exact."""
        count, at = 0, entry_id
        while True:
            page = self._client.command(
                *("XRANGE", stream_key(stream), at, head.last_id, "COUNT", PAGE), repeatable=True
            )
            count += len(page)
            if len(page) < PAGE:
                return Cursor(BY_ID, head.next - count, previous_id(entry_id))
            at = next_id(page[-1][0].decode())

    def advance(
        self, stream: str, region: str, head: Head, begin: Cursor, end: Cursor, count: int
    ) -> Cursor:
        """The cursor `count` entries further than `begin`, but not beyond `end`."""
        if not self.by_id:
            position = min(begin.position + count, end.position)
            if position == end.position:
                return end
            last_id = self.id_below(stream, region, head, position)
            return Cursor(end.incarnation, position, last_id if last_id != "0-0" else begin.last_id)
        left, at = count, begin.last_id
        while left:
            page = self._client.command(
                *("XRANGE", stream_key(stream), f"({at}", end.last_id, "COUNT", min(left, PAGE)),
                repeatable=True,
            )
            if not page:
                return end
            at = page[-1][0].decode()
            left -= len(page)
        return Cursor(BY_ID, begin.position + count, at) if at != end.last_id else end

    # ------------------------------------------------------------------------------------- places

    def place(
        self, heads: Heads, offsets: str | None, timestamp: int | None, default: str
    ) -> Vector:
        """The vector that ``startingOffsets`` or ``endingOffsets`` describes.

        An ID or a time stands for the place in front of the first entry that has it or a greater
        one. Raises `OptionError`.
        """
        wanted: Any = default if offsets is None else offsets
        if timestamp is not None:
            wanted = str(timestamp)
        elif wanted.lstrip().startswith("{"):
            try:
                wanted = json.loads(wanted)
            except ValueError as error:
                raise OptionError(f"offsets are no JSON: {error}") from None
            if "v" in wanted and "s" in wanted:
                return Vector.parse(wanted)
        elif wanted not in ("earliest", "latest") and not wanted.startswith("group:"):
            raise OptionError(
                f"offsets are earliest, latest, group:<name> or a JSON object, not {wanted!r}"
            )
        cursors: dict[str, dict[str, Cursor]] = {}
        for stream, regions in heads.items():
            spec = wanted.get(stream, default) if isinstance(wanted, Mapping) else wanted
            cursors[stream] = {
                region: self._place(
                    stream,
                    region,
                    head,
                    spec.get(region, default) if isinstance(spec, Mapping) else spec,
                )
                for region, head in regions.items()
            }
        return Vector(cursors)

    def _place(self, stream: str, region: str, head: Head, wanted: object) -> Cursor:
        if wanted == "earliest":
            return head.begin
        if wanted == "latest":
            return head.end
        text = str(wanted)
        if text.startswith("group:"):
            return self.locate(stream, region, head, next_id(self._group_id(stream, text[6:])))
        ms, seq = parse_id(text)
        return self.locate(stream, region, head, f"{ms}-{seq}")

    def _group_id(self, stream: str, group: str) -> str:
        rows = self._client.command("XINFO", "GROUPS", stream_key(stream), repeatable=True)
        for row in rows:
            facts = dict(zip(row[::2], row[1::2], strict=True))
            if facts[b"name"] == group.encode():
                last: str = facts[b"last-delivered-id"].decode()
                return last
        raise OptionError(f"stream {stream} has no consumer group {group!r} to start from")

    def commit(self, group: str, end: Vector) -> None:
        """Set a consumer group of each stream to where the query stands, for lag tools."""
        for stream, regions in end.cursors.items():
            if not regions:
                continue
            last_id = min((each.last_id for each in regions.values()), key=parse_id)
            read = sum(
                each.position - (0 if each.by_id else each.incarnation) for each in regions.values()
            )
            created, _ = self._client.pipeline(
                [
                    ("XGROUP", "CREATE", stream_key(stream), group, last_id, "ENTRIESREAD", read),
                    ("XGROUP", "SETID", stream_key(stream), group, last_id, "ENTRIESREAD", read),
                ],
                repeatable=True,
            )
            text = str(created)
            gone = "requires the key to exist" in text
            if isinstance(created, Exception) and "BUSYGROUP" not in text and not gone:
                raise self._client.refusal(created)


def head_of(reply: list[Any]) -> Head:
    """The head in a reply of XINFO STREAM."""
    facts: dict[bytes, Any] = dict(zip(reply[::2], reply[1::2], strict=True))
    added = facts.get(b"entries-added", facts[b"length"])
    first = facts[b"first-entry"]
    return Head(
        BY_ID,
        added - facts[b"length"],
        added,
        facts[b"last-generated-id"].decode(),
        first_id=None if first is None else first[0].decode(),
    )


def stream_key(stream: str) -> bytes:
    """The key of a stream whose name came from the server, or from an option."""
    return stream.encode("utf-8", "surrogateescape")


# ------------------------------------------------------------------------------------------ losses


def losses(start: Vector, heads: Heads, survey: Survey) -> list[str]:
    """What is gone that `start` had not read, one sentence each; empty if nothing is."""
    found = []
    for stream, regions in start.cursors.items():
        if stream not in heads:
            if any(survey.selects(stream, region) for region in regions):
                found.append(f"stream {stream} is gone")
            continue
        for region, cursor in regions.items():
            if not survey.selects(stream, region):
                continue
            place = f"stream {stream}" + (f", region {region}" if region else "")
            head = heads[stream].get(region)
            if head is None:
                found.append(f"{place}: its log is gone")
            else:
                lost = _lost(cursor, head)
                if lost is not None:
                    found.append(f"{place}: {_told(lost, cursor, head, stream, region, survey)}")
    return found


def _told(
    lost: str | int, cursor: Cursor, head: Head, stream: str, region: str, survey: Survey
) -> str:
    if isinstance(lost, str):
        return lost
    kept = survey.id_at(stream, region, head)
    entries = "1 entry" if lost == 1 else f"{lost} entries"
    was = "was trimmed before it was" if lost == 1 else "were trimmed before they were"
    return (
        f"{entries} after {cursor.last_id} (positions {cursor.position}"
        f"\N{EN DASH}{cursor.position + lost - 1}) {was} read; "
        + (f"first kept is {kept}" if kept is not None else "none is kept")
    )


def _lost(cursor: Cursor, head: Head) -> str | int | None:
    """What happened, or how many entries are lost, or None."""
    if cursor.incarnation != head.incarnation:
        return "it was deleted and made again; what the old one had left is lost"
    if head.end.behind(cursor):
        return (
            f"it ends at {head.last_id}, before {cursor.last_id} which was read already: it was "
            "made again, or the server lost its newest entries"
        )
    if cursor.by_id:
        missing = head.first - cursor.position
        unread = parse_id(cursor.last_id) < parse_id(head.last_id)
        # Deletions count like trimming here, so the next possible entry must be gone as well.
        following = parse_id(next_id(cursor.last_id))
        gone = head.first_id is None or parse_id(head.first_id) > following
        return missing if missing > 0 and unread and gone else None
    return head.trimmed - cursor.position if head.trimmed > cursor.position else None
