"""Random lives of regions whose clients mostly use sets and lists.

The rest is as in :mod:`tests.active_active.histories`: other values are made under the same names
now and then, regions are cut off, lose power, restart, and join full syncs, and each is compared
with the formulas. These take effects as they are, so what a command must come to is checked where
it runs, too: a list is compared with a list of Python:
``python -m tests.active_active.elements --seeds 1-1000``.
"""

from __future__ import annotations

import random
from typing import Any, Final

from anabranch.simulator.element_checks import CHECKED, ElementCheck
from anabranch.simulator.workload import Mix
from tests.active_active import strings
from tests.active_active.checked_cluster import Event
from tests.active_active.histories import History

__all__ = ["ElementHistory"]


class ElementHistory(History):
    """The history of a seed, with commands on sets and lists."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"{seed}/elements")
        self._moves = False
        self._joins = True
        tables = chance.choice([(_OF_SETS,), (_OF_LISTS,), (_OF_SETS, _OF_LISTS)])
        self.mix = Mix("\n".join([*tables, _REST]), chance, (0.3, 1, 1, 3))
        if chance.random() < 0.5:
            self.mix.scale(0, "PEXPIRE", "GETEX")
        self.in_units = Mix(_IN_UNITS, chance)

    def _happen(self, event: Event) -> Any:
        if event[0] != "do":
            return super()._happen(event)
        _, number, *given = event
        words = [word if isinstance(word, bytes) else str(word).encode() for word in given]
        if words[0] not in CHECKED:
            return super()._happen(event)
        check = ElementCheck(self.cluster.node(number).region.keyspace, words)
        reply = super()._happen(event)
        check.check(None if isinstance(reply, Exception) else reply)
        return reply


_OF_SETS: Final = """
15 SADD {key} a|b|c|d|e|f
15 SADD {key} a|b|c|d|e|f a|b|c |d|e|f
10 SREM {key} a|b|c|d|e|f
5  SREM {key} a|b|c d|e|f |a|f
5  SPOP {key} ||1|3
3  SRANDMEMBER {key} 1|-3|-5|-5
5  SMOVE {key} {other} a|b|c|d|e|f
"""

_OF_LISTS: Final = """
12 RPUSH|RPUSH|LPUSH {key} a|b|c|d|e|f
13 RPUSH|RPUSH|LPUSH {key} a|b|c d|e|f |a|b |c|d
9  LPOP|LPOP|RPOP {key} ||2|9
10 LINSERT {key} BEFORE|AFTER a|b|c|d|e|f u|v|w|x|y|z
15 LSET {key} 0|0|1|-1|-2 U|V|W|X|Y|Z
5  LREM {key} 0|1|-1|2 a|b|c|d|e|f|x
4  LTRIM {key} 0|1|0|1|-4 5|-1|-2
6  LMOVE {key} {other} LEFT|RIGHT LEFT|RIGHT
"""

_REST: Final = """
1   GETEX {key} PX 5|60
3   PEXPIRE {key} 3|20|60|1000
1   PERSIST {key}
5   DEL {key}
2   SET {key} 7|word |KEEPTTL|XX|NX
3   XADD {key} *|*|*|{given} f {token}
4   RENAME|RENAMENX {key} {other}
2   COPY {key} {other} |REPLACE
0.3 FLUSHALL
"""

_IN_UNITS: Final = """
1 SADD {key} a|b|c d|e|f
1 SREM {key} a|b|c|d|e|f
1 RPUSH|LPUSH {key} a|b|c d|e|f
1 LPOP|RPOP {key} |2
1 DEL {key}
"""


if __name__ == "__main__":
    raise SystemExit(strings.main(ElementHistory))
