"""Whether groups still refer to an entry, for KEEPREF, DELREF and ACKED.

A group refers to an entry if the entry is above the smallest last-delivered-id of all groups, or is
pending in any group (with a consumer, or released).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.stream import Stream


class Policy(Enum):
    """What happens to references of groups when an entry is removed."""

    KEEPREF = "keepref"
    DELREF = "delref"
    ACKED = "acked"


# For the hot paths: Python calls a function for each look at a member of an enumeration.
KEEPREF: Final = Policy.KEEPREF
DELREF: Final = Policy.DELREF
ACKED: Final = Policy.ACKED


@mypyc_attr(acyclic=True)
class References:
    """The references of one stream, looked up once per command."""

    def __init__(self, stream: Stream) -> None:
        self._logs = stream.logs
        self._groups = list(stream.groups.values())

    @property
    def end(self) -> int:
        """Some group has read nothing above this ID: all of it is held."""
        return min((group.progress.delivered_end for group in self._groups), default=MAX_ID)

    def holds(self, entry_id: int) -> bool:
        """Whether some group has not read, or not acknowledged, this entry."""
        return any(
            group.progress.is_undelivered(self._logs, entry_id)
            or group.pending.find(entry_id) is not None
            for group in self._groups
        )
