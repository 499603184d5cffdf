"""Whether a server may go on numbering its effects where it stopped.

It may if it lost nothing that others could have heard of: if it stopped in good order, if all was
synced before it left the server (``appendfsync always``), or if the machine has not been restarted
since (what a process has written outlives it). Else it opens a new epoch. It also does if the end
of its log had to be cut off: nobody can tell what was never finished from what has rotted. And it
does if somebody has said that the files were set back (:func:`forget_life`).
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Final

from anabranch.keyspace.replica import epoch_of

if TYPE_CHECKING:
    from anabranch.oplog.storage import Storage
    from anabranch.replication.local import RegionLocal

__all__ = ["CLEAN", "Lifetime", "begin_life", "forget_life"]

_FILE: Final = "lifetime"

CLEAN: Final = "clean"


def begin_life(local: RegionLocal, lifetime: Lifetime, policy: str, *, was_cut: bool) -> None:
    """Go on in the epoch in which the one before us ended, or open the next one.

    ``policy`` is that of ``appendfsync``; ``was_cut`` says that recovery has cut off the end of the
    log. Raises :class:`OSError`; the next attempt does the same.
    """
    if local.cluster_id and (was_cut or not lifetime.may_go_on()):
        local.reopen(epoch_of(local.origin))
    # Only now: who fails before this has to open an epoch again.
    lifetime.note(policy)


def forget_life(storage: Storage) -> bool:
    """The log was set back, or cut: the next region to use it opens an epoch. Whether one had.

    Raises :class:`OSError`.
    """
    if _FILE not in storage.names():
        return False
    storage.remove(_FILE)
    storage.sync()
    return True


class Lifetime:
    """The file in which a server notes how it lives."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._written = ""

    def may_go_on(self) -> bool:
        """Whether the one before us has lost nothing. Raises :class:`OSError`."""
        if _FILE not in self._storage.names():
            return False
        with closing(self._storage.open(_FILE)) as file:
            try:
                before = json.loads(file.read())
            except ValueError:
                return False
        return (isinstance(before, dict) and before.get("ended") in ("always", CLEAN)) or (
            isinstance(before, dict) and before.get("boot") == self._storage.boot != ""
        )

    def note(self, ended: str) -> None:
        """From now on an end means this: a policy of ``appendfsync``, or that it was in order.

        Raises :class:`OSError`.
        """
        if ended == self._written:
            return
        file = self._storage.create(_FILE + ".new")
        try:
            file.write(json.dumps({"boot": self._storage.boot, "ended": ended}).encode())
            file.sync()
        finally:
            file.close()
        self._storage.rename(_FILE + ".new", _FILE)
        self._storage.sync()
        self._written = ended
