"""What regions tell each other, and its bytes.

::

    u32 length of what follows | u8 type | payload
                                           BATCH: the bytes of one batch, as they are in the log
                                           others: XXH3-64 of type and body | body
                                           behind it, where a secret is set and both sides have
                                           proved to know it: 16 bytes of :mod:`sealing`

Integers are little-endian. A body is a msgpack array of the fields of a struct below, or for
``FULL_SYNC`` bytes of a snapshot. Fields are only ever added at the end, and a type that is not
known is skipped: that is how versions get along.

There is a checksum because a row believed in spite of a flipped bit would make regions forget what
others still need; a batch has its own.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated, Final, TypeVar

import msgspec
from xxhash import xxh3_64_digest

from anabranch.errors import UNREADABLE, AnabranchError
from anabranch.oplog.batch import HEADER_BYTES, NUMBER_MAX, REPLICA_IDS_MAX, SENT_BODY_BYTES_MAX

__all__ = [
    "FRAME_BYTES_MAX",
    "HANDSHAKE_BYTES_MAX",
    "MODULUS",
    "REPLICA_ID_MAX",
    "TAG_BYTES",
    "Behind",
    "Bye",
    "Credit",
    "Differing",
    "DifferingBucket",
    "Digests",
    "Fetch",
    "Fetched",
    "FrameType",
    "FullSyncBegin",
    "FullSyncEnd",
    "FullSyncGet",
    "Hello",
    "KeyDigest",
    "Keys",
    "KeysGet",
    "MemberRecord",
    "Members",
    "Message",
    "Place",
    "Proof",
    "Reason",
    "Refusal",
    "Row",
    "Rows",
    "Sub",
    "Vector",
    "Welcome",
    "body_of",
    "decode",
    "encode",
    "framed",
    "packed",
]

MODULUS: Final = 256
"""IDs of a region are congruent to its number by this modulus; a cluster has one."""

TAG_BYTES: Final = 16
"""Of the seal of a frame."""

FRAME_BYTES_MAX: Final = SENT_BODY_BYTES_MAX + HEADER_BYTES + TAG_BYTES + 1
"""Type and payload: the largest batch that is sent."""

HANDSHAKE_BYTES_MAX: Final = 64 << 10
"""The same before the other side has shown who it is."""

REPLICA_ID_MAX: Final = (1 << 40) - 1
"""An epoch of 32 bits and a region."""

_HEAD: Final = struct.Struct("<IB")
_CHECKSUM_BYTES: Final = 8

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


class FrameType(IntEnum):
    """The byte that tells what a frame is."""

    HELLO = 1
    WELCOME = 2
    PROOF = 3
    MEMBERS = 4
    SUB = 5
    BATCH = 6
    ROW = 7
    FETCH = 8
    FETCHED = 9
    CREDIT = 10
    BEHIND = 11
    FULL_SYNC_GET = 12
    FULL_SYNC_BEGIN = 13
    FULL_SYNC = 14
    FULL_SYNC_END = 15
    BYE = 16
    DIGESTS = 17
    DIFFERING = 18
    KEYS_GET = 19
    KEYS = 20


class Reason(IntEnum):
    """Why a link is closed."""

    PROTOCOL = 1
    """Something was said that makes no sense."""
    VERSION = 2
    CLUSTER = 3
    MODULUS = 4
    SECRET = 5
    REGION = 6
    """The number is ours, taken, or not the one that was dialled."""
    UNKNOWN = 7
    """No member, or not yet."""
    REMOVED = 8
    EPOCH = 9
    """A former life of a region."""
    DUPLICATE = 10
    """There is another link to the same region."""
    BATCH = 11
    """A batch that must not be applied."""
    BUSY = 12
    """A disk in trouble."""
    SILENT = 13
    STOPPING = 14
    DAMAGED = 15
    """A frame is not as it was sent."""
    ELSEWHERE = 16
    """Another member gives new numbers away: ask that one."""
    SET_BACK = 17
    """Whoever is told this has issued numbers twice: it must stop writing."""
    FORGED = 18
    """A frame is not the one that the other side sent next."""
    HEARD = 19
    """Another server with that number was heard of a moment ago, and may be gone: ask again."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    pass


class Hello(_Message, frozen=True):
    """Who is speaking: the first frame of the side that dialled, and the facts in a WELCOME."""

    protocol_low: int
    protocol_high: int
    cluster_id: _Text
    """Empty: wants to join."""
    region: _Region
    name: _Text
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    run_id: _Text
    feature_level: int
    modulus: int
    host: _Text
    port: _Port
    known_epoch: _Epoch
    """The newest epoch of the other side that the speaker has heard of; -1 for none."""
    nonce: Annotated[bytes, msgspec.Meta(max_length=64)]
    removed_you: bool = False
    """The other side does not belong to the speaker's cluster any more."""
    has_secret: bool = False
    """The speaker wants a proof, and seals its frames; from protocol version 2 on."""

    @property
    def replica_id(self) -> int:
        """The replica ID of the effects it writes."""
        return self.epoch << 8 | self.region


class Welcome(_Message, frozen=True):
    """The answer; ``facts`` are the bytes of a :class:`Hello`, which the proofs cover.

    The proof is empty: who answers has to be shown one first. Version 1 sent it here.
    """

    facts: bytes
    proof: bytes


class Proof(_Message, frozen=True):
    """The sender knows the secret; empty if there is none."""

    proof: bytes


class MemberRecord(_Message, frozen=True):
    """A member, for one that joins."""

    region: _Region
    name: _Text
    host: _Text
    port: _Port


class Members(_Message, frozen=True):
    """You are one of us; sent to a region that joins, once it has proved to know the secret."""

    cluster_id: _Text
    members: Annotated[list[MemberRecord], msgspec.Meta(max_length=255)]
    removed: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=255)] = []
    """Regions that were members once, and the epoch that was their last: of effects to come."""


class Sub(_Message, frozen=True):
    """Send me the effects of your own replica ID after this, as they come."""

    vector: Vector
    fingerprint: _Fingerprint = b""
    """Of the last batch of that replica ID that I have; empty if I cannot tell."""


class Row(_Message, frozen=True):
    """How far one region is."""

    region: _Region
    replica_id: _ReplicaId
    version: _Number
    """A later row of the same replica ID has a greater one."""
    applied: Vector
    durable: Vector
    have: Vector
    """The last it holds in any form: applied, waiting, or staged."""
    feature_level: int
    links: _Regions
    """Regions it is connected with."""

    def tells_the_same(self, other: Row) -> bool:
        """Whether they differ in nothing but the version."""
        return (
            self.applied == other.applied
            and self.durable == other.durable
            and self.have == other.have
            and self.replica_id == other.replica_id
            and self.feature_level == other.feature_level
            and self.links == other.links
        )


class Rows(_Message, frozen=True):
    """The row of the sender, then rows of others; stamps for round trip and skew."""

    rows: Annotated[list[Row], msgspec.Meta(min_length=1, max_length=255)]
    stamp: float
    """Of the sender's monotonic clock, in ms."""
    echo: float
    """The receiver's latest stamp, or -1."""
    echo_age_ms: float
    """How long the sender has had it."""
    wall_ms: int


class Fetch(_Message, frozen=True):
    """Requests effects of any replica ID once, at most so many bytes, outside the window."""

    replica_id: _ReplicaId
    after: _Number
    upto: _Number
    max_bytes: _Number
    fingerprint: _Fingerprint = b""
    """Of the batch that ends with ``after``, as I have it; empty if I cannot tell."""


class Fetched(_Message, frozen=True):
    """That was all for this FETCH."""

    replica_id: _ReplicaId


class Credit(_Message, frozen=True):
    """You may send so many bytes more, of your effects or of your state."""

    bytes: _Number
    of_full_sync: bool = False


class Behind(_Message, frozen=True):
    """My log does not reach back to what you asked for: you need my state."""

    replica_id: _ReplicaId
    after: _Number


class FullSyncGet(_Message, frozen=True):
    """Send me your state."""

    vector: Vector = {}
    """What I have applied: keys on which you know nothing else may be left out."""
    keys: list[Place] = []
    """Send only these, whatever I have applied; all if there are none."""
    transfer: _Number = 0
    offset: _Number = 0
    """Go on there with the snapshot that you called this, if you can."""


class FullSyncBegin(_Message, frozen=True):
    """A snapshot follows; ``vector`` is what it contains."""

    vector: Vector
    partial: bool = False
    """Keys that do not stand in it need not be joined."""
    last_effects: Vector = {}
    """If keys were named: no later effects than these are on them."""
    transfer: _Number = 0
    """What the sender calls this snapshot."""
    offset: _Number = 0
    """What is behind so many bytes of it follows: the rest is staged already."""


class FullSyncEnd(_Message, frozen=True):
    """The snapshot is whole, and was so long."""

    bytes: _Number


class Digests(_Message, frozen=True):
    """Compare: what I have applied, and then the digests of these buckets; of all if none."""

    request: _Number
    vector: Vector
    buckets: _Buckets
    sums: Annotated[bytes, msgspec.Meta(max_length=16 * 1024)]
    """16 bytes of each, little-endian."""


class DifferingBucket(_Message, frozen=True):
    """A bucket whose digest is another one here."""

    bucket: _Bucket
    last_effects: Vector
    """No later effects than these are on its keys."""


class Differing(_Message, frozen=True):
    """The answer: what I have applied, and what differs then."""

    request: _Number
    vector: Vector
    buckets: Annotated[list[DifferingBucket], msgspec.Meta(max_length=1024)]
    busy: _Buckets
    """Buckets of which I cannot tell, because they change at present."""


class KeysGet(_Message, frozen=True):
    """Tell me the digests of these keys, or of all keys of a bucket."""

    request: _Number
    bucket: _Bucket | None
    keys: list[Place]


class KeyDigest(_Message, frozen=True):
    """A key as it is with the sender; no digest if there is none."""

    db: _Database
    key: bytes
    digest: bytes
    last_effects: Vector
    """No later effects than these are on it."""


class Keys(_Message, frozen=True):
    """The answer to :class:`KeysGet`; ``vector`` is what the sender has applied."""

    request: _Number
    vector: Vector
    keys: list[KeyDigest]
    is_last: bool
    """Whether that was all: there may be several such frames."""


class Bye(_Message, frozen=True):
    """I close this link; try again after so long (0: as you like)."""

    reason: int
    text: Annotated[str, msgspec.Meta(max_length=1000)]
    retry_after_ms: _Number = 0
    ask: tuple[_Text, _Port] | None = None
    """Ask there instead."""


Message = (
    Hello | Welcome | Proof | Members | Sub | Rows | Fetch | Fetched | Credit | Behind | FullSyncGet
    | FullSyncBegin | FullSyncEnd | Bye | Digests | Differing | KeysGet | Keys
)  # fmt: skip

_STRUCTS: Final[dict[FrameType, type[Message]]] = {
    FrameType.HELLO: Hello,
    FrameType.WELCOME: Welcome,
    FrameType.PROOF: Proof,
    FrameType.MEMBERS: Members,
    FrameType.SUB: Sub,
    FrameType.ROW: Rows,
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
_TYPES: Final = {kind: frame_type for frame_type, kind in _STRUCTS.items()}
_encode = msgspec.msgpack.Encoder().encode
_decoders = {kind: msgspec.msgpack.Decoder(kind).decode for kind in _TYPES}

_M = TypeVar("_M", bound=_Message)


class Refusal(AnabranchError):
    """The link must be closed; becomes a :class:`Bye`."""

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


def framed(frame_type: FrameType, body: bytes) -> bytes:
    """A body, or a batch, as a frame."""
    if frame_type == FrameType.BATCH:
        return _HEAD.pack(len(body) + 1, frame_type) + body
    head = _HEAD.pack(len(body) + 1 + _CHECKSUM_BYTES, frame_type)
    return b"".join((head, _checksum(frame_type, body), body))


def body_of(frame_type: int, payload: bytes) -> bytes:
    """What a payload contains; :class:`Refusal` if it is not what was sent."""
    if frame_type == FrameType.BATCH:
        return payload
    body = payload[_CHECKSUM_BYTES:]
    if payload[:_CHECKSUM_BYTES] != _checksum(frame_type, body):
        raise Refusal(Reason.DAMAGED, f"a frame of type {frame_type} was damaged on its way")
    return body


def _checksum(frame_type: int, body: bytes) -> bytes:
    return xxh3_64_digest(body, seed=frame_type)


def packed(message: Message) -> bytes:
    """The body of a message."""
    return _encode(message)


def encode(message: Message) -> bytes:
    """A message as a frame."""
    return framed(_TYPES[type(message)], _encode(message))


def decode(kind: type[_M], body: bytes) -> _M:
    """The message in a body; :class:`Refusal` if it is none."""
    try:
        return _decoders[kind](body)  # type: ignore[index, return-value]
    except UNREADABLE as problem:
        name = _TYPES[kind].name  # type: ignore[index]
        raise Refusal(Reason.PROTOCOL, f"a {name} frame cannot be read: {problem}") from None
