"""Random lives of regions whose clients mostly use strings and counters.

The rest is as in :mod:`tests.active_active.histories`: streams are made under the same names now
and then, regions are cut off, lose power, restart, and join full syncs, and each is compared with
the formulas: ``python -m tests.active_active.strings --seeds 1-1000``.
"""

from __future__ import annotations

import random
from typing import Final

from anabranch.simulator.workload import Mix
from tests.active_active import histories
from tests.active_active.histories import History

__all__ = ["StringHistory"]


class StringHistory(History):
    """The history of a seed, with commands on strings."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = random.Random(f"{seed}/strings")
        self._moves = False
        self._joins = True
        self.mix = Mix(_MIX, chance, (0.1, 0.5, 1, 1, 3))
        if chance.random() < 0.5:
            self.mix.scale(0, "PEXPIRE", "GETEX", "PERSIST")
        self.in_units = Mix(_IN_UNITS, chance)


_MIX: Final = """
10  SET {key} 0|7|-3|10.5|word
4   SET {key} 0|7|-3|10.5|word KEEPTTL|XX|NX|GET
4   SET {key} 0|7|-3|10.5|word PX 20|1000
3   MSET {key} 0|7|-3|10.5|word {other} 0|7|-3|10.5|word
12  INCRBYFLOAT {key} 0.1|-2.25|3
12  DECRBY {key} {1-9}
16  INCR {key}
3   APPEND {key} 1|x
3   SETRANGE {key} {0-2} 2
2   GETDEL {key}
2   GETEX {key} PX 5|60
6   PEXPIRE {key} 3|20|60|1000
2   PERSIST {key}
6   DEL {key}
5   XADD {key} *|*|*|{given} f {token}
1   XGROUP CREATE {key} {new} 0|0|$|{now} MKSTREAM
2   RENAME|RENAMENX {key} {other}
2   COPY {key} {other} |REPLACE
0.3 FLUSHALL
"""

_IN_UNITS: Final = """
1 SET {key} 0|7|-3|10.5|word
2 INCR|INCR {key}
1 INCRBYFLOAT {key} 0.1|-2.25|3
1 DEL {key}
1 XADD {key} * f {token}
"""


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
