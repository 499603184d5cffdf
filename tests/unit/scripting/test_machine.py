"""The machine gives its memory back, and survives a system that has none."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import gc, os, resource
from contextlib import suppress
from anabranch.engine.script_machine import ScriptError
from anabranch.scripting import new_machine

class Calls:
    flushes = 0

    def call(self, args):
        return b"-ERR no\\r\\n"

def run(machine, source, keys=()):
    script = machine.compile(source, b"@user_script")
    return machine.run(script, list(keys), [], Calls(), resp3=False)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20
"""

LIVES = """
def live(machine):
    run(machine, b"local a = {} for i = 1, 100 do a[i] = {pcall(redis.call, a)} end return 1")
    with suppress(ScriptError):
        run(machine, b"error('no')")
    machine.load_library(b"redis.register_function('f', function() return 1 end)")
    endless = b"while true do pcall(redis.call, {}) pcall(redis.call, 'GET') end"
    steps = machine.steps(lambda: run(machine, endless))
    next(steps)
    steps.close()

for number in range(25):
    machine = new_machine(64 << 20)
    live(machine)
    machine.close()
    del machine
    gc.collect()
    if number == 4:
        before = resident()
print(resident() - before)
"""

IN_USE = """
for number in range(5):
    machine = new_machine(64 << 20)
    cycle = [machine.compile(b"return 1", b"@user_script")]
    cycle.append(cycle)
    machine.close()
    del machine, cycle
    gc.collect()
print(0)
"""

NO_MEMORY = """
machine = new_machine(1 << 30)
run(machine, b"return 1")
gc.collect()
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), resource.RLIM_INFINITY))
for source in (
    b"return string.rep('x', 2 ^ 29)",
    b"local s = 'x' while true do s = s .. s end",
    b"local t = {} while true do t[#t + 1] = string.rep(#t, 1000) end",
):
    try:
        run(machine, source)
    except ScriptError as problem:
        assert b"not enough memory" in problem.text, problem.text
    else:
        raise AssertionError(source)
    assert run(machine, b"return #KEYS", [b"a"]) == b":1\\r\\n"
print(0)
"""


def outcome_of(program: str) -> int:
    """What the program prints: MiB."""
    ended = subprocess.run(
        [sys.executable, "-c", START + program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, (ended.returncode, ended.stderr[-2000:])
    return int(ended.stdout)


def test_a_closed_machine_gives_its_memory_back() -> None:
    assert outcome_of(LIVES) < 10  # twenty that stay take 30 and more


def test_a_machine_of_which_something_is_in_use_may_be_closed() -> None:
    assert outcome_of(IN_USE) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space")
def test_a_system_without_memory_ends_the_script_alone() -> None:
    assert outcome_of(NO_MEMORY) == 0
