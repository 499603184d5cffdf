"""Blocked commands that wait for something else than a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from anabranch.keyspace.inquiry import Inquiry
    from anabranch.keyspace.waiters import Waiter

__all__ = ["Waits"]


class Waits:
    """Who waits, by what they wait for; a wait that ends leaves by itself."""

    __slots__ = ("inquiries", "safety", "vectors")

    def __init__(self) -> None:
        # until more of the log is on the disk, here or in other regions, or applied there
        self.safety: WeakKeyDictionary[Waiter, None] = WeakKeyDictionary()
        # until something is found out that takes more than one message
        self.inquiries: WeakKeyDictionary[Waiter, Inquiry] = WeakKeyDictionary()
        # until our vector covers theirs
        self.vectors: WeakKeyDictionary[Waiter, Mapping[int, int]] = WeakKeyDictionary()
