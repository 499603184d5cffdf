"""Runs clients of three regions under faults, and has their history checked.

``python -m tests.consistency --seed 7 --faults 12 --history history.json``
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.consistency.checking import violations
from tests.consistency.clients import MISTAKES, REGIONS, Run
from tests.consistency.history import load


def main() -> None:
    """Print what was done and found; fail if a rule is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.consistency", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses faults and operations")
    parser.add_argument("--faults", type=int, default=8, help="how many, one after the other")
    parser.add_argument("--steps", type=int, default=60, help="answers to sessions during each")
    parser.add_argument("--history", type=Path, help="keep the history in this file")
    parser.add_argument("--check", type=Path, help="run nothing, check this history")
    parser.add_argument("--forget-tokens", action="store_true", help="sessions pass no token")
    parser.add_argument("--mistake", choices=MISTAKES, help="start servers with this mistake")
    options = parser.parse_args()
    if options.check:
        operations = load(options.check)
    else:
        with tempfile.TemporaryDirectory() as directory:
            run = Run(
                Path(directory),
                options.seed,
                passes_tokens=not options.forget_tokens,
                mistake=options.mistake,
            )
            recorder = run.perform(options.faults, options.steps)
        if options.history:
            recorder.save(options.history)
        operations = recorder.operations
        print("faults:", ", ".join(run.done))
    print(len(operations), "lines:", dict(Counter(each["f"] for each in operations)))
    found = violations(operations, len(REGIONS))
    for each in found[:20]:
        print(f"{each.rule}: {each.one} {each.other} {each.value}")
    print(len(found), "violations", dict(Counter(each.rule for each in found)))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
