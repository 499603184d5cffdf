"""Keys of any type, and databases."""

from __future__ import annotations

from msgspec import field

from anabranch.effects.kinds.base import Effect, KeyEffect


class Delete(KeyEffect, tag=40):
    """Removes a key; ``expired`` selects the keyspace event.

    With several regions ``positions`` are the ends of the logs as ``(replica_id, position)``;
    counting begins there.
    """

    expired: bool
    positions: list[tuple[int, int]] = field(default_factory=list)


class Expire(KeyEffect, tag=41):
    """A key's deadline; None for none."""

    at_ms: int | None


class Rename(KeyEffect, tag=42):
    """The value and deadline move to another key, maybe of another database (MOVE)."""

    target_db: int
    target: bytes
    incarnation: int = 0


class Copy(KeyEffect, tag=43):
    """An independent copy of value and deadline under another key."""

    target_db: int
    target: bytes
    incarnation: int = 0


class Restore(KeyEffect, tag=44):
    """A key bound to the value of a DUMP payload.

    ``now_ms`` dates what the payload does not (insertion of idempotent IDs); the durations and
    limits are for payloads without idempotency settings.
    """

    payload: bytes
    at_ms: int | None
    now_ms: int
    idmp_duration_s: int
    idmp_maxsize: int
    incarnation: int = 0


class Flush(Effect, tag=45):
    """Empties a database, or all (None).

    With several regions every known key is deleted before by its own effect; this effect removes
    groups that were created concurrently.
    """

    db: int | None


class Swap(Effect, tag=46):
    """Exchanges the contents of two databases."""

    db: int
    other: int


class DeleteKeys(Effect, tag=47):
    """Removes those of several keys that exist, at one moment."""

    db: int
    keys: list[bytes]
