"""Random lives of regions whose clients mostly use strings and counters.

The rest is as in :mod:`tests.active_active.histories`: streams are made under the same names now
and then, regions are cut off, lose power, restart, and join full syncs, and each is compared with
the formulas: ``python -m tests.active_active.strings --seeds 1-1000``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from tests.active_active import histories
from tests.active_active.histories import Command, History
from tests.support.mesh import Node

__all__ = ["StringHistory"]


class StringHistory(History):
    """The history of a seed, with commands on strings."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"{seed}/strings")
        self._moves = False
        self._joins = True
        self._expires = chance.random() < 0.5
        mix = [
            (maker, weight)
            for maker, weight in _MIX
            if self._expires or maker not in (expire, histories.persist)
        ]
        self._makers = [maker for maker, _ in mix]
        self._weights = list(
            accumulate(weight * chance.choice([0.1, 0.5, 1, 1, 3]) for _, weight in mix)
        )
        self._in_units = [write, increase, increase, histories.delete, histories.add]


def _value(history: History) -> str:
    """A number mostly, so that increments count."""
    return history.chance.choice(["0", "7", "-3", "10.5", "word", ""])


def write(history: History, _node: Node, key: bytes) -> Command:
    options = history.chance.choice([
        (), (), (), ("KEEPTTL",), ("XX",), ("NX",), ("GET",), ("PX", "20"), ("PX", "1000"),
    ])  # fmt: skip
    return "SET", key, _value(history), *options


def write_several(history: History, _node: Node, key: bytes) -> Command:
    return "MSET", key, _value(history), history.chance.choice(history.keys), _value(history)


def increase(history: History, _node: Node, key: bytes) -> Command:
    dice = history.chance.random()
    if dice < 0.3:
        return "INCRBYFLOAT", key, history.chance.choice(["0.1", "-2.25", "3"])
    if dice < 0.6:
        return "DECRBY", key, history.chance.randint(1, 9)
    return "INCR", key


def overwrite(history: History, _node: Node, key: bytes) -> Command:
    if history.chance.random() < 0.5:
        return "APPEND", key, history.chance.choice(["1", "x"])
    return "SETRANGE", key, history.chance.randint(0, 2), "2"


def take(_history: History, _node: Node, key: bytes) -> Command:
    return "GETDEL", key


def expire(history: History, _node: Node, key: bytes) -> Command:
    if history.chance.random() < 0.3:
        return "GETEX", key, "PX", history.chance.choice([5, 60])
    return "PEXPIRE", key, history.chance.choice([3, 20, 60, 1000])


_MIX: Final[list[tuple[Callable[[History, Node, bytes], Command | None], float]]] = [
    (write, 20), (write_several, 3), (increase, 40), (overwrite, 6), (take, 2), (expire, 6),
    (histories.persist, 2), (histories.delete, 6), (histories.add, 5), (histories.create, 1),
    (histories.rename, 2), (histories.copy, 2), (histories.flush, 0.3),
]  # fmt: skip


def main(history: type[History]) -> int:
    """Run some seeds; print those that fail."""
    import argparse
    import traceback

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-100", help="FIRST-LAST")
    first, last = map(int, parser.parse_args().seeds.split("-"))
    failed = 0
    for seed in range(first, last + 1):
        try:
            history(seed).run()
        except Exception:
            failed += 1
            histories.say(f"seed {seed}: {traceback.format_exc(limit=-3)}")
    histories.say(f"{last + 1 - first} histories, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main(StringHistory))
