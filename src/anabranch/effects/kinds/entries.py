"""Streams and their entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.effects.kinds.base import Effect, EntryId, EntryIds

if TYPE_CHECKING:
    from anabranch.stream.block import Block

__all__ = [
    "Add",
    "AddRun",
    "CreateStream",
    "Dereference",
    "Remove",
    "RemoveNumbers",
    "SetLastId",
    "Trim",
]


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

    ``ranges`` are ``(replica_id, [low, high, low, high, ...])``, numbers above low and up to high;
    ``deleted`` is the newest for each replica ID, ``(replica_id, number, entry ID)``, if the
    removal raises max-deleted-entry-id. The rest is as in :class:`Remove`.
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
