"""The entries of ACL LOG: denied requests with user and reason, the newest first.

Denials that repeat within a minute are counted in one entry, so that a client in a loop cannot
displace all others. Names that clients choose are cut as those of the slow log.
"""

from __future__ import annotations

from sys import getsizeof
from typing import NamedTuple

from anabranch.metrics.slowlog import shortened

_GROUPING_MS = 60_000
_GROUPING_DEPTH = 10  # how many of the newest entries are compared


class LoggedDenial(NamedTuple):
    """What was denied to which user; equal denials are counted in one entry."""

    reason: str
    """``command``, ``key``, ``channel`` or ``auth``."""
    context: str
    """``toplevel``, ``multi`` or ``lua``."""
    name: bytes
    """The command, key or channel."""
    user: bytes


class _CountedDenial:
    __slots__ = ("client", "count", "created_ms", "id", "updated_ms", "what")

    def __init__(self, entry_id: int, what: LoggedDenial, now_ms: int) -> None:
        self.id = entry_id
        self.what = what
        self.count = 0
        self.client = ""
        self.created_ms = now_ms
        self.updated_ms = now_ms

    @property
    def used_bytes(self) -> int:
        return sum(map(getsizeof, (self, self.what, *self.what[2:], self.client, 0, 1 << 40)))


class AclLog:
    """The recorded denials, at most ``acllog-max-len``."""

    def __init__(self) -> None:
        self._entries: list[_CountedDenial] = []
        self._next_id = 0
        self.used_bytes = 0
        """The memory of the entries."""

    def record(self, denial: LoggedDenial, client: str, now_ms: int, max_len: int) -> None:
        """Record a denial; ``client`` is CLIENT INFO, ``max_len`` the most entries to keep."""
        what = denial._replace(name=shortened(denial.name), user=shortened(denial.user))
        entries = self._entries
        for index, entry in enumerate(entries[:_GROUPING_DEPTH]):
            if entry.what == what and now_ms - entry.updated_ms <= _GROUPING_MS:
                del entries[index]
                self.used_bytes -= entry.used_bytes
                break
        else:
            entry = _CountedDenial(self._next_id, what, now_ms)
            self._next_id += 1
        entry.count += 1
        entry.client = client
        entry.updated_ms = now_ms
        entries.insert(0, entry)
        self.used_bytes += entry.used_bytes - sum([each.used_bytes for each in entries[max_len:]])
        del entries[max_len:]

    def clear(self) -> None:
        """Forget all denials, as ACL LOG RESET does."""
        self._entries.clear()
        self.used_bytes = 0

    def newest(self, count: int, now_ms: int) -> list[dict[bytes, object]]:
        """At most ``count`` entries in the form of ACL LOG."""
        return [_described(entry, now_ms) for entry in self._entries[:count]]


def _described(entry: _CountedDenial, now_ms: int) -> dict[bytes, object]:
    reason, context, name, user = entry.what
    return {
        b"count": entry.count,
        b"reason": reason,
        b"context": context,
        b"object": name,
        b"username": user,
        b"age-seconds": (now_ms - entry.updated_ms) / 1000,
        b"client-info": entry.client,
        b"entry-id": entry.id,
        b"timestamp-created": entry.created_ms,
        b"timestamp-last-updated": entry.updated_ms,
    }
