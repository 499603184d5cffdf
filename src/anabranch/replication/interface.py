"""What the replicator needs from its surroundings, and its settings.

Neither :class:`Local` nor :class:`Transport` may call back into the replicator from one of these
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from anabranch.keyspace.equality import KeyDigests
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Member, Replica
from anabranch.oplog.batch import Batch, SentBatch
from anabranch.scheduling import Steps

Address = tuple[str, int]
"""Host and port."""


class Local(Protocol):
    """The region, its log and its disk."""

    replica: Replica
    """What the region knows of itself and of all regions; a new epoch changes ``replica.own``."""

    @property
    def vector(self) -> Mapping[int, int]:
        """What has been applied, by replica ID; the own one included."""

    @property
    def durable(self) -> Mapping[int, int]:
        """What has been applied and is on the disk, by replica ID."""

    @property
    def is_full(self) -> bool:
        """Whether there is no memory for more effects of other regions."""

    @property
    def digests(self) -> KeyDigests:
        """The digests of all keys, by which two regions find where they differ."""

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[SentBatch] | None:
        """Whole batches of a replica ID that may leave this region, ascending and without a gap.

        The first one begins at ``after + 1``. About ``max_bytes``, but at least one batch; none if
        there is nothing newer; None if the log does not reach back that far.
        """

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        """The fingerprint of the batch of a replica ID that ends with a number.

        Empty if none ends there; None if the log does not reach back that far.
        """

    @property
    def is_over(self) -> bool:
        """Whether the slice of time is over; :meth:`Replicator.go_on` is called later."""

    @property
    def is_joining(self) -> bool:
        """Whether keys of a full sync are still to be joined: effects are delivered later."""

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        """Apply units of another replica ID as one, and append their bytes to the log.

        OSError or AnabranchError: nothing was applied; the caller tries again later.
        """

    def watermark_moved(self, vector: dict[int, int]) -> None:
        """The watermark has moved: every member has these effects on its disk."""

    def choose(self, known: Mapping[int, int]) -> Steps[Places | None]:
        """Find the keys of a full sync for a region that has applied ``known``, in short steps.

        The others need not be joined. None: all keys. Take the full sync at once.
        """

    def places(self, chosen: Iterable[Place]) -> Places:
        """These keys for a full sync; take it at once."""

    def full_sync(self, places: Places | None) -> Iterator[bytes]:
        """A consistent snapshot of this very moment as chunks of at most 256 KiB; OSError.

        It contains these keys; None: all keys. An empty chunk ends the slice of
        time: the next chunk follows later.
        """

    def stage(self, chunk: bytes | None) -> None:
        """Append to the staging file, or delete the file (None); OSError."""

    def load(self) -> Steps[None]:
        """Read the staged snapshot in short steps; changes nothing.

        OSError or AnabranchError: it cannot be used.
        """

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        """Join the staged snapshot, which is complete and loaded; ``vector`` is the sender's.

        Keys may be joined later (:attr:`is_joining`).
        With ``partial`` keys that are not in it stay as they are. OSError or AnabranchError: it
        cannot be used; nothing was changed.
        """

    def take_key(self, db: int, key: bytes) -> None:
        """Take over one key of it, on which both regions had applied the same effects."""

    @property
    def addresses(self) -> Mapping[int, Address]:
        """The addresses that :meth:`note_addresses` has noted in an earlier process."""

    def note_addresses(self, addresses: Mapping[int, Address]) -> None:
        """Note the addresses of members that differ from those of their admissions."""

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        """Issue the effect that admits a region, or changes its address, and sync it to the disk.

        AnabranchError, OSError: it is not.
        """

    def remove(self, region: int) -> None:
        """Issue the effect that removes a member; AnabranchError, OSError."""

    def enter(
        self, cluster_id: str, members: dict[int, Member], removed: Mapping[int, int]
    ) -> None:
        """A cluster has admitted this region: store its ID and its members; OSError."""

    def reopen(self, epoch: int) -> None:
        """Others have effects of this region in ``epoch`` that it lacks: open a later epoch.

        This happens after a disk was lost or set back. The replicator goes on when ``replica.own``
        has changed; until then it has no link to a region that knows more than this one. OSError:
        the disk does not accept the epoch; effects issued since are sent when they are written.
        """

    def expelled(self, reason: str) -> None:
        """This region was removed: its effects reach no other region, so it must stop writing."""

    def set_back(self, reason: str) -> None:
        """Others have different effects under numbers of this region: it must stop writing."""

    def report_event(self, event: str, **facts: object) -> None:
        """Report an event to the operator; docs/operations.md lists the events."""


class Transport(Protocol):
    """Connections to other regions, each known by a number that is never used twice."""

    def send(self, link: int, frame: bytes) -> None:
        """Send a whole frame, behind all earlier ones; nothing happens if the link is gone."""

    def close(self, link: int) -> None:
        """Close the link after all frames sent before; ``link_down`` may follow or not."""

    def dial(self, host: str, port: int) -> None:
        """Connect; the answer is ``link_up`` with this address, or ``dial_failed``."""

    def cut_ms(self, region: int) -> float | None:
        """For how long an operator has paused the link to a region; None if not paused."""


class Chance(Protocol):
    """Random numbers; unpredictable ones where a secret is configured."""

    def random(self) -> float:
        """A number from 0 to 1, 1 excluded."""

    def randbytes(self, n: int, /) -> bytes:
        """``n`` random bytes, unpredictable if used for a secret."""


FEATURE_LEVEL: Final = 5
"""The version of effects that this code understands: 2 brought policies, 3 scheduled entries, 4
homes of groups, strings and counters, 5 sets and lists.
Members report it, and what needs a level is refused while one of them has a lower one."""


class ReplicationConfig(Struct):
    """The settings; everything but name and addresses may change at run time."""

    name: str
    """The name of the region."""
    host: str
    """Where other regions can dial this one."""
    port: int
    run_id: str
    """Differs at every start."""
    wall_ms: Callable[[], int]
    """The wall clock in ms since 1970; used for comparison and display, never for waits."""
    join: Sequence[Address] = ()
    """Members to ask for admission, as long as this region belongs to no cluster."""
    secret: bytes = b""
    """The secret that every member must prove to know; empty: no proof is required."""
    databases: int = 0
    """How many databases this region has; 0: any number fits. It cannot change at run time."""
    feature_level: int = FEATURE_LEVEL
    protocol: tuple[int, int] = (1, 1)
    """The lowest and the highest supported protocol version."""
    window_bytes: int = 8 << 20
    """Bytes that a peer may send before this region grants more."""
    hold_bytes: int = 64 << 20
    """Bytes of waiting batches of a peer above which it is granted no more."""
    max_clock_skew_ms: int = 500
    """A greater clock skew is reported."""
    expire_after_ms: float = 0
    """Members that are absent for longer are removed; 0: never."""
    digest_interval_ms: float = 0.0
    """The interval between two digest exchanges with every other region; 0: never."""
