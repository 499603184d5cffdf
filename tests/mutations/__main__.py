"""Mutates the core at places that a seed chooses: ``python -m tests.mutations --help``."""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutations.places import Place, sampled
from tests.mutations.running import (
    FAST,
    PACKAGES,
    TESTS_S,
    Reached,
    all_places,
    import_libraries,
    judge,
    note_tests,
)
from tests.mutations.survivors import reasons
from tests.mutations.verdicts import VerdictFile

OPEN: Final = frozenset({"survived", "not reached"})
"""The verdicts that need a test or a reason."""


def main() -> None:
    """Print a line a mutation, and the share that was noticed; fail if one survives unexplained."""
    options = _options()
    began = time.monotonic()
    import_libraries()
    everything = all_places()
    sample = sampled(everything, options.seed)[: options.count]
    sample = [each for each in sample if options.match in each.name]
    print(f"{len(everything)} places in {', '.join(PACKAGES)}; {len(sample)} of them", flush=True)
    kept = VerdictFile(options.verdicts)
    left = [place for place in sample if _is_left(kept.of(place), again=options.again)]
    tests = [tuple(options.tests.split(","))] if options.tests else list(FAST)
    reached = _reached(options.noted, left, tests)
    known = reasons()

    def tell(place: Place, found: str) -> None:
        if place.name in known and found in OPEN:
            found = "equivalent"
        kept.add(place, found)
        print(f"{found:24} line {place.line} of {place.name}", flush=True)

    ends = None if options.minutes is None else began + 60 * options.minutes
    judge(
        left, reached, options.jobs, tell, tests, tests_s=options.seconds,
        is_control=options.control,
        goes_on=lambda: ends is None or time.monotonic() < ends,
    )  # fmt: skip
    verdicts = [kept.of(place) for place in sample]
    _report([each for each in verdicts if each is not None], len(sample))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses the places")
    parser.add_argument("--count", type=int, default=240, help="how many mutations")
    parser.add_argument("--match", default="", help="only mutations whose name contains this")
    parser.add_argument("--control", action="store_true", help="mutate nothing: all must survive")
    parser.add_argument("--noted", type=Path, help="where to keep which test reaches what")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--verdicts",
        type=Path,
        help="keep the verdicts here, and judge only what has none yet or has changed since",
    )
    parser.add_argument(
        "--again", action="store_true", help="judge those of --verdicts again that survived"
    )
    parser.add_argument("--minutes", type=float, help="begin with no mutation after so long")
    parser.add_argument(
        "--seconds", type=float, default=TESTS_S, help="processor time of tests for a mutation"
    )
    parser.add_argument("--tests", default="", help="only these files, with commas between")
    return parser.parse_args()


def _is_left(verdict: str | None, *, again: bool) -> bool:
    return verdict is None or (again and verdict in OPEN)


def _reached(
    noted: Path | None, sample: Sequence[Place], tests: Sequence[Sequence[str]]
) -> Reached:
    """Which test reaches which mutation: noted earlier, or found by running all tests."""
    parts: list[Reached] = []
    if noted is not None and noted.exists():
        parts = json.loads(noted.read_text("utf-8"))
        if not all(place.name in part for part in parts for place in sample):
            parts = []
    for some in tests[len(parts) :]:
        parts.append({place.name: {} for place in sample} | note_tests(sample, some))
        if noted is not None:
            noted.write_text(json.dumps(parts), "utf-8")
    return {
        place.name: {test: took for part in parts for test, took in part[place.name].items()}
        for place in sample
    }


def _report(verdicts: Sequence[str], wanted: int) -> None:
    counts: Mapping[str, int] = Counter(verdicts)
    for name, count in sorted(counts.items()):
        print(f"{count:5}  {name}")
    killed = sum(count for name, count in counts.items() if name.startswith("killed"))
    different = len(verdicts) - counts["equivalent"]
    used = sum(
        each.ru_utime + each.ru_stime
        for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    print(f"{killed} of {different} that are not equivalent; {used / 60:.0f} minutes of a core")
    if len(verdicts) < wanted:
        print(f"{wanted - len(verdicts)} have no verdict yet: run this again with --verdicts")
    if killed < different or len(verdicts) < wanted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
