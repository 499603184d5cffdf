"""The effects of a turn or a transaction, as the log will get them.

A pipeline of XADD is the most frequent turn. Its neighbouring additions to one key are not kept as
an effect each, but as the columns of one :class:`kinds.AddRun`, which is what the log contains.
"""

from __future__ import annotations

from typing import ClassVar, Final

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds

RUN_ENTRIES_MAX: Final = 1000
"""More neighbouring additions are several runs: batches are limited in effects."""


@mypyc_attr(acyclic=True)
class Additions:
    """A :class:`kinds.AddRun` that still grows; of its fields ``data`` and ``sizes`` are missing.

    They follow from ``fragments``, which are not copied before they are written.
    """

    local: ClassVar[bool] = False

    def __init__(
        self,
        db: int,
        key: bytes,
        ids: list[int],
        fragments: list[bytes],
        weights: list[int],
        opens: list[int],
        position: int,
    ) -> None:
        self.db = db
        self.key = key
        self.ids = ids
        self.fragments = fragments
        self.weights = weights
        self.opens = opens
        self.position = position

    def part(self, low: int, high: int) -> Additions:
        """The entries from one index to another."""
        return Additions(
            self.db,
            self.key,
            self.ids[low:high],
            self.fragments[low:high],
            self.weights[low:high],
            [index - low for index in self.opens if low <= index < high],
            self.position if self.position < 0 else self.position + low,
        )


Recordable = kinds.Effect | Additions


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorded:
    """Effects in the order in which they were applied."""

    def __init__(self) -> None:
        self.effects: list[Recordable] = []
        self._run: Additions | None = None  # the last of the effects, if it may grow
        self._grown = 0  # count of additions behind the first one of their run

    @property
    def count(self) -> int:
        """The count of effects; each addition is one."""
        return len(self.effects) + self._grown

    def append(self, effect: kinds.Effect) -> None:
        """Record any effect but an addition of one entry."""
        self._run = None
        self.effects.append(effect)

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
        """Record a :class:`kinds.Add` with these fields."""
        run = self._run
        if run is None or run.key != key or run.db != db or len(run.fragments) >= RUN_ENTRIES_MAX:
            run = Additions(
                db, key, [entry_id], [fragment], [weight], [0] if opens else [], position
            )
            self._run = run
            self.effects.append(run)
            return
        if opens:
            run.opens.append(len(run.fragments))
        run.ids.append(entry_id)
        run.fragments.append(fragment)
        run.weights.append(weight)
        self._grown += 1

    def extend(self, other: Recorded) -> None:
        """Record what another object has recorded."""
        self._run = None
        self.effects += other.effects
        self._grown += other._grown

    def clear(self) -> None:
        """Forget everything."""
        self._run = None
        self._grown = 0
        self.effects.clear()
