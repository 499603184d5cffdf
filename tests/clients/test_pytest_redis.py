"""pytest-redis: a suite that uses its fixtures runs with our server as the executable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.packages import required

required("pytest_redis")

SUITE = """
def test_a_stream(redisdb):
    redisdb.xadd("s", {"f": "v"})
    assert redisdb.xlen("s") == 1


def test_nothing_is_left(redisdb):
    assert redisdb.dbsize() == 0
    assert redisdb.info()["redis_version"].startswith("8.")


async def test_asyncio(redisdb_async):
    await redisdb_async.xadd("s", {"f": "v"})
    assert await redisdb_async.xlen("s") == 1
"""


def test_a_suite_runs_on_this_server(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    executable = Path(sys.executable).with_name("anabranch-server")
    options = [f"--redis-exec={executable}", f"--redis-datadir={tmp_path}", "--redis-timeout=60"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
