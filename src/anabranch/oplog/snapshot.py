"""The whole keyspace as a file, taken at one position of the log while clients are served.

::

    header, see anabranch.oplog.file_kind
    then records: flags (1) | body bytes (4) | XXH3-64 of the body (8) | body

A body is a msgpack array that begins with a record type, see below; with flag 1 it is a zstd frame
of that. The last record contains the count of the others, so a missing end is noticed.

A snapshot first copies the dictionaries of keys, but no values. If a value that is not written yet
is about to change, it is frozen first (:meth:`Snapshot.before`, called with every effect). So the
file shows one moment although writing it takes long. There is no second process and no second copy
of the data.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from anabranch import zstd
from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.effects.streams import bind_small, note_hidden
from anabranch.effects.write_set import places_of
from anabranch.errors import UNREADABLE
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.last_positions import rows_in
from anabranch.keyspace.libraries import Library
from anabranch.keyspace.packed_table import map_of
from anabranch.keyspace.places import Places
from anabranch.keyspace.policies import PolicyFields
from anabranch.keyspace.timetables import Addition, Occurrence, ScheduleFields
from anabranch.keyspace.timetables import written as schedule_rows
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.oplog import file_kind
from anabranch.oplog.batch import Compressor
from anabranch.oplog.errors import CorruptLogError, check_mode, too_few_databases
from anabranch.oplog.storage import ReadFile
from anabranch.stream.elements import PLACES_A_STEP
from anabranch.stream.frozen import KEPT, FrozenStream, StreamBuilder, further_elements, head_of
from anabranch.stream.stream import Stream

FORMAT_VERSION: Final = 1
_KIND: Final = file_kind.FileKind("snapshot", b"ANABRSNP", "snapshot-", ".absnap", FORMAT_VERSION)
_FRAME: Final = struct.Struct("<BIQ")
_COMPRESSED: Final = 1

RECORD_BYTES_MAX: Final = (1 << 32) - 1
"""The greatest uncompressed size of a record, in an own snapshot and in a full sync."""

_READ_BYTES: Final = 1 << 20
"""Memory is allocated in such pieces, whatever length a frame announces."""

# Record types and what follows them in the array.
REPLICA: Final = (
    0  # region, epoch, next number, wall ms, next incarnation, what is known of regions
)
STRING: Final = 1  # database, key, deadline or None, bytes
LIST: Final = 2  # database, key, deadline or None, items
SET: Final = 3  # database, key, deadline or None, members
STREAM: Final = 4  # database, key, deadline or None, head; the next two follow it
PENDING: Final = 5  # see stream/frozen.py
BLOCKS: Final = 6  # see stream/frozen.py
USER: Final = 7  # name, line of ACL LIST
END: Final = 8  # records before this one
LIBRARY: Final = 9  # name, source, functions: each name, description, flags
DELETED: Final = 10  # database, then maps: keys without data and heads of their streams
LAST_EFFECTS: Final = 11  # database, then maps: keys and version vectors
LAST_POSITIONS: Final = 12  # database, ms, then maps: keys of former streams, ends of their logs

POLICIES: Final = 13  # database, rows: see Policies.written
SCHEDULED: Final = 14  # database, rows: see timetables.written
ADDITIONS: Final = 15  # database, rows: see Timetables.additions

SHARED_VALUE: Final = 16  # database, key, deadline or None, what regions share of the key
ELEMENTS: Final = 17  # database, key, kind, further elements of a set or list before it

_OF_DATABASES: Final = (
    *(STRING, LIST, SET, STREAM, DELETED, LAST_EFFECTS, LAST_POSITIONS, POLICIES),
    *(SCHEDULED, ADDITIONS, SHARED_VALUE, ELEMENTS),
)
_POLICIES: Final = 1000
"""Policies in one record."""

_SCHEDULED: Final = 500
"""Scheduled entries in one record."""

_MAPS: Final = 30
"""Maps in such a record; each has some dozen keys, and they compress well together."""

MAPS_BYTES = 16 << 20  # not Final: a test of the compiled core lowers it, too
"""Bytes of these maps; a single one may have more."""

SENSELESS: Final = (
    *(AssertionError, AttributeError, LookupError, OverflowError, TypeError, ValueError),
    *UNREADABLE,
)
"""What reading a sound record with the wrong contents raises."""

_UNTOUCHED: Final = frozenset(kind for kind, row in EFFECTS.items() if row.binds)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_decode_rows = msgspec.msgpack.Decoder(dict[bytes, bytes]).decode


snapshot_name = _KIND.name
"""The name of the snapshot of that position; names sort as positions do."""

position_of = _KIND.position_of
"""The position in the name of a snapshot; None for other files."""


# -- writing ----------------------------------------------------------------------------------


class Contents(Struct):
    """The header data of a snapshot, and the number of its keys."""

    position: int
    region: int = 0
    epoch: int = 0
    next_number: int = 1
    wall_ms: int = 0
    next_incarnation: int = 0
    regions: list[Any] | None = None
    """The knowledge of the regions, see :meth:`Replica.written`; None in a region alone."""
    name: str = ""
    """The name of the file for messages."""
    keys: int = 0
    entries: int = 0


def _replaced(values: Mapping[bytes, Value]) -> list[bytes]:
    """Keys that may have been streams, which not every member knows to be deleted."""
    return [
        key for key, each in values.items() if type(each) is not Stream and each.shared.tombstones
    ]


class _Taken:
    """One key with its value as it was when the snapshot began."""

    def __init__(self, database: int, key: bytes, deadline: int | None, value: Value) -> None:
        self.head: list[Any]
        self.stream: FrozenStream | None = None
        self._place = database, key
        self._further = further_elements(value.shared)
        if isinstance(value, Stream):
            self.stream = FrozenStream(value)
            self.head = [STREAM, database, key, deadline, self.stream.head]
        elif value.shared.has_small:  # the value follows from it
            self.head = [SHARED_VALUE, database, key, deadline, KEPT.write(value.shared)]
        elif isinstance(value, StringValue):
            self.head = [STRING, database, key, deadline, value.data]
        elif isinstance(value, ListValue):
            self.head = [LIST, database, key, deadline, list(value.items)]
        else:
            self.head = [SET, database, key, deadline, list(value.members)]

    def records(self) -> Iterator[list[Any] | None]:
        yield self.head
        for kind, rows in self._further:
            for at in range(0, len(rows), PLACES_A_STEP):
                yield [ELEMENTS, *self._place, kind, dict(rows[at : at + PLACES_A_STEP])]
        if self.stream is not None:
            for columns in self.stream.pending():
                yield [PENDING, *columns]
            for blocks in self.stream.blocks():
                yield None if blocks is None else [BLOCKS, *blocks]


class Snapshot:
    """The present keyspace, to be written piece by piece."""

    def __init__(
        self,
        keyspace: Keyspace,
        contents: Contents,
        places: Places | None = None,
        *,
        keeps_last_effects: bool = True,
    ) -> None:
        """``places`` are the keys to write, None for all keys.

        Deleted keys among them are written as keys without data. A full sync for another region
        need not contain the last effects of keys (``keeps_last_effects``).
        """
        self.contents = contents
        databases = keyspace.databases
        replica = keyspace.replica
        self._untouched = _UNTOUCHED
        if replica.is_regional:  # nothing is replaced: a deleted stream is remembered, and changes
            self._untouched = frozenset()
            contents.regions = replica.written(keeps_last_effects=keeps_last_effects)
        # By the present number of a database: SWAPDB may change it before the end.
        self._numbers = [database.index for database in databases]
        self._waiting: list[dict[bytes, Value]] = [
            {**database.values, **database.remembered.objects} if places is None else {}
            for database in databases
        ]
        # What is packed does not change: a list of chunks is all of it at this moment.
        self._deleted = [each.remembered.packed for each in databases] if places is None else []
        self._others: list[list[tuple[bytes, list[bytes]]]] = []
        self._blank: list[Any] = []
        if places is not None:
            self._waiting = places.values
            self._others = [
                databases[db].remembered.packed_of(keys) for db, keys in enumerate(places.others)
            ]
            blank = Stream.of_regions(replica.own, *replica.default_limits())
            self._blank = head_of(blank)
        self._last_effects = replica.last_effects.packed() if keeps_last_effects else []
        # Members that get some keys only were there when others were deleted. Of a stream that was
        # deleted, and replaced by another value, they may not know it.
        self._last_positions = [
            each.last_positions.written()
            if places is None
            else each.last_positions.written_of(_replaced(places.values[each.index]))
            for each in databases
        ]
        self._deadlines = [dict(database.deadlines) for database in databases]
        self._users = list(keyspace.users.items())
        self._libraries = list(keyspace.libraries.values())
        self._policies = [each.policies.written() for each in databases]
        self._timetables = [
            (number, dict(each.entries), list(each.additions.items()))
            for number, each in enumerate([database.timetables for database in databases])
            if each.entries or each.additions
        ]
        self._taken: deque[_Taken] = deque()
        self._writing: _Taken | None = None
        contents.keys = sum(map(len, self._waiting))
        contents.next_incarnation = keyspace.incarnations.next

    @property
    def keys_left(self) -> int:
        """How many keys are not written yet."""
        return len(self._taken) + sum(map(len, self._waiting))

    def before(self, effect: kinds.Effect) -> None:
        """Call this before an effect is applied: freezes values it changes, if not yet written."""
        kind = type(effect)
        if kind in self._untouched:
            return
        if kind is kinds.Swap:
            self._swap(effect.db, effect.other)  # type: ignore[attr-defined]
            return
        if kind is kinds.Flush or kind is kinds.JoinFullSync:
            self._take_all()
            return
        for database, key in places_of(effect):
            value = self._waiting[database].pop(key, None)
            if value is not None:
                self._taken.append(self._binding(database, key, value))

    def _take_all(self) -> None:
        for database, waiting in enumerate(self._waiting):
            while waiting:
                key, value = waiting.popitem()
                self._taken.append(self._binding(database, key, value))

    def _swap(self, first: int, second: int) -> None:
        tables: tuple[list[Any], ...] = (self._numbers, self._waiting, self._deadlines)
        for table in tables:
            table[first], table[second] = table[second], table[first]

    def _binding(self, database: int, key: bytes, value: Value) -> _Taken:
        deadline = self._deadlines[database].get(key)
        return _Taken(self._numbers[database], key, deadline, value)

    def header(self) -> bytes:
        """The header of the file."""
        return _KIND.header(self.contents.position)

    def bodies(self) -> Iterator[bytes]:
        """The bodies of the records; any thread may frame (:func:`framed`) and write them.

        Effects may be applied between one body and the next. An empty body is a step in which no
        record was completed.
        """
        count = 0
        for record in self._records():
            if record is None:
                yield b""
            else:
                yield _encode(record)
                count += 1
        yield _encode([END, count])

    def whole(self) -> bytes:
        """The whole file at once."""
        compressor = Compressor()
        bodies = filter(None, self.bodies())
        return self.header() + b"".join(framed(body, compressor) for body in bodies)

    def _records(self) -> Iterator[list[Any] | None]:
        contents = self.contents
        yield [
            REPLICA,
            contents.region,
            contents.epoch,
            contents.next_number,
            contents.wall_ms,
            contents.next_incarnation,
            contents.regions,
        ]
        for name, line in self._users:
            yield [USER, name, line]
        for library in self._libraries:
            yield [LIBRARY, library.name, library.code, library.functions]
        while (taken := self._next()) is not None:
            self._writing = taken
            yield from taken.records()
        self._writing = None
        for database, chunks in enumerate(self._deleted):
            yield from _packed_records(DELETED, database, chunks)
        for database, shares in enumerate(self._others):
            yield from self._deleted_streams(database, shares)
        for database, packed in self._last_effects:
            yield from _packed_records(LAST_EFFECTS, database, packed)
        for database, runs in enumerate(self._last_positions):
            for ended_ms, run in runs:
                if isinstance(run, list):
                    yield from _packed_records(LAST_POSITIONS, database, run, ended_ms)
                else:
                    for rows in rows_in(run):
                        yield [LAST_POSITIONS, database, 0, rows]
        for database, policies in enumerate(self._policies):
            for at in range(0, len(policies), _POLICIES):
                yield [POLICIES, database, policies[at : at + _POLICIES]]
        for database, entries, additions in self._timetables:
            left = iter(entries.items())
            while scheduled := schedule_rows(islice(left, _SCHEDULED)):
                yield [SCHEDULED, database, scheduled]
            for at in range(0, len(additions), _SCHEDULED):
                yield [ADDITIONS, database, additions[at : at + _SCHEDULED]]

    def _deleted_streams(
        self, database: int, shares: list[tuple[bytes, list[bytes]]]
    ) -> Iterator[list[Any]]:
        """A record for each of these keys, known or not, of their chunks."""
        for chunk, keys in shares:
            rows = _decode_rows(map_of(chunk))
            for key in keys:
                head = msgspec.Raw(rows[key]) if key in rows else self._blank
                yield [STREAM, database, key, None, head]

    def _next(self) -> _Taken | None:
        if self._taken:
            return self._taken.popleft()
        for database, waiting in enumerate(self._waiting):
            if waiting:
                key, value = waiting.popitem()
                return self._binding(database, key, value)
        return None

    def release(self) -> None:
        """Free the rest: it will not be written."""
        taken = [*self._taken, *([self._writing] if self._writing is not None else [])]
        for each in taken:
            if each.stream is not None:
                each.stream.release()
        self._taken.clear()
        for waiting in self._waiting:
            waiting.clear()
        self._deleted.clear()
        self._others.clear()
        self._last_effects.clear()
        self._last_positions.clear()


def _packed_records(
    kind: int, database: int, chunks: list[bytes], *more: int
) -> Iterator[list[Any]]:
    maps: list[msgspec.Raw] = []
    size = 0
    for chunk in chunks:
        rows = map_of(chunk)
        if maps and (len(maps) == _MAPS or size + len(rows) > MAPS_BYTES):
            yield [kind, database, *more, *maps]
            maps, size = [], 0
        maps.append(msgspec.Raw(rows))
        size += len(rows)
    if maps:
        yield [kind, database, *more, *maps]


def framed(body: bytes, compressor: Compressor | None = None) -> bytes:
    """A record in the form of the file."""
    flags = 0
    if compressor is not None and (smaller := compressor.shorter(body)) is not None:
        body = smaller
        flags = _COMPRESSED
    return _FRAME.pack(flags, len(body), xxh3_64_intdigest(body)) + body


# -- reading ----------------------------------------------------------------------------------


def _read(file: ReadFile, count: int) -> bytes:
    """So many bytes, fewer only at the end."""
    pieces = []
    while count > 0 and (piece := file.read(min(count, _READ_BYTES))):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def records_in(file: ReadFile, name: str) -> Iterator[tuple[int, int, list[Any]]]:
    """``(offset, bytes, record)`` of every record but the last; all of the file is verified.

    Raises :class:`CorruptLogError` at the first damage, and at a record that would be longer than
    :data:`RECORD_BYTES_MAX` when it is decompressed. Yields first the header, as offset 0 and
    ``[position]``.
    """
    position = _KIND.read_header(file.read(file_kind.HEADER_BYTES), name)
    yield 0, file_kind.HEADER_BYTES, [position]
    at = file_kind.HEADER_BYTES
    count = 0
    while True:
        frame = file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise CorruptLogError(name, at, "the file ends before its last record")
        flags, size, expected = _FRAME.unpack(frame)
        body = _read(file, size)
        if len(body) < size:
            raise CorruptLogError(name, at, "the file ends within a record")
        found = xxh3_64_intdigest(body)
        if found != expected or flags & ~_COMPRESSED:
            raise CorruptLogError(
                name, at, f"a record has checksum {found:016x} instead of {expected:016x}"
            )
        try:
            if flags & _COMPRESSED:
                body = zstd.expanded(body, RECORD_BYTES_MAX)
            record = _decode(body)
        except (*UNREADABLE, zstd.ZstdError) as problem:
            raise CorruptLogError(name, at, f"a record is no array: {problem}") from None
        if record[:1] == [END]:
            break
        yield at, _FRAME.size + size, record
        at += _FRAME.size + size
        count += 1
    if record[1:] != [count]:
        raise CorruptLogError(name, at, f"{count} records where {record[1:]} were written")
    if file.read(1):
        raise CorruptLogError(name, at + _FRAME.size + size, "bytes behind the last record")


def load_snapshot(file: ReadFile, name: str, keyspace: Keyspace) -> Iterator[tuple[int, Contents]]:
    """Load a snapshot into an empty keyspace, except for which tombstones are unstable.

    Yields ``(bytes read so far, contents so far)`` after every record; the last contents are
    complete. Raises :class:`CorruptLogError`; do not use the keyspace then.
    """
    contents = Contents(0, name=name)
    builder: StreamBuilder | None = None
    for at, size, record in records_in(file, name):
        if at == 0:
            contents.position = record[0]
            continue
        try:
            if record[0] in _OF_DATABASES and record[1] >= len(keyspace.databases):
                raise too_few_databases(name, record[1], len(keyspace.databases))
            builder = _load(record, keyspace, contents, builder)
        except SENSELESS as problem:
            raise CorruptLogError(
                name, at, f"a record that makes no sense ({type(problem).__name__}: {problem})"
            ) from None
        yield at + size, contents
    for database in keyspace.databases:
        if database.policies.rules:
            database.policies.rebind_all(database.values, database.order)
        for value in database.values.values():
            if isinstance(value, Stream):
                contents.entries += value.length
    yield 0, contents


def _load_rows(kind: int, fields: list[Any], keyspace: Keyspace) -> None:
    """Load a record with rows of many keys."""
    database = keyspace.databases[fields[0]]
    ended_ms = msgspec.convert(fields.pop(1), int) if kind == LAST_POSITIONS else 0
    for rows in msgspec.convert(fields[1:], list[dict[bytes, bytes]]):
        if kind == DELETED:
            database.remembered.restore(rows)
        elif kind == LAST_EFFECTS:
            keyspace.replica.last_effects.restore(fields[0], rows)
        else:
            database.last_positions.restore(ended_ms, rows)


def _load_of_names(kind: int, fields: list[Any], keyspace: Keyspace) -> None:
    """Load a record with policies or scheduled entries: they belong to names, not to keys."""
    database = keyspace.databases[fields[0]]
    if kind == POLICIES:
        newest = database.policies.restore(msgspec.convert(fields[1], list[PolicyFields]))
        keyspace.replica.hybrid_ms = max(keyspace.replica.hybrid_ms, newest)
    elif kind == SCHEDULED:
        database.timetables.restore(msgspec.convert(fields[1], list[ScheduleFields]))
    else:
        additions = msgspec.convert(fields[1], list[tuple[Occurrence, Addition]])
        database.timetables.additions.update(additions)


def _load_elements(fields: list[Any], keyspace: Keyspace) -> None:
    """Load further elements of a set or a list: the first ones came with its key."""
    number, key, kind, rows = fields
    value = keyspace.databases[number].values[key]
    value.shared.elements[kind].restore(rows)
    if not value.is_due:
        keyspace.account.changed(value)


def _load_replica(fields: list[Any], keyspace: Keyspace, contents: Contents) -> None:
    """Load the first record."""
    contents.region, contents.epoch, contents.next_number, contents.wall_ms = fields[:4]
    contents.next_incarnation = keyspace.incarnations.next = fields[4]
    contents.regions = fields[5]
    check_mode(contents.name, keyspace.replica, regional=contents.regions is not None)
    if contents.regions is not None:
        keyspace.replica.read(contents.regions)


def _load(
    record: list[Any], keyspace: Keyspace, contents: Contents, builder: StreamBuilder | None
) -> StreamBuilder | None:
    kind, *fields = record
    if kind in (BLOCKS, PENDING):
        assert builder is not None
        (builder.add_blocks if kind == BLOCKS else builder.add_pending)(fields)
        if not builder.stream.is_due:  # it was measured between two of its records
            keyspace.account.changed(builder.stream)
        return builder
    if kind == REPLICA:
        _load_replica(fields, keyspace, contents)
        return None
    if kind == USER:
        name, line = fields
        keyspace.users[name] = line
        return None
    if kind == LIBRARY:
        name, code, functions = fields
        keyspace.libraries[name] = Library(name, code, [(*each,) for each in functions])
        return None
    if kind in (POLICIES, SCHEDULED, ADDITIONS):
        _load_of_names(kind, fields, keyspace)
        return None
    if kind in (DELETED, LAST_EFFECTS, LAST_POSITIONS):
        _load_rows(kind, fields, keyspace)
        return None
    if kind == ELEMENTS:
        _load_elements(fields, keyspace)
        return builder
    number, key, deadline, data = fields
    database = keyspace.databases[number]
    value: Value
    if kind == STREAM:
        replica = keyspace.replica
        builder = StreamBuilder(data, replica.own)
        value = stream = builder.stream
        replica.known_level = max(replica.known_level, stream.shared.level)
        if stream.shared.tombstones:
            replica.tombstoned[number, key] = None
        if not stream.exists:
            database.remembered[key] = stream
            return builder
        note_hidden(keyspace, number, key, stream.shared, stream)
    elif kind == SHARED_VALUE:
        builder = None
        shared, replica = KEPT.read(data), keyspace.replica
        replica.known_level = max(replica.known_level, shared.level)
        bind_small(keyspace, number, key, shared, None)
        contents.keys += 1
        return None
    else:
        builder = None
        value = {STRING: StringValue, LIST: ListValue, SET: SetValue}[kind](data)
    database.put(key, value)
    if deadline is not None:
        database.deadlines[key] = deadline
    contents.keys += 1
    return builder
