"""Frees large values that are not needed any more, in slices.

A stream with a million entries is ten thousand blocks: Python frees them at once, which takes some
milliseconds. A million pending entries refer to their consumers while the consumers list them:
Python frees these only by a search through all objects. Here both are freed piece by piece, so that
no client waits.

Nothing is kept here unless :meth:`DeferredFree.sweep` will be called (:attr:`DeferredFree.call`);
otherwise Python frees everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from anabranch.keyspace.values import Value
from anabranch.stream.block import Block
from anabranch.stream.group import Group
from anabranch.stream.pending import PendingList
from anabranch.stream.stream import Stream

__all__ = ["DeferredFree"]

_Thing = Value | Group | list[Block] | dict[bytes, Value]

_BLOCKS: Final = 50
_ENTRIES: Final = 500
_VALUES: Final = 100
"""The count of objects that are freed in one step."""


class DeferredFree:
    """The values to free, in the order of their arrival."""

    __slots__ = ("_steps", "_things", "call")

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        """Called when there is something to sweep."""
        self._things: deque[_Thing] = deque()
        self._steps: Iterator[bool] | None = None

    def __len__(self) -> int:
        """The count of values that wait or are being freed."""
        return len(self._things) + (self._steps is not None)

    def defer(self, thing: _Thing) -> None:
        """Free a value that only snapshots and readers of frozen views may still use."""
        if self.call is not None and _is_large(thing):
            self._things.append(thing)
            self.call()

    def sweep(self, is_over: Callable[[], bool]) -> bool:
        """Free values until the deadline, at least one step; returns whether work is left.

        Does nothing while a reader uses a frozen view of the next value.
        """
        while True:
            if self._steps is None:
                if not self._things:
                    return False
                self._steps = _steps(self._things.popleft())
            is_free = next(self._steps, None)
            if is_free is None:
                self._steps = None
            elif not is_free:
                return False
            if is_over():
                return len(self) > 0


def _is_large(thing: _Thing) -> bool:
    if isinstance(thing, Stream):
        return bool(thing.groups) or thing.node_count > _BLOCKS
    if isinstance(thing, Group):
        return thing.pending_count > 0
    return isinstance(thing, list | dict) and len(thing) > 0


def _steps(thing: _Thing) -> Iterator[bool]:
    """Free one value in steps; a step yields False while a reader uses the next part."""
    if isinstance(thing, Stream):
        for log in thing.logs.values():
            yield from _blocks(log.blocks)
        for group in thing.groups.values():
            yield from _group(group)
    elif isinstance(thing, Group):
        yield from _group(thing)
    elif isinstance(thing, list):
        yield from _blocks(thing)
    elif isinstance(thing, dict):
        count = 0
        while thing:
            _, value = thing.popitem()
            count += 1
            if _is_large(value):
                yield from _steps(value)
            elif not count % _VALUES:
                yield True


def _blocks(blocks: list[Block]) -> Iterator[bool]:
    while blocks:
        del blocks[-_BLOCKS:]
        yield True


def _group(group: Group) -> Iterator[bool]:
    for consumer in group.consumers.values():
        for pending in consumer.pending.values():
            yield from _pending(pending)
    if group.by_age is not None:
        while group.by_age:
            del group.by_age[-_ENTRIES:]
            yield True
    while group.released:
        for _ in range(min(_ENTRIES, len(group.released))):
            group.released.popitem()
        yield True
    for pending in group.pending.values():
        yield from _pending(pending)


def _pending(pending: PendingList) -> Iterator[bool]:
    while pending.entries:
        if pending.frozen:
            yield False
        else:
            pending.shrink(_ENTRIES)
            yield True
