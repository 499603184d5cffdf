"""Workers that know nothing of policies: one is killed, one takes long, one task always fails.

The same scripts run against our server, with three policies of the group, and against redis-server.
What comes of it is the table in docs/policies.md.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.clients.conftest import built_with_go
from tests.support.inspection import wait_until
from tests.support.packages import required
from tests.support.servers import REPOSITORY, AnabranchServer, RedisServer

POLICY = ("lease", "connection:100ms", "max-deliveries", "2", "dead-letter", "dead")
MODULES = {"redis-py": "redis", "taskiq": "taskiq_redis", "faststream": "faststream.redis"}
LIBRARIES = (*MODULES, "ioredis", "go-redis")
ONCE, TWICE = "runs once", "runs a second time meanwhile"
DONE = "done by another worker"
DEAD, FOR_EVER = "in the dead-letter stream after two", "ends every worker that comes"
SECONDS = 60


class Farm:
    """The workers of one library on one server, and what they have begun."""

    def __init__(self, command: list[str], port: int, place: Path, *, nudges: bool) -> None:
        """``nudges``: the library looks for idle tasks only after it got a new one."""
        self.place = place
        self._nudges = nudges
        self.client: Any = redis.Redis(port=port, decode_responses=True)
        self.begun: Counter[str] = Counter()
        self.pids: dict[str, int] = {}
        self.said: list[str] = []
        self._polls = 0
        self._process = subprocess.Popen(
            [*command, str(port), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore"},
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            verb, what, who = line.split()
            self.said.append(line.strip())
            if verb == "started":
                self.pids[what] = int(who)
            else:
                self.begun[what] += 1

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def wait(self, task: str, times: int) -> None:
        """Until a task has begun so often."""

        def has_begun() -> bool:
            self._polls += 1
            if self._nudges and 0 < self.begun[task] < times and self._polls % 20 == 1:
                self.tell("add plain")
            return self.begun[task] >= times

        wait_until(has_begun, f"{task} began {times} times: {self.said}", SECONDS)

    def kill(self, name: str) -> None:
        os.kill(self.pids[name], signal.SIGKILL)

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self.client.close()


def what_comes_of(farm: Farm, *, has_policies: bool) -> tuple[str, str, str]:
    """Of the task that takes long, of what the dead worker had, and of what always fails."""
    farm.client.xgroup_create("jobs", "g", "0", mkstream=True)
    if has_policies:
        farm.client.execute_command("AB.POLICY", "SET", "jobs", "GROUP", "g", *POLICY)
    farm.tell("start w1")
    farm.tell("add slow")
    farm.wait("slow", 1)
    farm.tell("start w2")
    farm.tell("add die")
    farm.wait("die", 1)
    farm.kill("w2")
    farm.tell("start w3")
    farm.wait("die", 2)
    if not has_policies:
        farm.wait("slow", 2)
    farm.tell("add poison")
    farm.wait("poison", 1)
    farm.tell("start w4")
    farm.wait("poison", 2)
    farm.tell("start w5")
    if has_policies:
        wait_until(lambda: farm.client.xlen("dead") == 1, "the poison is a dead letter", SECONDS)
    else:
        farm.wait("poison", 3)
    (farm.place / "release").touch()
    if has_policies:
        wait_until(lambda: not farm.client.xpending("jobs", "g")["pending"], "all is done", SECONDS)
    return (
        ONCE if farm.begun["slow"] == 1 else TWICE,
        DONE if farm.begun["die"] == 2 else f"began {farm.begun['die']} times",
        DEAD if farm.client.exists("dead") and farm.begun["poison"] == 2 else FOR_EVER,
    )


@pytest.fixture(scope="module", params=LIBRARIES)
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, list[str]]:
    """A library, and the command that starts its workers."""
    name: str = request.param
    if name == "ioredis":
        program = ["node", str(request.getfixturevalue("node_project") / "lease_worker.mjs")]
    elif name == "go-redis":
        place = tmp_path_factory.mktemp("go")
        program = [built_with_go("lease_worker", "gopkg.in/redis.v5", place)]
    else:
        required(MODULES[name])
        program = [name]
    return name, [sys.executable, str(Path(__file__).with_name("lease_workers.py")), *program]


def check(library: tuple[str, list[str]], server: Any, place: Path) -> None:
    """What comes of it is what the docs say."""
    name, command = library
    is_ours = isinstance(server, AnabranchServer)
    farm = Farm(command, server.port, place, nudges=name == "taskiq")
    try:
        found = what_comes_of(farm, has_policies=is_ours)
    finally:
        farm.close()
    where = "Anabranch with the policy" if is_ours else "Redis 7.0"
    page = (REPOSITORY / "docs" / "policies.md").read_text()
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in re.findall(r"^\|.*\|$", page, re.MULTILINE)
    ]
    assert [name, where, *found] in rows, found


def test_unmodified_workers_with_a_lease(
    library: tuple[str, list[str]], server: AnabranchServer, tmp_path: Path
) -> None:
    check(library, server, tmp_path)


def test_the_same_workers_with_redis_server(
    library: tuple[str, list[str]], redis_server: RedisServer, tmp_path: Path
) -> None:
    with redis.Redis(port=redis_server.port) as client:
        client.flushall()
    check(library, redis_server, tmp_path)
