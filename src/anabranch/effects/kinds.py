"""All kinds of effects: a small record for each kind of change.

A command *decides* (validates, chooses the ID, chooses what to trim) and emits effects that leave
nothing to choose; ``apply*.py`` applies them. ``codec.py`` turns them into the arrays of the log
and of messages to other regions, where ``tag`` is the kind. New fields are added at the end only,
with defaults. ``db`` is a database number, times are wall-clock milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta, Struct, field

from anabranch.stream.block import Block
from anabranch.stream.region_log import Share

EntryId = Annotated[int, Meta(title="entry ID")]
"""An ID as one integer of 128 bits (``stream/entry_id.py``); the codec treats it in a special way.
"""

EntryIds = Annotated[Sequence[int], Meta(title="entry IDs")]
"""Several IDs; a ``range`` if they ascend evenly."""


class Effect(Struct, array_like=True, gc=False):
    """Base of all effects."""

    local: ClassVar[bool] = False


class KeyEffect(Effect):
    """An effect on one key."""

    db: int
    key: bytes


class GroupEffect(KeyEffect):
    """An effect on one consumer group."""

    group: bytes


# -- streams and their entries ----------------------------------------------------------------


class CreateStream(KeyEffect, tag=1):
    """A new empty stream with its idempotency limits; its positions begin at ``incarnation``."""

    idmp_duration_s: int
    idmp_maxsize: int
    incarnation: int = 0


class Add(KeyEffect, tag=2):
    """A new entry: its wire fragment, its weight, and whether it opens a node.

    With several regions also its position in the log of its region.
    """

    entry_id: EntryId
    fragment: bytes
    weight: int
    opens: bool
    position: int = -1


class AddRun(KeyEffect, tag=7, dict=True, gc=True):
    """Neighbouring :class:`Add` effects of one key as columns, in the log and on the wire.

    ``data`` contains the fragments one after the other, ``sizes`` their lengths; ``opens`` are the
    indexes of entries that open a node.
    """

    ids: EntryIds
    data: bytes
    sizes: Sequence[int]
    weights: Sequence[int]
    opens: Sequence[int]
    position: int = -1

    # Two attributes that are no fields: what was made of the effect beforehand. ``nodes`` are the
    # blocks that it adds, each beginning with an entry that opens a node; ``encoded`` is a batch
    # of this effect alone, its flags and its body.
    if TYPE_CHECKING:
        nodes: list[Block] | None = None
        encoded: tuple[int, bytes] | None = None
    else:
        nodes = None
        encoded = None


class RemoveNumbers(KeyEffect, tag=8):
    """Removes entries by the numbers of the effects that added them.

    ``ranges`` are ``(replica_id, [low, high, low, high, ...])``, numbers above low and up to high;
    ``deleted`` is the newest for each replica ID, ``(replica_id, number, entry ID)``, if the
    removal raises max-deleted-entry-id. The rest is as in :class:`Remove`.
    """

    ranges: list[tuple[int, list[int]]]
    deleted: list[tuple[int, int, EntryId]]
    dereferenced: bool
    trimmed: bool


class Trim(KeyEffect, tag=3):
    """Removes the entries below a position of each log: ``[(replica ID, position)]``."""

    below: list[tuple[int, int]]


class Remove(KeyEffect, tag=4, dict=True, gc=True):
    """Removes single entries.

    ``counted`` raises max-deleted-entry-id (XDEL and similar, not trimming); ``dereferenced`` drops
    them from every group's pending list; ``trimmed`` selects the keyspace event.
    """

    ids: EntryIds
    counted: bool
    dereferenced: bool
    trimmed: bool

    # No field: where the live entries with these IDs are at this moment, if a command knows it.
    if TYPE_CHECKING:
        located: list[Share] | None = None
    else:
        located = None


class Dereference(KeyEffect, tag=5):
    """Groups drop pending entries whose stream entry does not exist (XDELEX DELREF)."""

    ids: EntryIds


class SetLastId(KeyEffect, tag=6):
    """XSETID; None leaves a counter alone.

    With several regions counters only rise: ``entries_added`` is the difference.
    """

    last_id: EntryId
    entries_added: int | None
    max_deleted_id: EntryId | None


# -- consumer groups: progress, consumers, pending entries ------------------------------------


class CreateGroup(GroupEffect, tag=20):
    """XGROUP CREATE; entries_read None is unknown.

    With several regions ``start`` None means everything that its region had not seen, and
    ``offset`` is the difference between ``entries_read`` and the count.
    """

    start: EntryId | None
    entries_read: int | None
    offset: int = 0


class SetGroup(GroupEffect, tag=21):
    """XGROUP SETID. ``last_id`` None, with several regions: after everything seen."""

    local = True

    last_id: EntryId | None
    entries_read: int | None


class AdvanceGroup(GroupEffect, tag=22):
    """XCLAIM LASTID: the cursor moves, entries-read does not."""

    local = True

    last_id: EntryId


class DestroyGroup(GroupEffect, tag=23):
    """XGROUP DESTROY."""


class CreateConsumer(GroupEffect, tag=24):
    """Creates a consumer, by XGROUP CREATECONSUMER or its first read."""

    local = True

    consumer: bytes
    now_ms: int


class DeleteConsumer(GroupEffect, tag=25):
    """XGROUP DELCONSUMER: also removes its pending entries."""

    local = True

    consumer: bytes


class Deliver(GroupEffect, tag=27):
    """XREADGROUP ``>``: new entries of one region were delivered.

    ``pending`` is False for NOACK. ``entries_read`` is the group's counter afterwards. With several
    regions ``numbers`` are those of the effects that added the entries.
    """

    local = True

    consumer: bytes
    replica_id: int
    ids: EntryIds
    now_ms: int
    entries_read: int | None
    pending: bool
    numbers: list[int] = field(default_factory=list)


class Assign(GroupEffect, tag=28):
    """Pending entries get a consumer (None: released), a delivery time and a count.

    ``rows`` are ``(entry ID, replica ID, delivery ms, delivery count)``; entries that were not
    pending become pending. The consumer was seen at ``now_ms``, unless that is 0, and
    got entries then if it was ``active``.
    """

    local = True

    consumer: bytes | None
    rows: list[tuple[EntryId, int, int, int]]
    now_ms: int = 0
    active: bool = False


class Acknowledge(GroupEffect, tag=29):
    """Removes pending entries (XACK).

    ``dots``, with several regions, are entries that do not exist any more, ``(replica_id,
    number)``, because another entry may have the same ID.
    """

    local = True

    ids: EntryIds
    dots: list[tuple[int, int]] = field(default_factory=list)


class AcknowledgeRuns(GroupEffect, tag=30):
    """Runs of entries are acknowledged for all regions, under some creations of a group.

    ``creations`` are ``(replica_id, number)``; ``ranges`` ``(replica_id, low, high)``, above low
    and up to high. ``greatest`` is the greatest ID among them.
    """

    creations: list[tuple[int, int]]
    ranges: list[tuple[int, int, int]]
    greatest: EntryId


class AdoptGroup(GroupEffect, tag=31):
    """The progress of a group in its former stream (RESTORE, COPY), with several regions.

    ``last_id`` is its last-delivered-id; ``delivered`` are ``(replica_id, [low, high, ...])``,
    numbers of delivered entries, above low and up to high; ``open`` are those among them that are
    neither pending nor processed. ``consumers`` are name, last seen and last active time;
    ``pending`` are ``(entry ID, replica_id, number, consumer or -1, delivery ms, delivery count)``,
    the consumer by its index in ``consumers``, -1 for released entries, in that order.
    ``entries_read`` is the counter if it was known.
    """

    local = True

    last_id: EntryId
    delivered: list[tuple[int, list[int]]]
    open: list[tuple[int, int]]
    consumers: list[tuple[bytes, int, int]]
    pending: list[tuple[EntryId, int, int, int, int, int]]
    entries_read: int | None = None


class HandOver(GroupEffect, tag=32):
    """A home epoch of a group, and what is pending in the region that hands over for it.

    The epoch is ``(number, region, forced)``; 0 stands for what the policy says. ``creations`` are
    ``(replica_id, number)``. ``consumers`` are name, last seen time, and last active time plus 1,
    or 0. ``rows`` are ``(entry ID, replica_id, number, consumer, delivery ms, delivery count)``,
    the consumer by its place in ``consumers``, from 1 on, or 0 for released ones. The region itself
    has delivered the first ``fresh`` of them, others before it the rest. ``twice`` are entries, as
    ``(replica_id, number)``, that another region has delivered, too. ``moves``: the region was the
    home until then, so the next one may begin. ``more``: another piece follows, maybe in a later
    turn; ``piece`` numbers the pieces from 0 on.
    """

    creations: list[tuple[int, int]]
    number: int
    region: int
    forced: bool
    consumers: list[tuple[bytes, int, int]]
    rows: list[tuple[EntryId, int, int, int, int, int]]
    fresh: int
    twice: list[tuple[int, int]]
    moves: bool
    more: bool = False
    piece: int = 0


class LeaveHome(GroupEffect, tag=33):
    """This region delivers a group no more; it hands over for this epoch when this is on disk."""

    local = True

    number: int
    region: int


class AskHome(GroupEffect, tag=34):
    """A region asks those that may hand over for a home epoch ``(number, home, forced)``.

    The home itself hands over to the region ``asks``; others hand over once more.
    """

    number: int
    home: int
    forced: bool
    asks: int


# -- idempotent producers: IDs, batches, limits -----------------------------------------------


class Remember(KeyEffect, tag=10):
    """An idempotent ID of a producer stands for an entry from now on.

    ``yields``: the entry is removed if another region has accepted the same idempotent ID for an
    entry with a smaller ID.
    """

    pid: bytes
    iid: bytes
    entry_id: EntryId
    at_ms: int
    yields: bool = False


class CountDuplicate(KeyEffect, tag=11):
    """A producer sent ``count`` retries; nothing was added.

    ``accepted``: how many idempotent IDs the stream had counted under its former key, and forgotten
    since.
    """

    local = True

    count: int = 1
    accepted: int = 0


class ConfigureProducers(KeyEffect, tag=12):
    """XCFGSET: new limits, all IDs forgotten. Of concurrent ones the latest stamp counts."""

    duration_s: int
    maxsize: int
    stamp_ms: int = 0


class ForgetProducers(KeyEffect, tag=13):
    """The oldest ``count`` idempotent IDs of a producer have expired."""

    local = True

    pid: bytes
    count: int


class Accept(KeyEffect, tag=14):
    """A batch of a bulk producer: the count of its rows in the stream, and their CRC-32."""

    pid: bytes
    batch: int
    rows: int
    crc: int
    at_ms: int


class DropRecords(KeyEffect, tag=15):
    """Removes records of bulk producers that were unused for long.

    Concurrent newer records of the same producers stay.
    """

    pids: list[bytes]


class ResolveConflict(KeyEffect, tag=16):
    """Resolves a conflict: an idempotent ID of several regions stands for one entry, ``entry_id``.

    ``replica_id`` and ``number`` name the losing :class:`Remember`, ``winner`` the winning one;
    ``goes`` and ``stays`` are the effects that added their entries, (0, 0) if unknown. With
    ``removed`` the losing entry is removed. Each region that finds the conflict makes this effect.
    """

    pid: bytes
    iid: bytes
    entry_id: EntryId
    replica_id: int
    number: int
    winner: tuple[int, int]
    goes: tuple[int, int]
    stays: tuple[int, int]
    removed: bool


# -- keys of any type, and databases ----------------------------------------------------------


class Delete(KeyEffect, tag=40):
    """Removes a key; ``expired`` selects the keyspace event.

    With several regions ``positions`` are the ends of the logs as ``(replica_id, position)``;
    counting begins there. ``cuts`` are as in :class:`WriteString`.
    """

    expired: bool
    positions: list[tuple[int, int]] = field(default_factory=list)
    cuts: list[tuple[int, int, bytes]] = field(default_factory=list)


class Expire(KeyEffect, tag=41):
    """A key's deadline; None for none."""

    at_ms: int | None


class Rename(KeyEffect, tag=42):
    """The value and deadline move to another key, maybe of another database (MOVE)."""

    target_db: int
    target: bytes
    incarnation: int = 0


class Copy(KeyEffect, tag=43):
    """An independent copy of value and deadline under another key."""

    target_db: int
    target: bytes
    incarnation: int = 0


class Restore(KeyEffect, tag=44):
    """A key bound to the value of a DUMP payload.

    ``now_ms`` dates what the payload does not (insertion of idempotent IDs); the durations and
    limits are for payloads without idempotency settings.
    """

    payload: bytes
    at_ms: int | None
    now_ms: int
    idmp_duration_s: int
    idmp_maxsize: int
    incarnation: int = 0


class Flush(Effect, tag=45):
    """Empties a database, or all (None).

    With several regions every known key is deleted before by its own effect; this effect removes
    groups that were created concurrently.
    """

    db: int | None


class Swap(Effect, tag=46):
    """Exchanges the contents of two databases."""

    db: int
    other: int


class DeleteKeys(Effect, tag=47):
    """Removes those of several keys that exist, at one moment."""

    db: int
    keys: list[bytes]


# -- strings, lists and sets ------------------------------------------------------------------


class SetString(KeyEffect, tag=50):
    """Binds a key to a string and replaces its value.

    ``keeps_deadline`` is SET KEEPTTL. ``event`` is the keyspace event of a string that was changed,
    and not replaced: ``append``, ``incrby``; ``counted`` is how earlier versions wrote ``incrby``.
    """

    data: bytes
    keeps_deadline: bool = False
    counted: bool = False
    event: str = ""


class Overwrite(KeyEffect, tag=58):
    """Replaces the bytes of a string from position ``at`` on; zeros fill a gap before it.

    A new string is made if there is none. ``event`` is the keyspace event.
    """

    at: int
    data: bytes
    event: str


class Push(KeyEffect, tag=51):
    """Items put at a list's head (or ``tail``), one after the other."""

    items: list[bytes]
    tail: bool = False


class Pop(KeyEffect, tag=52):
    """Items taken off a list's head (or ``tail``); an empty list's key is removed."""

    count: int = 1
    tail: bool = False


class Splice(KeyEffect, tag=54):
    """Replaces ``removed`` items of a list from an index on; an empty list's key is removed.

    ``event`` is the keyspace event; none if it is empty.
    """

    index: int
    removed: int
    items: list[bytes]
    event: str = ""


class RemoveItems(KeyEffect, tag=55):
    """The first ``count`` equal items of a list taken out, the last ones if it is negative.

    An empty list's key is removed.
    """

    item: bytes
    count: int


class AddMembers(KeyEffect, tag=53):
    """Adds members to a set."""

    members: list[bytes]


class RemoveMembers(KeyEffect, tag=56):
    """Removes members; an empty set's key is removed. ``event`` is the keyspace event."""

    members: list[bytes]
    event: str = "srem"


class WriteString(KeyEffect, tag=59):
    """Writes the string of a key, with several regions, and replaces what is in its context.

    Of concurrent ones the greatest stamp counts. ``cuts`` are the increments that it has seen:
    ``(replica ID, number of the last one, total)``.
    """

    data: bytes
    stamp_ms: int
    at_ms: int | None
    cuts: list[tuple[int, int, bytes]]
    event: str = ""


class Increase(KeyEffect, tag=49):
    """Adds to the number that a key shows, with several regions.

    ``total`` is the decimal sum of all increments of its replica ID since the effect ``since``, or
    of this one alone (0). ``at_ms`` is the deadline of the key at this moment.
    """

    since: int
    total: bytes
    at_ms: int | None
    event: str


class PutElements(KeyEffect, tag=48):
    """Puts members into a set or items into a list, with several regions.

    Replaces what is in its context at these places (``stream/elements.py``). Places of members are
    the members, without ``items``. ``event`` is the keyspace event; none if it is empty.
    """

    kind: str
    places: list[bytes]
    items: list[bytes]
    event: str


class TakeElements(KeyEffect, tag=62):
    """Takes members out of a set or items out of a list, with several regions.

    Removes what is in its context: at the places of members, or from one place of a list to
    another: ``[low, high, low, high, ...]``. ``event`` is the keyspace event.
    """

    kind: str
    places: list[bytes]
    event: str


class SetStrings(Effect, tag=57):
    """Binds several keys to strings at one moment: ``keys`` and ``data`` are columns."""

    db: int
    keys: list[bytes]
    data: list[bytes]


# -- libraries of functions -------------------------------------------------------------------


class SetLibrary(Effect, tag=63):
    """A library was loaded or replaced: its name, its source, and what it has registered.

    A function is its name, its description (empty for none) and its flags.
    """

    local = True

    name: bytes
    code: bytes
    functions: list[tuple[bytes, bytes, list[bytes]]]


class DropLibrary(Effect, tag=64):
    """Removes a library."""

    local = True

    name: bytes


# -- policies of names (``AB.POLICY``) --------------------------------------------------------


class SetPolicies(Effect, tag=66):
    """Sets or deletes (nil) policies of a key, or of a pattern of keys, by name and text.

    ``group`` is a group, of a pattern a pattern of groups, or nil for all. For each policy of a
    subject the greatest stamp counts.
    """

    db: int
    subject: bytes
    is_pattern: bool
    group: bytes | None
    rows: list[tuple[bytes, bytes | None]]
    stamp_ms: int = 0


# -- scheduled entries (``AB.SCHEDULE``) -------------------------------------------------------


class ScheduleEntry(Effect, tag=67):
    """An entry for the stream of a name, to be added at ``at_ms``.

    ``fields`` are names and values on the wire. With a ``cron`` line it is added again and again,
    by the clock of ``zone``; ``missed`` says what becomes of missed times. A ``tag`` is a producer
    and an idempotent ID. Of several with one handle the greatest stamp counts.
    """

    db: int
    name: bytes
    handle: bytes
    stamp_ms: int
    at_ms: int
    fields: bytes
    recurrence: tuple[bytes, bytes, int] | None = None
    tag: tuple[bytes, bytes] | None = None


class AdvanceScheduled(Effect, tag=68):
    """Scheduled entries of a name were added, skipped or cancelled.

    ``rows`` are ``(handle, stamp, replica ID, time, next time, number)``: ``next time`` is 1 << 53
    for an entry that is gone, ``number`` that of the effect that has added the entry for ``time``;
    0 if nothing was added, and in a region alone.
    """

    db: int
    name: bytes
    rows: list[tuple[bytes, int, int, int, int, int]]


# -- ACL users --------------------------------------------------------------------------------


class SetUser(Effect, tag=60):
    """An ACL user was created or changed: its name, and its line as ACL LIST writes it."""

    local = True

    name: bytes
    line: bytes


class DropUser(Effect, tag=61):
    """Removes an ACL user."""

    local = True

    name: bytes


# -- members of the cluster, epochs, full syncs, repair, and the record of a sync -------------


class AddRegion(Effect, tag=70):
    """Admits a region to the cluster, with its address."""

    region: int
    name: str
    host: str
    port: int


class RemoveRegion(Effect, tag=71):
    """Removes a region from the cluster; ``epoch`` was its last."""

    region: int
    epoch: int


class JoinFullSync(Effect, tag=73):
    """A full sync was joined; its snapshot is in a file beside the log.

    If it is ``partial``, keys that are not in it stay as they are.
    """

    local = True

    file: str
    partial: bool = False


class TakeKey(KeyEffect, tag=75):
    """Repair: the shared state of a key was taken over from a file beside the log.

    It repairs a key that differs although both regions had applied the same effects.
    """

    local = True

    file: str


class EnterCluster(Effect, tag=74):
    """This region belongs to a cluster of these members: ``(region, name, host, port)``.

    ``removed`` are regions that were members, and their last epochs.
    """

    local = True

    cluster_id: str
    members: list[tuple[int, str, str, int]]
    removed: list[tuple[int, int]] = field(default_factory=list)


class Synced(Effect, tag=76):
    """The log was on the disk up to this position."""

    local = True

    position: int


class OpenEpoch(Effect, tag=72):
    """The first effect of a new epoch, of a region that may have lost effects."""

    previous: int
