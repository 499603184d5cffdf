"""What the fuzzers have in common: arguments, bounded memory, a report."""

from __future__ import annotations

import argparse
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["MEMORY_BYTES", "Outcomes", "bounded", "program"]

MEMORY_BYTES: Final = 768 << 20
"""More address space than at the start is an error."""

SAY_EVERY: Final = 10_000


class Outcomes:
    """What became of cases, and those that failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, tuple[int, Exception]] = {}
        """By where it was raised: the first case that failed there, and how."""

    def failed(self, case: int, problem: Exception) -> None:
        """A case has failed."""
        self.counts["FAILED"] += 1
        last = traceback.extract_tb(problem.__traceback__)[-1]
        self.failures.setdefault(f"{last.filename}:{last.lineno}", (case, problem))

    def check(self) -> None:
        """Raise the first failure, if there is one."""
        for case, problem in self.failures.values():
            raise AssertionError(f"case {case}") from problem


def bounded() -> None:
    """Let no more memory be had than :data:`MEMORY_BYTES` from now on."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def program(run: Callable[[range, int, Outcomes], None], what: str | None) -> int:
    """Run the cases that the arguments ask for; the exit status."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--cases", type=int, default=100_000, help="up to this one")
    parser.add_argument("--from-case", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    bounded()
    outcomes = Outcomes()
    began = time.monotonic()
    for at in range(chosen.from_case, chosen.cases, SAY_EVERY):
        run(range(at, min(at + SAY_EVERY, chosen.cases)), chosen.seed, outcomes)
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.counts.items()))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        done, spent = outcomes.counts.total(), time.monotonic() - began
        sys.stdout.write(f"{done} cases, {spent:.0f} s, {peak} MiB: {counts}\n")
        sys.stdout.flush()
    for case, problem in outcomes.failures.values():
        sys.stdout.write(f"\ncase {case} of seed {chosen.seed}\n")
        traceback.print_exception(problem)
    return int(bool(outcomes.failures))
