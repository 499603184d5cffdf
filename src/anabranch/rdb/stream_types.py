"""The five generations of stream payloads and what each added."""

from __future__ import annotations

from enum import IntEnum


class StreamType(IntEnum):
    """The type byte of a stream value; later ones hold all that earlier ones hold."""

    V1 = 15  # Redis 5: entries and groups
    V2 = 19  # Redis 7.0 (RDB 10): counters
    V3 = 21  # Redis 7.2 (RDB 11): active time of consumers
    V4 = 26  # Redis 8.6 (RDB 13): idempotent producers
    V5 = 27  # Redis 8.8 (RDB 14): NACKed entries

    @property
    def has_counters(self) -> bool:
        """First ID, highest deleted ID, entries added, entries read."""
        return self >= StreamType.V2

    @property
    def has_active_time(self) -> bool:
        """A consumer's last successful read, beside its last attempt."""
        return self >= StreamType.V3

    @property
    def has_producers(self) -> bool:
        """Settings and memory of idempotent production."""
        return self >= StreamType.V4

    @property
    def has_nacked(self) -> bool:
        """Pending entries without owner, in order."""
        return self >= StreamType.V5
