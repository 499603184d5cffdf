"""Workers of client libraries as users write them: ``lease_workers.py LIBRARY ... PORT PLACE``.

A library of Python is a name; of another language it is a program with its arguments, to which two
words of the input, PORT and PLACE are given (``node/lease_worker.mjs``, ``go/lease_worker.go``).
The program imports the library once, and forks for each line of its input: ``start NAME`` begins a
worker, ``add TASK`` adds a task as the library does. It prints ``started NAME PID``, and workers
print ``began TASK NAME``. Each worker claims what was idle for 100 ms, as the library does or its
pages say. The tasks:

- ``die`` hangs until its worker is killed; afterwards it takes no time;
- ``slow`` takes until the file ``release`` is there, if it is done for the first time;
- ``poison`` ends its worker at once, each time;
- ``plain`` takes no time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

LIBRARY, *MORE = sys.argv[1:-2]
PORT, PLACE = int(sys.argv[-2]), Path(sys.argv[-1])
IDLE_MS = 100
URL = f"redis://127.0.0.1:{PORT}"


def say(line: str) -> None:
    """A line, whole, among those of other processes."""
    os.write(1, f"{line}\n".encode())


def handle(task: str, name: str) -> None:
    """What a worker does with a task; it does nothing else meanwhile."""
    begun = PLACE / task
    is_first = not begun.exists()
    begun.touch()  # before the test knows: it may kill this worker at once
    say(f"began {task} {name}")
    if task == "poison":
        os._exit(1)
    if task in ("die", "slow") and is_first:
        while not (task == "slow" and (PLACE / "release").exists()):
            time.sleep(0.02)


Job = Callable[[str], Awaitable[None]]


def of_redis_py() -> tuple[Job, Job]:
    """A loop as it is in many programs: claim what is idle, then read."""
    import redis.asyncio

    async def work(name: str) -> None:
        client: Any = redis.asyncio.Redis(port=PORT, decode_responses=True)
        while True:
            claimed = await client.xautoclaim("jobs", "g", name, IDLE_MS, count=1)
            found = claimed[1] or [
                entry
                for _, entries in await client.xreadgroup(
                    "g", name, {"jobs": ">"}, count=1, block=50
                )
                for entry in entries
            ]
            for entry_id, fields in found:
                handle(fields["task"], name)
                await client.xack("jobs", "g", entry_id)

    async def add(task: str) -> None:
        async with redis.asyncio.Redis(port=PORT) as client:
            await client.xadd("jobs", {"task": task})

    return work, add


def of_taskiq() -> tuple[Job, Job]:
    """Its stream broker with its receiver."""
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    me: list[str] = []
    broker = RedisStreamBroker(
        URL,
        queue_name="jobs",
        consumer_group_name="g",
        consumer_id="0",
        xread_block=50,
        xread_count=1,
        idle_timeout=IDLE_MS,
        unacknowledged_batch_size=1,
        unacknowledged_lock_timeout=5,
    )

    @broker.task(task_name="do")
    async def do(task: str) -> None:
        handle(task, me[0])

    async def work(name: str) -> None:
        me.append(name)
        broker.consumer_name = name
        broker.is_worker_process = True
        await broker.startup()
        await run_receiver_task(broker)

    async def add(task: str) -> None:
        await broker.startup()
        await do.kiq(task)
        await broker.shutdown()

    return work, add


def of_faststream() -> tuple[Job, Job]:
    """A subscriber of new messages, and one of those that were idle, as its pages say."""
    from faststream.redis import RedisBroker, StreamSub

    async def work(name: str) -> None:
        broker = RedisBroker(URL, logger=None)
        for more in ({}, {"min_idle_time": IDLE_MS}):
            sub: Any = StreamSub(
                "jobs", group="g", consumer=name, polling_interval=50, max_records=1, **more
            )

            @broker.subscriber(stream=sub)
            async def do(task: str) -> None:
                handle(task, name)

        await broker.start()
        await asyncio.Event().wait()

    async def add(task: str) -> None:
        async with RedisBroker(URL, logger=None) as broker:
            await broker.publish(task, stream="jobs")

    return work, add


def of_program(verb: str) -> Job:
    """Become a program of another language."""

    async def job(what: str) -> None:
        os.execvp(LIBRARY, [LIBRARY, *MORE, verb, what, str(PORT), str(PLACE)])

    return job


OF_PYTHON = {"redis-py": of_redis_py, "taskiq": of_taskiq, "faststream": of_faststream}


def main() -> None:
    """Fork for each line of the input."""
    make = OF_PYTHON.get(LIBRARY, lambda: (of_program("start"), of_program("add")))
    work, add = make()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        verb, what = line.split()
        pid = os.fork()
        if not pid:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            asyncio.run({"start": work, "add": add}[verb](what))
            os._exit(0)
        if verb == "start":
            say(f"started {what} {pid}")


if __name__ == "__main__":
    main()
