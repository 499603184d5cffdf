"""Random crashes from a seed on: ``python -m tests.crashes --crashes 1000``.

``--mistakes`` builds mistakes into the server, one after the other, and says after how many crashes
each was found.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from anabranch.engine import withheld
from anabranch.engine.withheld import Withheld
from anabranch.node.disk_trouble import DiskTrouble
from anabranch.node.durability import Durability, HeldReplies
from tests.crashes.life import Lives
from tests.crashes.tracker import Violation

__all__ = ["MISTAKES", "crashes_until_found", "run_crashes"]

CRASHES_PER_DISK = 10


def run_crashes(count: int, seed: int = 1) -> Counter[str]:
    """So many crashes, ten on each disk; what has happened. Raises :class:`Violation`."""
    reached: Counter[str] = Counter()
    while reached["crash"] < count:
        lives = Lives(seed)
        try:
            for _ in range(CRASHES_PER_DISK):
                lives.go_on()
        except Violation as problem:
            life = lives.reached["crash"] + 1
            raise Violation(f"seed {seed}, life {life}: {problem}") from None
        reached += lives.reached
        seed += 1
    return reached


def crashes_until_found(build_in: Callable[[pytest.MonkeyPatch], None], most: int) -> int | None:
    """After how many crashes a mistake is found; None if it is not."""
    with pytest.MonkeyPatch.context() as patch:
        build_in(patch)
        for count in range(CRASHES_PER_DISK, most + 1, CRASHES_PER_DISK):
            try:
                run_crashes(CRASHES_PER_DISK, seed=count)
            except (Violation, AssertionError):
                return count
    return None


def _without_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Withheld, "check", lambda *_args: None)
    patch.setattr(Withheld, "check_keys", lambda *_args: None)


def _only_unwritten(patch: pytest.MonkeyPatch) -> None:
    """What is written counts as safe, synced or not."""

    def unsafe(self: Durability) -> object:
        assert self.log is not None
        assert self.turn is not None
        effects = self.turn.recorded.effects
        return self._unsafe_effects.write_set(
            self.log.end, self._unwritten, effects, numbered=False
        )

    patch.setattr(Durability, "_unsafe", unsafe)


def _believes_another_sync(patch: pytest.MonkeyPatch) -> None:
    """A sync that began before another one failed, and succeeds, ends the trouble."""
    before = Durability._finish_sync

    def finish_sync(self: Durability) -> bool:
        was_final, self.disk.is_final = self.disk.is_final, False
        try:
            return before(self)
        finally:
            self.disk.is_final |= was_final

    patch.setattr(Durability, "_finish_sync", finish_sync)


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "reads are not refused": _without_guard,
    "replies made before the trouble go out": lambda patch: patch.setattr(
        DiskTrouble, "_hold_what_was_made", lambda _self: None
    ),
    "what is written counts as safe": _only_unwritten,
    "cursors tell of numbers that are not safe": lambda patch: patch.setattr(
        withheld, "_OF_NUMBERS", frozenset()
    ),
    "an older sync ends the trouble": _believes_another_sync,
    "no reply waits for the log": lambda patch: patch.setattr(
        HeldReplies, "hold", lambda _self, _client, _outbox: None
    ),
}
"""Mistakes, each a way to build it in."""


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("--crashes", type=int, help="how many (100), or at most (5000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first disk")
    parser.add_argument("--mistakes", action="store_true", help="find mistakes that are built in")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    if options.mistakes:
        most = options.crashes or 5000
        found = {name: crashes_until_found(each, most) for name, each in MISTAKES.items()}
        for name, count in found.items():
            print(f"{name}: " + ("NOT FOUND" if count is None else f"found after {count}"))
        return int(None in found.values())
    try:
        reached = run_crashes(options.crashes or 100, options.seed)
    except Violation as problem:
        print(problem)
        return 1
    for name, count in sorted(reached.items()):
        print(f"{count:8} {name}")
    print(f"{time.monotonic() - began:8.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
