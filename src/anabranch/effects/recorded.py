"""The effects of a turn or a transaction, as the log will get them.

A pipeline of XADD is the most frequent turn. Its neighbouring additions to one key are not kept as
an effect each, but as the columns of one :class:`kinds.AddRun`, which is what the log contains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds

_ADD_RUN: Final = kinds.AddRun  # a name of an interpreted module is looked up each time

RUN_ENTRIES_MAX: Final = 1000
"""More neighbouring additions are several runs: batches are limited in effects."""


@mypyc_attr(acyclic=True)
class Additions:
    """A :class:`kinds.AddRun` that still grows; of its fields ``data`` and ``sizes`` are missing.

    They follow from ``fragments``, which are not copied before they are written.
    """

    local: ClassVar[bool] = False

    def __init__(self, db: int, key: bytes, position: int) -> None:
        """``position`` is that of the first entry; -1 in a region alone."""
        self.db = db
        self.key = key
        self.position = position
        self.ids: list[int] = []
        self.fragments: list[bytes] = []
        self.weights: list[int] = []
        self.opens: list[int] = []

    def part(self, low: int, high: int) -> Additions:
        """The entries from one index to another."""
        part = Additions(
            self.db, self.key, self.position if self.position < 0 else self.position + low
        )
        part.ids = self.ids[low:high]
        part.fragments = self.fragments[low:high]
        part.weights = self.weights[low:high]
        part.opens = [index - low for index in self.opens if low <= index < high]
        return part


Recordable = kinds.Effect | Additions


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorded:
    """Effects in the order in which they were applied."""

    def __init__(self) -> None:
        self.effects: list[Recordable] = []
        self.count = 0
        """The count of effects; each addition is one."""
        self._run: Additions | None = None  # the run of the next addition, or of the last one

    def append(self, effect: kinds.Effect) -> None:
        """Record any effect but an addition of one entry."""
        self._run = None
        self.effects.append(effect)
        self.count += 1

    def go_to(self, db: int, key: bytes, position: int) -> None:
        """The next addition, at a position of its log (:class:`kinds.Add`), is to this key."""
        run = self._run
        if run is None or run.key != key or run.db != db or len(run.fragments) >= RUN_ENTRIES_MAX:
            self._run = Additions(db, key, position)

    def add(self, entry_id: int, fragment: bytes, weight: int, opens: bool) -> None:
        """Record the addition of an entry, with these fields of :class:`kinds.Add`."""
        run = self._run
        assert run is not None
        count = len(run.fragments)
        if opens:
            run.opens.append(count)
        run.ids.append(entry_id)
        run.fragments.append(fragment)
        run.weights.append(weight)
        if not count:
            self.effects.append(run)
        self.count += 1

    def extend(self, other: Recorded) -> None:
        """Record what another object has recorded."""
        self._run = None
        self.effects += other.effects
        self.count += other.count

    def clear(self) -> None:
        """Forget everything."""
        self._run = None
        self.count = 0
        self.effects.clear()


# -- how many effect numbers effects take -------------------------------------------------------


def numbers_of(effect: Recordable) -> int:
    """The count of effect numbers that an effect takes: one for each entry that it adds."""
    if isinstance(effect, Additions):
        return len(effect.ids)
    if effect.local:
        return 0
    return len(effect.ids) if type(effect) is _ADD_RUN else 1


def total_numbers(effects: Iterable[Recordable]) -> int:
    """The count of effect numbers that several effects take."""
    total = 0
    for effect in effects:
        total += numbers_of(effect)
    return total
