"""Frees large values that are not needed any more, in slices.

A stream with a million entries is ten thousand blocks: Python frees them at once, which takes some
milliseconds. A million pending entries refer to their consumers while the consumers list them:
Python frees these only by a search through all objects. Here both are freed piece by piece, so that
no client waits. The order of SCAN follows in the same way when very many keys were created or
removed at once.

Nothing is kept here unless :meth:`DeferredFree.sweep` will be called (:attr:`DeferredFree.call`);
otherwise Python frees everything, and the order follows at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.stream.block import Block
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_list import PendingList
from anabranch.stream.stream import Stream

_Thing = Value | Group | list[Block] | list[Value] | dict[bytes, Value] | Iterator[bool]

_PARTS: Final = 50
_ENTRIES: Final = 500
"""The count of objects that are freed in one step."""

_VALUES_MAX: Final = 1 << 18
"""While more values wait, a command that removes several frees them itself."""


class DeferredFree:
    """The values to free, in the order of their arrival."""

    def __init__(self) -> None:
        self.call: Callable[[], None] | None = None
        """Called when there is something to sweep."""
        self._orders: deque[KeyOrder] = deque()
        self._settles_first = False
        self._things: deque[_Thing] = deque()
        self._waiting = 0  # the count of values in lists and dictionaries among them
        self._steps: Iterator[bool] | None = None

    def __len__(self) -> int:
        """The count of values and orders that wait or are being worked on."""
        return len(self._orders) + len(self._things) + (self._steps is not None)

    def defer(self, thing: _Thing) -> None:
        """Free a value that only snapshots and readers of frozen views may still use.

        An iterator frees something with each step, and yields False where it has to wait.
        """
        if self.call is None and isinstance(thing, Iterator):
            for _ in thing:
                pass
        if self.call is None or not _is_large(thing):
            return
        if isinstance(thing, list) and self._waiting > _VALUES_MAX:
            return
        self._things.append(thing)
        self._waiting += _values_in(thing)
        self.call()

    def settle(self, order: KeyOrder) -> None:
        """Let the order of SCAN follow the keys."""
        if self.call is None:
            while order.settle():
                pass
        elif not order.is_settled and order not in self._orders:
            self._orders.append(order)
            self.call()

    def sweep(self, is_over: Callable[[], bool], *, frees: bool = True) -> bool:
        """Work until the deadline, at least one step; returns whether work is left.

        Orders come first in every other call, so that neither waits for the end of the other. Frees
        nothing while a reader uses a frozen view of the next value, or without ``frees``.
        """
        self._settles_first = not self._settles_first
        is_cut = (
            (self._settles_first and self._settle_some(is_over))
            or (frees and self._free_some(is_over))
            or self._settle_some(is_over)
        )
        return is_cut and len(self) > 0

    def _settle_some(self, is_over: Callable[[], bool]) -> bool:
        """Whether the deadline came."""
        while self._orders:
            if not self._orders[0].settle():
                self._orders.popleft()
            if is_over():
                return True
        return False

    def _free_some(self, is_over: Callable[[], bool]) -> bool:
        """Whether the deadline came."""
        while self._steps is not None or self._things:
            if self._steps is None:
                thing = self._things.popleft()
                self._waiting -= _values_in(thing)
                self._steps = _steps(thing)
            is_free = next(self._steps, None)
            if is_free is None:
                self._steps = None
            elif not is_free:
                return False
            if is_over():
                return True
        return False


def _values_in(thing: _Thing) -> int:
    return len(thing) if isinstance(thing, list | dict) else 0


def _is_large(thing: _Thing) -> bool:
    if isinstance(thing, (StringValue, ListValue, SetValue)):  # with "|" it takes longer
        return False
    if isinstance(thing, Stream):
        return bool(thing.groups) or thing.node_count > _PARTS
    if isinstance(thing, Group):
        return thing.pending.count > 0
    if isinstance(thing, list | dict):
        return len(thing) > 0
    return True


def _steps(thing: _Thing) -> Iterator[bool]:
    """Free one value in steps; a step yields False while a reader uses the next part."""
    if isinstance(thing, Stream):
        for log in thing.logs.values():
            yield from _steps(log.blocks)
        for group in thing.groups.values():
            yield from _group(group)
    elif isinstance(thing, Group):
        yield from _group(thing)
    elif isinstance(thing, Iterator):
        yield from thing
    elif isinstance(thing, list | dict):
        count = 0
        while thing:
            part = thing.pop() if isinstance(thing, list) else thing.popitem()[1]
            count += 1
            if not isinstance(part, Block) and _is_large(part):
                yield from _steps(part)
            elif not count % _PARTS:
                yield True


def _group(group: Group) -> Iterator[bool]:
    while group.policed is not None and group.policed.shrink(_ENTRIES):
        yield True
    for consumer in group.consumers.values():
        for pending in consumer.pending.values():
            yield from _pending(pending)
    if group.pending.by_age is not None:
        while group.pending.by_age:
            del group.pending.by_age[-_ENTRIES:]
            yield True
    while group.pending.released:
        for _ in range(min(_ENTRIES, len(group.pending.released))):
            group.pending.released.popitem()
        yield True
    for pending in group.pending.lists.values():
        yield from _pending(pending)


def _pending(pending: PendingList) -> Iterator[bool]:
    while pending.entries:
        if pending.frozen:
            yield False
        else:
            pending.shrink(_ENTRIES)
            yield True
