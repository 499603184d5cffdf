"""The messages between regions, and their bodies. :mod:`framing` makes frames of them.

A body is a msgpack array of the fields of a struct below, or for ``FULL_SYNC`` bytes of a snapshot.
New versions add fields at the end only, and skip unknown types, so that different versions can talk
to each other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeVar

import msgspec

from anabranch.effects.codec import BODY_BYTES_MAX
from anabranch.errors import UNREADABLE, AnabranchError
from anabranch.oplog.batch import HEADER_BYTES, REPLICA_IDS_MAX
from anabranch.replication.framing import CHECKSUM_BYTES, FrameType, checksum, framed
from anabranch.stream.fields import NUMBER_MAX

MODULUS: Final = 256
"""IDs of a region are congruent to its number by this modulus; a cluster has one."""

TAG_BYTES: Final = 16
"""The size of the seal of a frame."""

FRAME_BYTES_MAX: Final = BODY_BYTES_MAX + HEADER_BYTES + TAG_BYTES + 1
"""The size of type and payload: that of the largest batch that a log can hold."""

HANDSHAKE_BYTES_MAX: Final = 64 << 10
"""The same limit before the handshake is complete."""

REPLICA_ID_MAX: Final = (1 << 40) - 1
"""An epoch of 32 bits and a region."""


_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_ReplicaId = Annotated[int, msgspec.Meta(ge=0, le=REPLICA_ID_MAX)]
_Region = Annotated[int, msgspec.Meta(ge=1, le=255)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_Text = Annotated[str, msgspec.Meta(max_length=256)]
_Epoch = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 32)]
_Fingerprint = Annotated[bytes, msgspec.Meta(max_length=8)]
_Database = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Bucket = Annotated[int, msgspec.Meta(ge=0, lt=1024)]
Vector = Annotated[dict[_ReplicaId, _Number], msgspec.Meta(max_length=REPLICA_IDS_MAX)]
_Regions = Annotated[list[_Region], msgspec.Meta(max_length=255)]
_Buckets = Annotated[list[_Bucket], msgspec.Meta(max_length=1024)]
Place = tuple[_Database, bytes]
"""Database and key."""


class Reason(IntEnum):
    """Why a region closes a link, as the other one is told."""

    PROTOCOL = 1
    """A frame violates the protocol."""
    VERSION = 2
    CLUSTER = 3
    MODULUS = 4
    SECRET = 5
    REGION = 6
    """The region number is that of the receiver, is taken, or is not the one dialled."""
    UNKNOWN = 7
    """The region is not a member, or not yet."""
    REMOVED = 8
    EPOCH = 9
    """The epoch of the region has ended."""
    DUPLICATE = 10
    """Another link to the same region exists."""
    BATCH = 11
    """A batch that must not be applied."""
    BUSY = 12
    """The disk of the region does not accept writes."""
    SILENT = 13
    STOPPING = 14
    DAMAGED = 15
    """A checksum does not fit."""
    ELSEWHERE = 16
    """Another member assigns region numbers: the joining region must ask that member."""
    SET_BACK = 17
    """The receiver has issued effect numbers twice and must stop writing."""
    FORGED = 18
    """A seal does not fit: a frame was changed, left out or repeated."""
    HEARD = 19
    """Another server with that number was heard of a moment ago: ask again later."""
    DATABASES = 20
    """The number of databases differs, so one side would refuse what the other one accepts."""


class Message(msgspec.Struct, frozen=True, array_like=True):
    """A message, or a part of one; :data:`STRUCTS` has those that are the whole of a frame."""


class Hello(Message, frozen=True):
    """Facts about the sender: the first frame of the side that dialled, and part of WELCOME."""

    protocol_low: int
    protocol_high: int
    cluster_id: _Text
    """Empty: the sender wants to join."""
    region: _Region
    name: _Text
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    run_id: _Text
    feature_level: int
    modulus: int
    host: _Text
    port: _Port
    known_epoch: _Epoch
    """The newest epoch of the receiver that the sender knows; -1 for none."""
    nonce: Annotated[bytes, msgspec.Meta(max_length=64)]
    removed_you: bool = False
    """The sender's cluster has removed the receiver."""
    has_secret: bool = False
    """The sender requires a proof and seals its frames."""
    databases: int = 0
    """How many databases the sender has; 0: it does not say."""

    @property
    def replica_id(self) -> int:
        """The replica ID of the effects it writes."""
        return self.epoch << 8 | self.region


class Welcome(Message, frozen=True):
    """The answer; ``facts`` are the bytes of a :class:`Hello`, which the proofs cover."""

    facts: bytes


class Proof(Message, frozen=True):
    """Proves that the sender knows the secret; empty without a secret."""

    proof: bytes


class MemberRecord(Message, frozen=True):
    """A member of the cluster, for a region that joins."""

    region: _Region
    name: _Text
    host: _Text
    port: _Port


class Members(Message, frozen=True):
    """Admits a region, after that region has proved to know the secret."""

    cluster_id: _Text
    members: Annotated[list[MemberRecord], msgspec.Meta(max_length=255)]
    removed: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=255)] = []
    """Removed regions, and their last epoch: effects of them may still arrive."""


class Sub(Message, frozen=True):
    """Requests the effects of the receiver's own replica ID after a number, continuously."""

    vector: Vector
    fingerprint: _Fingerprint = b""
    """The fingerprint of the sender's last batch of that replica ID; empty if unknown."""


class StatusRow(Message, frozen=True):
    """The status row of one region."""

    region: _Region
    replica_id: _ReplicaId
    version: _Number
    """Grows with each row of the same replica ID."""
    applied: Vector
    durable: Vector
    have: Vector
    """What the region has in any form: applied, waiting, or staged."""
    feature_level: int
    links: _Regions
    """Regions to which it has a link."""

    def equals_but_version(self, other: StatusRow) -> bool:
        """Whether two rows are equal except for the version."""
        return msgspec.structs.replace(self, version=other.version) == other


class StatusRows(Message, frozen=True):
    """The sender's row and rows of others, with stamps for round trip and clock skew."""

    rows: Annotated[list[StatusRow], msgspec.Meta(min_length=1, max_length=255)]
    stamp: float
    """The sender's monotonic clock in ms."""
    echo: float
    """The receiver's latest stamp, or -1."""
    echo_age_ms: float
    """How long ago the sender received that stamp, in ms."""
    wall_ms: int


class Fetch(Message, frozen=True):
    """Requests effects of any replica ID once, at most so many bytes, outside the window."""

    replica_id: _ReplicaId
    after: _Number
    upto: _Number
    max_bytes: _Number
    fingerprint: _Fingerprint = b""
    """The fingerprint of the sender's batch that ends with ``after``; empty if unknown."""


class Fetched(Message, frozen=True):
    """The answer to a FETCH is complete."""

    replica_id: _ReplicaId


class Credit(Message, frozen=True):
    """Allows the receiver to send more bytes, of effects or of a full sync."""

    bytes: _Number
    of_full_sync: bool = False


class Behind(Message, frozen=True):
    """The sender's log does not reach back far enough: the receiver needs a full sync."""

    replica_id: _ReplicaId
    after: _Number


class FullSyncGet(Message, frozen=True):
    """Requests a full sync of what this region lacks."""

    vector: Vector = {}
    """What the sender has applied: keys without later effects may be left out."""
    keys: list[Place] = []
    """Only these keys, whatever the sender has applied; all keys if empty."""
    transfer: _Number = 0
    offset: _Number = 0
    """Continue the snapshot of this name at this offset, if possible."""


class FullSyncBegin(Message, frozen=True):
    """A snapshot follows; ``vector`` is what it contains."""

    vector: Vector
    partial: bool = False
    """Keys that are not in the snapshot need not be joined."""
    last_effects: Vector = {}
    """The last effects on the requested keys, or later ones."""
    transfer: _Number = 0
    """The name of this snapshot at the sender."""
    offset: _Number = 0
    """The offset at which the sender continues; earlier bytes are staged already."""


class FullSyncEnd(Message, frozen=True):
    """The snapshot is complete and has this length."""

    bytes: _Number


class Digests(Message, frozen=True):
    """Asks to compare digests: what the sender has applied, and its digests of buckets."""

    request: _Number
    vector: Vector
    buckets: _Buckets
    sums: Annotated[bytes, msgspec.Meta(max_length=16 * 1024)]
    """16 bytes of each, little-endian."""


class DifferingBucket(Message, frozen=True):
    """A bucket whose digest differs at the sender."""

    bucket: _Bucket
    last_effects: Vector
    """The last effects on its keys, or later ones."""


class Differing(Message, frozen=True):
    """The answer: what the sender has applied, and the buckets that differ."""

    request: _Number
    vector: Vector
    buckets: Annotated[list[DifferingBucket], msgspec.Meta(max_length=1024)]
    busy: _Buckets
    """Buckets without a digest at present, because they change."""


class KeysGet(Message, frozen=True):
    """Requests the digests of these keys, or of all keys of a bucket."""

    request: _Number
    bucket: _Bucket | None
    keys: list[Place]


class KeyDigest(Message, frozen=True):
    """The digest of a key at the sender; empty if the key does not exist."""

    db: _Database
    key: bytes
    digest: bytes
    last_effects: Vector
    """The last effects on the key, or later ones."""


class Keys(Message, frozen=True):
    """The answer to :class:`KeysGet`; ``vector`` is what the sender has applied."""

    request: _Number
    vector: Vector
    keys: list[KeyDigest]
    is_last: bool
    """Whether this is the last frame of the answer."""


class Bye(Message, frozen=True):
    """Closes the link; the receiver may dial again after this time (0: at once)."""

    reason: int
    text: Annotated[str, msgspec.Meta(max_length=1000)]
    retry_after_ms: _Number = 0
    ask: tuple[_Text, _Port] | None = None
    """The address to ask instead."""


STRUCTS: Final[dict[FrameType, type[Message]]] = {
    FrameType.HELLO: Hello,
    FrameType.WELCOME: Welcome,
    FrameType.PROOF: Proof,
    FrameType.MEMBERS: Members,
    FrameType.SUB: Sub,
    FrameType.ROW: StatusRows,
    FrameType.FETCH: Fetch,
    FrameType.FETCHED: Fetched,
    FrameType.CREDIT: Credit,
    FrameType.BEHIND: Behind,
    FrameType.FULL_SYNC_GET: FullSyncGet,
    FrameType.FULL_SYNC_BEGIN: FullSyncBegin,
    FrameType.FULL_SYNC_END: FullSyncEnd,
    FrameType.BYE: Bye,
    FrameType.DIGESTS: Digests,
    FrameType.DIFFERING: Differing,
    FrameType.KEYS_GET: KeysGet,
    FrameType.KEYS: Keys,
}
"""The message that a frame of each type carries."""

_TYPES: Final = {kind: frame_type for frame_type, kind in STRUCTS.items()}
_encode = msgspec.msgpack.Encoder().encode

_M = TypeVar("_M", bound=Message)


class Refusal(AnabranchError):
    """Raised to close a link; becomes a :class:`Bye`."""

    def __init__(
        self,
        reason: Reason,
        text: str,
        retry_after_ms: int = 0,
        ask: tuple[str, int] | None = None,
    ) -> None:
        self.reason = reason
        self.text = text
        self.retry_after_ms = retry_after_ms
        self.ask = ask
        super().__init__(text)


BUSY_RETRY_MS: Final = 1000


def busy(text: str) -> Refusal:
    """The refusal of what may be possible in a second."""
    return Refusal(Reason.BUSY, text, BUSY_RETRY_MS)


def body_of(frame_type: int, payload: bytes) -> bytes:
    """The content of a payload; :class:`Refusal` if the checksum does not fit."""
    if frame_type == FrameType.BATCH:
        return payload
    body = payload[CHECKSUM_BYTES:]
    if payload[:CHECKSUM_BYTES] != checksum(frame_type, body):
        raise Refusal(Reason.DAMAGED, f"a frame of type {frame_type} was damaged on its way")
    return body


def packed(message: Message) -> bytes:
    """The body of a message as bytes, without the head of a frame."""
    return _encode(message)


def encode(message: Message) -> bytes:
    """A message as a whole frame: head, body and checksum."""
    return framed(_TYPES[type(message)], _encode(message))


def decode(kind: type[_M], body: bytes) -> _M:
    """The message in a body; :class:`Refusal` if the body is malformed."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except UNREADABLE as problem:
        name = _TYPES[kind].name
        raise Refusal(Reason.PROTOCOL, f"a {name} frame cannot be read: {problem}") from None
