"""Full syncs: the chunks that this region sends, and the staged file of one that it receives.

The file is joined when it is complete, and kept beside the log until a snapshot contains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Final

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.version_vectors import covers
from anabranch.node.durability import Durability
from anabranch.oplog.batch import Compressor
from anabranch.oplog.snapshot import Snapshot, framed
from anabranch.oplog.storage import LogFile, Storage
from anabranch.region.merging import Merging
from anabranch.region.region import Region
from anabranch.scheduling import Steps

STAGING: Final = "arriving.state"
FULL_SYNC_PREFIX: Final = "joined-"
FULL_SYNC_SUFFIX: Final = ".abstate"

PLACES_A_STEP = 256  # not Final: a test of the compiled core lowers it, too
"""Keys of a full sync that are looked up in one step."""


def joined_at(name: str) -> int | None:
    """The log position at which the full sync of this file was joined; None for other files."""
    if not (name.startswith(FULL_SYNC_PREFIX) and name.endswith(FULL_SYNC_SUFFIX)):
        return None
    digits = name.removeprefix(FULL_SYNC_PREFIX).removesuffix(FULL_SYNC_SUFFIX)
    return int(digits) if digits.isdecimal() else None


def lacking(replica: Replica, keyspace: Keyspace, known: Mapping[int, int]) -> Steps[Places | None]:
    """Find the keys that a region lacks which has applied ``known``; None: send all keys."""
    last_effects = replica.last_effects
    places = Places(keyspace.databases)
    while last_effects.absorb(PLACES_A_STEP):
        yield
    changed = last_effects.watch()
    try:
        found = yield from last_effects.beyond(known)
        for at, place in enumerate(found or (), 1):
            places.look(place)
            if at % PLACES_A_STEP == 0:
                yield
    finally:
        last_effects.unwatch(changed)
    for place in changed:
        places.look(place)
    # A FLUSHALL meanwhile concerns all keys.
    return places if found is not None and covers(known, last_effects.base) else None


def chunks(region: Region, snapshot: Snapshot, chunk_bytes: int) -> Iterator[bytes]:
    """The bytes of a snapshot, in chunks of at most ``chunk_bytes``.

    The first chunk is empty: from there on closing the iterator releases the snapshot. Later empty
    chunks end slices of time.
    """
    compressor = Compressor()
    try:
        yield b""
        buffer = bytearray(snapshot.header())
        for body in snapshot.bodies():
            if body:
                buffer += framed(body, compressor)
            while len(buffer) >= chunk_bytes:
                yield bytes(buffer[:chunk_bytes])
                del buffer[:chunk_bytes]
            if region.scheduler.is_over():
                yield b""
        yield bytes(buffer)
    finally:
        region.unwatch_changes(snapshot.before)
        snapshot.release()


class FullSyncFiles:
    """The files of full syncs that this region receives."""

    def __init__(self, storage: Storage) -> None:
        """Raises :class:`OSError`. A full sync that was staged by an earlier process is deleted."""
        self._storage = storage
        self._staging: LogFile | None = None
        self._loaded: Keyspace | None = None  # the staging file
        with suppress(FileNotFoundError):
            storage.remove(STAGING)

    def stage(self, chunk: bytes | None) -> None:
        """Append to the staging file, or delete it (None). Raises :class:`OSError`."""
        if chunk is None:
            if self._staging is not None:
                self._staging.close()
                self._staging = None
                self._storage.remove(STAGING)
            return
        if self._staging is None:
            self._staging = self._storage.create(STAGING)
        self._staging.write(chunk)

    def load(self, merging: Merging) -> Steps[None]:
        """Read the staging file in short steps, for :meth:`keep`."""
        shown = self._storage.shown(STAGING)
        with closing(self._storage.open(STAGING)) as file:
            self._loaded = yield from merging.loading(file, shown)

    def keep(self, durability: Durability) -> tuple[Keyspace, str]:
        """The loaded contents of the staging file, and the name under which the file is kept."""
        theirs, self._loaded = self._loaded, None
        assert theirs is not None
        assert self._staging is not None
        durability.commit()
        if durability.is_behind:
            raise OSError(0, durability.trouble)
        self._staging.sync()
        self._staging.close()
        self._staging = None
        name = f"{FULL_SYNC_PREFIX}{durability.position:020d}{FULL_SYNC_SUFFIX}"
        self._storage.rename(STAGING, name)
        self._storage.sync()
        return theirs, name

    def forget(self, position: int) -> None:
        """Delete full syncs that were joined before this position: a snapshot contains them."""
        for name in self._storage.names():
            joined = joined_at(name)
            if joined is not None and joined < position:
                self._storage.remove(name)
