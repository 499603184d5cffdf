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


def events(sources: Path, seeds: Sequence[str], hash_seed: str) -> list[bytes]:
    """Every event of these runs, from the sources or from compiled modules."""
    program = PROGRAM.format(suffix=".py" if sources.name == "src" else ".so")
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONHASHSEED": hash_seed}
    found = []
    for seed in seeds:
        command = [sys.executable, "-c", program, "simulate", "--verbose"]
        command += ["--seed", seed, "--minutes", "0.1"]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.stdout.startswith(f"seed {seed}: ".encode()), done.stderr.decode()
        assert done.stdout.count(b"\n") > 100
        found.append(done.stdout)
    return found


@pytest.mark.slow
def test_a_seed_gives_the_same_events_in_two_processes() -> None:
    assert events(REPOSITORY / "src", SEEDS, "1") == events(REPOSITORY / "src", SEEDS, "2")


@pytest.mark.slow
def test_a_seed_gives_the_same_events_compiled_and_interpreted() -> None:
    if not COMPILED.exists():
        pytest.skip("`make compile` was not run: THE COMPILED CORE IS NOT COMPARED")
    assert events(REPOSITORY / "src", SEEDS, "1") == events(COMPILED, SEEDS, "2")
