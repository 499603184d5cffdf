"""AB.SCHEDULE: entries that are added later, once or again and again (docs/policies.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.config.policies import duration_ms
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import integer_or_none, listed_count
from anabranch.engine.scheduled import put_in
from anabranch.errors import CommandError
from anabranch.keyspace.timetables import GONE_MS, MISSED, Recurrence
from anabranch.resp.encode import array_of, bulk
from anabranch.resp.encode import integer as integer_reply
from anabranch.resp.values import read_value
from anabranch.stream.entry_id import text

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.keyspace.timetables import ScheduledEntry

_LEVEL: Final = 3
"""The feature level from which a region knows scheduled entries."""

_END_MS: Final = 253_402_300_800_000
"""The end of the year 9999."""

_ZONES: Final = frozenset(
    b"""
    CET CST6CDT Cuba EET EST EST5EDT Egypt Eire GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST
    Hongkong Iceland Iran Israel Jamaica Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo
    PRC PST8PDT Poland Portugal ROC ROK Singapore Turkey UCT UTC Universal W-SU WET Zulu
    Africa/ America/ Antarctica/ Arctic/ Asia/ Atlantic/ Australia/ Brazil/ Canada/ Chile/ Etc/
    Europe/ Indian/ Mexico/ Pacific/ US/
    """.split()
)
"""The names of zones in the tz database: those without an area, and the areas of all others.

What else the system has (``localtime``, ``posixrules``, ``right/UTC``) may mean something else in
another region.
"""

_HANDLE_BYTES_MAX: Final = 256
_OPTIONS: Final = {b"TZ": 1, b"MISSED": 1, b"IDMP": 2, b"ID": 1}
"""How many values each of them has."""


class _ScheduleOptions:
    """What a request asks for. Options are written in capitals, so that ``id`` can be a field."""

    def __init__(self, ctx: Context, args: list[bytes]) -> None:
        self._given: dict[bytes, list[bytes]] = {}
        self.fields_at = 4
        while self.fields_at < len(args) and (count := _OPTIONS.get(args[self.fields_at], 0)):
            self.fields_at = self._read(args, self.fields_at, count)
        self.handle = self._given[b"ID"][0] if b"ID" in self._given else None
        tag = self._given.get(b"IDMP")
        self.tag = None if tag is None else (tag[0], tag[1])
        how, what = args[2].upper(), args[3]
        self.recurrence: Recurrence | None = None
        if how == b"CRON":
            self.at_ms = self._next_by_cron(ctx, what)
        elif how not in (b"AT", b"IN"):
            raise CommandError(
                "ERR syntax error, after the key AT ms, IN ms or CRON 'line' says when"
            )
        elif b"TZ" in self._given or b"MISSED" in self._given:
            raise CommandError("ERR TZ and MISSED are for CRON: AT and IN name one moment")
        else:
            self.at_ms = _moment(ctx, what) if how == b"AT" else ctx.now_ms + _delay(what)
        if self.at_ms >= _END_MS:
            raise CommandError("ERR the time is after the year 9999")

    def _read(self, args: list[bytes], at: int, count: int) -> int:
        """Read the option at an index, which has so many values; the index behind it."""
        word, values = args[at], args[at + 1 : at + 1 + count]
        if len(values) < count or not all(values):
            raise CommandError(f"ERR syntax error, {word.decode()} needs a value that is not empty")
        self._given[word] = values
        return at + 1 + count

    def _next_by_cron(self, ctx: Context, line: bytes) -> int:
        """The first time of a cron line."""
        if self.tag is not None:
            raise CommandError(
                "ERR IDMP is for AT and IN: a cron line adds many entries. Use ID, so that a retry "
                "finds the handle taken"
            )
        missed = self._given.get(b"MISSED", MISSED)[0].lower()
        if missed not in MISSED:
            raise CommandError("ERR MISSED is once, skip or all")
        zone = self._given.get(b"TZ", [b"UTC"])[0]
        if b"".join(zone.partition(b"/")[:2]) not in _ZONES:
            raise CommandError(texts.unknown_zone(zone))
        again = self.recurrence = Recurrence(b" ".join(line.split()), zone, MISSED.index(missed))
        first_ms = ctx.server.host.next_by_cron(again.cron, zone, ctx.now_ms)
        if first_ms is None:
            raise CommandError("ERR invalid cron line: there is no such day")
        return first_ms


def _moment(ctx: Context, raw: bytes) -> int:
    """The time of AT."""
    at_ms = integer_or_none(raw)
    if at_ms is None or at_ms < 0:
        raise CommandError("ERR AT must be a time in milliseconds since 1970, a whole number")
    if at_ms <= ctx.now_ms:
        raise CommandError(
            f"ERR AT {at_ms} is not in the future: the clock of this server says {ctx.now_ms}. Use "
            "XADD, or IN ms"
        )
    return at_ms


def _delay(raw: bytes) -> int:
    """The duration of IN."""
    try:
        return duration_ms(raw.decode("latin-1"))
    except ValueError as objection:
        raise CommandError(f"ERR invalid IN: {objection}") from None


# -- AB.SCHEDULE ------------------------------------------------------------------------------


def schedule(ctx: Context, args: list[bytes]) -> bytes:
    """AB.SCHEDULE key AT ms|IN ms|CRON line [options] field value ...: the handle."""
    key = args[1]
    options = _ScheduleOptions(ctx, args)
    words = args[options.fields_at :]
    if not words or len(words) % 2:
        raise CommandError("ERR syntax error, each field of the entry needs a name and a value")
    fields = array_of(words)
    if len(fields) > ctx.effects.added_bytes_max:
        raise CommandError("ERR Elements are too large to be stored")
    stream = ctx.stream(key)  # a key of another type is refused now
    if stream is not None and stream.is_sealed:
        raise CommandError(texts.SEALED)
    timetables = ctx.db.timetables
    handle = options.handle
    if options.tag is not None and handle is None:
        handle = b":".join(options.tag)
    if handle is not None and len(handle) > _HANDLE_BYTES_MAX:
        raise CommandError(f"ERR a handle has at most {_HANDLE_BYTES_MAX} bytes: give one by ID")
    if options.tag is not None and handle is not None:
        planned = timetables.find(key, handle)
        if planned is not None and planned.tag == options.tag:
            return bulk(handle)  # a retry
        if stream is not None and stream.producers.find(*options.tag, ctx.now_ms) is not None:
            return bulk(handle)  # a retry that comes after the entry was added
    if handle is None:
        handle = timetables.new_handle(key, ctx.now_ms, ctx.replica.region)
    elif timetables.find(key, handle) is not None:
        raise CommandError(
            b"ERR an entry is scheduled under the handle '%b': cancel it first (AB.SCHEDULE "
            b"CANCEL), or leave out ID" % texts.shown(handle)
        )
    most = ctx.settings.schedule_max_entries
    if sum([each.timetables.live for each in ctx.keyspace.databases]) >= most:
        raise CommandError(
            f"ERR {most} entries are scheduled, as many as schedule-max-entries allows: cancel "
            "some, or raise it by CONFIG SET"
        )
    ctx.replica.require_level(_LEVEL, "scheduled entries")
    known = timetables.entries.get((key, handle))
    stamp_ms = ctx.now_ms if known is None else max(ctx.now_ms, known.stamp_ms + 1)
    ctx.emit(
        kinds.ScheduleEntry(
            ctx.db.index,
            key,
            handle,
            stamp_ms,
            options.at_ms,
            fields,
            options.recurrence,
            options.tag,
        ),
        1,
    )
    return bulk(handle)


# -- AB.SCHEDULE LIST, CANCEL, RUN ------------------------------------------------------------


def schedule_list(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.SCHEDULE LIST key [COUNT n]: the entries of a key that are due first."""
    count = listed_count(args[3:])
    timetables = ctx.db.timetables
    rows = [
        _row(handle, timetables.entries[args[2], handle])
        for _, handle in timetables.earliest(args[2], count)
    ]
    return ctx.long_reply(args, rows)


def _row(handle: bytes, entry: ScheduledEntry) -> dict[str, object]:
    again = entry.recurrence
    return {
        "handle": handle,
        "at": entry.at_ms,
        "cron": None if again is None else again.cron,
        "tz": None if again is None else again.zone,
        "missed": None if again is None else MISSED[again.missed],
        "region": entry.owner,
        "fields": read_value(entry.fields),
    }


def schedule_cancel(ctx: Context, args: list[bytes]) -> bytes:
    """AB.SCHEDULE CANCEL key handle [handle ...]; replies how many there were."""
    timetables = ctx.db.timetables
    rows = []
    for handle in dict.fromkeys(args[3:]):
        entry = timetables.find(args[2], handle)
        if entry is not None:
            rows.append((handle, *entry.identity, entry.at_ms, GONE_MS, 0))
    if rows:
        ctx.emit(kinds.AdvanceScheduled(ctx.db.index, args[2], rows), len(rows))
    return integer_reply(len(rows))


def schedule_run(ctx: Context, args: list[bytes]) -> bytes:
    """AB.SCHEDULE RUN key handle: add an entry now; its ID. A cron line goes on as before."""
    key, handle = args[2], args[3]
    entry = ctx.db.timetables.find(key, handle)
    if entry is None:
        raise CommandError(
            b"ERR no entry is scheduled under the handle '%b': AB.SCHEDULE LIST shows what is"
            % texts.shown(handle)
        )
    stream = ctx.stream(key)
    if stream is not None and stream.is_sealed:
        raise CommandError(texts.SEALED)
    added = put_in(ctx, ctx.db, key, entry)
    if added is None:
        ctx.ids.following(0 if stream is None else stream.last_id)  # raises why
        raise CommandError("ERR the entry cannot be added to the stream at present")
    entry_id, number = added
    if entry.recurrence is None:
        row = (handle, *entry.identity, entry.at_ms, GONE_MS, number)
        ctx.emit(kinds.AdvanceScheduled(ctx.db.index, key, [row]))
    return bulk(text(entry_id))
