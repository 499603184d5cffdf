"""What a region records, as a list of effects: each addition is one of its own."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import astuple

from anabranch.effects import kinds
from anabranch.effects.recorded import Additions, Recorded

__all__ = ["Recording", "record_all"]


class Recording(Recorded):
    """Notes each effect in a list of the test; a transaction hands over all of its own."""

    def __init__(self, noted: list[kinds.Effect]) -> None:
        super().__init__()
        self.noted = noted

    def append(self, effect: kinds.Effect) -> None:
        """Note any effect but an addition."""
        self.noted.append(effect)

    def add(
        self,
        db: int,
        key: bytes,
        entry_id: int,
        fragment: bytes,
        weight: int,
        opens: bool,
        position: int,
    ) -> None:
        """Note an addition."""
        self.noted.append(kinds.Add(db, key, entry_id, fragment, weight, opens, position))

    def extend(self, other: Recorded) -> None:
        """Note what a transaction has recorded."""
        for effect in other.effects:
            if not isinstance(effect, Additions):
                self.append(effect)
                continue
            for at, entry_id in enumerate(effect.ids):
                fragment, weight = effect.fragments[at], effect.weights[at]
                one = effect.part(at, at + 1)
                self.add(one.db, one.key, entry_id, fragment, weight, bool(one.opens), one.position)


def record_all(recorded: Recorded, effects: Iterable[kinds.Effect]) -> None:
    """Record effects as a region does it: additions are columns."""
    for effect in effects:
        if isinstance(effect, kinds.Add):
            recorded.add(*astuple(effect))
        else:
            recorded.append(effect)
