"""What one region knows of all regions: its replica ID, its version vector, its tombstones.

A *replica ID* is one epoch of a region: ``epoch << 8 | region``. It numbers its
effects 1, 2, 3 ... without gaps; a *dot* is (replica ID, number). Batches are applied in causal
order, so a *version vector* (replica ID -> number) describes completely what was applied: an entry
that the version vector covers and that does not exist was removed, and nothing need be remembered
of it.

DEL and XGROUP DESTROY must also beat concurrent creations of groups. They leave a *tombstone*
until every member has them on its disk.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from anabranch.errors import CommandError
from anabranch.keyspace.conflicts import Conflicts
from anabranch.keyspace.last_effects import LastEffects
from anabranch.keyspace.unstable_tombstones import UnstableTombstones
from anabranch.stream import fields
from anabranch.stream.fields import DOT, INTEGER, NUMBER, TEXT, nested, row, table
from anabranch.stream.shared import Dot

ALONE = 0
"""The region number of a server on its own; its replica ID is the same."""

REGION_BITS = 8
REGION_MAX = (1 << REGION_BITS) - 1

EPOCH_STEP_BYTES = 2
"""The random part of the distance to a new epoch where later ones may have been used already.

Two starts from one backup choose the same epoch once in 65,536 times; regions detect that
(``set_back``). A longer step would use up the four bytes of an epoch sooner, and sequence numbers,
which begin at ``epoch x 2**32``, would become larger.
"""


def replica_id_of(region: int, epoch: int) -> int:
    """The replica ID of a region's epoch."""
    return epoch << REGION_BITS | region


def region_of(replica_id: int) -> int:
    """The region number of a replica ID."""
    return replica_id & REGION_MAX


def epoch_of(replica_id: int) -> int:
    """The epoch of a replica ID."""
    return replica_id >> REGION_BITS


class Member(NamedTuple):
    """A region of the cluster and where others reach it."""

    name: str
    host: str
    port: int


class ApplyStats:
    """Counts made while effects are applied, for the statistics of the region."""

    def __init__(self) -> None:
        self.collapsed = 0  # entries that conflicts of idempotent IDs removed
        self.duplicate_ids = 0  # entries that came with the ID of another live entry
        self.newest_id = 0  # the greatest ID that arrived
        # Entries that need not be delivered, because this region processed their duplicates:
        # (database, key, group, dot, entry ID)
        self.processed: list[tuple[int, bytes, bytes, Dot, int]] = []


class Replica:
    """One region's knowledge. ``own`` is the replica ID under which it numbers its effects.

    A server on its own is a region alone: region 0, which gives its effects no numbers that others
    could know, so its vector stays empty.
    """

    def __init__(self, own: int, default_limits: Callable[[], tuple[int, int]]) -> None:
        """``default_limits`` are seconds and count for idempotent producers of new streams."""
        self.own = own
        """The replica ID of this region's epoch; see :meth:`become`."""
        self.region = region_of(own)
        self.epoch = epoch_of(own)
        self.is_regional = region_of(own) != ALONE
        """Whether other regions may write the same keys. What follows from that is little:
        ``tests/house/test_forks.py`` lists the lines that ask, and why."""
        self.default_limits = default_limits
        self.cluster_id = ""  # empty before this region belongs to a cluster
        self.vector: dict[int, int] = {}
        self.members: dict[int, Member] = {}  # by region number, from the admissions
        self.admissions: dict[int, dict[Dot, Member]] = {}
        self.removed: dict[int, int] = {}  # region -> epoch up to which it was removed
        self.former_names: dict[int, str] = {}  # of removed regions, if known here
        # Of the effect being applied:
        self.replica_id = own
        self.number = 0
        self.context: Mapping[int, int] = self.vector
        # FLUSHDB and FLUSHALL: their dots and databases (None: all), while they are not stable
        self.flushes: dict[Dot, int | None] = {}
        self.tombstones_forgotten = 0  # by this process, as every member had them on its disk
        # Keys with tombstones, except for those that are packed (keyspace/remembered.py)
        self.tombstoned: dict[tuple[int, bytes], None] = {}
        # Effects that have left tombstones, those of FLUSHALL too, as long as they are not stable
        self.unstable_tombstones = UnstableTombstones()
        self.watermark: dict[int, int] = {}  # what every member has on its disk
        self.hybrid_ms = 0  # the greatest stamp of a setting or a string seen
        self.known_level = 0  # every member has this feature level, for a key may need it
        # Keys with a value that hides another one: both were made at once in different regions
        self.hidden_values: dict[tuple[int, bytes], None] = {}
        self.feature_levels: Callable[[], Mapping[int, int]] = dict
        """The feature levels of all members, as far as they are known."""
        self.conflicts = Conflicts()
        self.apply_stats = ApplyStats()
        self.untold: dict[tuple[int, bytes], None] = {}
        """Database and key of streams of which something has gone that a group had pending: what
        was acknowledged behind it may be told to other regions now."""
        self.last_effects = LastEffects()

    def require_level(self, level: int, what: str) -> None:
        """Refuse what a member does not understand, or may not: its level may be unknown yet."""
        behind = [number for number, each in self.feature_levels().items() if each < level]
        if behind:
            names = [self.members[each].name for each in behind if each in self.members]
            raise CommandError(
                f"ERR region {', '.join(names) or behind[0]} does not know {what}, or has not been "
                "heard of since this one started: update it, connect it or remove it, then try "
                "again"
            )

    @classmethod
    def alone(cls) -> Replica:
        """The replica of a server on its own."""
        return cls(ALONE, lambda: (0, 0))

    def become(self, own: int) -> None:
        """Go on in another epoch of this region."""
        self.own = own
        self.epoch = epoch_of(own)

    @property
    def dot(self) -> Dot:
        """The dot of the effect being applied."""
        return self.replica_id, self.number

    @property
    def oldest_tombstone(self) -> Dot | None:
        """The oldest tombstone that some member may lack; None if there is none."""
        return self.unstable_tombstones.oldest

    def written(self, *, keeps_last_effects: bool) -> list[Any]:
        """All of this as plain values, for a snapshot; :meth:`read` is the reverse.

        The last effects of keys are only needed in snapshots of this region itself.
        """
        return [
            self.own,
            *REPLICA.write(self),
            self.last_effects.written() if keeps_last_effects else None,
            self.conflicts.written(),
        ]

    def read(self, values: list[Any]) -> None:
        """Read what :meth:`written` returned; from another region the own replica ID stays."""
        own, *shared, last_effects, conflicts = values
        if region_of(own) == self.region:
            self.become(own)
        vector, self.admissions, self.removed, self.flushes, *others = REPLICA.read(shared)
        self.hybrid_ms, self.cluster_id, self.former_names = others
        self.vector.update(vector)
        if last_effects is None:
            self.last_effects.record_all(self.vector)
        else:
            self.last_effects.read(last_effects)
        self.conflicts.read(conflicts)
        self.renew_members()
        for dot in self.flushes:
            self.unstable_tombstones.add(dot)

    def renew_members(self) -> None:
        """Derive the members: those with an admission that is in no removal's context."""
        self.admissions = {region: dots for region, dots in self.admissions.items() if dots}
        self.members = {region: dots[max(dots)] for region, dots in self.admissions.items()}

    def shift(self, position: int) -> int:
        """The difference between the number of the effect being applied and a position.

        In a region alone it is always 1 (:mod:`anabranch.stream.region_log`).
        """
        return self.number - position if self.is_regional else 1

    def knows(self, dot: Dot) -> bool:
        """Whether another effect is in the context of the effect being applied."""
        return dot[1] <= (
            self.context.get(dot[0], 0) if dot[0] != self.replica_id else self.number - 1
        )

    def context_now(self) -> dict[int, int]:
        """The context of the effect being applied, as an object to store."""
        context = dict(self.context)
        context[self.replica_id] = self.number - 1
        return context

    def begin_own(self) -> None:
        """The next effect is an own one."""
        self.replica_id = self.own
        self.number = self.vector.get(self.own, 0) + 1
        self.context = self.vector

    def begin_remote(self, replica_id: int, number: int, context: Mapping[int, int]) -> None:
        """The next effect is one of this replica ID, with this context."""
        self.replica_id = replica_id
        self.number = number
        self.context = context
        self.conflicts.heard += 1

    def finish(self, effect: Any, count: int) -> None:
        """Record that the effect was applied; it has taken ``count`` numbers."""
        last = self.vector[self.replica_id] = self.number + count - 1
        if (key := getattr(effect, "key", None)) is not None:
            self.last_effects.wrote(effect.db, key, self.replica_id, last)

    def finish_entry(self, db: int, key: bytes) -> None:
        """Record that an effect was applied that adds one entry to a key."""
        self.vector[self.replica_id] = self.number
        self.last_effects.wrote(db, key, self.replica_id, self.number)

    def stamp(self, now_ms: int) -> int:
        """A stamp for a new setting: not before any known stamp."""
        return max(now_ms, self.hybrid_ms + 1)


REPLICA: Final = fields.FieldTable(
    vector=fields.VECTOR,
    admissions=nested(fields.REGION, table(DOT, row(Member, TEXT, TEXT, INTEGER))),
    removed=table(fields.REGION, NUMBER),
    flushes=table(DOT, fields.optional(NUMBER)),
    hybrid_ms=fields.PLACE,
    cluster_id=TEXT,
    former_names=table(fields.REGION, TEXT),
)
"""What is written of :class:`Replica`, beside its parts."""

# -- tokens: version vectors as short printable words ---------------------------------------------

TOKEN_PREFIX: Final = b"v1:"
PLACED_PREFIX: Final = b"n1:"
_NOTHING: Final = b"0"
_NUMBERS: Final = msgspec.msgpack.Decoder(list[Annotated[int, msgspec.Meta(ge=0)]])


def write_token(vector: Mapping[int, int]) -> bytes:
    """The token of a vector; replica IDs of which it covers nothing are left out.

    It is ``v1:`` and the base64url of a msgpack list: region, epoch and number of each replica ID;
    that of an empty vector is ``0``. There is exactly one token for a vector.
    """
    triples = sorted((region_of(o), epoch_of(o), number) for o, number in vector.items() if number)
    if not triples:
        return _NOTHING
    return TOKEN_PREFIX + _coded(triples)


def write_placed_token(vector: Mapping[int, int], places: Mapping[int, int]) -> bytes:
    """A token with how many positions of each log of one key its reader has come past.

    It is ``n1:`` and a list as in :func:`write_token`, with the place behind each number.
    """
    rows = sorted(
        (region_of(each), epoch_of(each), vector.get(each, 0), places.get(each, 0))
        for each in vector.keys() | places.keys()
    )
    return PLACED_PREFIX + _coded(rows)


def read_placed_token(raw: bytes) -> tuple[dict[int, int], dict[int, int]]:
    """Vector and places of such a token. Raises :class:`ValueError` for anything that is none."""
    vector: dict[int, int] = {}
    places: dict[int, int] = {}
    for region, epoch, number, place in _rows(raw.removeprefix(PLACED_PREFIX), 4):
        vector[replica_id_of(region, epoch)] = number
        places[replica_id_of(region, epoch)] = place
    if write_placed_token(vector, places) != raw:
        raise ValueError("not as a token is written")
    return vector, places


def _coded(rows: Sequence[tuple[int, ...]]) -> bytes:
    data = msgspec.msgpack.encode([each for row in rows for each in row])
    return urlsafe_b64encode(data).rstrip(b"=")


def _rows(coded: bytes, width: int) -> list[list[int]]:
    """The reverse of :func:`_coded`, except that the last row may be shorter."""
    try:
        flat = _NUMBERS.decode(urlsafe_b64decode(coded + b"=" * (-len(coded) % 4)))
    except msgspec.MsgspecError as problem:
        raise ValueError("not a list of numbers") from problem
    return [flat[at : at + width] for at in range(0, len(flat), width)]


def read_token(raw: bytes) -> dict[int, int]:
    """The vector of a token. Raises :class:`ValueError` for anything that is none."""
    if raw == _NOTHING:
        return {}
    if raw.startswith(PLACED_PREFIX):
        return read_placed_token(raw)[0]
    rows = _rows(raw.removeprefix(TOKEN_PREFIX), 3)
    vector = {replica_id_of(region, epoch): number for region, epoch, number in rows}
    if write_token(vector) != raw:
        raise ValueError("not as a token is written")
    return vector
