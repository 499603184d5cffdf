"""Consumer groups: progress, consumers, pending entries."""

from __future__ import annotations

from msgspec import field

from anabranch.effects.kinds.base import EntryId, EntryIds, GroupEffect


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
