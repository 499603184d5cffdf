"""Every fuzzer of this package in turn: ``python -m tests.fuzzing --minutes 60 --seed 1``.

Each has an equal share of the processor time, and goes through cases that no earlier run with the
same seed and the same ``--tally`` has tried. With ``--cases`` those that have tried so many wait
until the others have, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from anabranch.version import IS_COMPILED
from tests.fuzzing import batches, full_syncs, gossip
from tests.fuzzing.running import Outcomes, bounded


class Fuzzer(NamedTuple):
    """One of the programs of this package."""

    run: Callable[[range, int, Outcomes], None]
    slice_cases: int
    """Cases in a row: so many that the next slice begins with another history."""


FUZZERS: Final = {
    "batches": Fuzzer(batches.run, 8_000),
    "full_syncs": Fuzzer(full_syncs.run, 4_000),
    "gossip": Fuzzer(gossip.run, 10_000),
}


@dataclass
class Share:
    """What one fuzzer has tried so far."""

    cases: int = 0
    processor_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)


class FuzzingTally:
    """What all fuzzers have tried, kept in a file so that a later run goes on."""

    def __init__(self, seed: int, path: Path | None) -> None:
        self._path = path
        self.seed = seed
        self.shares = {name: Share() for name in FUZZERS}
        if path is not None and path.exists():
            known = json.loads(path.read_text("utf-8"))
            if known["seed"] != seed:
                raise SystemExit(f"{path} is of seed {known['seed']}; name another file")
            for name, facts in known["shares"].items():
                self.shares[name] = Share(**facts | {"outcomes": Counter(facts["outcomes"])})

    def keep(self) -> None:
        """Write the file."""
        if self._path is not None:
            shares = {
                name: {**vars(share), "outcomes": dict(share.outcomes)}
                for name, share in self.shares.items()
            }
            self._path.write_text(json.dumps({"seed": self.seed, "shares": shares}), "utf-8")

    def lines(self) -> list[str]:
        """A line a fuzzer."""
        return [
            f"{name}: {share.cases:,} cases, {share.processor_s / 60:.1f} minutes: "
            + ", ".join(f"{count:,} {what}" for what, count in sorted(share.outcomes.items()))
            for name, share in self.shares.items()
        ]


def next_slice(tally: FuzzingTally, cases: int = 0) -> list[str]:
    """Run a slice of the fuzzer that has had the least processor time; returns what failed.

    Those that have tried ``cases`` come after those that have not.
    """

    def turn(name: str) -> tuple[bool, float]:
        share = tally.shares[name]
        return share.cases >= cases, share.processor_s

    name = min(FUZZERS, key=turn)
    fuzzer, share = FUZZERS[name], tally.shares[name]
    outcomes = Outcomes()
    low, high = share.cases, share.cases + fuzzer.slice_cases
    began_s = time.process_time()
    fuzzer.run(range(low, high), tally.seed, outcomes)
    share.processor_s += time.process_time() - began_s
    share.cases = high
    share.outcomes += outcomes.counts
    return [
        "".join(traceback.format_exception(problem))
        + f"again: python -m tests.fuzzing.{name} --seed {tally.seed} --from-case {low} "
        f"--cases {case + 1}"
        for case, problem in outcomes.failures.values()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for so long, and print what was tried; 1 if a case has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of processor time")
    parser.add_argument("--cases", type=int, default=0, help="of each fuzzer, before others go on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tally", type=Path, help="go on where the run that wrote this ended")
    chosen = parser.parse_args(arguments)
    bounded()
    tally = FuzzingTally(chosen.seed, chosen.tally)
    core = "compiled" if IS_COMPILED else "interpreted"
    sys.stdout.write(f"{core} core, seed {tally.seed}\n")
    failures: list[str] = []
    began_s = time.process_time()
    while time.process_time() - began_s < 60 * chosen.minutes:
        for failure in next_slice(tally, chosen.cases):
            sys.stdout.write(f"\n{failure}\n")
            failures.append(failure)
        sys.stdout.flush()
        tally.keep()
    sys.stdout.write("\n".join(tally.lines()) + "\n")
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main())
