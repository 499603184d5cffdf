"""Streams and their entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.effects.kinds.base import EntryId, EntryIds, KeyEffect
from anabranch.stream.block import Block
from anabranch.stream.region_log import Share


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
