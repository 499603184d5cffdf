"""The file that decides whether a region continues its epoch at a start.

A region continues its epoch if it lost nothing that other regions may have received: if the server
was stopped in order, if every effect was synced before it left the server (``appendfsync always``),
or if the machine was not restarted since (the system keeps what a process has written). Otherwise
the region opens a new epoch. It also opens one if recovery cut off the end of the log, because an
unfinished end cannot be distinguished from damage, and if an operator said that the files were set
back (:func:`forget_epoch`).
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct, json

from anabranch.keyspace.replica import EPOCH_STEP_BYTES, epoch_of
from anabranch.node.notes import NoteError, read_note, write_note
from anabranch.oplog.storage import Storage
from anabranch.replication.interface import Chance, Local

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
    if local.cluster_id and (was_cut or not epoch_file.may_continue()):
        # The files may be older than epochs that the region has opened since: the same backup may
        # be restored twice. So the new epoch is not simply the next one.
        later = 0 if epoch_file.exists else int.from_bytes(chance.randbytes(EPOCH_STEP_BYTES))
        local.reopen(epoch_of(local.replica_id) + later)
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
