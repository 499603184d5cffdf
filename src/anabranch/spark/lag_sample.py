"""The lag of one consumer group at one moment."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sample"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One group at one moment."""

    at_ms: int
    """By the server's clock."""
    region: str
    """The name of the server; empty without one."""
    stream: str
    group: str
    lag: int | None
    """Entries that were not delivered yet. None: the server does not know (Redis, after XDEL)."""
    pending: int
    """Entries that were delivered and not acknowledged."""
    pending_age_ms: int | None
    """Since the time in the lowest pending ID; None if nothing is pending."""
    pending_idle_ms: int | None
    """Since that entry was last delivered."""

    @property
    def name(self) -> str:
        """Stream, group and region."""
        return f"{self.stream} {self.group}" + (f" at {self.region}" if self.region else "")
