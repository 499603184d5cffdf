"""Regions as processes, the disk of one of which is full: what it tells clients, and the others."""

from __future__ import annotations

import random
import resource
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, kill_servers_in_directories, regions_in


def client_of(server: AnabranchServer) -> Any:
    return redis.Redis(port=server.port, decode_responses=True, protocol=3)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_nobody_anywhere_is_told_of_what_a_full_disk_did_not_take(
    tmp_path: Path, policy: str
) -> None:
    try:
        extra = ("--appendfsync", policy, "--oplog-compression", "no")
        eu, us = regions_in(tmp_path, "eu", "us", extra=extra)
        here, there = client_of(eu), client_of(us)
        here.xadd("safe", {"n": 1})
        wait_until(lambda: there.xlen("safe") == 1, "it arrives")
        assert eu.process is not None
        _, hard = resource.prlimit(eu.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(eu.process.pid, resource.RLIMIT_FSIZE, (20_000, hard))
        value = random.Random(1).randbytes(700)
        impatient = redis.Redis(port=eu.port, socket_timeout=4.0, retry=None)
        count = 0
        while True:
            try:
                impatient.xadd("s", {"n": value})
            except redis.TimeoutError:
                break
            count += 1
        assert count > 5
        wait_until(lambda: there.xlen("s") == count, "what was acknowledged arrives")
        for words in (
            *(["XRANGE", "s", "-", "+"], ["AB.READ", "STREAMS", "safe", "0"], ["AB.TOKEN"]),
            *(["AB.VERIFY", "us", "s"], ["AB.DIGEST", "s"]),
        ):
            with pytest.raises(redis.ResponseError, match=r"MISCONF.+until the disk accepts"):
                here.execute_command(*words)
        assert here.xlen("safe") == 1
        assert here.execute_command("AB.INFO")["region"] == 1
        there.xadd("theirs", {"n": 1})
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            here.xadd("t", {"n": 1})
        assert here.exists("theirs") == 0, "what cannot be kept is not taken over either"
        assert there.xlen("s") == count
        eu.kill()
        eu.start()
        eu.wait_for_writes()
        here = client_of(eu)
        wait_until(lambda: here.xlen("theirs") == 1, "it arrives at last")
        assert here.xlen("s") == there.xlen("s") == count
        here.xadd("s", {"n": "after"})
        wait_until(lambda: there.xlen("s") == count + 1, "it arrives")
        assert here.execute_command("AB.VERIFY", "us", "s") == ["equal"]
    finally:
        kill_servers_in_directories()
