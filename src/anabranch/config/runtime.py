"""Settings while the server runs: find them by name, and change several or none.

The rules and sentences are those of CONFIG GET and CONFIG SET. The caller applies the effects of a
change (``commands/server/config.py`` in the core, ``server/host.py`` outside).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from anabranch.config.kinds import Directive
from anabranch.config.settings import ALIASES, ROWS, Settings

NAMES: Final[dict[str, Directive]] = {
    name: ROWS[ALIASES.get(name, name)]
    for name in (*ROWS, *ALIASES)
    if not ROWS[ALIASES.get(name, name)].hidden
}
"""Every name that CONFIG knows, older names included."""


class Refused(ValueError):
    """A change that is not allowed; ``name`` is the wrong argument, None if unknown."""

    def __init__(self, name: str, reason: str, *, known: bool = True) -> None:
        super().__init__(reason)
        self.name = name
        self.reason = reason
        self.known = known


def find(name: str) -> Directive | None:
    """The row of a name or alias in any case."""
    name = name.lower()
    return ROWS.get(ALIASES.get(name, name))


def nearest(name: str) -> str | None:
    """The known name that is most similar to this one."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    found = get_close_matches(name.lower(), [*ROWS, *ALIASES], n=1, cutoff=0.6)
    return found[0] if found else None


def change(
    settings: Settings, pairs: Sequence[tuple[str, str]], *, protected_allowed: bool
) -> dict[str, Any]:
    """Set all or none; returns the names to apply with their former values.

    Raises :class:`Refused` with Redis's sentence; then nothing has changed.
    """
    rows: list[Directive] = []
    for name, _ in pairs:
        row = NAMES.get(name.lower())
        if row is None:
            raise Refused(name, "unknown", known=False)
        rows.append(row)
    for index, ((name, _), row) in enumerate(zip(pairs, rows, strict=True)):
        if row.immutable:
            raise Refused(name, "can't set immutable config")
        if row.protected and not protected_allowed:
            raise Refused(name, "can't set protected config")
        if row in rows[:index]:
            raise Refused(name, "duplicate parameter")
    values: list[Any] = []
    for (name, text), row in zip(pairs, rows, strict=True):
        try:
            values.append(merged(settings, row, row.parse([text])))
        except ValueError as objection:
            raise Refused(name, str(objection)) from None
    before: dict[str, Any] = {}
    for row, value in zip(rows, values, strict=True):
        old = settings.value(row.name)
        if value != old or row.volatile:
            before[row.name] = old
            setattr(settings, row.attribute, value)
    return before


def merged(settings: Settings, row: Directive, value: Any) -> Any:
    """Complete a value that names some classes of clients only by the present values."""
    return {**settings.value(row.name), **value} if isinstance(value, dict) else value
