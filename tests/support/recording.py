"""What a region records, as a list of effects: each addition is one of its own."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.effects import kinds
from anabranch.effects.recorded import Additions, Recorded

__all__ = ["Recording", "record_all"]


class Recording(Recorded):
    """Notes each effect in a list of the test; a transaction hands over all of its own."""

    def __init__(self, noted: list[kinds.Effect]) -> None:
        super().__init__()
        self.noted = noted
        self.place = 0, b"", -1

    def append(self, effect: kinds.Effect) -> None:
        """Note any effect but an addition."""
        self.noted.append(effect)

    def go_to(self, db: int, key: bytes, position: int) -> None:
        """The next addition is to this key."""
        self.place = db, key, position

    def add(self, entry_id: int, fragment: bytes, weight: int, opens: bool) -> None:
        """Note an addition."""
        db, key, position = self.place
        self.noted.append(kinds.Add(db, key, entry_id, fragment, weight, opens, position))

    def extend(self, other: Recorded) -> None:
        """Note what a transaction has recorded."""
        for effect in other.effects:
            if not isinstance(effect, Additions):
                self.append(effect)
                continue
            for at, entry_id in enumerate(effect.ids):
                one = effect.part(at, at + 1)
                self.go_to(one.db, one.key, one.position)
                self.add(entry_id, one.fragments[0], one.weights[0], bool(one.opens))


def record_all(recorded: Recorded, effects: Iterable[kinds.Effect]) -> None:
    """Record effects as a region does it: additions are columns."""
    for effect in effects:
        if isinstance(effect, kinds.Add):
            recorded.go_to(effect.db, effect.key, effect.position)
            recorded.add(effect.entry_id, effect.fragment, effect.weight, effect.opens)
        else:
            recorded.append(effect)
