"""Tasks for taskiq's workers, which import this module; the tests set the environment."""

import asyncio
import os
from pathlib import Path

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = os.environ["TASKIQ_URL"]
NOTES = Path(os.environ["TASKIQ_NOTES"])
HANGS = "TASKIQ_HANGS" in os.environ
IDLE_MS = 2000
"""A task is acknowledged within this, or is taken for left behind; a busy machine is slow."""

broker = RedisStreamBroker(
    URL,
    consumer_id="0",
    idle_timeout=IDLE_MS,
    unacknowledged_lock_timeout=5,
    xread_block=100,
).with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=600))


@broker.task
async def double(number: int) -> int:
    """Note who does it; a worker that hangs never answers."""
    NOTES.joinpath(f"{number}-{os.getpid()}").touch()
    if HANGS:
        await asyncio.Event().wait()
    return 2 * number
