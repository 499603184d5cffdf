"""Seals frames with a MAC and a sequence number, so that changes in transit are detected.

Where a secret is set, both sides derive two keys from it and from the handshake, nonces included:
one for each direction of the link. A sealed frame ends with a keyed BLAKE2b over its sequence
number (8 bytes, little-endian, from 0), its type and its content. The check fails for a frame that
was changed, left out, repeated or reordered.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from anabranch.replication.frames import TAG_BYTES, Reason, Refusal

_HEAD: Final = struct.Struct("<IB")
_PLACE: Final = struct.Struct("<QB")


_SCRYPT: Final = {"n": 1 << 15, "r": 8, "p": 1, "maxmem": 64 << 20}
"""Each guess of the secret costs 32 MiB and about 0.1 s."""


def stretched(secret: str) -> bytes:
    """The key that replaces the secret: derived slowly, so that guessing the secret is slow."""
    if not secret:
        return b""
    return hashlib.scrypt(secret.encode(), salt=b"anabranch gossip 2", **_SCRYPT)


def keys_of(secret: bytes, hello: bytes, facts: bytes) -> tuple[bytes, bytes]:
    """The keys of one link: for frames of the side that dialled, and of the other side.

    ``hello`` and ``facts`` are the two halves of the handshake, as they were sent.
    """
    said = hashlib.sha256(hello).digest() + hashlib.sha256(facts).digest()
    root = hmac.new(secret, b"anabranch link" + said, hashlib.sha256).digest()
    dialled, answered = (
        hashlib.blake2b(key=root, person=side, digest_size=32).digest()
        for side in (b"dialled", b"answered")
    )
    return dialled, answered


class Seal:
    """One direction of one link."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=TAG_BYTES)
        self._count = 0

    def _tag(self, frame_type: int, content: memoryview, more: bytes = b"") -> bytes:
        mac = self._keyed.copy()
        mac.update(_PLACE.pack(self._count, frame_type))
        mac.update(content)
        mac.update(more)
        self._count += 1
        return mac.digest()

    def close(self, frame: bytes, more: bytes = b"") -> bytes:
        """The next frame to be sent, sealed; ``more`` is the end of its content, copied once."""
        length, frame_type = _HEAD.unpack_from(frame)
        content = memoryview(frame)[_HEAD.size :]
        head = _HEAD.pack(length + TAG_BYTES, frame_type)
        return b"".join((head, content, more, self._tag(frame_type, content, more)))

    def open(self, frame_type: int, payload: bytes) -> bytes:
        """The content of the next received frame; :class:`Refusal` if the seal does not fit."""
        content = memoryview(payload)[: max(len(payload) - TAG_BYTES, 0)]
        if not hmac.compare_digest(self._tag(frame_type, content), payload[len(content) :]):
            raise Refusal(
                Reason.FORGED,
                f"a frame of type {frame_type} is not what the other side sent next: a third "
                "party changes, repeats or leaves out frames",
            )
        return bytes(content)
