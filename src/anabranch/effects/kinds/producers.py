"""Idempotent producers: IDs, batches, limits."""

from __future__ import annotations

from anabranch.effects.kinds.base import EntryId, KeyEffect


class Remember(KeyEffect, tag=10):
    """An idempotent ID of a producer stands for an entry from now on.

    ``yields``: the entry is removed if another region has accepted the same idempotent ID for an
    entry with a smaller ID.
    """

    pid: bytes
    iid: bytes
    entry_id: EntryId
    at_ms: int
    yields: bool = False


class CountDuplicate(KeyEffect, tag=11):
    """A producer sent ``count`` retries; nothing was added.

    ``accepted``: how many idempotent IDs the stream had counted under its former key, and forgotten
    since.
    """

    local = True

    count: int = 1
    accepted: int = 0


class ConfigureProducers(KeyEffect, tag=12):
    """XCFGSET: new limits, all IDs forgotten. Of concurrent ones the latest stamp counts."""

    duration_s: int
    maxsize: int
    stamp_ms: int = 0


class ForgetProducers(KeyEffect, tag=13):
    """The oldest ``count`` idempotent IDs of a producer have expired."""

    local = True

    pid: bytes
    count: int


class Accept(KeyEffect, tag=14):
    """A batch of a bulk producer: the count of its rows in the stream, and their CRC-32."""

    pid: bytes
    batch: int
    rows: int
    crc: int
    at_ms: int


class DropRecords(KeyEffect, tag=15):
    """Removes records of bulk producers that were unused for long.

    Concurrent newer records of the same producers stay.
    """

    pids: list[bytes]


class ResolveConflict(KeyEffect, tag=16):
    """Resolves a conflict: an idempotent ID of several regions stands for one entry, ``entry_id``.

    ``replica_id`` and ``number`` name the losing :class:`Remember`, ``winner`` the winning one;
    ``goes`` and ``stays`` are the effects that added their entries, (0, 0) if unknown. With
    ``removed`` the losing entry is removed. Each region that finds the conflict makes this effect.
    """

    pid: bytes
    iid: bytes
    entry_id: EntryId
    replica_id: int
    number: int
    winner: tuple[int, int]
    goes: tuple[int, int]
    stays: tuple[int, int]
    removed: bool
