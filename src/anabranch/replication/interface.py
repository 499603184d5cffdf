"""What the replicator needs of its surroundings, and what the operator sets.

Neither :class:`Local` nor :class:`Transport` may call back into the replicator from one of these
methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from anabranch.keyspace.replica import Member
from anabranch.oplog.batch import Batch
from anabranch.scheduling import Steps

if TYPE_CHECKING:
    from anabranch.keyspace.equality import Digests

__all__ = ["Address", "Chance", "Local", "ReplicationConfig", "Transport"]

Address = tuple[str, int]
"""Host and port."""


class Local(Protocol):
    """The region, its log and its disk."""

    @property
    def replica_id(self) -> int:
        """The own replica ID, ``epoch << 8 | region``; grows when a new epoch is opened."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster this region belongs to; empty as long as it has not joined one."""
        ...

    @property
    def members(self) -> Mapping[int, Member]:
        """All members by region number, this region too."""
        ...

    @property
    def removed(self) -> Mapping[int, int]:
        """Regions that were removed, and the epoch that was their last.

        One that is in :attr:`members` as well was admitted again, with a later epoch.
        """
        ...

    @property
    def vector(self) -> Mapping[int, int]:
        """What has been applied, by replica ID; the own one included."""
        ...

    @property
    def durable(self) -> Mapping[int, int]:
        """What has been applied and is on the disk, by replica ID."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether there is no memory for more of what others have."""
        ...

    @property
    def digests(self) -> Digests:
        """Digests of everything that is here."""
        ...

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[bytes] | None:
        """Whole batches of a replica ID that may leave this region, ascending and without a gap.

        The first one begins at ``after + 1``. About ``max_bytes``, but at least one batch; none if
        there is nothing newer; None if the log does not reach back that far.
        """
        ...

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        """What tells the batch of a replica ID that ends with a number from any other.

        Empty if none ends there; None if the log does not reach back that far.
        """
        ...

    @property
    def is_over(self) -> bool:
        """Whether others have their turn now; :meth:`Replicator.go_on` is called later."""
        ...

    def deliver(self, unit: list[Batch], raw: list[bytes]) -> None:
        """Apply batches of another replica ID as one, and append their bytes to the log.

        OSError or AnabranchError: not now; nothing was applied, and it is offered again.
        """
        ...

    def watermark_moved(self, vector: dict[int, int]) -> None:
        """Every member has this on its disk."""
        ...

    def full_sync(
        self, known: Mapping[int, int], places: list[tuple[int, bytes]]
    ) -> tuple[Iterator[bytes], bool]:
        """A consistent snapshot of this very moment as chunks of at most 256 KiB; OSError.

        An empty chunk says that others have their turn before there is another one.

        It is for a region that has applied ``known``, and may leave out keys which that region
        need not join; then the second value is true. If ``places`` (database and key) are named it
        has only these.
        """
        ...

    def stage(self, chunk: bytes | None) -> None:
        """Append to the staging file, or throw it away (None); OSError."""
        ...

    def load(self) -> Steps[None]:
        """Read the staged snapshot in short steps; nothing was changed.

        OSError or AnabranchError: it cannot be used.
        """
        ...

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        """The staged snapshot is whole and was loaded: join it; ``vector`` is the sender's.

        With ``partial`` keys that are not in it stay as they are. OSError or AnabranchError: it
        cannot be used; nothing was changed.
        """
        ...

    def take_key(self, db: int, key: bytes) -> None:
        """The same, but take over one key of it, on which both had applied the same effects."""
        ...

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        """Issue the effect that makes a region a member, or moves one, and have it on the disk.

        AnabranchError, OSError: it is not.
        """
        ...

    def remove(self, region: int) -> None:
        """Issue the effect that removes a member; AnabranchError, OSError."""
        ...

    def enter(
        self, cluster_id: str, members: dict[int, Member], removed: Mapping[int, int]
    ) -> None:
        """A cluster has taken this region in: remember its ID and who is and was in it; OSError."""
        ...

    def reopen(self, epoch: int) -> None:
        """Others know this region in ``epoch``, with effects that are not here: open a later one.

        That happens where a disk was lost or set back. The replicator goes on when ``replica_id``
        has changed; until then it talks to nobody who knows more than this region does. OSError:
        the disk would not keep it; what is issued from then on leaves when it is written.
        """
        ...

    def expelled(self, reason: str) -> None:
        """This region was removed: what it does reaches nobody, so it must not go on writing."""
        ...

    def set_back(self, reason: str) -> None:
        """Others know other effects under numbers of ours: this region must not go on writing."""
        ...

    def report_event(self, event: str, **facts: object) -> None:
        """Tell the operator; ``docs`` list the events."""
        ...


class Transport(Protocol):
    """Connections to other regions, each known by a number that is never used twice."""

    def send(self, link: int, frame: bytes) -> None:
        """Send a whole frame, behind all earlier ones; nothing happens if the link is gone."""
        ...

    def close(self, link: int) -> None:
        """Close after everything sent before; whether ``link_down`` follows does not matter."""
        ...

    def dial(self, host: str, port: int) -> None:
        """Connect; the answer is ``link_up`` with this address, or ``dial_failed``."""
        ...

    def cut_ms(self, region: int) -> float | None:
        """For how long an operator has cut the link with a region; None if nobody has."""
        ...


class Chance(Protocol):
    """Random numbers; unpredictable ones where a secret is configured."""

    def random(self) -> float:
        """From 0 to 1, 1 excluded."""
        ...

    def randbytes(self, n: int, /) -> bytes:
        """So many bytes."""
        ...


@dataclass(slots=True)
class ReplicationConfig:
    """What is set; everything but name and addresses may change at run time."""

    name: str
    """The region's name, for people."""
    host: str
    """Where other regions can dial this one."""
    port: int
    run_id: str
    """Another one at every start."""
    wall_ms: Callable[[], int]
    """The clock of the wall, in ms since 1970; only compared and shown, never waited for."""
    join: Sequence[Address] = ()
    """Members to ask for admission, as long as this region belongs to no cluster."""
    secret: bytes = b""
    """What every member must prove to know; nothing is asked for if it is empty."""
    feature_level: int = 1
    protocol: tuple[int, int] = (1, 2)
    """The lowest and the highest protocol version that are spoken."""
    window_bytes: int = 8 << 20
    """What a peer may send before we grant more."""
    hold_bytes: int = 64 << 20
    """Batches of a peer that wait for a cause; from there on it is granted no more."""
    max_clock_skew_ms: int = 500
    """More is reported."""
    expire_after_ms: float = 0
    """Members that are away for longer are removed; 0 is never."""
    digest_interval_ms: float = 0.0
    """How often digests are compared with every other region; 0 for never."""
