"""The base of all effects, and the types that the codec treats in a special way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

EntryId = Annotated[int, Meta(title="entry ID")]
"""An ID as one integer of 128 bits (``stream/entry_id.py``); the codec treats it in a special way.
"""

EntryIds = Annotated[Sequence[int], Meta(title="entry IDs")]
"""Several IDs; a ``range`` if they ascend evenly."""


class Effect(Struct, array_like=True, gc=False):
    """Base of all effects."""

    local: ClassVar[bool] = False


class KeyEffect(Effect):
    """An effect on one key."""

    db: int
    key: bytes


class GroupEffect(KeyEffect):
    """An effect on one consumer group."""

    group: bytes
