"""``anabranch cluster``: regions on this machine are cut off, killed and healed by commands."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.http import ask
from tests.support.inspection import has_proc, processes_that_name, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import RespClient

SECONDS = 60.0


class Terminal:
    """Runs ``anabranch cluster`` on one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = dict(AnabranchServer(directory).environment())
        self.port = first_of(9)
        self.pages = self.port + 6
        self.program = ["-m", "anabranch"]

    def hide(self, module: str) -> None:
        """From now on the command does without this module."""
        code = f"import sys; sys.modules[{module!r}] = None; "
        self.program = ["-c", code + "from anabranch.cli.main import main; main()"]

    def line(self, *words: str) -> list[str]:
        return [
            *(sys.executable, *self.program, "cluster", *words),
            *("--dir", str(self.directory / "cluster")),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.line(*words),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=self.environment,
            check=False,
        )

    def do(self, *words: str) -> str:
        result = self.run(*words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def refused(self, *words: str) -> str:
        result = self.run(*words)
        assert result.returncode == 1, result.stdout
        assert "Traceback" not in result.stderr
        return result.stderr

    def status(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.looks()["regions"]}

    def looks(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.do("status", "--json"))
        return found

    def missing(self) -> int:
        return sum(sum(row.values()) for row in self.looks()["missing"].values())

    def ids(self, index: int, key: str = "s") -> list[bytes]:
        with RespClient(self.port + index) as client:
            return [row[1][0][1] for row in client.call("XRANGE", key, "-", "+")[1]]

    def add(self, index: int, key: str = "s") -> bytes:
        with RespClient(self.port + index) as client:
            reply = client.call("XADD", key, "*", "f", "v")
            assert reply[0] == "$", reply
            entry_id: bytes = reply[1]
            return entry_id


def first_of(count: int) -> int:
    """Ports that follow one another, free here and 10000 above."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                for each in (port, port + 10000):
                    with socket.socket() as probe:
                        probe.bind(("127.0.0.1", each))
        except OSError:
            continue
        return first


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.run("down")


def test_regions_are_cut_killed_and_healed(terminal: Terminal) -> None:
    why = terminal.refused(
        "up", "--port", str(terminal.port), "--http-port", str(terminal.port + 1)
    )
    assert f"port {terminal.port + 1} would be for" in why
    pages = ["--http-port", str(terminal.pages)] if find_spec("starlette") else []
    shown = terminal.do("up", "--port", str(terminal.port), *pages, "--detach")
    for index, name in enumerate(("eu", "us", "ap")):
        assert [name, str(index + 1), str(terminal.port + index)] in [
            line.split()[:3] for line in shown.splitlines()
        ]
    assert f"redis-cli -p {terminal.port} " in shown
    if pages:
        for index in range(3):
            page = f"http://127.0.0.1:{terminal.pages + index}/#token="
            token = re.findall(re.escape(page) + r"(\w+)", shown)[0]
            answer = ask(terminal.pages + index, "/status.json", Authorization=f"Bearer {token}")
            assert answer.json["may_act"]

    first = terminal.add(0)
    wait_until(lambda: terminal.ids(2) == [first], "an entry of eu is in ap")

    assert "still relaying what eu and us write: ap;" in terminal.do("partition", "eu", "us")
    relayed = terminal.add(0)
    wait_until(lambda: relayed in terminal.ids(1), "ap relays")
    assert "eu - us, eu - ap" in terminal.do("isolate", "eu")
    # The very first look shows the cut, whatever the regions have noticed of it themselves.
    links = {tuple(each["between"]): each for each in terminal.looks()["links"]}
    assert {pair: each["state"] for pair, each in links.items()} == {
        ("eu", "us"): "cut",
        ("eu", "ap"): "cut",
        ("us", "ap"): "in_sync",
    }
    assert 0 < links["eu", "ap"]["age_ms"] < links["eu", "us"]["age_ms"] < SECONDS * 1000
    mine, other, theirs = terminal.add(0), terminal.add(0), terminal.add(1)
    wait_until(lambda: theirs in terminal.ids(2), "an entry of us is in ap")
    assert terminal.ids(0) == [first, relayed, mine, other]
    assert terminal.ids(2) == [first, relayed, theirs]
    assert terminal.looks()["missing"] == {
        "eu": {"us": 1, "ap": 0},
        "us": {"eu": 2, "ap": 0},
        "ap": {"eu": 2, "us": 0},
    }
    shown = terminal.do("status")
    assert re.search(r"^eu - us +cut for (\d\.\d s|\d+ s|\d+ min)$", shown, re.MULTILINE)
    assert re.search(r"^us - ap +in_sync$", shown, re.MULTILINE)
    assert re.search(r"^at us +2 +- +0$", shown, re.MULTILINE)

    assert json.loads(terminal.do("heal", "--json")) == {"healed": [["ap", "eu"], ["eu", "us"]]}
    everything = sorted([first, relayed, mine, other, theirs])
    for index in range(3):
        wait_until(lambda index=index: sorted(terminal.ids(index)) == everything, "all are whole")  # type: ignore[misc]
    wait_until(lambda: not terminal.missing(), "no effects are missing")
    shown = terminal.do("status")
    assert "cut" not in shown
    assert "no effects are missing anywhere" in shown
    assert "no link was cut" in terminal.do("heal")

    before = terminal.status()["us"]["pid"]
    ended = json.loads(terminal.do("kill", "us", "--9", "--json"))
    assert ended == {"ended": "us", "in_order": False}
    assert terminal.status()["us"]["state"] == "down"
    assert "us is not running" in terminal.refused("partition", "eu", "us")
    assert "us is not running" in terminal.refused("kill", "us")
    later = terminal.add(2)
    restarted = json.loads(terminal.do("restart", "us", "--json"))
    assert restarted["pid"] == terminal.status()["us"]["pid"]
    assert terminal.status()["us"]["pid"] not in (None, before)
    wait_until(lambda: later in terminal.ids(1), "us has caught up")

    assert "is running (eu, us, ap)" in terminal.refused("up")
    terminal.do("down")
    assert {row["state"] for row in terminal.status().values()} == {"down"}
    assert "is not running" in terminal.refused("down")

    # A directory that was used is taken up, wherever clients find its regions then.
    terminal.port = first_of(9)
    shown = terminal.do("up", "--port", str(terminal.port), "--detach")
    assert (f"http://127.0.0.1:{terminal.pages}/#token=" in shown) == bool(pages)
    assert terminal.ids(1) == sorted([*everything, later])
    again = terminal.add(1)
    wait_until(lambda: again in terminal.ids(0), "regions find each other again")


def test_ctrl_c_stops_all_regions_in_good_order(terminal: Terminal) -> None:
    process = subprocess.Popen(
        terminal.line("up", "--regions", "north,south", "--port", str(terminal.port)),
        stdout=subprocess.PIPE,
        text=True,
        env=terminal.environment,
    )
    try:
        assert process.stdout is not None
        shown = "".join(iter(process.stdout.readline, "Ctrl-C stops all regions.\n"))
        # Pages come without being asked for, where they can be served.
        ports = re.findall(r"http://127.0.0.1:(\d+)/#token=", shown)
        assert len(ports) == (2 if find_spec("starlette") else 0)
        for port in map(int, ports):
            assert ask(port, "/readyz").status == 200
        kept = terminal.add(0)
        terminal.do("kill", "south")
        assert process.stdout.readline() == "region south has ended\n"
        terminal.do("restart", "south")
        assert process.stdout.readline() == "region south is back\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert {row["state"] for row in terminal.status().values()} == {"down"}
    for name in ("north", "south"):
        log = (terminal.directory / "cluster" / name / "server.log").read_text()
        assert "server.stopped" in log.splitlines()[-1]
    assert kept


SLOW_START = """
import signal, sys
if "serve" in sys.orig_argv:
    signal.pause()
"""


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ended_while_it_starts_it_leaves_no_region(terminal: Terminal, number: int) -> None:
    """A region that has not got its directory yet is ended, too."""
    (terminal.directory / "sitecustomize.py").write_text(SLOW_START)
    paths = [str(terminal.directory), terminal.environment.get("PYTHONPATH", "")]
    terminal.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    ports = ["--port", str(terminal.port), "--http-port", "0"]
    process = subprocess.Popen(
        terminal.line("up", *ports), stderr=subprocess.PIPE, text=True, env=terminal.environment
    )
    logs = [terminal.directory / "cluster" / name / "server.log" for name in ("eu", "us", "ap")]
    try:
        wait_until(lambda: any(log.exists() for log in logs), "the first region starts")
        process.send_signal(number)
        _, said = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, said) == (130, "anabranch: interrupted\n")
    assert not has_proc() or processes_that_name(terminal.directory) == []


PRESSED_IN_A_DESTRUCTOR = """
import os, signal, redis
from anabranch.cli.main import main

def press(self):
    del redis.Redis.__del__
    os.kill(os.getpid(), signal.SIGINT)

redis.Redis.__del__ = press
main()
"""


def test_ctrl_c_in_a_destructor_is_not_lost(terminal: Terminal) -> None:
    """Python drops what is raised there, and the regions would run on."""
    terminal.program = ["-c", PRESSED_IN_A_DESTRUCTOR]
    done = terminal.run("up", "--regions", "eu", "--port", str(terminal.port), "--http-port", "0")
    assert (done.returncode, done.stderr) == (130, "anabranch: interrupted\n")
    terminal.program = ["-m", "anabranch"]
    assert {row["state"] for row in terminal.status().values()} == {"down"}


def test_what_is_wrong_is_said_with_its_cure(terminal: Terminal) -> None:
    assert "no cluster in" in terminal.refused("status")
    assert terminal.run("up", "--regions", "a,,b").returncode == 2
    assert terminal.run("up", "--regions", "a,a").returncode == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", terminal.port + 1))
        taken.listen()
        why = terminal.refused("up", "--port", str(terminal.port))
    assert f"port {terminal.port + 1}" in why
    assert "region us" in why
    assert "--port" in why
    terminal.hide("starlette")
    words = ("up", "--regions", "eu,us", "--port", str(terminal.port))
    assert "pip install 'anabranch[web]'" in terminal.refused(*words, "--http-port", "8080")
    started = terminal.run(*words, "--detach")
    assert "http" not in started.stdout
    assert "pip install 'anabranch[web]'" in started.stderr
    assert "there are eu, us" in terminal.refused("kill", "mars")
    assert "two ends" in terminal.refused("partition", "eu", "eu")
    terminal.do("down")
    assert "holds the regions eu,us" in terminal.refused("up", "--regions", "x,y")
    (terminal.directory / "cluster" / "cluster.json").write_text("{}")
    assert "cannot read" in terminal.refused("status")
