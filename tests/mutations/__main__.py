"""Mutates the core at places that a seed chooses: ``python -m tests.mutations --help``."""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations.places import Place
from tests.mutations.running import (
    FAST,
    PACKAGES,
    Reached,
    all_places,
    import_libraries,
    judge,
    note_tests,
)
from tests.mutations.survivors import reasons


def main() -> None:
    """Print a line a mutation, and the share that was noticed; fail if one survives unexplained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses the places")
    parser.add_argument("--count", type=int, default=240, help="how many mutations")
    parser.add_argument("--match", default="", help="only mutations whose name contains this")
    parser.add_argument("--control", action="store_true", help="mutate nothing: all must survive")
    parser.add_argument("--noted", type=Path, help="where to keep which test reaches what")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    options = parser.parse_args()
    import_libraries()
    everything = all_places()
    sample = _sample(everything, options.seed)[: options.count]
    sample = [each for each in sample if options.match in each.name]
    print(f"{len(everything)} places in {', '.join(PACKAGES)}; {len(sample)} of them", flush=True)
    known = reasons()
    verdicts: dict[str, str] = {}
    with ThreadPoolExecutor(options.jobs) as threads:
        reached = _reached(options.noted, sample, threads)

    def tell(place: Place, found: str) -> None:
        if place.name in known and not found.startswith("killed"):
            found = "equivalent"
        verdicts[place.name] = found
        print(f"{found:24} line {place.line} of {place.name}", flush=True)

    judge(sample, reached, options.jobs, tell, is_control=options.control)
    _report(verdicts)


def _sample(everything: Sequence[Place], seed: int) -> list[Place]:
    """All places in an order that a seed gives: a change of the sources moves few of them."""
    return sorted(
        (each for each in everything if each.is_in_function),
        key=lambda place: hashlib.sha256(f"{seed} {place.name}".encode()).digest(),
    )


def _reached(noted: Path | None, sample: Sequence[Place], threads: ThreadPoolExecutor) -> Reached:
    """Which test reaches which mutation: noted earlier, or found by running all tests."""
    if noted is not None and noted.exists():
        known: Reached = json.loads(noted.read_text("utf-8"))
        if all(place.name in known for place in sample):
            return known
    reached: Reached = {place.name: {} for place in sample}
    for part in threads.map(lambda tests: note_tests(sample, tests), FAST):
        for name, tests in part.items():
            reached[name].update(tests)
    if noted is not None:
        noted.write_text(json.dumps(reached), "utf-8")
    return reached


def _report(verdicts: dict[str, str]) -> None:
    counts = Counter(verdicts.values())
    for name, count in sorted(counts.items()):
        print(f"{count:5}  {name}")
    killed = sum(count for name, count in counts.items() if name.startswith("killed"))
    different = len(verdicts) - counts["equivalent"]
    used = sum(
        each.ru_utime + each.ru_stime
        for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    print(f"{killed} of {different} that are not equivalent; {used / 60:.0f} minutes of a core")
    if killed < different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
