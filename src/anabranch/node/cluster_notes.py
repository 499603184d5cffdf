"""What a region notes in its data directory about its part in the cluster, for a restart.

The notes are: whether it was removed, whether its disk was set back, the addresses of members, and
how the present process ends. The last one, the epoch file, decides whether a region continues its
epoch at a start.

A region continues its epoch if it lost nothing that other regions may have received: if the server
was stopped in order, if every effect was synced before it left the server (``appendfsync always``),
or if the machine was not restarted since (the system keeps what a process has written). Otherwise
the region opens a new epoch. It also opens one if recovery cut off the end of the log, because an
unfinished end cannot be distinguished from damage, and if an operator said that the files were set
back (:func:`forget_epoch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta, Struct, json

from anabranch.keyspace.replica import EPOCH_STEP_BYTES, Replica, region_of
from anabranch.keyspace.version_vectors import maximum, raise_to
from anabranch.node.identity import (
    NoteError,
    addresses_noted,
    read_note,
    removal_noted,
    set_back_noted,
    write_addresses,
    write_note,
    write_removal,
    write_set_back,
)
from anabranch.oplog.storage import Storage
from anabranch.replication.interface import Address, Chance, Local

_FILE: Final = "lifetime"

CLEAN: Final = "clean"


class _Ended(Struct):
    boot: str = ""
    ended: str = ""
    agreed: dict[Annotated[int, Meta(ge=0)], Annotated[int, Meta(ge=0)]] = {}


def continue_or_open_epoch(
    local: Local, epoch_file: EpochFile, policy: str, chance: Chance, *, was_cut: bool
) -> None:
    """Continue the epoch of the previous process of this region, or open a new one.

    ``policy`` is that of ``appendfsync``; ``was_cut`` says that recovery has cut off the end of the
    log. Raises :class:`OSError`; the next attempt does the same.
    """
    if local.replica.cluster_id and (was_cut or not epoch_file.may_continue()):
        # The files may be older than epochs that the region has opened since: the same backup may
        # be restored twice. So the new epoch is not simply the next one.
        later = 0 if epoch_file.exists else int.from_bytes(chance.randbytes(EPOCH_STEP_BYTES))
        local.reopen(local.replica.epoch + later)
    # The file is written last, so that a start that fails before opens an epoch again.
    epoch_file.write(policy)


def forget_epoch(storage: Storage) -> bool:
    """Remove the file, so that the next start opens a new epoch. Returns whether there was one.

    To be called when the log was set back or cut. Raises :class:`OSError`.
    """
    if _FILE not in storage.names():
        return False
    storage.remove(_FILE)
    storage.sync()
    return True


class EpochFile:
    """The file that records how the present process ends."""

    def __init__(self, storage: Storage) -> None:
        """Read the file of the former process. Raises :class:`OSError`."""
        self._storage = storage
        self._written: _Ended | None = None
        self._before = self._read()
        self.agreed = {} if self._before is None else dict(self._before.agreed)
        """By replica ID of this region, how many of its effects every member had on its disk.

        If the files are set back, other regions still have the same effects up to there.
        """

    def _read(self) -> _Ended | None:
        try:
            return read_note(self._storage, _FILE, _Ended, "")
        except NoteError:
            return None

    @property
    def exists(self) -> bool:
        """Whether there is a file; no :func:`forget_epoch` has removed it."""
        return _FILE in self._storage.names()

    def may_continue(self) -> bool:
        """Whether the previous process has lost nothing; a damaged file does not say so."""
        before = self._before
        return before is not None and (
            before.ended in ("always", CLEAN) or before.boot == self._storage.boot != ""
        )

    def write(self, ended: str) -> None:
        """Write how this process ends: a policy of ``appendfsync``, or `CLEAN` for an orderly end.

        Raises :class:`OSError`.
        """
        noted = _Ended(self._storage.boot, ended, dict(self.agreed))
        if noted != self._written:
            write_note(self._storage, _FILE, json.encode(noted))
            self._written = noted


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
