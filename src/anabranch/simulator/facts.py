"""Effects as facts on keys; uses only the effect classes of the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from anabranch.effects import kinds

Dot = tuple[int, int]
"""A replica ID and an effect number."""

Vector = Mapping[int, int]
"""Per replica ID, the number of its last applied effect."""

Key = tuple[int, bytes]
"""Database and name."""

NEVER = float("inf")
"""The deadline that PERSIST sets: none."""

COVERED: Final = (
    *(kinds.Add, kinds.RemoveNumbers, kinds.Delete, kinds.SetLastId, kinds.Expire),
    *(kinds.CreateGroup, kinds.DestroyGroup, kinds.AcknowledgeRuns),
    *(kinds.Remember, kinds.ResolveConflict, kinds.ConfigureProducers, kinds.AdvanceScheduled),
    *(kinds.WriteString, kinds.Increase, kinds.PutElements, kinds.TakeElements),
)
"""The kinds of effects from which the formulas compute."""

_E_co = TypeVar("_E_co", bound=kinds.Effect, covariant=True)
_T = TypeVar("_T")


class once(Generic[_T]):  # noqa: N801  # used like a decorator of the standard library
    """A property that is computed at most once; without the lock of ``cached_property``."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: object = None) -> _T:
        value = instance.__dict__[self._name] = self._function(instance)
        return value


@dataclass(frozen=True)
class Fact(Generic[_E_co]):
    """An effect on one key, with its dot and its context."""

    replica_id: int
    number: int
    context: Vector
    effect: _E_co

    @property
    def dot(self) -> Dot:
        """Replica ID and number of the effect."""
        return self.replica_id, self.number

    def knew(self, other: Fact[kinds.Effect]) -> bool:
        """Whether another effect is in the context of this one."""
        return other.number <= self.context.get(other.replica_id, 0)

    @once
    def removed(self) -> frozenset[Dot]:
        """The entries that it removes by their dots."""
        effect: kinds.Effect = self.effect
        if isinstance(effect, kinds.ResolveConflict):
            return frozenset([(effect.goes[0], effect.goes[1])] if effect.removed else [])
        ranges = effect.ranges if isinstance(effect, kinds.RemoveNumbers) else []
        return frozenset(
            (replica_id, number)
            for replica_id, edges in ranges
            for low, high in zip(edges[::2], edges[1::2], strict=True)
            for number in range(low + 1, high + 1)
        )


Added = Fact[kinds.Add]
"""An entry that was added."""

Tagged = Fact[kinds.Remember]
"""An idempotent ID that was accepted."""
