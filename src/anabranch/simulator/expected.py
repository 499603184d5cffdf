"""The data of a key by the formulas, in the form of :mod:`anabranch.simulator.looking`."""

from __future__ import annotations

from typing import Any

from anabranch.simulator import looking
from anabranch.simulator.facts import NEVER
from anabranch.simulator.formulas import Shown


def due_of(shown: Shown) -> dict[str, Any]:
    """The data by the formulas, in the form of :func:`looking.visible`."""
    return {
        "entries": sorted(
            looking.Entry(e.entry_id, e.dot, looking.token_of(e.payload))  # type: ignore[arg-type]
            for e in shown.entries
        ),
        "last ID": shown.last_id,
        "entries added": shown.entries_added,
        "max deleted ID": shown.max_deleted_id,
        "deadline": None if shown.deadline == NEVER else shown.deadline,
        "groups": {
            name: (
                sorted(created.dot for created in creations),
                sorted(e.dot for e in shown.entries if shown.is_acknowledged(name, e)),
            )
            for name, creations in sorted(shown.groups.items())
        },
    }


def difference(one: Any, other: Any) -> str:
    """The innermost place where two values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                return f"{key} {difference(one.get(key), other.get(key))}"
    if isinstance(one, list) and isinstance(other, list):
        more = [each for each in one if each not in other]
        less = [each for each in other if each not in one]
        return f"has {more} too many, lacks {less}"
    return f"{one} instead of {other}"
