"""Keys that come and go, beside redis-server: the resident size of both must not grow with time.

    python -m tests.system.churn --commands 20000000 --seed 1

Both servers get the same commands: entries of all sizes are added, read by groups, acknowledged,
trimmed and deleted, and keys are deleted and made again. Twenty lines with both resident sizes are
printed. It fails if replies differ, or if this server's resident size at the end is more than a
quarter above what it was after a fifth of the commands. ``test_churn.py`` runs a part of it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from tests.support.inspection import rss_bytes
from tests.support.servers import AnabranchServer, RedisServer
from tests.support.wire import Argument

__all__ = ["MAY_GROW", "churn"]

KEYS = 100
ROUND = 500
"""Commands in one pipeline."""

PARTS = 20
MEGABYTE = 1 << 20
MAY_GROW = 1.25

Command = tuple[Argument, ...]


class Churn:
    """Commands from a seed; equal servers give equal replies to them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._clock = 1
        self.count = 0
        """Commands so far."""

    def next_round(self) -> list[Command]:
        """The commands of one pipeline."""
        commands = [command for _ in range(ROUND // 5) for command in self._some()]
        self.count += len(commands)
        return commands

    def _some(self) -> Iterator[Command]:
        chance = self._chance
        key = f"key:{chance.randrange(KEYS)}"
        dice = chance.random()
        if dice < 0.03:
            yield "DEL", key
        elif dice < 0.06:
            yield "XTRIM", key, "MAXLEN", chance.randrange(50)
        elif dice < 0.12:
            yield "XGROUP", "CREATE", key, "g", "0", "MKSTREAM"
        elif dice < 0.30:
            consumer = f"c{chance.randrange(3)}"
            yield "XREADGROUP", "GROUP", "g", consumer, "COUNT", 20, "STREAMS", key, ">"
        elif dice < 0.40:
            first = max(1, self._clock - chance.randrange(2000))
            yield "XACK", key, "g", *(f"{first + at}-1" for at in range(20))
        elif dice < 0.50:
            yield "XDEL", key, *(f"{max(1, self._clock - at)}-1" for at in range(0, 2000, 100))
        else:
            for _ in range(8):
                self._clock += 1
                value = "v" * int(10 ** chance.uniform(0.5, 3.3))
                yield "XADD", key, "MAXLEN", 100, f"{self._clock}-1", "field", value


def churn(seed: int, commands: int) -> tuple[float, float, float]:
    """Run so many commands; resident MiB: of redis-server, of this one, and after a fifth.

    AssertionError if replies differ.
    """
    made = Churn(seed)
    in_memory = ("--appendonly", "no", "--save", "")
    early = theirs = mine = 0.0
    with (
        RedisServer() as redis,
        AnabranchServer(extra=in_memory) as ours,
        redis.client() as one,
        ours.client() as other,
    ):
        for part in range(1, PARTS + 1):
            while made.count * PARTS < commands * part:
                some = made.next_round()
                assert one.pipeline(some) == other.pipeline(some), f"within {made.count} commands"
            theirs, mine = (rss_bytes(each) / MEGABYTE for each in (redis, ours))
            early = early if part * 5 > PARTS else mine
            told = f"{made.count:,} commands: redis-server {theirs:.1f} MiB, this {mine:.1f} MiB"
            sys.stdout.write(told + "\n")
            sys.stdout.flush()
    return theirs, mine, early


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commands", type=int, default=20_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _, mine, early = churn(options.seed, options.commands)
    return int(mine > MAY_GROW * early)


if __name__ == "__main__":
    sys.exit(main())
