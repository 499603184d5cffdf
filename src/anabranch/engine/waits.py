"""Blocked commands that do not wait for a key."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.waiter import Waiter


class Waits:
    """The waiters, by their condition; a waiter is removed when its wait ends."""

    __slots__ = ("inquiries", "safety", "vectors")

    def __init__(self) -> None:
        # until more of the log is on the disk, here or in other regions, or applied there
        self.safety: dict[Waiter, None] = {}
        # until an inquiry in another region, or a snapshot, is done
        self.inquiries: dict[Waiter, Inquiry] = {}
        # until the own version vector covers theirs
        self.vectors: dict[Waiter, Mapping[int, int]] = {}
