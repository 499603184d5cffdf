"""Prepares the decision of a command for several regions.

Commands decide in the same way with one region and with several, and emit the same effects. Some of
these effects name entries by ID or position, move whole values, or depend on what other regions do
at the same time. :func:`prepare` replaces them by effects that every region applies alike: entries
are named by the numbers of the effects that added them, and values become new entries. (Literature
on operation-based CRDTs calls this step *prepare*.) Each effect is applied before the next one is
prepared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace, dots_of, each_told, told_by
from anabranch.effects.adopting import groups_again
from anabranch.effects.codec import SENT_ARGUMENT_BYTES_MAX, SENT_IDS_MAX
from anabranch.effects.recorded import Recorded
from anabranch.effects.restoring import value_of
from anabranch.effects.rewriting import Rewriting
from anabranch.effects.streams import begun_stream, known_stream, shared_of, stream_of
from anabranch.errors import CommandError
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.timetables import GONE_MS
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream import by_number
from anabranch.stream.elements import LIST, PLACE_BYTES_MAX, SET, Elements
from anabranch.stream.groups.progress import Creation
from anabranch.stream.groups.shared_progress import SharedProgress
from anabranch.stream.ranges import Ranges
from anabranch.stream.register import amount_of, amount_text, cuts_of, read_counts
from anabranch.stream.renumbering import check_ids
from anabranch.stream.shared import ELEMENTS_LEVEL, STRINGS_LEVEL
from anabranch.stream.stream import Stream

_LONG_STRING = "ERR the string is too long: other regions take %d bytes"
_LONG_ELEMENT = "ERR a member or an item is too long: other regions take %d bytes"
_LONG_ENTRY = "ERR the payload has an entry that is too long: other regions take %d bytes"
_LONG_NAMES = (
    "ERR the stream has a name of a group, a consumer or a producer, or an idempotent ID, that is "
    "too long: other regions take %d bytes"
)
_CANCELLED_AT_ONCE = 10_000
_COUNTED = frozenset(("incrby", "incrbyfloat"))
_USUAL_LIMITS = (100, 100)
"""Of idempotent producers, in seconds and IDs, where no setting and no effect says others."""

_BY_SETTINGS = 1
"""The stamp of limits that settings give a new stream: any XCFGSET at the same time counts more."""

_NO_SWAP = "ERR SWAPDB is not supported in Active-Active mode"


class Writer(Protocol):
    """The facts about the deciding region on which its effects depend."""

    keyspace: Keyspace
    replica: Replica
    settings: Settings
    now_ms: int
    record: Recorded | None
    encode_ahead: Callable[[kinds.AddRun], None]
    rewriting: Rewriting | None
    mode: Mode

    def emit(self, effect: kinds.Effect) -> None:
        """Apply a change that was decided here."""


_Prepare = dict[type[kinds.Effect], Callable[[Writer, Any], Iterable[kinds.Effect]]]


class Mode(NamedTuple):
    """How decisions are expressed: in a region alone, or where several regions write."""

    prepare: _Prepare
    """By kind, functions that make the effects that express a decision; other kinds stay."""
    create_stream: Callable[[Writer, Database, bytes], Stream]
    added_bytes_max: int
    """The most bytes of entries that are added at once, and of an argument that is a name."""
    reserved_percent: Callable[[Settings], int]
    """Of ``maxmemory``, what is kept for entries that others add before they know of the limit."""
    compressed_bytes_min: int
    """Effects of fewer bytes are not compressed in the log, even if it would pay; 0: no limit."""
    is_numbered: bool
    """Whether effects have numbers, by which other regions know them."""
    rewrites: bool
    """Whether RENAME, COPY, MOVE and RESTORE add the entries again. If not, they bind the value."""
    renews_members: bool
    """Whether to add a member that is there is a change: it beats removals that do not know it."""


def mode_of(replica: Replica) -> Mode:
    """The mode of a region."""
    return _AMONG if replica.is_regional else _ALONE


@contextmanager
def rewriting(writer: Writer, source: Value, db: int, key: bytes) -> Iterator[Steps[None]]:
    """The steps that prepare a decision to write a value to a key again.

    Emit the decision at once when the steps are done. In a mode that binds the value to the other
    key nothing is prepared.
    """
    if not writer.mode.rewrites or type(source) is not Stream:
        yield _no_steps()
        return
    prepared = Rewriting(writer, source, db, key)

    def steps() -> Steps[None]:
        yield from prepared.prepare()
        writer.rewriting = prepared

    try:
        yield steps()
    finally:
        writer.rewriting = None
        prepared.release()


def _no_steps() -> Steps[None]:
    yield from ()


def _stream(writer: Writer, db: int, key: bytes) -> Stream:
    value = writer.keyspace.databases[db].values[key]
    assert type(value) is Stream
    return value


# -- entries ----------------------------------------------------------------------------------


def _add_run(writer: Writer, effect: kinds.AddRun) -> Iterator[kinds.Effect]:
    """Positions continue; those of a new log begin at the number of this effect."""
    stream = known_stream(writer.keyspace, effect.db, effect.key)
    position = 0 if stream is None else stream.local.next_position
    replica = writer.replica
    effect.position = position or replica.vector.get(replica.own, 0) + 1
    yield effect


def _remove(writer: Writer, effect: kinds.Remove) -> Iterator[kinds.Effect]:
    """Name all entries with these IDs, of all regions, by their numbers."""
    stream = _stream(writer, effect.db, effect.key)
    ranges: dict[int, Ranges] = {}
    newest: dict[int, tuple[int, int]] = {}
    shares = effect.located
    if shares is None:
        shares = [
            (replica_id, block, [index], [entry_id])
            for entry_id in effect.ids
            for replica_id, block, index in stream.find_all(entry_id)
        ]
    for replica_id, block, indexes, ids in shares:
        known = ranges.setdefault(replica_id, Ranges())
        for index, entry_id in zip(indexes, ids, strict=True):
            number = block.number(index)
            known.add(number - 1, number)
            newest[replica_id] = max(newest.get(replica_id, (0, 0)), (number, entry_id))
    deleted = [(replica_id, *pair) for replica_id, pair in newest.items()] if effect.counted else []
    removed = [(replica_id, numbers.flat()) for replica_id, numbers in ranges.items()]
    for some in _pieces(removed):
        yield kinds.RemoveNumbers(
            effect.db, effect.key, some, deleted, effect.dereferenced, effect.trimmed
        )
        deleted = []


def _pieces(ranges: list[tuple[int, list[int]]]) -> Iterator[list[tuple[int, list[int]]]]:
    """Ranges by replica ID, in pieces of at most :data:`SENT_IDS_MAX` ranges of one of them."""
    if all(len(edges) <= 2 * SENT_IDS_MAX for _, edges in ranges):
        yield ranges
        return
    for replica_id, edges in ranges:
        for at in range(0, len(edges), 2 * SENT_IDS_MAX):
            yield [(replica_id, edges[at : at + 2 * SENT_IDS_MAX])]


def _trim(writer: Writer, effect: kinds.Trim) -> Iterator[kinds.Effect]:
    """Remove everything up to the newest trimmed entry of each replica ID: all was seen here."""
    logs = _stream(writer, effect.db, effect.key).logs
    yield kinds.RemoveNumbers(
        effect.db,
        effect.key,
        [
            (replica_id, [0, by_number.number_below(logs[replica_id], place)])
            for replica_id, place in effect.below
        ],
        [],
        dereferenced=False,
        trimmed=True,
    )


def _dereference(writer: Writer, effect: kinds.Dereference) -> Iterator[kinds.Effect]:
    """Split the effect into effects of a size that another region accepts."""
    for at in range(0, len(effect.ids), SENT_IDS_MAX):
        yield kinds.Dereference(effect.db, effect.key, effect.ids[at : at + SENT_IDS_MAX])


def _set_last_id(writer: Writer, effect: kinds.SetLastId) -> Iterator[kinds.Effect]:
    """The effect contains differences: counters only rise, which the command has checked."""
    stream = _stream(writer, effect.db, effect.key)
    if effect.entries_added is not None:
        effect.entries_added -= stream.entries_added
    yield effect


def _stamp(
    writer: Writer, effect: kinds.ConfigureProducers | kinds.SetPolicies
) -> Iterable[kinds.Effect]:
    if effect.stamp_ms != _BY_SETTINGS:
        effect.stamp_ms = writer.replica.stamp(writer.now_ms)
    return (effect,)


def _remember(writer: Writer, effect: kinds.Remember) -> Iterable[kinds.Effect]:
    effect.yields = writer.settings.idmp_conflict == "collapse"
    return (effect,)


# -- strings ----------------------------------------------------------------------------------


def _set_string(writer: Writer, effect: kinds.SetString) -> Iterator[kinds.Effect]:
    """Write the string, or add to a number: then what other regions add is added, too."""
    db, key, data = effect.db, effect.key, effect.data
    if effect.event in _COUNTED:
        value = writer.keyspace.databases[db].values.get(key)
        before = amount_of(value.data if isinstance(value, StringValue) else b"0")
        after = amount_of(data)
        if before is not None and after is not None:
            yield from _increase(writer, effect, after - before)
            return
    yield from _write(writer, db, key, data, keeps=effect.keeps_deadline, event=effect.event)


def _set_strings(writer: Writer, effect: kinds.SetStrings) -> Iterator[kinds.Effect]:
    for key, data in zip(effect.keys, effect.data, strict=True):
        yield from _write(writer, effect.db, key, data)


def _overwrite(writer: Writer, effect: kinds.Overwrite) -> Iterator[kinds.Effect]:
    """Write the resulting string."""
    value = writer.keyspace.databases[effect.db].values.get(effect.key)
    _check_size(writer, effect.at + len(effect.data))  # before so much is allocated
    string = StringValue(value.data if isinstance(value, StringValue) else b"")
    string.overwrite(effect.at, effect.data)
    yield from _write(writer, effect.db, effect.key, string.data, keeps=True, event=effect.event)


def _write(
    writer: Writer, db: int, key: bytes, data: bytes, *, keeps: bool = False, event: str = ""
) -> Iterator[kinds.Effect]:
    """Write a string; with ``keeps`` the deadline stays."""
    _check_string(writer, data)
    database = writer.keyspace.databases[db]
    at_ms = database.deadlines.get(key) if keeps else None
    value = database.values.get(key)
    if value is not None and not isinstance(value, StringValue):
        yield from _clear(writer, db, key)
    cuts = cuts_of(read_counts(shared_of(writer.keyspace, db, key)[0].counts))
    stamp_ms = max(writer.now_ms, writer.replica.hybrid_ms)  # not below any that was seen
    yield kinds.WriteString(db, key, data, stamp_ms, at_ms, cuts, event)


def _check_string(writer: Writer, data: bytes) -> None:
    """Refuse a string that other regions do not take."""
    _check_size(writer, len(data))
    _require(writer, STRINGS_LEVEL, "strings and counters")


def _check_size(writer: Writer, size: int) -> None:
    most = writer.mode.added_bytes_max
    if size > most:
        raise CommandError(_LONG_STRING % most)


def _require(writer: Writer, level: int, what: str) -> None:
    if writer.replica.known_level < level:  # otherwise every member knows them
        writer.replica.require_level(level, what)


def _increase(writer: Writer, effect: kinds.SetString, by: int) -> Iterator[kinds.Effect]:
    _check_string(writer, effect.data)
    db, key = effect.db, effect.key
    database = writer.keyspace.databases[db]
    if key not in database.values:
        yield from _clear(writer, db, key)
    own = read_counts(shared_of(writer.keyspace, db, key)[0].counts).get(writer.replica.own)
    since, total = (own.since, own.total) if own is not None and own.is_alive else (0, 0)
    text = amount_text(total + by)
    if amount_of(text) is None:  # too long, though the sum is not
        yield from _write(writer, db, key, effect.data, keeps=True, event=effect.event)
        return
    yield kinds.Increase(db, key, since, text, database.deadlines.get(key), effect.event)


# -- sets and lists ---------------------------------------------------------------------------


def _add_members(writer: Writer, effect: kinds.AddMembers) -> Iterator[kinds.Effect]:
    yield from _begin(writer, effect.db, effect.key, effect.members)
    yield from _put_members(writer, effect.db, effect.key, effect.members, "sadd")


def _begin(writer: Writer, db: int, key: bytes, data: list[bytes]) -> Iterator[kinds.Effect]:
    """Check what will be put; settings of other regions for a former value do not apply to it."""
    _check_elements(writer, data)
    if key not in writer.keyspace.databases[db].values:
        yield from _clear(writer, db, key)


def _check_elements(writer: Writer, data: Iterable[bytes]) -> None:
    """Refuse what other regions do not take."""
    most = writer.mode.added_bytes_max
    if max(map(len, data), default=0) > most:
        raise CommandError(_LONG_ELEMENT % most)
    _require(writer, ELEMENTS_LEVEL, "sets and lists")


def _put_members(
    writer: Writer, db: int, key: bytes, members: list[bytes], event: str
) -> Iterator[kinds.Effect]:
    for some in _parts(members, writer.mode.added_bytes_max):
        yield kinds.PutElements(db, key, SET, some, [], event)


def _parts(data: list[bytes], most: int) -> Iterator[list[bytes]]:
    """Pieces that other regions take."""
    if sum(map(len, data)) <= most and len(data) <= SENT_IDS_MAX:  # nearly always
        yield data
        return
    part: list[bytes] = []
    size = 0
    for each in data:
        if part and (size + len(each) > most or len(part) == SENT_IDS_MAX):
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each)
    yield part


def _remove_members(writer: Writer, effect: kinds.RemoveMembers) -> Iterator[kinds.Effect]:
    for some in _parts(effect.members, writer.mode.added_bytes_max):
        yield kinds.TakeElements(effect.db, effect.key, SET, some, effect.event)
    yield from _end_if_empty(writer, effect.db, effect.key)


def _end_if_empty(writer: Writer, db: int, key: bytes) -> Iterator[kinds.Effect]:
    """The deadline of a set or list ends with it."""
    if key not in writer.keyspace.databases[db].values:
        yield from _clear(writer, db, key)


def _items_of(writer: Writer, db: int, key: bytes) -> Elements:
    """The elements of the list of a key, or of a new one."""
    return shared_of(writer.keyspace, db, key)[0].elements_of(LIST)


def _push(writer: Writer, effect: kinds.Push) -> Iterator[kinds.Effect]:
    db, key = effect.db, effect.key
    yield from _begin(writer, db, key, effect.items)
    items = effect.items if effect.tail else effect.items[::-1]
    event = "rpush" if effect.tail else "lpush"
    index = len(_items_of(writer, db, key)) if effect.tail else 0
    yield from _insert(writer, db, key, index, items, event)


def _insert(
    writer: Writer, db: int, key: bytes, index: int, items: list[bytes], event: str
) -> Iterator[kinds.Effect]:
    """Put items before the one at an index."""
    replica = writer.replica
    for some in _parts(items, writer.mode.added_bytes_max):
        elements = _items_of(writer, db, key)
        number = replica.vector.get(replica.own, 0) + 1
        places = elements.places_at(index, len(some), replica.own, number)
        if len(places[0]) > PLACE_BYTES_MAX:
            yield from _write_behind(writer, db, key, elements)
            number = replica.vector.get(replica.own, 0) + 1
            places = _items_of(writer, db, key).places_at(index, len(some), replica.own, number)
        yield kinds.PutElements(db, key, LIST, places, some, event)
        index += len(some)


def _write_behind(
    writer: Writer, db: int, key: bytes, elements: Elements
) -> Iterator[kinds.Effect]:
    """Write all items of a list again behind its end, because their places have become long."""
    items = list(elements.items())
    whole = elements.spans(range(len(items)))
    yield from _insert(writer, db, key, len(items), items, "")
    yield kinds.TakeElements(db, key, LIST, whole, "")


def _pop(writer: Writer, effect: kinds.Pop) -> Iterator[kinds.Effect]:
    size = len(_items_of(writer, effect.db, effect.key))
    first = size - effect.count if effect.tail else 0
    event = "rpop" if effect.tail else "lpop"
    yield from _take(writer, effect.db, effect.key, range(first, first + effect.count), event)


def _take(
    writer: Writer, db: int, key: bytes, indexes: Iterable[int], event: str
) -> Iterator[kinds.Effect]:
    spans = _items_of(writer, db, key).spans(indexes)
    for at in range(0, len(spans), SENT_IDS_MAX):
        yield kinds.TakeElements(db, key, LIST, spans[at : at + SENT_IDS_MAX], event)
    yield from _end_if_empty(writer, db, key)


def _splice(writer: Writer, effect: kinds.Splice) -> Iterator[kinds.Effect]:
    db, key, items = effect.db, effect.key, effect.items
    if not items:
        indexes = range(effect.index, effect.index + effect.removed)
        yield from _take(writer, db, key, indexes, effect.event)
        return
    _check_elements(writer, items)
    if effect.removed:  # LSET: another item at the same place
        place = _items_of(writer, db, key).spans([effect.index])[:1]
        yield kinds.PutElements(db, key, LIST, place, items, effect.event)
    else:
        yield from _insert(writer, db, key, effect.index, items, effect.event)


def _remove_items(writer: Writer, effect: kinds.RemoveItems) -> Iterator[kinds.Effect]:
    items = _items_of(writer, effect.db, effect.key).items()
    found = [index for index, item in enumerate(items) if item == effect.item]
    found = found[effect.count :] if effect.count < 0 else found[: effect.count]
    yield from _take(writer, effect.db, effect.key, found, "lrem")


def _elements_again(
    writer: Writer, db: int, key: bytes, members: list[bytes], items: list[bytes]
) -> Iterator[kinds.Effect]:
    """Write the set and the list of a key, those that it has, under another name."""
    if members:
        yield from _put_members(writer, db, key, members, "")
    if items:
        yield from _insert(writer, db, key, 0, items, "")


# -- groups -----------------------------------------------------------------------------------


def _then_acknowledge_runs(writer: Writer, effect: Any) -> Iterator[kinds.Effect]:
    """Tell other regions what is acknowledged: the begins of runs; by ``acks all``, every entry."""
    stream = _stream(writer, effect.db, effect.key)
    group = stream.groups[effect.group]
    policed = group.policed
    dots = dots_of(effect, group) if policed is not None and policed.policy.acks_all else ()
    yield effect
    ranges = group.runs.grown(stream.logs, group.pending)
    if ranges or dots:
        place = GroupPlace(effect.db, effect.key, effect.group, stream, group)
        if dots:
            ranges += each_told(place, dots, ranges)
        yield from told_by(place, ranges)


def _deliver(writer: Writer, effect: kinds.Deliver) -> Iterable[kinds.Effect]:
    """Name the entries by their effect numbers, too."""
    stream = _stream(writer, effect.db, effect.key)
    effect.numbers = by_number.numbers_of(stream.logs[effect.replica_id], effect.ids)
    return (effect,) if effect.pending else _then_acknowledge_runs(writer, effect)


def _create_group(writer: Writer, effect: kinds.CreateGroup) -> Iterator[kinds.Effect]:
    """Express ENTRIESREAD as a difference to the count, because regions have different entries."""
    stream = known_stream(writer.keyspace, effect.db, effect.key)
    if effect.entries_read is not None and stream is not None:
        progress = SharedProgress(0)
        context = writer.replica.context_now()
        progress.creations[writer.replica.dot] = Creation(context, effect.start)
        progress.place(stream.logs)
        effect.offset = effect.entries_read - progress.counted_read(stream)
    yield effect


# -- keys -------------------------------------------------------------------------------------


def _delete(writer: Writer, effect: kinds.Delete) -> Iterator[kinds.Effect]:
    stream = known_stream(writer.keyspace, effect.db, effect.key)
    assert stream is not None
    effect.positions = [(replica_id, log.next_position) for replica_id, log in stream.logs.items()]
    effect.cuts = cuts_of(read_counts(stream.shared.counts))
    yield effect


def _delete_keys(writer: Writer, effect: kinds.DeleteKeys) -> Iterator[kinds.Effect]:
    values = writer.keyspace.databases[effect.db].values
    for key in [key for key in dict.fromkeys(effect.keys) if key in values]:
        yield from _delete(writer, kinds.Delete(effect.db, key, expired=False))


def _clear(writer: Writer, db: int, key: bytes) -> Iterator[kinds.Effect]:
    """Clear a key: delete its value, or settings of other regions for a deleted value.

    A packed stream has no settings.
    """
    database = writer.keyspace.databases[db]
    known = database.remembered.objects.get(key)
    if key in database.values:
        yield from _delete(writer, kinds.Delete(db, key, expired=False))
    elif known is not None and not known.has_only_tombstones:
        yield from _delete(writer, kinds.Delete(db, key, expired=True))


def _flush(writer: Writer, effect: kinds.Flush) -> Iterator[kinds.Effect]:
    """Delete known keys one by one; the flush itself is for keys that are not known here."""
    for database in writer.keyspace.databases:
        if effect.db is None or effect.db == database.index:
            for key in [*database.values, *database.remembered.objects]:
                yield from _clear(writer, database.index, key)
            yield from _cancel_all(database)
    yield effect


def _cancel_all(database: Database) -> Iterator[kinds.Effect]:
    """Cancel the scheduled entries that are known here."""
    rows: defaultdict[bytes, list[tuple[bytes, int, int, int, int, int]]] = defaultdict(list)
    for (key, handle), entry in database.timetables.entries.items():
        if entry.at_ms != GONE_MS:
            rows[key].append((handle, *entry.identity, entry.at_ms, GONE_MS, 0))
    for key, some in rows.items():
        for at in range(0, len(some), _CANCELLED_AT_ONCE):
            yield kinds.AdvanceScheduled(database.index, key, some[at : at + _CANCELLED_AT_ONCE])


def _rename(writer: Writer, effect: kinds.Rename) -> Iterator[kinds.Effect]:
    """Move the entries, but not the groups: other regions may use them under the old name."""
    yield from _again(writer, effect, with_groups=effect.db != effect.target_db)  # MOVE
    yield from _clear(writer, effect.db, effect.key)


def _copy(writer: Writer, effect: kinds.Copy) -> Iterator[kinds.Effect]:
    yield from _again(writer, effect, with_groups=True)


def _again(
    writer: Writer, effect: kinds.Rename | kinds.Copy, *, with_groups: bool
) -> Iterator[kinds.Effect]:
    """Write the value of a key under another name; what it hides goes with it."""
    db, key = effect.target_db, effect.target
    database = writer.keyspace.databases[effect.db]
    source = database.values[effect.key]
    deadline = database.deadlines.get(effect.key)
    shared = source.shared
    string = shared.string
    members, items = list(shared.elements_of(SET).puts), list(shared.elements_of(LIST).items())
    if isinstance(source, Stream):
        check_ids(source)
        _check_names(writer, source)
    yield from _clear(writer, db, key)
    if string is not None:
        yield from _string_again(writer, db, key, string, shared.small_deadline_of(None))
    yield from _elements_again(writer, db, key, members, items)
    if isinstance(source, SetValue | ListValue) and deadline is not None:
        yield kinds.Expire(db, key, deadline)
    if isinstance(source, Stream):
        yield from _written_again(writer, db, key, source, deadline, with_groups=with_groups)


def _string_again(
    writer: Writer, db: int, key: bytes, data: bytes, at_ms: int | None
) -> Iterator[kinds.Effect]:
    for effect in _write(writer, db, key, data):
        if isinstance(effect, kinds.WriteString):
            effect.at_ms = at_ms
        yield effect


def _restore(writer: Writer, effect: kinds.Restore) -> Iterator[kinds.Effect]:
    source = writer.keyspace.prepared
    if source is None:
        source = in_one_go(value_of(effect))
    if isinstance(source, StringValue):
        _check_string(writer, source.data)  # before the former value is removed
        yield from _clear(writer, effect.db, effect.key)
        yield from _string_again(writer, effect.db, effect.key, source.data, effect.at_ms)
        return
    if isinstance(source, SetValue | ListValue):
        members = list(source.members) if isinstance(source, SetValue) else []
        items = list(source.items) if isinstance(source, ListValue) else []
        _check_elements(writer, members or items)
        yield from _clear(writer, effect.db, effect.key)
        yield from _elements_again(writer, effect.db, effect.key, members, items)
        if effect.at_ms is not None:
            yield kinds.Expire(effect.db, effect.key, effect.at_ms)
        return
    _check_names(writer, source)
    _check_entries(writer, source)
    yield from _clear(writer, effect.db, effect.key)
    yield from _written_again(writer, effect.db, effect.key, source, effect.at_ms, with_groups=True)


def _check_names(writer: Writer, source: Stream) -> None:
    """Refuse a stream with a name that no command could give it; each gets an effect again.

    The consumers of a group are in one effect.
    """
    most = writer.mode.added_bytes_max
    names = chain(
        source.groups, source.producers.tables, *source.producers.tables.values(),
        source.ledger.records,
    )  # fmt: skip
    if max(map(len, names), default=0) > most or any(
        sum(map(len, group.consumers)) > most for group in source.groups.values()
    ):
        raise CommandError(_LONG_NAMES % most)


def _check_entries(writer: Writer, source: Stream) -> None:
    """Refuse entries that no command could add; only a payload can have them."""
    most = writer.mode.added_bytes_max
    for log in source.logs.values():
        for block in log.blocks:
            if block.content_bytes > most and max(block.sizes(0, block.count)) > most:
                raise CommandError(_LONG_ENTRY % most)


def _written_again(
    writer: Writer,
    db: int,
    key: bytes,
    source: Stream,
    deadline: int | None,
    *,
    with_groups: bool,
) -> Iterator[kinds.Effect]:
    """Write a stream under another name: entries with IDs, counters, tags, deadline, groups.

    Within one log IDs ascend, so entries with equal IDs get other IDs (:class:`Renumbering`).
    """
    rewriting = writer.rewriting
    if rewriting is None or rewriting.source is not source:
        rewriting = Rewriting(writer, source, db, key)
    producers = source.producers
    tags = [
        (pid, iid, entry_id, at_ms)
        for pid, table in producers.tables.items()
        for iid, (entry_id, at_ms) in table.items()
    ]
    limits = (producers.duration_s, producers.maxsize)
    counters = (source.last_id, source.entries_added, source.max_deleted_id)
    records = list(source.ledger.records.items())
    yield from rewriting.effects()
    renumbering = rewriting.renumbering
    last_id, entries_added, max_deleted_id = counters
    made = writer.keyspace.databases[db].values.get(key)
    surplus = entries_added - (made.entries_added if type(made) is Stream else 0)
    last_id = max(last_id, renumbering.last)
    yield kinds.SetLastId(db, key, last_id, max(surplus, 0), max_deleted_id or None)
    if not limits == _own_limits(writer) == _USUAL_LIMITS:
        yield from _stamp(writer, kinds.ConfigureProducers(db, key, *limits))
    for tag in tags:
        yield from _remember(writer, kinds.Remember(db, key, *tag))
    for pid, record in records:
        yield kinds.Accept(db, key, pid, *record)
    if deadline is not None:
        yield kinds.Expire(db, key, deadline)
    made = _stream(writer, db, key)
    accepted = producers.iids_added - made.producers.iids_added
    if accepted or producers.duplicates:
        yield kinds.CountDuplicate(db, key, producers.duplicates, accepted)
    if with_groups:
        yield from groups_again(db, key, source, made, renumbering)


# -- streams ----------------------------------------------------------------------------------


def _own_limits(writer: Writer) -> tuple[int, int]:
    """The limits of idempotent producers of new streams, by the settings of this region."""
    return writer.settings.stream_idmp_duration, writer.settings.stream_idmp_maxsize


def _create_alone(writer: Writer, database: Database, key: bytes) -> Stream:
    begin = database.begin_of(key)
    writer.emit(kinds.CreateStream(database.index, key, *_own_limits(writer), begin))
    stream = database.values[key]
    assert type(stream) is Stream
    return stream


def _create_among(writer: Writer, database: Database, key: bytes) -> Stream:
    known = database.remembered.objects.get(key)
    if known is not None and not known.has_only_tombstones:
        # Settings of other regions for the deleted key do not apply to the new one.
        writer.emit(kinds.Delete(database.index, key, True))
    if (limits := _own_limits(writer)) != _USUAL_LIMITS:
        # The settings may be others at the next start, and in other regions.
        writer.emit(kinds.ConfigureProducers(database.index, key, *limits, _BY_SETTINGS))
    return begun_stream(writer.keyspace, database.index, key)


# -- a region alone ---------------------------------------------------------------------------


def _start(writer: Writer, effect: kinds.CreateGroup) -> Iterable[kinds.Effect]:
    """Replace ``$`` by the last ID."""
    if effect.start is None:
        effect.start = stream_of(writer.keyspace, effect.db, effect.key).last_id
    return (effect,)


def _restart(writer: Writer, effect: kinds.SetGroup) -> Iterable[kinds.Effect]:
    """Replace ``$`` by the last ID, as for a new group."""
    if effect.last_id is None:
        effect.last_id = stream_of(writer.keyspace, effect.db, effect.key).last_id
    return (effect,)


# -- what does not occur ----------------------------------------------------------------------


def _refuse_swap(writer: Writer, effect: kinds.Effect) -> Iterator[kinds.Effect]:
    raise CommandError(_NO_SWAP)


_ALONE = Mode(
    prepare={
        kinds.CreateGroup: _start,
        kinds.SetGroup: _restart,
        kinds.SetPolicies: _stamp,
    },
    create_stream=_create_alone,
    added_bytes_max=1 << 60,
    reserved_percent=lambda _: 0,
    compressed_bytes_min=4096,  # less takes more processor time than writing what Redis would write
    is_numbered=False,
    rewrites=False,
    renews_members=False,
)

_PREPARE: _Prepare = {
    kinds.AddRun: _add_run,
    kinds.Remove: _remove,
    kinds.Trim: _trim,
    kinds.Dereference: _dereference,
    kinds.SetLastId: _set_last_id,
    kinds.ConfigureProducers: _stamp,
    kinds.SetPolicies: _stamp,
    kinds.Remember: _remember,
    kinds.Acknowledge: _then_acknowledge_runs,
    kinds.CreateGroup: _create_group,
    kinds.Deliver: _deliver,
    kinds.Delete: _delete,
    kinds.DeleteKeys: _delete_keys,
    kinds.Flush: _flush,
    kinds.Rename: _rename,
    kinds.Copy: _copy,
    kinds.Restore: _restore,
    kinds.Swap: _refuse_swap,
    kinds.SetString: _set_string,
    kinds.SetStrings: _set_strings,
    kinds.Overwrite: _overwrite,
    kinds.Push: _push,
    kinds.Pop: _pop,
    kinds.Splice: _splice,
    kinds.RemoveItems: _remove_items,
    kinds.AddMembers: _add_members,
    kinds.RemoveMembers: _remove_members,
}

_AMONG = Mode(
    prepare=_PREPARE,
    create_stream=_create_among,
    added_bytes_max=SENT_ARGUMENT_BYTES_MAX,
    reserved_percent=attrgetter("replication_oom_threshold_percent"),
    compressed_bytes_min=0,  # other regions get what is in the log
    is_numbered=True,
    rewrites=True,
    renews_members=True,
)
