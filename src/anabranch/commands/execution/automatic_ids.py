"""What automatic entry IDs are made of at present."""

from __future__ import annotations

__all__ = ["AutomaticIds"]


class AutomaticIds:
    """The millisecond of new IDs; kept by whoever sets the time."""

    __slots__ = ("first", "heads", "heads_ms", "refusal")

    def __init__(self) -> None:
        self.first = 0  # the first ID of this millisecond
        self.refusal = ""  # why the clock makes no IDs; empty as a rule
        # XADD keeps how IDs of a millisecond begin in a reply, by the length of what follows.
        self.heads_ms = -1
        self.heads: list[bytes | None] = []
