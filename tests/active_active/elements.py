"""Random lives of regions whose clients mostly use sets and lists.

The rest is as in :mod:`tests.active_active.histories`: other values are made under the same names
now and then, regions are cut off, lose power, restart, and join full syncs, and each is compared
with the formulas. These take effects as they are, so what a command must come to is checked where
it runs, too: a list is compared with a list of Python:
``python -m tests.active_active.elements --seeds 1-1000``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from anabranch.keyspace.values import SetValue
from anabranch.simulator.element_checks import CHECKED, ElementCheck
from tests.active_active import histories, strings
from tests.active_active.histories import Command, Event, History
from tests.support.mesh import Node

__all__ = ["ElementHistory"]


class ElementHistory(History):
    """The history of a seed, with commands on sets and lists."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"{seed}/elements")
        self._moves = False
        self._joins = True
        self._expires = chance.random() < 0.5
        kinds = chance.choice([(1, 0), (0, 1), (1, 1)])
        mix = [
            *[(maker, weight * kinds[0]) for maker, weight in _OF_SETS],
            *[(maker, weight * kinds[1]) for maker, weight in _OF_LISTS],
            *[each for each in _REST if self._expires or each[0] is not strings.expire],
        ]
        self._makers = [maker for maker, _ in mix]
        self._weights = list(
            accumulate(weight * chance.choice([0.3, 1, 1, 3]) for _, weight in mix)
        )
        self._in_units = [add, remove, push, pop, histories.delete]

    def _happen(self, event: Event) -> None:
        if event[0] != "do":
            super()._happen(event)
            return
        _, number, *given = event
        words = [word if isinstance(word, bytes) else str(word).encode() for word in given]
        if words[0] not in CHECKED - {b"SPOP", b"SRANDMEMBER"}:
            super()._happen(event)
            return
        check = ElementCheck(self.cluster.node(number).region.keyspace, words)
        super()._happen(event)
        check.check(None)


# -- sets -----------------------------------------------------------------------------------------


def _some(history: History) -> list[str]:
    chance = history.chance
    return [chance.choice("abcdef") for _ in range(chance.choice([1, 1, 2, 4]))]


def add(history: History, _node: Node, key: bytes) -> Command:
    return "SADD", key, *_some(history)


def remove(history: History, _node: Node, key: bytes) -> Command:
    return "SREM", key, *_some(history)


def draw(history: History, _node: Node, key: bytes) -> Command:
    return "SPOP", key, *history.chance.choice([(), (), (1,), (3,)])


def look(history: History, node: Node, key: bytes) -> Command:
    """A draw that has an order prepared; what it shows must be there."""
    value = node.region.keyspace.databases[0].values.get(key)
    if isinstance(value, SetValue):
        words = [b"SRANDMEMBER", key, b"-5"]
        ElementCheck(node.region.keyspace, words).check(node.do(*words))
    return "SRANDMEMBER", key, history.chance.choice([1, -3])


def pass_on(history: History, _node: Node, key: bytes) -> Command:
    return "SMOVE", key, history.chance.choice(history.keys), history.chance.choice("abcdef")


# -- lists ----------------------------------------------------------------------------------------


def push(history: History, _node: Node, key: bytes) -> Command:
    chance = history.chance
    return chance.choice(["RPUSH", "RPUSH", "LPUSH"]), key, *_some(history)


def pop(history: History, _node: Node, key: bytes) -> Command:
    chance = history.chance
    return chance.choice(["LPOP", "LPOP", "RPOP"]), key, *chance.choice([(), (), (2,), (9,)])


def insert(history: History, _node: Node, key: bytes) -> Command:
    chance = history.chance
    where = chance.choice(["BEFORE", "AFTER"])
    return "LINSERT", key, where, chance.choice("abcdef"), chance.choice("uvwxyz")


def put(history: History, _node: Node, key: bytes) -> Command:
    return "LSET", key, history.chance.choice([0, 0, 1, -1, -2]), history.chance.choice("UVWXYZ")


def take_out(history: History, _node: Node, key: bytes) -> Command:
    return "LREM", key, history.chance.choice([0, 1, -1, 2]), history.chance.choice("abcdefx")


def trim(history: History, _node: Node, key: bytes) -> Command:
    return "LTRIM", key, *history.chance.choice([(0, 5), (1, -1), (0, -2), (1, -2), (-4, -1)])


def turn(history: History, _node: Node, key: bytes) -> Command:
    chance = history.chance
    ends = chance.choice(["LEFT", "RIGHT"]), chance.choice(["LEFT", "RIGHT"])
    return "LMOVE", key, chance.choice(history.keys), *ends


_Mix = list[tuple[Callable[[History, Node, bytes], Command | None], float]]

_OF_SETS: Final[_Mix] = [(add, 30), (remove, 15), (draw, 5), (look, 3), (pass_on, 5)]

_OF_LISTS: Final[_Mix] = [
    (push, 25), (pop, 9), (insert, 10), (put, 15), (take_out, 5), (trim, 4), (turn, 6),
]  # fmt: skip

_REST: Final[_Mix] = [
    (strings.expire, 4), (histories.persist, 1), (histories.delete, 5), (strings.write, 2),
    (histories.add, 3), (histories.rename, 4), (histories.copy, 2), (histories.flush, 0.3),
]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(strings.main(ElementHistory))
