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
import redis
from click.testing import CliRunner

from anabranch.cli.group import command
from tests.support.inspection import has_proc, processes_that_name, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.terminal import Terminal

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
    return not Path(directory).exists() and not processes_that_name(Path(directory))


def read_until(process: subprocess.Popen[str], line: str) -> str:
    """What it has printed up to a line that contains this."""
    assert process.stdout is not None
    text = ""
    while line not in text:
        more = process.stdout.readline()
        assert more, text
        text += more
    return text


def goes_on(text: str) -> None:
    """With --keep there is traffic in all regions, and links can be cut from another terminal."""
    ports = list(map(int, re.findall(r"region \w+: redis-cli -p (\d+)", text)))
    (isolate,) = re.findall(r"^  anabranch (cluster isolate eu --dir \S+)$", text, re.MULTILINE)
    subprocess.run([sys.executable, "-m", "anabranch", *isolate.split()], check=True, timeout=60)
    for port in ports:
        with redis.Redis(port=port) as client:
            length = client.xlen("orders")
            wait_until(lambda c=client, n=length: c.xlen("orders") > n, "traffic goes on")  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.skipif(not has_proc(), reason="/proc shows what runs")
def test_the_story_is_told_and_every_claim_of_it_holds() -> None:
    with demo(*QUICK, "--keep") as process:
        text = read_until(process, "Ctrl-C stops everything.\n")
        goes_on(text)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, text + rest
    assert "Traceback" not in rest
    told, _, _ = text.partition("\nThe regions and their traffic go on.")
    lines = told.strip().splitlines()
    assert re.match(r"all 30 claims hold, 1 skipped, in \d+ s$", lines[-1]), text
    claims = [line.strip() for line in lines if re.match(r"  (ok|FAILED|skipped): ", line)]
    assert len(claims) == len(set(claims)) == 31, "each claim is printed once"
    assert not any(line.startswith("FAILED") for line in claims)
    for sentence in (
        "the task of the worker that died is given to the one that waits",
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
    (lacks,) = re.findall(r"lack entries of each other \((\d+) missing at eu, (\d+) at us\)", text)
    assert min(map(int, lacks)) >= 10
    steps = re.findall(r"^(\d+)/11  ", text, re.MULTILINE)
    assert steps == [str(number) for number in range(1, 12)]
    assert len(re.findall(r"^  \$ (?:redis-cli -p|anabranch) ", text, re.MULTILINE)) >= 9
    assert nothing_is_left(text)


def test_the_first_port_can_be_chosen() -> None:
    port = free_port()
    with demo(*QUICK, "--regions", "2", "--port", str(port)) as process:
        text = read_until(process, f"  region us: redis-cli -p {port + 1}\n")
    assert f"  region eu: redis-cli -p {port}\n" in text


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
    assert "8/11  Heal" in text
    assert "9/11" not in text
    assert nothing_is_left(text)


@pytest.mark.slow
def test_ended_while_it_starts_it_leaves_nothing() -> None:
    with demo(*QUICK[:-4], "--pace", "60", "--regions", "2") as process:
        text = read_until(process, "starting")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in text + rest
    wait_until(lambda: nothing_is_left(text), "all processes have ended")


@pytest.mark.slow
def test_on_a_terminal_it_waits_for_enter_and_opens_the_page(tmp_path: Path) -> None:
    pytest.importorskip("starlette", reason="the extra web is not installed")
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    words = ("demo", "--regions", "2", "--latency", "5", "--no-spark", "--interactive")
    variables = {**AnabranchServer(Path()).environment(), "DISPLAY": ":0"}
    with Terminal(
        [sys.executable, "-m", "anabranch", *words], **variables, BROWSER=f"{browser} %s"
    ) as terminal:
        terminal.expect(r"1/11  ", seconds=SECONDS)
        terminal.expect(r"Enter goes on", seconds=SECONDS)
        assert "2/11" not in terminal.text
        terminal.press("\r")
        terminal.expect(r"2/11  ", seconds=SECONDS)
        terminal.expect(r"Enter goes on", seconds=SECONDS)
        terminal.interrupt()
        assert terminal.end(SECONDS) == 130
        text = terminal.text
    assert "Traceback" not in text
    (page,) = re.findall(r"the page, as seen from eu: (\S+)", text)
    wait_until(lambda: opened.exists() and opened.read_text() == f"{page}\n", "it was opened")
    wait_until(lambda: nothing_is_left(text), "all processes have ended")


def test_wrong_words_are_refused_with_what_is_allowed() -> None:
    for words, why in (
        (("--latency", "moon"), "lan, wan, or milli"),
        (("--regions", "6"), "2<=x<=5"),
    ):
        result = CliRunner().invoke(command, ["demo", *words])
        assert result.exit_code == 2
        assert why in result.stderr
