"""ACL users."""

from __future__ import annotations

from anabranch.effects.kinds.base import Effect


class SetUser(Effect, tag=60):
    """An ACL user was created or changed: its name, and its line as ACL LIST writes it."""

    local = True

    name: bytes
    line: bytes


class DropUser(Effect, tag=61):
    """Removes an ACL user."""

    local = True

    name: bytes
