"""A stream read and written with redis-py, in a process of its own: what Spark is compared with.

`python -m benchmarks.spark.loop PORT KEY` reads all entries, and with a number of rows as third
word it adds so many. It prints the seconds that it took, and those of processor time. Nothing else
is imported there that would make the loops slower.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

import redis

PAGE = 1_000
"""The entries of a reply, or the commands of a pipeline."""

Entry = tuple[bytes, dict[bytes, bytes]]


def loop(port: int, key: str, start: str = "-", end: str = "+") -> Iterator[Entry]:
    """Yield the entries of a stream with redis-py, whose replies hiredis parses."""
    with redis.Redis(port=port) as client:
        while True:
            page: list[Entry] = client.xrange(key, start, end, count=PAGE)
            yield from page
            if len(page) < PAGE:
                return
            start = f"({page[-1][0].decode()}"


def pipelines(port: int, key: str, rows: int) -> None:
    """Add rows of two columns with redis-py, each by an XADD in a pipeline."""
    with redis.Redis(port=port) as client:
        for low in range(0, rows, PAGE):
            pipeline = client.pipeline(transaction=False)
            for number in range(low, min(low + PAGE, rows)):
                pipeline.xadd(key, {"sensor": f"s{number % 100}", "temp": f"{number % 4000 / 100}"})
            pipeline.execute()


def looped(port: int, key: str, *rows: int) -> tuple[float, float]:
    """Read all entries and drop them, or add rows, in another process.

    Returns the seconds that it took, and those of the processor.
    """
    command = [sys.executable, "-m", "benchmarks.spark.loop", str(port), key, *map(str, rows)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, cpu = done.stdout.split()
    return float(seconds), float(cpu)


if __name__ == "__main__":
    at, name = int(sys.argv[1]), sys.argv[2]
    began, ran = time.perf_counter(), time.process_time()
    if len(sys.argv) > 3:
        pipelines(at, name, int(sys.argv[3]))
    else:
        deque(loop(at, name), maxlen=0)
    print(time.perf_counter() - began, time.process_time() - ran)
