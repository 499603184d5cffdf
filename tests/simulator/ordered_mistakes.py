"""Mistakes built into order per key, each a broken promise.

A mistake that is not found is a hole in :mod:`tests.simulator.ordered`, or in what its histories
come to. ``python -m tests.simulator.ordered --mistakes`` tries all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from anabranch.commands.stream import key_order
from anabranch.effects import apply_group, apply_stream
from anabranch.engine import releasing
from anabranch.stream.groups import ordering
from anabranch.stream.groups.ordering import Ordering
from anabranch.stream.groups.policy import GroupPolicy

__all__ = ["MISTAKES"]

Patch = pytest.MonkeyPatch


def _nothing(*_args: Any, **_named: Any) -> None:
    """It is not done."""


def nobody_waits(patch: Patch) -> None:
    patch.setattr(Ordering, "admits", lambda *_args: True)


def two_in_one_reply(patch: Patch) -> None:
    take = key_order._Sorting.take

    def changed(sorting: Any, *args: Any) -> bool:
        sorting._taken = type("Nothing", (set,), {"add": _nothing})()
        return take(sorting, *args)

    patch.setattr(key_order._Sorting, "take", changed)


def who_waits_may_be_claimed(patch: Patch) -> None:
    patch.setattr(Ordering, "may_go", lambda *_args: True)


def the_next_one_is_not_offered(patch: Patch) -> None:
    patch.setattr(Ordering, "_call", _nothing)


def a_start_knows_nothing(patch: Patch) -> None:
    begin = Ordering.begin
    patch.setattr(Ordering, "begin", lambda order, _lists: begin(order, {}))


def released_ones_go_to_the_end(patch: Patch) -> None:
    """The line is in the order in which its entries came."""
    patch.setattr(ordering, "insort", lambda entries, entry, **_named: entries.append(entry))
    sort = Ordering._sort

    def changed(order: Any, entry: Any, key: bytes | None) -> None:
        real, entry.entry_id = entry.entry_id, (1 << 127)
        sort(order, entry, key)
        entry.entry_id = real

    patch.setattr(Ordering, "_sort", changed)


def poison_is_handed_out(patch: Patch) -> None:
    patch.setattr(GroupPolicy, "is_halted", lambda *_args: False)


def poison_is_acknowledged(patch: Patch) -> None:
    patch.setattr(releasing, "_has_key", lambda *_args: False)


def deleted_poison_stops_its_key(patch: Patch) -> None:
    patch.setattr(apply_stream, "_let_go", _nothing)


def readers_are_not_woken(patch: Patch) -> None:
    patch.setattr(apply_group, "wake_held_back", _nothing)


def a_full_line_stays_full(patch: Patch) -> None:
    """New entries are not looked at again after a read that found no room for one more."""
    full: set[Ordering] = set()

    def fill(order: Ordering, is_full: bool) -> None:
        if is_full:
            full.add(order)

    patch.setattr(Ordering, "stuck", property(full.__contains__, fill))


MISTAKES: Final[dict[str, Callable[[Patch], None]]] = {
    "an entry does not wait for others of its key": nobody_waits,
    "two entries of a key are in one reply": two_in_one_reply,
    "what waits may be claimed": who_waits_may_be_claimed,
    "nobody hears that it is the turn of the next one": the_next_one_is_not_offered,
    "a start does not know what was pending": a_start_knows_nothing,
    "what is given back waits behind later ones": released_ones_go_to_the_end,
    "poison is handed out again": poison_is_handed_out,
    "poison is acknowledged": poison_is_acknowledged,
    "deleted poison stops its key": deleted_poison_stops_its_key,
    "blocked readers are not woken": readers_are_not_woken,
    "a full line stays full": a_full_line_stays_full,
}
