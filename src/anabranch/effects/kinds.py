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
    """Neighbouring :class:`Add` effects of one key as columns: what logs and peers get.

    ``data`` holds the fragments one behind the other, ``sizes`` their lengths; ``opens`` are the
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
    """Entries are gone, named by the numbers of the effects that added them.

    ``ranges`` are ``(origin, [low, high, low, high, ...])``, numbers above low and up to high;
    ``deleted`` the newest per origin, ``(origin, number, entry ID)``, where the removal raises
    max-deleted-entry-id. The rest as in :class:`Remove`.
    """

    db: int
    key: bytes
    ranges: list[tuple[int, list[int]]]
    deleted: list[tuple[int, int, EntryId]]
    dereferenced: bool
    trimmed: bool


class Trim(Effect, tag=3):
    """Entries below a position are gone, per region: ``[(region, position)]``."""

    db: int
    key: bytes
    below: list[tuple[int, int]]


class Remove(Effect, tag=4):
    """Single entries are gone.

    ``counted`` raises max-deleted-entry-id (XDEL and kin, not trimming); ``dereferenced`` drops
    them from every group's pending list; ``trimmed`` tells which keyspace event this is.
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

    With several regions counters only rise: ``entries_added`` is by how much.
    """

    db: int
    key: bytes
    last_id: EntryId
    entries_added: int | None
    max_deleted_id: EntryId | None


# -- idempotent producers ---------------------------------------------------------------------


class Remember(Effect, tag=10):
    """A producer's idempotent ID now stands for an entry.

    ``yields``: the entry goes if another region turns out to have accepted the same ID for a
    smaller one.
    """

    db: int
    key: bytes
    pid: bytes
    iid: bytes
    entry_id: EntryId
    at_ms: int
    yields: bool = False


class CountDuplicate(Effect, tag=11):
    """A producer repeated itself, ``count`` times; nothing was added.

    ``accepted`` are idempotent IDs that were counted where the stream came from, and forgotten
    there since.
    """

    local = True

    db: int
    key: bytes
    count: int = 1
    accepted: int = 0


class ConfigureProducers(Effect, tag=12):
    """XCFGSET: new limits, all pairs forgotten. Of concurrent ones the latest stamp counts."""

    db: int
    key: bytes
    duration_s: int
    maxsize: int
    stamp_ms: int = 0


class ForgetProducers(Effect, tag=13):
    """The oldest ``count`` pairs of a producer came of age."""

    local = True

    db: int
    key: bytes
    pid: bytes
    count: int


class Accept(Effect, tag=14):
    """A bulk producer's batch: how many of its rows are in, and the CRC-32 of their bytes."""

    db: int
    key: bytes
    pid: bytes
    batch: int
    rows: int
    crc: int
    at_ms: int


class DropRecords(Effect, tag=15):
    """What is known of these bulk producers was not used for long.

    Other regions may know of younger records of the same producers; those stay.
    """

    db: int
    key: bytes
    pids: list[bytes]


class ResolveConflict(Effect, tag=16):
    """An idempotent ID that several regions accepted stands for one entry, ``entry_id``.

    ``origin`` and ``number`` name the :class:`Remember` that loses, ``winner`` the one that wins;
    ``goes`` and ``stays`` the effects that added their entries, (0, 0) if that is not known. With
    ``removed`` the entry that goes is removed. ``counted``: the tag had not lost before.
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

    With several regions ``start`` None is everything that its region had not seen, and ``offset``
    by how much ``entries_read`` differs from what is counted.
    """

    db: int
    key: bytes
    group: bytes
    start: EntryId | None
    entries_read: int | None
    offset: int = 0


class SetGroup(Effect, tag=21):
    """XGROUP SETID. ``last_id`` None, with several regions: behind all that was seen."""

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
    """A consumer appeared, explicitly or by its first read."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes
    now_ms: int


class DeleteConsumer(Effect, tag=25):
    """XGROUP DELCONSUMER: its pending entries go with it."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes


class SeeConsumer(Effect, tag=26):
    """A consumer called; ``active`` when it got something to work on."""

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes
    now_ms: int
    active: bool


class Deliver(Effect, tag=27):
    """XREADGROUP ``>``: new entries of one region were handed out.

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
    """Pending entries got an owner (None: released), a delivery time and a count.

    ``rows`` are ``(entry ID, region, delivery ms, delivery count)``; entries that were not
    pending become so.
    """

    local = True

    db: int
    key: bytes
    group: bytes
    consumer: bytes | None
    rows: list[tuple[EntryId, int, int, int]]


class Acknowledge(Effect, tag=29):
    """Pending entries are done with.

    ``dots``, with several regions, are entries that do not exist any more, ``(origin, number)``: an
    ID may be that of another entry as well.
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
    """What a group had done where its stream came from (RESTORE, COPY), with several regions.

    ``last_id`` is its last-delivered-id, ``delivered`` are ``(origin, [low, high, ...])``, numbers
    of entries that it was given, above low and up to high, ``open`` those among them that nobody
    holds and nobody has processed. ``consumers`` are name, last seen and last active time;
    ``pending`` are ``(entry ID, origin, number, consumer or -1, delivery ms, delivery count)``, the
    consumer by its place in ``consumers``, -1 for entries that were released, in that order.
    ``entries_read`` is the counter where that was known.
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
    """A key is gone; ``expired`` tells which keyspace event this is.

    With several regions ``positions`` tell, as ``(origin, position)``, how far each log had come:
    counting begins there.
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
    """A database, or all (None), is empty.

    With several regions every key that was known is deleted before; what is left to this effect
    are groups that were created concurrently.
    """

    db: int | None


class Swap(Effect, tag=46):
    """Two databases exchanged contents."""

    db: int
    other: int


# -- other values -----------------------------------------------------------------------------


class SetString(Effect, tag=50):
    """A key bound to a string, whatever it held.

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
    """Items taken off a list's head (or ``tail``); an emptied list's key goes."""

    db: int
    key: bytes
    count: int = 1
    tail: bool = False


class Splice(Effect, tag=54):
    """Of a list, ``removed`` items from an index on replaced by others; an emptied list's key goes.

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

    An emptied list's key goes.
    """

    db: int
    key: bytes
    item: bytes
    count: int


class AddMembers(Effect, tag=53):
    """Members of a set."""

    db: int
    key: bytes
    members: list[bytes]


class RemoveMembers(Effect, tag=56):
    """Members taken out of a set; an emptied set's key goes. ``event`` is the keyspace event."""

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
    """An ACL user is gone."""

    local = True

    name: bytes


# -- regions ----------------------------------------------------------------------------------


class AddRegion(Effect, tag=70):
    """A region belongs to the cluster, and is reached there."""

    region: int
    name: str
    host: str
    port: int


class RemoveRegion(Effect, tag=71):
    """A region does not belong to the cluster any more; ``epoch`` was its last."""

    region: int
    epoch: int


class JoinState(Effect, tag=73):
    """The state of another region was joined to ours; it stands in a file beside the log.

    If it is ``partial`` keys that do not stand in it are left as they are.
    """

    local = True

    file: str
    partial: bool = False


class TakeKey(Effect, tag=75):
    """What all regions share of a key was taken over from another one, from a file beside the log.

    That mends a key which differs although both had applied the same.
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
    """The log was on the disk up to a position when this was written."""

    local = True

    position: int


class OpenEpoch(Effect, tag=72):
    """The first effect of a region that begins to number anew, as it may have lost some."""

    previous: int
