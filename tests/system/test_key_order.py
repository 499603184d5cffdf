"""Order per key with real processes: workers of redis-py, and a server that is killed."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, server_in

WORKER = """
import random, sys, redis
port, name = int(sys.argv[1]), sys.argv[2]
chance = random.Random(name)
r = redis.Redis(port=port, decode_responses=True)
position = "0"
while True:
    for _, entries in r.xreadgroup("g", name, {"jobs": position}, count=3, block=0):
        if not entries:
            position = ">"
        chance.shuffle(entries)
        for entry_id, fields in entries:
            if chance.random() < 0.1:
                r.execute_command("XNACK", "jobs", "g", "FAIL", "IDS", 1, entry_id)
                continue
            with r.pipeline() as both:
                both.rpush("done:" + fields["k"], fields["n"])
                both.xack("jobs", "g", entry_id)
                both.execute()
"""
"""It begins with what it had before it was killed. If two workers had entries of a key at the same
time, they would note them in any order."""

KEYS, COUNT = 7, 240


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnabranchServer]:
    with server_in(tmp_path, "--appendfsync", "always") as one:
        yield one


@contextlib.contextmanager
def workers(server: AnabranchServer, names: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [
        subprocess.Popen([sys.executable, "-c", WORKER, str(server.port), name], stderr=-3)
        for name in names
    ]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def noted(r: redis.Redis) -> dict[str, list[int]]:
    return {key: [int(n) for n in r.lrange(key, 0, -1)] for key in r.keys("done:*")}


def test_each_key_is_worked_off_in_order_by_many_workers_and_over_kills(
    server: AnabranchServer,
) -> None:
    """A transaction takes effect as a whole, so what was noted was acknowledged."""
    chance = random.Random(1)
    expected: dict[str, list[int]] = defaultdict(list)
    with redis.Redis(port=server.port) as r:
        r.execute_command("AB.POLICY", "SET", "jobs", "key-field", "k", "lease", "connection:0")
        r.xgroup_create("jobs", "g", "0", mkstream=True)
        for number in range(COUNT):
            key = str(chance.randrange(KEYS))
            expected["done:" + key].append(number)
            r.xadd("jobs", {"n": number, "k": key})
    for at_least in (COUNT // 4, COUNT // 2, COUNT):
        with redis.Redis(port=server.port, decode_responses=True) as r:
            with workers(server, "abc"):
                wait_until(
                    lambda most=at_least: sum(map(len, noted(r).values())) >= most,
                    "the workers have done their part",
                )
                if at_least < COUNT:
                    server.kill()
            if at_least < COUNT:
                server.start()
    with redis.Redis(port=server.port, decode_responses=True) as r:
        assert noted(r) == expected
        assert r.xpending("jobs", "g")["pending"] == 0
