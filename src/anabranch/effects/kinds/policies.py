"""Policies of names (``AB.POLICY``)."""

from __future__ import annotations

from anabranch.effects.kinds.base import Effect


class SetPolicies(Effect, tag=66):
    """Sets or deletes (nil) policies of a key, or of a pattern of keys, by name and text.

    ``group`` is a group, of a pattern a pattern of groups, or nil for all. For each policy of a
    subject the greatest stamp counts.
    """

    db: int
    subject: bytes
    is_pattern: bool
    group: bytes | None
    rows: list[tuple[bytes, bytes | None]]
    stamp_ms: int = 0
