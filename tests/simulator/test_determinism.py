"""A seed gives the same events in every process, and in both forms of the core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
COMPILED = REPOSITORY / "build" / "compiled" / "core"
"""Where ``make compile`` puts the compiled core."""

SEEDS = ("4", "5", "6")
PROGRAM = """
import anabranch.stream.block as block
from anabranch.cli.main import main
assert block.__file__.endswith({suffix!r}), block.__file__
main()
"""


def simulated(sources: Path, hash_seed: str, *options: str) -> bytes:
    """What ``anabranch simulate`` prints, from the sources or from compiled modules."""
    program = PROGRAM.format(suffix=".py" if sources.name == "src" else ".so")
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", program, "simulate", *options]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def events(sources: Path, seeds: Sequence[str], hash_seed: str) -> list[bytes]:
    """Every event of these runs."""
    found = []
    for seed in seeds:
        told = simulated(sources, hash_seed, "--verbose", "--seed", seed, "--minutes", "0.1")
        assert told.startswith(f"seed {seed}: ".encode())
        assert told.count(b"\n") > 100
        found.append(told)
    return found


def explored(sources: Path, hash_seed: str) -> list[bytes]:
    """States, transitions and ends of some worlds, full syncs in pieces among them."""
    told = simulated(sources, hash_seed, "--exhaustive", "full-syncs,homes-and-full-syncs,renames")
    found = [line.rpartition(b", ")[0].rpartition(b", ")[0] for line in told.splitlines()]
    assert len(found) == 3
    assert b" transitions, " in found[0]
    return found


@pytest.mark.slow
def test_a_seed_gives_the_same_events_in_two_processes() -> None:
    assert events(REPOSITORY / "src", SEEDS, "1") == events(REPOSITORY / "src", SEEDS, "2")


@pytest.mark.slow
def test_a_seed_gives_the_same_events_compiled_and_interpreted() -> None:
    if not COMPILED.exists():
        pytest.skip("`make compile` was not run: THE COMPILED CORE IS NOT COMPARED")
    assert events(REPOSITORY / "src", SEEDS, "1") == events(COMPILED, SEEDS, "2")
    assert explored(REPOSITORY / "src", "1") == explored(COMPILED, "2")
