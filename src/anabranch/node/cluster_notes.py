"""What a region notes in its data directory about its part in the cluster, for a restart.

The notes are: whether it was removed, whether its disk was set back, the addresses of members, and
how the present process ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from anabranch.keyspace.replica import Replica, region_of
from anabranch.keyspace.version_vectors import maximum, raise_to
from anabranch.node.epoch_file import CLEAN, EpochFile
from anabranch.node.identity import (
    addresses_noted,
    removal_noted,
    set_back_noted,
    write_addresses,
    write_removal,
    write_set_back,
)
from anabranch.oplog.storage import Storage
from anabranch.replication.interface import Address


class ClusterNotes:
    """The notes of one region; :meth:`read` comes first, then :meth:`open`."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._storage: Storage
        self.epoch_file: EpochFile
        self.removed = ""
        """Why this region was removed from its cluster; empty if it was not."""
        self.set_back = ""
        """How other regions found that the disk was set back; empty if it was not."""
        self.addresses: dict[int, Address] = {}
        """Addresses of members that differ from those of their admissions."""
        self._began: dict[int, int] = {}  # the number of own effects at the start

    def read(self, storage: Storage) -> None:
        """Read the notes, before recovery has changed anything.

        Raises :class:`OSError`, :class:`LogError` for a damaged note.
        """
        self.removed = removal_noted(storage)
        if (noted := set_back_noted(storage)) is not None:
            self.set_back = noted[0]
        self.addresses = addresses_noted(storage)

    def open(self, storage: Storage) -> None:
        """Begin to write notes, after recovery. Raises :class:`OSError`."""
        self._storage = storage
        self.epoch_file = EpochFile(storage)
        self._began = self._own(self._replica.vector)

    def note_removed(self, reason: str) -> None:
        """Other regions report that this one was removed."""
        if not self.removed:
            self.removed = reason
            with suppress(OSError):  # then the other regions report it again
                write_removal(self._storage, reason)

    def note_set_back(self, reason: str) -> None:
        """Other regions report different effects; ``anabranch region salvage`` reads the note."""
        if not self.set_back:
            self.set_back = reason
            known = maximum(self._replica.watermark, self.epoch_file.agreed)
            agreed = {each: min(n, known.get(each, 0)) for each, n in self._began.items()}
            with suppress(OSError):  # then the other regions report it again
                write_set_back(self._storage, reason, agreed)

    def note_addresses(self, addresses: Mapping[int, Address]) -> None:
        """Note the addresses of members that differ from those of their admissions."""
        with suppress(OSError):  # then a later link reports them again
            write_addresses(self._storage, addresses)

    def note_end(self, ended: str = CLEAN) -> None:
        """Note how the process ends: ``ended`` is as in :meth:`EpochFile.write`."""
        if not self.set_back:
            raise_to(self.epoch_file.agreed, self._own(self._replica.watermark))
        with suppress(OSError):
            self.epoch_file.write(ended)

    def _own(self, vector: Mapping[int, int]) -> dict[int, int]:
        """The part of a version vector that is about this region."""
        region = self._replica.region
        return {each: n for each, n in vector.items() if region_of(each) == region}
