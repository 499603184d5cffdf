"""A program around the runs of a simulation in which everything follows from a seed.

``--seeds 1-1000`` runs so many and prints what failed and what was reached; ``--mistakes`` builds
in each of the known mistakes, and looks for a seed that finds it: a table in docs/testing.md.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import pytest

from anabranch.simulator.record import RunRecord, Violation

__all__ = ["Mistakes", "SeededRun", "SeededRuns"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "testing.md"
_COLLECTED: Final = 50
"""So many runs are made between two collections of garbage."""

Mistakes = Mapping[str, tuple[str | None, Callable[[pytest.MonkeyPatch], None]]]
"""By its name: the kind of run in which a mistake shows, and the patch that builds it in."""


class SeededRun(Protocol):
    """One run; ``run`` raises a :class:`Violation` if a promise is broken."""

    record: RunRecord
    reached: Counter[str]

    def run(self) -> None:
        """All of it."""


class SeededRuns:
    """The runs of one simulation, and the mistakes that they must find."""

    def __init__(self, new_run: Callable[[int, str | None], SeededRun], mistakes: Mistakes) -> None:
        """``new_run`` makes the run of a seed, of a kind or of the one that the seed draws."""
        self._new_run = new_run
        self._mistakes = mistakes

    def known_seeds(self) -> dict[str, int]:
        """The seed that has found each mistake, by the table in docs/testing.md."""
        page = PAGE.read_text("utf-8")
        rows = re.findall(r"^\| (.+?) \| [a-z ]+ \| (\d+) \|$", page, re.MULTILINE)
        return {name: int(seed) for name, seed in rows if name in self._mistakes}

    def seed_that_finds(self, mistake: str, seeds: Iterable[int]) -> int | None:
        """The first of these seeds whose run shows a mistake, and holds without it, or None."""
        kind, build_in = self._mistakes[mistake]
        for seed in seeds:
            with pytest.MonkeyPatch.context() as patch:
                build_in(patch)
                is_found = not self._holds(seed, kind)
            if is_found and self._holds(seed, kind):
                return seed
        return None

    def _holds(self, seed: int, kind: str | None) -> bool:
        try:
            self._new_run(seed, kind).run()
        except (AssertionError, Violation):
            return False
        return True

    # -- the program ------------------------------------------------------------------------------

    def main(self, description: str | None, arguments: Sequence[str] | None = None) -> int:
        """Run many seeds, or look for the mistakes; 1 if something failed, or was not found."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--seeds", default="1-1000", help="A-B, both included")
        parser.add_argument("--seconds", type=float, default=0, help="stop after so much time")
        parser.add_argument(
            "--mistakes", action="store_true", help="find the seeded mistakes instead"
        )
        parser.add_argument(
            "--verbose", action="store_true", help="every event of the first failure"
        )
        chosen = parser.parse_args(arguments)
        if chosen.mistakes:
            return self._try_mistakes()
        low, _, high = chosen.seeds.partition("-")
        seeds = range(int(low), int(high or low) + 1)
        failed = self._run_all(seeds, chosen.seconds)
        if failed and chosen.verbose:
            run = self._new_run(failed[0], None)
            if _failure(run):
                _say("\n".join(run.record.lines))
        return int(bool(failed))

    def _run_all(self, seeds: range, seconds: float) -> list[int]:
        """Print what fails, what is reached, and how many runs there were; returns what failed."""
        gc.disable()
        failed: list[int] = []
        reached: Counter[str] = Counter()
        done, started = 0, time.monotonic()
        for seed in seeds:
            run = self._new_run(seed, None)
            if sentence := _failure(run):
                failed.append(seed)
                _say(f"seed {seed}: {sentence}")
            reached += run.reached
            done += 1
            if done % _COLLECTED == 0:
                gc.collect()
                if seconds and time.monotonic() - started > seconds:
                    break
        for name, times in sorted(reached.items()):
            _say(f"{times:8} {name}")
        _say(f"{done} histories, {len(failed)} failed, {time.monotonic() - started:.0f} s")
        return failed

    def _try_mistakes(self) -> int:
        """Print the table of the mistakes, and the seeds that found them."""
        is_missed = False
        for name, (kind, _) in self._mistakes.items():
            seed = self.seed_that_finds(name, range(1, 201))
            is_missed |= seed is None
            _say(f"| {name} | {kind or 'any'} | {seed} |")
        return int(is_missed)


def _failure(run: SeededRun) -> str | None:
    """What goes wrong in a run."""
    try:
        run.run()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def _say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
