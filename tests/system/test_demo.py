"""``anabranch demo``: told whole, told of a region that loses an effect, and interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.inspection import has_proc, wait_until
from tests.support.servers import AnabranchServer

SECONDS = 110.0
QUICK = ("--no-spark", "--no-page", "--pace", "0", "--rate", "50")

LOSES_AN_EFFECT = """
import sys

if "serve" in sys.orig_argv and "us" in sys.orig_argv:
    from anabranch.effects import kinds
    from anabranch.effects.applier import Applier
    from anabranch.effects.apply import apply

    apply_remote = Applier.apply_remote
    additions = iter(range(1_000_000))

    def losing(self, effect):
        apply_remote(self, effect)
        if isinstance(effect, kinds.Add | kinds.AddRun) and next(additions) == 5:
            stream = self.keyspace.databases[effect.db].values[effect.key]
            (eu,) = [each for each in stream.logs if each & 0xFF == 1]
            number = stream.logs[eu].newest_number
            lost = [(eu, [number - 1, number])]
            removal = kinds.RemoveNumbers(effect.db, effect.key, lost, [], False, False)
            apply(self.keyspace, removal)

    Applier.apply_remote = losing
"""
"""As the module ``sitecustomize`` of the regions' interpreters: region us loses one addition."""


@contextmanager
def demo(*words: str, path: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    environment = dict(AnabranchServer(Path()).environment())
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "demo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=SECONDS)


def nothing_is_left(text: str) -> bool:
    """Neither the directory of a demo, nor a process that names it."""
    (directory,) = re.findall(r"starting \d regions in (\S+) ", text)
    return not Path(directory).exists() and not any(
        directory.encode() in path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    )


@pytest.mark.slow
@pytest.mark.skipif(not has_proc(), reason="/proc shows what runs")
def test_the_story_is_told_and_every_claim_of_it_holds() -> None:
    with demo(*QUICK) as process:
        text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, text
    _, _, report = text.partition("\nReport\n")
    lines = report.strip().splitlines()
    assert re.match(r"all 28 claims hold, 1 skipped, in \d+ s$", lines[-1]), report
    claims = [line for line in lines[:-1] if line]
    assert {line.split()[0] for line in claims} == {"ok", "skipped"}
    for sentence in (
        "the first status after it shows every link of eu as cut (cut, cut)",
        "all regions have the same digest",
        "each order is there once, everywhere (3 orders, 6 were taken)",
        "XREAD from the last ID skips the late entry",
        "AB.READ with its cursor returns the late entry",
        "XREADGROUP delivered the late entry to us-workers",
        "us has every order that it had acknowledged before it was killed",
        "ap has every acknowledged order, each once",
        "group ap-workers has processed every order",
    ):
        assert any(line.startswith("ok") and sentence in line for line in claims), sentence
    (lacks,) = re.findall(
        r"lack entries of each other \((\d+) missing at eu, (\d+) at us\)", report
    )
    assert min(map(int, lacks)) >= 10
    steps = re.findall(r"^(\d+)/10  ", text, re.MULTILINE)
    assert steps == [str(number) for number in range(1, 11)]
    assert len(re.findall(r"^  \$ (?:redis-cli -p|anabranch) ", text, re.MULTILINE)) >= 9
    assert nothing_is_left(text)


@pytest.mark.slow
def test_a_region_that_loses_an_effect_is_found_out(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LOSES_AN_EFFECT)
    with demo(*QUICK, "--regions", "2", path=tmp_path) as process:
        text, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, text
    last = text.strip().splitlines()[-1]
    assert "claims did not hold" in last
    assert "all regions have the same entries" in last
    assert "all regions have the same digest" in last
    assert "us lacks 1 and has 0 more than eu" in text
    assert "7/10  Heal" in text
    assert "8/10" not in text
    assert nothing_is_left(text)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(number: signal.Signals) -> None:
    with demo(*QUICK[:-4], "--pace", "60", "--regions", "2") as process:
        assert process.stdout is not None
        text = ""
        until = "starting" if number == signal.SIGTERM else "ok: every region"
        while until not in text:
            line = process.stdout.readline()
            assert line, text
            text += line
        process.send_signal(number)
        rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in text + rest
    wait_until(lambda: nothing_is_left(text), "all processes have ended")


def test_wrong_words_are_refused_with_what_is_allowed() -> None:
    for words, why in (
        (("--latency", "moon"), "lan, wan, or milli"),
        (("--regions", "6"), "2<=x<=5"),
    ):
        with demo(*words) as process:
            text, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 2
        assert why in text
