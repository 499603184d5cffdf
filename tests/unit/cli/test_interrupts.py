"""Ctrl-C while a command starts, and where Python would lose it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from anabranch.cli.interrupts import pause, undisturbed

PRESS = """
import os, signal, sys
from anabranch.cli.main import main

class Press:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["anabranch", "serve", "--port", "0", "--save", "", "--appendonly", "no"]
sys.meta_path.insert(0, Press())
main()
"""


@pytest.mark.parametrize("module", ["anabranch.cli.starting", "anabranch.server.app"])
def test_ctrl_c_in_the_imports_of_a_start_ends_it_without_a_word(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRESS.format(module=module)],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGINT
    assert done.stderr == b""


IN_EXEC = """
import sys
from types import SimpleNamespace

import click
from anabranch.cli.main import main

@click.command()
def command():
    exec("import os, signal; os.kill(os.getpid(), signal.SIGINT)")

sys.modules["anabranch.cli.version"] = SimpleNamespace(command=command)
sys.argv = ["anabranch", "version"]
main()
"""


def test_an_interrupt_of_code_that_is_made_at_run_time_keeps_the_exit_code() -> None:
    """As a dataclass makes it: Python would end by the signal itself, whatever is raised later."""
    done = subprocess.run(
        [sys.executable, "-c", IN_EXEC], capture_output=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (130, b"anabranch: interrupted\n")


IN_AN_IMPORT = """
import os, signal, sys
from anabranch.cli.cluster_files import Member
from anabranch.cli.cluster_servers import ask

class Press:
    def find_spec(self, name, *_):
        if name == "redis.client":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Press())
try:
    ask(Member(1, "eu", 1, 2), "PING")
except KeyboardInterrupt:
    print("redis.client" in sys.modules)
"""


def test_the_client_is_imported_whole_when_it_is_interrupted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_AN_IMPORT], capture_output=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"True\n", b"")


class _Pressed:
    """Gets a signal when it is destroyed, where nothing can be raised."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_in_a_destructor_waits_for_a_pause(number: int) -> None:
    was = signal.signal(number, signal.default_int_handler)  # under nohup SIGHUP is ignored
    before = signal.getsignal(number)
    with undisturbed():
        _Pressed(number)
        with undisturbed():
            _Pressed(number)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                pause(60)
        pause(0)
    assert signal.getsignal(number) is before
    signal.signal(number, was)


def test_an_interrupt_ends_a_pause_that_has_begun() -> None:
    presser = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with undisturbed():
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            pause(600)
    presser.join()


def test_an_interrupt_that_no_pause_has_met_comes_at_the_end() -> None:
    reached = []

    def block() -> None:
        with undisturbed():
            _Pressed(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reached


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with undisturbed():
            _Pressed(signal.SIGHUP)
            pause(0)
    finally:
        signal.signal(signal.SIGHUP, before)
