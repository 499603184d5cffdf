"""taskiq-redis: its stream broker with real worker processes, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.inspection import wait_until
from tests.support.packages import required
from tests.support.servers import REPOSITORY, AnabranchServer

required("taskiq_redis")

SECONDS = 60
TASKS = 3
IDLE_MS = 2000  # as in taskiq_application.py, which only a process with its variables can import
ASK = f"""
import asyncio, sys
from tests.clients.taskiq_application import broker, double

async def main():
    await broker.startup()
    tasks = [await double.kiq(int(number)) for number in sys.argv[1:]]
    for task in tasks:
        result = await task.wait_result(timeout={SECONDS})
        print(result.return_value, flush=True)
    await broker.shutdown()

asyncio.run(main())
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where tasks note who did them."""
    made = tmp_path / "notes"
    made.mkdir()
    return made


@pytest.fixture
def start(server: AnabranchServer, notes: Path) -> Iterator[Start]:
    """Starts processes, each in a group of its own, and ends them."""
    environment = {
        **os.environ,
        "TASKIQ_URL": f"redis://127.0.0.1:{server.port}",
        "TASKIQ_NOTES": str(notes),
        "PYTHONPATH": str(REPOSITORY),
    }
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **more: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *arguments],
            env={**environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def worker(start: Start, **more: str) -> subprocess.Popen[str]:
    return start(
        *("-m", "taskiq", "worker", "tests.clients.taskiq_application:broker"),
        *("--workers", "1", "--log-level", "ERROR"),
        **more,
    )


def idle_ms(server: AnabranchServer) -> int:
    """For how long the task that began last has been in hand."""
    with server.client() as client:
        pending = client.call("XPENDING", "taskiq", "taskiq", "-", "+", TASKS)[1]
    return min(int(row[1][2][1]) for row in pending)


@pytest.mark.timeout(3 * SECONDS)
def test_what_a_killed_worker_left_is_done_by_another(
    server: AnabranchServer, start: Start, notes: Path
) -> None:
    doomed = worker(start, TASKIQ_HANGS="1")
    asking = start("-c", ASK, *map(str, range(TASKS)))
    wait_until(lambda: len(list(notes.iterdir())) == TASKS, "all tasks began", SECONDS)
    os.killpg(doomed.pid, signal.SIGKILL)
    doomed.wait()
    wait_until(lambda: idle_ms(server) > IDLE_MS, "the tasks are taken for left behind")
    worker(start)
    # This broker looks for what others left behind after it got something new.
    later = start("-c", ASK, "9")
    said, _ = asking.communicate(timeout=SECONDS)
    assert said.split() == ["0", "2", "4"], said
    assert later.communicate(timeout=SECONDS)[0].split() == ["18"]
    done = sorted(path.name.split("-")[0] for path in notes.iterdir())
    assert done == ["0", "0", "1", "1", "2", "2", "9"], "the first three began twice"
    with server.client() as client:
        wait_until(
            lambda: client.call("XPENDING", "taskiq", "taskiq")[1][0] == (":", 0), "acknowledged"
        )
