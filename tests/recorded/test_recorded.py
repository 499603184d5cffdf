"""Replies recorded from real Redis servers, replayed against ours.

The recordings and their player are in `replies`, whose README.md describes them. What differs on
purpose is listed, with its reason, in `known.tsv`.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.differential.counters import wrong_lag
from tests.support.servers import AnabranchServer
from tests.support.wire import Reply

RECORDED = Path(__file__).with_name("replies")
KNOWN = Path(__file__).with_name("known.tsv")
REPLAY_SECONDS = 600
TRIES = 3
TOO_EARLY = "lost | reply missing"
"""The signature where a reply came that was recorded to come later. If a machine holds the player
up, the time for it has passed: such cases alone are replayed again."""

pytestmark = pytest.mark.timeout(REPLAY_SECONDS + 30)


def recorded_files() -> list[str]:
    """The recorded areas that our server should equal."""
    files = []
    for path in sorted(RECORDED.glob("*/*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="ascii") as lines:
            meta = json.loads(lines.readline()).get("meta", {})
        if meta.get("default", True):
            files.append(f"{path.parent.name}/{path.name.removesuffix('.jsonl.gz')}")
    return files


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    """A server of its own: replaying empties it and changes its settings."""
    # Recorded with appendonly no; WAITAOF answers differently with a log.
    with AnabranchServer(extra=["--enable-debug-command", "yes", "--appendonly", "no"]) as one:
        yield one


def known_differences() -> dict[str, re.Pattern[str]]:
    """What is meant: signature -> what the commands of its shortest case must look like."""
    known = {}
    for line in KNOWN.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            signature, reason = line.split("\t")
            pattern = reason[1:].partition("/ ")[0] if reason.startswith("/") else ""
            known[signature] = re.compile(pattern, re.DOTALL)
    return known


def replay(server: AnabranchServer, folder: Path, *arguments: str) -> None:
    """Run the player; what is not listed, or looks other than listed, is a failure."""
    out = folder / "mismatches.json"
    command = [sys.executable, "-B", str(RECORDED / "replay.py"), *arguments]
    command += ["--port", str(server.port), "--known", str(KNOWN), "--json", str(out)]
    known = known_differences()
    done, mismatches = play(command, out)
    for _ in range(TRIES - 1):
        if {each["signature"] for each in mismatches} - known.keys() != {TOO_EARLY}:
            break
        done, mismatches = play(command, out)
    if done.returncode != 0:
        pytest.fail(f"{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}", pytrace=False)
    for mismatch in mismatches:
        steps = "\n".join(mismatch["steps"])
        assert known[mismatch["signature"]].search(steps), f"not as listed: {mismatch}"


def play(command: list[str], out: Path) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Run the player once; how it ended, and the mismatches."""
    out.unlink(missing_ok=True)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=REPLAY_SECONDS
    )
    found = json.loads(out.read_text(encoding="utf-8"))["mismatches"] if out.exists() else []
    return done, found


@pytest.mark.parametrize("area", recorded_files() or ["none"])
def test_replies_equal_the_recorded_ones(
    server: AnabranchServer, area: str, tmp_path: Path
) -> None:
    replay(server, tmp_path, "--area", area)


def test_recorded_payloads_are_restored(server: AnabranchServer, tmp_path: Path) -> None:
    replay(server, tmp_path, "payloads")


def test_the_counting_rules_hold_in_the_recorded_replies() -> None:
    """The model that judges our lag in the differential tests agrees with real servers."""
    checked = 0
    for area in recorded_files():
        with gzip.open(RECORDED / f"{area}.jsonl.gz", "rt", encoding="ascii") as lines:
            next(lines)
            for line in lines:
                for step in json.loads(line)["steps"]:
                    words = [str(word).upper() for word in step[2]]
                    if step[0] != "cmd" or words[:2] != ["XINFO", "STREAM"] or len(step) < 4:
                        continue
                    if "FULL" in words[3:] and step[3] is not None:
                        reply = as_reply(step[3])
                        if reply[0] in "*%":
                            checked += 1
                            assert wrong_lag(reply) is None, step[2]
    assert checked > 1000


def as_reply(recorded: list[Any]) -> Reply:
    """A reply as the recordings have it, in our form."""
    kind, value = recorded
    if kind == "%":
        return (kind, [(as_reply(k), as_reply(v)) for k, v in value])
    if isinstance(value, list):
        return (kind, [as_reply(item) for item in value])
    if kind == "_":
        return (kind, None)
    return (kind, value.encode("latin-1") if isinstance(value, str) else value)
