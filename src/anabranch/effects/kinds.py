"""The vocabulary of change: one small record per thing that can happen.

A command *decides* (validates, picks the ID, picks what to trim) and emits effects that leave
nothing to choose; ``apply*.py`` carries them out. ``codec.py`` turns them into the arrays a log or
a peer gets, where ``tag`` tells the kind; a kind only ever grows at its end, with defaults. ``db``
is a database number, times are wall-clock milliseconds.

A kind is *local* if it concerns this region alone: pending entries, consumers, users. Local effects
have no number and never leave the region.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from anabranch.stream.block import Block

__all__ = [
    "Accept",
    "Acknowledge",
    "Add",
    "AddMembers",
    "AddRegion",
    "AddRun",
    "AdoptGroup",
    "AdvanceGroup",
    "Assign",
    "ConfigureProducers",
    "Copy",
    "CountDuplicate",
    "CreateConsumer",
    "CreateGroup",
    "CreateStream",
    "Delete",
    "DeleteConsumer",
    "Deliver",
    "Dereference",
    "DestroyGroup",
    "DropRecords",
    "DropUser",
    "Effect",
    "EnterCluster",
    "EntryId",
    "EntryIds",
    "Expire",
    "Flush",
    "ForgetProducers",
    "JoinState",
    "OpenEpoch",
    "Pop",
    "Push",
    "Remember",
    "Remove",
    "RemoveItems",
    "RemoveMembers",
    "RemoveNumbers",
    "RemoveRegion",
    "Rename",
    "ResolveConflict",
    "Restore",
    "SeeConsumer",
    "SetGroup",
    "SetLastId",
    "SetString",
    "SetUser",
    "Settle",
    "Splice",
    "Swap",
    "Synced",
    "TakeKey",
    "Trim",
]


EntryId = Annotated[int, Meta(title="entry ID")]
"""An ID as one integer (``stream/entry_id.py``); 128 bits, so the codec has to know of it."""

EntryIds = Annotated[Sequence[int], Meta(title="entry IDs")]
"""Several of them; a ``range`` where they ascend evenly."""


class Effect(Struct, array_like=True, gc=False):
    """Base of all effects."""

    local: ClassVar[bool] = False


# -- entries ----------------------------------------------------------------------------------


class CreateStream(Effect, tag=1):
    """A new empty stream with its idempotency limits; its positions begin at ``incarnation``."""

    db: int
    key: bytes
    idmp_duration_s: int
    idmp_maxsize: int
    incarnation: int = 0


class Add(Effect, tag=2):
    """A new entry: its wire fragment, its weight, and whether it opens a node.

    With several regions also its position in the log of its region.
    """

    db: int
    key: bytes
    entry_id: EntryId
    fragment: bytes
    weight: int
    opens: bool
    position: int = -1


class AddRun(Effect, tag=7, dict=True, gc=True):
    """Neighbouring :class:`Add` effects of one key as columns, in the log and on the wire.

    ``data`` contains the fragments one after the other, ``sizes`` their lengths; ``opens`` are the
    indexes of entries that open a node.
    """

    db: int
    key: bytes
    ids: EntryIds
    data: bytes
    sizes: list[int]
    weights: list[int]
    opens: list[int]
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


class RemoveNumbers(Effect, tag=8):
    """Removes entries by the numbers of the effects that added them.

    ``ranges`` are ``(origin, [low, high, low, high, ...])``, numbers above low and up to high;
    ``deleted`` is the newest for each origin, ``(origin, number, entry ID)``, if the removal raises
    max-deleted-entry-id. The rest is as in :class:`Remove`.
    """

    db: int
    key: bytes
    ranges: list[tuple[int, list[int]]]
    deleted: list[tuple[int, int, EntryId]]
    dereferenced: bool
    trimmed: bool


class Trim(Effect, tag=3):
    """Removes the entries below a position of each region: ``[(region, position)]``."""

    db: int
    key: bytes
    below: list[tuple[int, int]]


class Remove(Effect, tag=4):
    """Removes single entries.

    ``counted`` raises max-deleted-entry-id (XDEL and similar, not trimming); ``dereferenced`` drops
    them from every group's pending list; ``trimmed`` selects the keyspace event.
    """

    db: int
    key: bytes
    ids: EntryIds
    counted: bool
    dereferenced: bool
    trimmed: bool


class Dereference(Effect, tag=5):
    """Groups drop pending entries whose stream entry does not exist (XDELEX DELREF)."""

    db: int
    key: bytes
    ids: EntryIds


class SetLastId(Effect, tag=6):
    """XSETID; None leaves a counter alone.

    With several regions counters only rise: ``entries_added`` is the difference.
    """

    db: int
    key: bytes
    last_id: EntryId
    entries_added: int | None
    max_deleted_id: EntryId | None


# -- idempotent producers ---------------------------------------------------------------------


class Remember(Effect, tag=10):
    """A producer's idempotent ID now stands for an entry.

    ``yields``: the entry is removed if another region has accepted the same idempotent ID for an
    entry with a smaller ID.
    """

    db: int
    key: bytes
    pid: bytes
    iid: bytes
    entry_id: EntryId
    at_ms: int
    yields: bool = False


class CountDuplicate(Effect, tag=11):
    """A producer sent ``count`` retries; nothing was added.

    ``accepted`` is the number of idempotent IDs that the stream's former place had counted and
    forgotten.
    """

    local = True

    db: int
    key: bytes
    count: int = 1
    accepted: int = 0


class ConfigureProducers(Effect, tag=12):
    """XCFGSET: new limits, all IDs forgotten. Of concurrent ones the latest stamp counts."""

    db: int
    key: bytes
    duration_s: int
    maxsize: int
    stamp_ms: int = 0


class ForgetProducers(Effect, tag=13):
    """The oldest ``count`` idempotent IDs of a producer have expired."""

    local = True

    db: int
    key: bytes
    pid: bytes
    count: int


class Accept(Effect, tag=14):
    """A bulk producer's batch: the number of its rows in the stream, and their CRC-32."""

    db: int
    key: bytes
    pid: bytes
    batch: int
    rows: int
    crc: int
    at_ms: int


class DropRecords(Effect, tag=15):
    """Removes records of bulk producers that were not used for long.

    Concurrent newer records of the same producers stay.
    """

    db: int
    key: bytes
    pids: list[bytes]


class ResolveConflict(Effect, tag=16):
    """Resolves a conflict: an idempotent ID of several regions stands for one entry, ``entry_id``.

    ``origin`` and ``number`` name the losing :class:`Remember`, ``winner`` the winning one;
    ``goes`` and ``stays`` are the effects that added their entries, (0, 0) if unknown. With
    ``removed`` the losing entry is removed. ``counted``: the tag had not lost before.
    """

    db: int
    key: bytes
    pid: bytes
    iid: bytes
    entry_id: EntryId
    origin: int
    number: int
    winner: tuple[int, int]
    goes: tuple[int, int]
    stays: tuple[int, int]
    removed: bool
    counted: bool = True


# -- consumer groups --------------------------------------------------------------------------


class CreateGroup(Effect, tag=20):
    """XGROUP CREATE; entries_read None is unknown.

    With several regions ``start`` None means everything that its region had not seen, and
    ``offset`` is the difference between ``entries_read`` and the count.
    """

    db: int
    key: bytes
    group: bytes
    start: EntryId | None
    entries_read: int | None
    offset: int = 0


class SetGroup(Effect, tag=21):
    """XGROUP SETID. ``last_id`` None, with several regions: after everything seen."""

    local = True

    db: int
    key: bytes
    group: bytes
    last_id: EntryId | None
    entries_read: int | None


class AdvanceGroup(Effect, tag=22):
    """XCLAIM LASTID: the cursor moves, entries-read does not."""

    local = True

    db: int
    key: bytes
    group: bytes
    last_id: EntryId


class DestroyGroup(Effect, tag=23):
    """XGROUP DESTROY."""

    db: int
    key: bytes
    group: bytes


class CreateConsumer(Effect, tag=24):
    """Creates a consumer, by XGROUP CREATECONSUMER or its first read."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes
    now_ms: int


class DeleteConsumer(Effect, tag=25):
    """XGROUP DELCONSUMER: also removes its pending entries."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes


class SeeConsumer(Effect, tag=26):
    """A consumer has read; ``active`` if it got entries."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes
    now_ms: int
    active: bool


class Deliver(Effect, tag=27):
    """XREADGROUP ``>``: new entries of one region were delivered.

    ``pending`` is False for NOACK. ``entries_read`` is the group's counter afterwards. With several
    regions ``numbers`` are those of the effects that added the entries.
    """

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes
    region: int
    ids: EntryIds
    now_ms: int
    entries_read: int | None
    pending: bool
    numbers: list[int] = []


class Assign(Effect, tag=28):
    """Pending entries get a consumer (None: released), a delivery time and a count.

    ``rows`` are ``(entry ID, region, delivery ms, delivery count)``; entries that were not
    pending become pending.
    """

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes | None
    rows: list[tuple[EntryId, int, int, int]]


class Acknowledge(Effect, tag=29):
    """Removes pending entries (XACK).

    ``dots``, with several regions, are entries that do not exist any more, ``(origin, number)``,
    because another entry may have the same ID.
    """

    local = True

    db: int
    key: bytes
    group: bytes
    ids: EntryIds
    dots: list[tuple[int, int]] = []


class Settle(Effect, tag=30):
    """Runs of entries are acknowledged for all regions, under some creations of a group.

    ``creations`` are ``(origin, number)``; ``ranges`` ``(origin, low, high)``, above low and
    up to high. ``greatest`` is the greatest ID among them.
    """

    db: int
    key: bytes
    group: bytes
    creations: list[tuple[int, int]]
    ranges: list[tuple[int, int, int]]
    greatest: EntryId


class AdoptGroup(Effect, tag=31):
    """The progress of a group in its former stream (RESTORE, COPY), with several regions.

    ``last_id`` is its last-delivered-id; ``delivered`` are ``(origin, [low, high, ...])``, numbers
    of delivered entries, above low and up to high; ``open`` are those among them that are neither
    pending nor processed. ``consumers`` are name, last seen and last active time;
    ``pending`` are ``(entry ID, origin, number, consumer or -1, delivery ms, delivery count)``, the
    consumer by its index in ``consumers``, -1 for released entries, in that order.
    ``entries_read`` is the counter if it was known.
    """

    local = True

    db: int
    key: bytes
    group: bytes
    last_id: EntryId
    delivered: list[tuple[int, list[int]]]
    open: list[tuple[int, int]]
    consumers: list[tuple[bytes, int, int]]
    pending: list[tuple[EntryId, int, int, int, int, int]]
    entries_read: int | None = None


# -- keys -------------------------------------------------------------------------------------


class Delete(Effect, tag=40):
    """Removes a key; ``expired`` selects the keyspace event.

    With several regions ``positions`` are the ends of the logs as ``(origin, position)``; counting
    begins there.
    """

    db: int
    key: bytes
    expired: bool
    positions: list[tuple[int, int]] = []


class Expire(Effect, tag=41):
    """A key's deadline; None for none."""

    db: int
    key: bytes
    at_ms: int | None


class Rename(Effect, tag=42):
    """The value and deadline move to another key, maybe of another database (MOVE)."""

    db: int
    key: bytes
    target_db: int
    target: bytes
    incarnation: int = 0


class Copy(Effect, tag=43):
    """An independent copy of value and deadline under another key."""

    db: int
    key: bytes
    target_db: int
    target: bytes
    incarnation: int = 0


class Restore(Effect, tag=44):
    """A key bound to the value of a DUMP payload.

    ``now_ms`` dates what the payload does not (insertion of idempotent IDs); the durations and
    limits are for payloads without idempotency settings.
    """

    db: int
    key: bytes
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


# -- other values -----------------------------------------------------------------------------


class SetString(Effect, tag=50):
    """Binds a key to a string and replaces its value.

    ``keeps_deadline`` is SET KEEPTTL. ``event`` is the keyspace event of a string that was changed,
    and not replaced: ``append``, ``incrby``; ``counted`` is how earlier versions wrote ``incrby``.
    """

    db: int
    key: bytes
    data: bytes
    keeps_deadline: bool = False
    counted: bool = False
    event: str = ""


class Push(Effect, tag=51):
    """Items put at a list's head (or ``tail``), one after the other."""

    db: int
    key: bytes
    items: list[bytes]
    tail: bool = False


class Pop(Effect, tag=52):
    """Items taken off a list's head (or ``tail``); an empty list's key is removed."""

    db: int
    key: bytes
    count: int = 1
    tail: bool = False


class Splice(Effect, tag=54):
    """Replaces ``removed`` items of a list from an index on; an empty list's key is removed.

    ``event`` is the keyspace event; none if it is empty.
    """

    db: int
    key: bytes
    index: int
    removed: int
    items: list[bytes]
    event: str = ""


class RemoveItems(Effect, tag=55):
    """The first ``count`` equal items of a list taken out, the last ones if it is negative.

    An empty list's key is removed.
    """

    db: int
    key: bytes
    item: bytes
    count: int


class AddMembers(Effect, tag=53):
    """Adds members to a set."""

    db: int
    key: bytes
    members: list[bytes]


class RemoveMembers(Effect, tag=56):
    """Removes members; an empty set's key is removed. ``event`` is the keyspace event."""

    db: int
    key: bytes
    members: list[bytes]
    event: str = "srem"


# -- users ------------------------------------------------------------------------------------


class SetUser(Effect, tag=60):
    """An ACL user was created or changed: its name, and its line as ACL LIST writes it."""

    local = True

    name: bytes
    line: bytes


class DropUser(Effect, tag=61):
    """Removes an ACL user."""

    local = True

    name: bytes


# -- regions ----------------------------------------------------------------------------------


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


class JoinState(Effect, tag=73):
    """A full sync was joined; its snapshot is in a file beside the log.

    If it is ``partial``, keys that are not in it stay as they are.
    """

    local = True

    file: str
    partial: bool = False


class TakeKey(Effect, tag=75):
    """Repair: the shared state of a key was taken over from a file beside the log.

    It repairs a key that differs although both regions had applied the same effects.
    """

    local = True

    db: int
    key: bytes
    file: str


class EnterCluster(Effect, tag=74):
    """This region belongs to a cluster of these members: ``(region, name, host, port)``.

    ``removed`` are regions that were members, and their last epochs.
    """

    local = True

    cluster_id: str
    members: list[tuple[int, str, str, int]]
    removed: list[tuple[int, int]] = []


class Synced(Effect, tag=76):
    """A note: the log was on the disk up to this position."""

    local = True

    position: int


class OpenEpoch(Effect, tag=72):
    """The first effect of a new epoch, of a region that may have lost effects."""

    previous: int
