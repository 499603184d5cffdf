"""Which entries are still referenced by a group: KEEPREF, DELREF and ACKED rest on this.

An entry is referenced when the stream has a group and the entry is beyond the smallest
last-delivered-id of all groups, or pending in any of them (owned or released).
"""

from __future__ import annotations

from enum import Enum

from anabranch.stream.shared import NOTHING_SHARED
from anabranch.stream.stream import Stream

__all__ = ["Policy", "References"]


class Policy(Enum):
    """What removing an entry means for the groups that refer to it."""

    KEEPREF = "keepref"
    DELREF = "delref"
    ACKED = "acked"


class References:
    """The references of one stream, looked up once per command."""

    __slots__ = ("_groups", "_stream", "_undelivered_after")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._groups = list(stream.groups.values())
        self._undelivered_after = min(
            (group.last_delivered_id for group in self._groups), default=-1
        )

    def holds(self, entry_id: int) -> bool:
        """Whether some group has not read, or not acknowledged, this entry."""
        if not self._groups:
            return False
        if self._stream.shared is not NOTHING_SHARED:
            if self._is_undelivered(entry_id):
                return True
        elif entry_id > self._undelivered_after:
            return True
        return any(group.find(entry_id) is not None for group in self._groups)

    def _is_undelivered(self, entry_id: int) -> bool:
        """Whether some group would be given one of the entries with this ID here."""
        stream = self._stream
        for replica_id, block, index in stream.find_all(entry_id):
            for group in self._groups:
                log = stream.log_of(replica_id)
                if group.would_deliver(replica_id, log, block.number(index)):
                    return True
        return False
