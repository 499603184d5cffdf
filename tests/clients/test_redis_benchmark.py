"""redis-benchmark: its tests of the types that are here, commands of its user, and the others."""

from __future__ import annotations

import csv
import shutil
import subprocess

import pytest

from tests.support.servers import AnabranchServer

PROGRAM = shutil.which("redis-benchmark")
HERE = "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,spop,lrange_100,mset"
SECONDS = 60

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="redis-benchmark is not installed")


def benchmark(server: AnabranchServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROGRAM is not None
    command = [PROGRAM, "-p", str(server.port), "-n", "200", "-c", "5", "--csv", *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=SECONDS, stdin=None
    )


@pytest.mark.parametrize("options", [[], ["-3"], ["-P", "16"]], ids=["RESP2", "RESP3", "pipelined"])
def test_its_own_tests(server: AnabranchServer, options: list[str]) -> None:
    done = benchmark(server, "-t", HERE, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert len(rows) == 14, done.stdout
    assert all(float(row["rps"]) > 0 for row in rows)


def test_a_stream_command(server: AnabranchServer) -> None:
    done = benchmark(server, "-r", "100", "XADD", "s", "*", "n", "__rand_int__")
    assert done.returncode == 0, done.stdout + done.stderr
    with server.client() as client:
        assert client.call("XLEN", "s") == (":", 200)


@pytest.mark.parametrize("name", ["hset", "zadd", "zpopmin"])
def test_a_test_of_another_type_ends_with_the_reason(server: AnabranchServer, name: str) -> None:
    done = benchmark(server, "-t", name)
    assert done.returncode != 0
    assert f"unknown command '{name.upper()}'" in done.stdout + done.stderr
    assert "a stream server" in done.stdout + done.stderr
