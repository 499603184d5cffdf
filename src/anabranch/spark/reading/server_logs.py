"""Queries a server about streams: their names, the ends of their logs, and trimmed entries.

An Anabranch server reports the bounds of all logs in one reply (AB.OFFSETS) and finds
entries by position. Any other server is asked for each stream (XINFO STREAM), has the single region
``""`` and is read by ID.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from anabranch.pattern import compile_glob
from anabranch.spark.connection.client import (
    ServerClient,
    Word,
    facts_of,
    now_ms,
    shown,
    stream_key,
)
from anabranch.spark.connection.region_names import RegionNames, is_over, rows_of
from anabranch.spark.decoding.exports import PADDING, parse_export
from anabranch.spark.decoding.pages import FIRST_PAGE, next_page
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.offsets import (
    BY_ID,
    LogBounds,
    LogCursor,
    Logs,
    Range,
    Vector,
    next_id,
    parse_id,
    previous_id,
)
from anabranch.spark.runtime.logs import audible

_log = logging.getLogger(__name__)
_TRIES: Final = 10
_BEHIND_ALL: Final = LogCursor(0, (1 << 63) - 1)
_PLACES_MAX: Final = 8  # in each range, where the sizes of entries are measured
_MEASURED_MAX: Final = 1_000  # places in all ranges
_MEASURED_BYTES: Final = 1 << 20
_ENTRIES_OF_PLACE: Final = 8
_RELAYED_MS: Final = 3_000  # three heartbeats: how much older a row may be that another region sent


class ServerLogs:
    """Queries the streams of one read over one connection."""

    def __init__(
        self, options: ReadOptions, client: ServerClient, *, by_id: bool | None = None
    ) -> None:
        """`by_id`: read by ID even if the server has positions, or by what the server can."""
        self._options = options
        self._client = client
        self.by_id = not client.has_bulk if by_id is None else by_id
        if not self.by_id and not client.has_bulk:
            raise OptionError(
                f"these offsets count positions, which the server at {client.address} does not "
                "have: they belong to an Anabranch server; start with a new checkpoint"
            )
        self._names = RegionNames(client)
        self.present: set[str] = set()
        """Regions of the streams at the last look, selected or not."""
        self._found: list[str] = []
        self._found_at: float | None = None
        self._finds_all = False  # the server has all keys, not only those of some slots
        self._total = 0
        self._left_out: set[str] = set()  # keys that were logged

    def require_positions(self) -> None:
        """Raise `OptionError` for a read with ``changes`` by ID: only positions show a deletion."""
        if self.by_id:
            raise OptionError(
                f"changes=true needs an Anabranch server: the one at {self._client.address} has no "
                "positions, by which deletions are found"
            )

    # ------------------------------------------------------------------------------------ streams

    def streams(self) -> list[str]:
        """The keys to read; for a pattern the existing ones, looked up from time to time."""
        if self._options.pattern is None:
            return list(self._options.assign or self._options.subscribe)
        now = time.monotonic()
        interval = self._options.discovery_interval_ms / 1000
        if self._found_at is None or now - self._found_at >= interval:
            self._found, self._found_at = self._scan(self._options.pattern), now
        return self._found

    def _scan(self, pattern: str) -> list[str]:
        if not self._finds_all and self._client.is_of_cluster:
            raise OptionError(
                f"the server at {self._client.address} is a node of a Redis Cluster and knows its "
                f"own keys only: streams like {pattern!r} on other nodes would be missed. Name the "
                "streams (option subscribe), or copy them to a server that has them all"
            )
        self._finds_all = True
        return sorted(self._client.streams(pattern))

    def _told_apart(self, streams: list[str]) -> list[str]:
        """Those that the column ``stream`` can tell apart; others that a pattern finds are logged.

        Raises `OptionError` if such a key is named.
        """
        odd = [each for each in streams if shown(stream_key(each)) != each]
        if odd and self._options.pattern is None:
            raise OptionError(
                f"the key {shown(stream_key(odd[0]))} is not UTF-8, and column stream is text: "
                "rename the key"
            )
        for each in odd:
            if each not in self._left_out:
                self._left_out.add(each)
                audible()
                _log.warning(
                    "the key %s matches the pattern and is not read: it is not UTF-8, and column "
                    "stream is text",
                    shown(stream_key(each)),
                )
        return [each for each in streams if each not in odd] if odd else streams

    def subscribes(self, stream: str) -> bool:
        """Whether the options name a stream, existing or not."""
        if self._options.pattern is None:
            return stream in (self._options.assign or self._options.subscribe)
        # SCAN finds the empty key by this pattern, and by no other.
        if self._options.pattern == "*":
            return True
        return compile_glob(stream_key(self._options.pattern))(stream_key(stream))

    def selects(self, stream: str, region: str) -> bool:
        """Whether the options include a region of a stream, by its number or its name."""
        given = (self._options.assign or {}).get(stream) or self._options.regions
        return given is None or any(self._names.covers(each, region) for each in given)

    def is_over(self, region: str) -> bool:
        """Whether a region adds nothing more to its log; see `region_names.is_over`."""
        return is_over(self._client, region, self.present)

    def check_regions(self) -> None:
        """Raise `OptionError` if the options name a missing region; to be called after `logs`."""
        self._names.check(self._given_regions(), self.present)

    def _given_regions(self) -> list[str]:
        """Those that the options name."""
        assigned = (self._options.assign or {}).values()
        return [*(self._options.regions or ()), *chain.from_iterable(assigned)]

    # -------------------------------------------------------------------------------------- logs

    def logs(self, wait_ms: int = 0, known: Vector | None = None) -> Logs:
        """The logs of all existing streams, of one moment if the server has positions.

        `wait_ms`: wait so long for changes since the last call, or since `known`. Those of an
        Anabranch server contain the newest entry below `known`, and where the logs of streams ended
        that `known` has and that were deleted.
        """
        streams = self._told_apart(self.streams())
        if known is not None and not self.by_id:
            # A pattern does not find what was deleted.
            streams += [each for each in known.cursors if self.subscribes(each)]
            streams = list(dict.fromkeys(streams))
        if not streams:
            time.sleep(wait_ms / 1000)
            return {}
        if self.by_id:
            if wait_ms and known is not None:
                self._await_entries(streams, known, wait_ms)
            return self._bounds_by_id(streams)
        waiting = ("BLOCK", wait_ms, "AFTER", self._total) if wait_ms else ()
        # The newest entry below the cursor shows whether the server was set back.
        places = None if known is None else [known.cursors.get(each, {}) for each in streams]
        several = self._client.logs(streams, places, waiting=waiting, wait_ms=wait_ms)
        found = {
            stream: some for stream, some in zip(streams, several, strict=True) if some is not None
        }
        self._total = sum(log.next for some in found.values() for log in some.values())
        if known is None:
            found = {
                stream: some
                for stream, some in found.items()
                if not any(log.is_former for log in some.values())
            }
        self.present = set().union(*found.values())
        return {
            stream: {region: log for region, log in some.items() if self.selects(stream, region)}
            for stream, some in found.items()
        }

    def _await_entries(self, streams: list[str], known: Vector, wait_ms: int) -> None:
        cursors = [known.get(stream, "") or LogCursor(BY_ID, 0) for stream in streams]
        ids = [each.last_id for each in cursors]
        words: list[bytes | str | int] = [*map(stream_key, streams), *ids]
        self._client.command(
            *("XREAD", "COUNT", 1, "BLOCK", wait_ms, "STREAMS"),
            *words,
            repeatable=True,
            wait_ms=wait_ms,
        )

    def _bounds_by_id(self, streams: list[str]) -> dict[str, dict[str, LogBounds]]:
        replies = self._client.ask([("XINFO", "STREAM", stream_key(each)) for each in streams])
        self.present = {""}
        return {
            stream: {"": bounds_of(reply)} if self.selects(stream, "") else {}
            for stream, reply in zip(streams, replies, strict=True)
            if reply is not None
        }

    # ----------------------------------------------------------------------------- IDs, positions

    def locate(self, stream: str, region: str, log: LogBounds, entry_id: str) -> LogCursor:
        """The cursor in front of the first entry with this ID or a greater one."""
        if self.by_id:
            return self._counted(stream, log, entry_id)
        low, high = log.first, log.next
        while low < high:
            middle = (low + high) // 2
            stop, entry = self._first_from(stream, region, middle)
            if entry is None or parse_id(entry) >= parse_id(entry_id):
                high = middle
            else:
                low = min(stop, high)
        before = log.last_id if low >= log.next else self._reach(stream, region, low).before_id
        return LogCursor(log.incarnation, low, before)

    def first_id(self, stream: str, region: str, log: LogBounds) -> str | None:
        """ID of the first existing entry."""
        return log.first_id if self.by_id else self._first_from(stream, region, log.first)[1]

    def live_below(self, stream: str, region: str, position: int) -> tuple[int, str]:
        """How many live entries are below a position, and the ID of the newest of them."""
        found = self._reach(stream, region, position)
        return found.live - found.left, found.before_id

    def has_entry(self, stream: str, entry_id: str) -> bool:
        """Whether the entry with this ID is live."""
        words = ("XRANGE", stream_key(stream), entry_id, entry_id)
        return bool(self._client.command(*words, repeatable=True))

    def _first_from(self, stream: str, region: str, position: int) -> tuple[int, str | None]:
        """The position behind the first existing entry from a position on, and its ID."""
        found = self._reach(stream, region, position)
        stop = found.until.position
        # The ID of the end itself may be that of an entry which was deleted.
        return stop, self._reach(stream, region, stop).before_id if found.left else None

    def _reach(self, stream: str, region: str, position: int) -> LogBounds:
        """How far a reader at a position may read with one entry."""
        cursor = LogCursor(0, position)
        found = self.reaches({stream: {region: cursor}}, 1)
        nothing = LogBounds(0, position, position, "0-0", until=cursor)
        return found.get(stream, {}).get(region, nothing)

    def _counted(self, stream: str, log: LogBounds, entry_id: str) -> LogCursor:
        """Without positions: count what follows, so that limits and losses are exact."""
        before = previous_id(entry_id)
        count = sum(map(len, self._ids(stream, before, log.last_id, log.next)))
        return LogCursor(BY_ID, log.next - count, before)

    def advance(self, stream: str, begin: LogCursor, end: LogCursor, count: int) -> LogCursor:
        """By ID: the cursor `count` entries further than `begin`, but not beyond `end`."""
        left, at = count, begin.last_id
        for ids in self._ids(stream, at, end.last_id, count):
            left -= len(ids)
            at = ids[-1].decode()
        return end if left or at == end.last_id else LogCursor(BY_ID, begin.position + count, at)

    def _ids(self, stream: str, after: str, upto: str, most: int) -> Iterator[list[bytes]]:
        """The IDs of at most so many entries behind an ID, page by page."""
        size, at = FIRST_PAGE, after
        while most > 0:
            page = self._client.command(
                *("XRANGE", stream_key(stream), f"({at}", upto, "COUNT", min(size, most)),
                repeatable=True,
            )
            if not page:
                return
            ids = [entry_id for entry_id, _ in page]
            yield ids
            most -= len(ids)
            at = ids[-1].decode()
            nbytes = sum(sum(map(len, fields)) for _, fields in page)
            size = next_page(len(ids), nbytes, self._options.max_batch_bytes)

    def reaches(
        self, cursors: Mapping[str, Mapping[str, LogCursor]], limit: int
    ) -> dict[str, dict[str, LogBounds]]:
        """How far a reader may read from these cursors with so many live entries; by position.

        The entries are shared among the logs in `cursors` only.
        """
        names = [each for each in cursors if cursors[each]]
        others = dict.fromkeys(self.present, _BEHIND_ALL)
        found = self._client.logs(
            names, [{**others, **cursors[name]} for name in names], limit=limit
        )
        return {
            name: {region: log for region, log in some.items() if region in cursors[name]}
            for name, some in zip(names, found, strict=True)
            if some is not None
        }

    def nbytes(self, ranges: Sequence[Range]) -> int:
        """About how many bytes the entries of these ranges have, by some entries in each."""
        places = max(min(_PLACES_MAX, _MEASURED_MAX // len(ranges)), 1)
        if self.by_id:
            asked = [words for each in ranges for words in _pages_of(each, places)]
            counted = [_size_of_page(page) for page in self._client.ask(asked)]
        else:
            size = max(_MEASURED_BYTES // (len(ranges) * places), 1)
            asked = [words for each in ranges for words in _exports_of(each, places, size)]
            counted = [_size_of_export(reply) for reply in self._client.ask(asked)]
        total = 0.0
        for number, each in enumerate(ranges):
            some = [size for size in counted[number * places : (number + 1) * places] if size]
            total += (len(each) or 1) * sum(some) / max(len(some), 1)
        return round(total)

    def frontier_ms(self) -> int | None:
        """This server has all entries of the regions that are read with IDs below this time.

        None while one of the regions is not connected, or has entries that are under way. It is
        the time of the clock of each region, of which the smallest counts. The next entry of a
        region has a greater ID, unless a client chooses the ID.
        """
        now = now_ms(self._client)
        given = self._given_regions()
        peers = [row for row in rows_of(self._client, "AB.PEERS") if row["state"] != b"removed"]
        chosen = [
            row
            for row in peers
            if not given or any(self._names.is_of(each, str(row["region"])) for each in given)
        ]
        known = [_known_until(row, now) for row in chosen]
        if not given or any(
            not any(self._names.is_of(each, str(row["region"])) for row in peers) for each in given
        ):
            known.append(now)  # of this region itself
        return None if None in known else min(filter(None, known), default=now)

    # ------------------------------------------------------------------------------------- places

    def place(self, logs: Logs, offsets: str | None, timestamp: int | None, default: str) -> Vector:
        """The vector that ``startingOffsets`` or ``endingOffsets`` describes.

        An ID or a time means the position of the first entry with it or a greater one. Raises
        `OptionError`.
        """
        wanted: Any = default if offsets is None else offsets
        if timestamp is not None:
            wanted = str(timestamp)
        elif wanted.lstrip().startswith("{"):
            try:
                wanted = json.loads(wanted)
            except ValueError as error:
                raise OptionError(f"offsets are no JSON: {error}") from None
            if {"k", "s", "v"}.issubset(wanted):
                # The query may have read more than is read now.
                return Vector.parse(wanted).only(
                    lambda *log: self.subscribes(log[0]) and self.selects(*log)
                )
        elif wanted not in ("earliest", "latest") and not wanted.startswith("group:"):
            raise OptionError(
                "offsets are earliest, latest, group:<name> or a JSON object such as "
                f'{{"orders": "1718000000000-0"}}, not {wanted!r}'
            )
        if isinstance(wanted, Mapping):
            for stream in wanted:
                if not self.subscribes(stream):
                    raise OptionError(
                        f"the offsets name {stream!r}, which is none of the streams that are read"
                    )
        cursors: dict[str, dict[str, LogCursor]] = {}
        for stream, regions in logs.items():
            spec = wanted.get(stream, default) if isinstance(wanted, Mapping) else wanted
            if isinstance(spec, Mapping):
                self._names.check(spec, self.present)
            cursors[stream] = {
                region: self._place(stream, region, log, self._of_region(spec, region, default))
                for region, log in regions.items()
            }
        return Vector(cursors)

    def _of_region(self, spec: object, region: str, default: str) -> object:
        if not isinstance(spec, Mapping):
            return spec
        if region in spec:
            return spec[region]
        named = (value for name, value in spec.items() if self._names.covers(name, region))
        return next(named, default)

    def _place(self, stream: str, region: str, log: LogBounds, wanted: object) -> LogCursor:
        if wanted == "earliest":
            return log.begin
        if wanted == "latest":
            return log.end
        text = str(wanted)
        if text.startswith("group:"):
            group = text.removeprefix("group:")
            rows = self._client.command("XINFO", "GROUPS", stream_key(stream), repeatable=True)
            last_id = _last_delivered(rows, stream, group)
            if region:
                last_id = self._proved(stream, group, last_id)
            return self.locate(stream, region, log, next_id(last_id))
        ms, seq = parse_id(text)
        return self.locate(stream, region, log, f"{ms}-{seq}")

    def _proved(self, stream: str, group: str, last_id: str) -> str:
        """The progress of a group in every region; `OptionError` if one ID does not describe it.

        Late entries of another region are below the last-delivered-id of the group. There are none
        if all undelivered entries are above it.
        """
        key = stream_key(stream)
        for _ in range(_TRIES):
            *begun, done = self._client.pipeline(
                [
                    ("MULTI",),
                    ("XINFO", "GROUPS", key),
                    ("AB.LAG", key, group),
                    ("AB.COUNT", key, f"({last_id}", "+"),
                    ("EXEC",),
                ],
                repeatable=True,
            )
            for reply in (*begun, done, *(done if isinstance(done, list) else ())):
                if isinstance(reply, Exception):
                    raise self._client.refusal(reply)
            groups, (facts,), above = done
            now = _last_delivered(groups, stream, group)
            if now == last_id:
                below = facts_of(facts)["lag"] - above
                if not below:
                    return last_id
                entries = "1 entry" if below == 1 else f"{below} entries"
                raise OptionError(
                    f"stream {stream}: the group {group!r} was not yet given {entries} below its "
                    f"last-delivered-id {last_id}, which came late from another region: no ID says "
                    "where it stands. Let it read until AB.LAG shows 0 and start again, or give "
                    f'each region its place: {{"{stream}": {{"<region>": "<ID>", ...}}}}'
                )
            last_id = now
        raise OptionError(
            f"stream {stream}: consumers of group {group!r} read on while its progress is looked "
            "up: stop them, and start again"
        )

    def commit(self, group: str, end: Vector) -> None:
        """Set a consumer group of each stream to the progress of the query, for lag tools."""
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


def _exports_of(part: Range, places: int, size: int) -> Iterator[tuple[Word, ...]]:
    """The commands for some entries at places all over a range."""
    for number in range(places):
        first = part.first + len(part) * number // places
        stop = min(first + _ENTRIES_OF_PLACE, part.stop)
        place = (stream_key(part.stream), part.region, first, stop)
        yield ("AB.EXPORT", *place, "MAXBYTES", size, "CODEC", "none")


def _size_of_export(reply: bytes | None) -> float:
    """The mean size of the entries; 0 without any."""
    export = None if reply is None else parse_export(reply)
    return (len(export.data) - len(PADDING)) / len(export) if export and len(export) else 0.0


def _pages_of(part: Range, places: int) -> Iterator[tuple[Word, ...]]:
    """The same by ID: the places are times."""
    first, last = parse_id(part.after)[0], parse_id(part.upto)[0]
    for number in range(places):
        ms = first + (last - first) * number // places
        begin = f"{ms}-0" if ms > first else f"({part.after}"
        yield "XRANGE", stream_key(part.stream), begin, part.upto, "COUNT", _ENTRIES_OF_PLACE


def _size_of_page(page: list[Any] | None) -> float:
    return sum(sum(map(len, fields)) for _, fields in page) / len(page) if page else 0.0


def _known_until(row: Mapping[str, Any], now: int) -> int | None:
    """By the clock of another region, the time before which all of its entries are here.

    Its newest status row says how many effects it had when it sent the row. The row may have come
    by way of another region, and be older than it is known here.
    """
    is_up = row["state"] in (b"in_sync", b"catching_up")
    facts = [row[name] for name in ("last-row-ms", "skew-us", "round-trip-us")]
    if not is_up or row["receive-lag-effects"] != 0 or None in facts:
        return None
    age_ms, skew_us, round_trip_us = facts
    return int(now - age_ms - _RELAYED_MS + (skew_us - round_trip_us) // 1000)


def _last_delivered(rows: list[list[Any]], stream: str, group: str) -> str:
    """A group in a reply of XINFO GROUPS; raises `OptionError` if it is missing."""
    for facts in map(facts_of, rows):
        if facts["name"] == group.encode():
            last: str = facts["last-delivered-id"].decode()
            return last
    raise OptionError(f"stream {stream} has no consumer group {group!r} to start from")


def bounds_of(reply: list[Any]) -> LogBounds:
    """The bounds of the one log in a reply of XINFO STREAM."""
    facts = facts_of(reply)
    added = facts.get("entries-added", facts["length"])
    first = facts["first-entry"]
    return LogBounds(
        BY_ID,
        added - facts["length"],
        added,
        facts["last-generated-id"].decode(),
        first_id=None if first is None else first[0].decode(),
    )
