"""The long run: `python -m tests.differential.run --commands 1000000 --seeds 1,2,3`.

Starts a Redis and a server of ours, sends both the same random commands, reports each
distinct mismatch once, shrunk, on standard output, and progress on standard error. Exit
status 0: none; 1: mismatches; 2: it could not run.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.differential.compare import Mismatch, Pair, Versions, report
from tests.differential.exceptions import DIFFERENCES
from tests.differential.generator import EPISODE_COMMANDS, Generator
from tests.support.servers import AnabranchServer, RedisServer, ServerFailed


@dataclass(slots=True)
class Total:
    """What a run has come to so far."""

    compared: int = 0
    skipped: int = 0
    episodes: int = 0
    seconds: float = 0.0
    found: dict[str, Mismatch] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)

    def summary(self) -> str:
        """One line."""
        rate = self.compared / self.seconds if self.seconds else 0.0
        return (
            f"{self.compared} commands compared in {self.episodes} episodes, "
            f"{self.skipped} skipped, {sum(self.counts.values())} mismatches of "
            f"{len(self.found)} kinds, {self.seconds:.1f} s, {rate:.0f} commands/s"
        )


def compare_seed(
    pair: Pair,
    seed: int,
    commands: int,
    total: Total,
    *,
    most_kinds: int = 20,
    progress: bool = False,
) -> None:
    """Compare at least this many commands of a seed; ends early after `most_kinds` kinds."""
    started = time.monotonic()
    before, shown = total.seconds, started
    goal = total.compared + total.skipped + commands
    for episode in Generator(seed, min(EPISODE_COMMANDS, commands)).episodes():
        outcome = pair.run(episode)
        total.episodes += 1
        total.compared += outcome.compared
        total.skipped += outcome.skipped
        total.differences += outcome.differences
        if outcome.mismatch is not None:
            signature = outcome.mismatch.signature
            total.counts[signature] += 1
            if signature not in total.found:
                total.found[signature] = pair.shrink(outcome.mismatch)
        now = time.monotonic()
        total.seconds = before + now - started
        if progress and now - shown > 2.0:
            shown = now
            print(f"seed {seed}: {total.summary()}", file=sys.stderr)
        if total.compared + total.skipped >= goal or len(total.found) >= most_kinds:
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--commands", type=int, default=1_000_000, help="over all seeds together")
    parser.add_argument("--seeds", default="1", help="numbers and ranges: 1,2,5-9")
    parser.add_argument("--kinds", type=int, default=20, help="stop after so many distinct ones")
    parser.add_argument("--redis-port", type=int, help="a running, EMPTY Redis 7.0")
    parser.add_argument("--port", type=int, help="a running, EMPTY server to be compared")
    parser.add_argument(
        "--redis-only", action="store_true", help="compare Redis with a second Redis"
    )
    chosen = parser.parse_args(arguments)
    seeds = parse_seeds(chosen.seeds)
    total = Total()
    versions = Versions.SAME if chosen.redis_only else Versions.NEWER
    with contextlib.ExitStack() as stack:
        try:
            old = chosen.redis_port or stack.enter_context(RedisServer()).port
            if chosen.port:
                new = chosen.port
            elif chosen.redis_only:
                new = stack.enter_context(RedisServer()).port
            else:
                new = stack.enter_context(AnabranchServer()).port
        except (ServerFailed, OSError) as problem:
            print(f"cannot run: {problem}", file=sys.stderr)
            return 2
        with Pair(old, new, versions) as pair:
            for seed in seeds:
                share = -(-chosen.commands // len(seeds))
                compare_seed(pair, seed, share, total, most_kinds=chosen.kinds, progress=True)
                if len(total.found) >= chosen.kinds:
                    break
    for signature, mismatch in total.found.items():
        print(f"{report(mismatch)}\n  times: {total.counts[signature]}\n")
    for difference in DIFFERENCES:
        if total.differences[difference.name]:
            print(f"listed difference {difference.name}: {total.differences[difference.name]}")
    print(total.summary())
    return 1 if total.found else 0


def parse_seeds(text: str) -> list[int]:
    """`1,2,5-9` as numbers."""
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


if __name__ == "__main__":
    sys.exit(main())
