"""Reading a stream with redis-py, in a process of its own: what the source is compared with.

`python -m benchmarks.spark.loop PORT KEY` prints the seconds that it took, and those of processor
time. Nothing else is imported there that would make the loop slower.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

import redis

PAGE = 1_000

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


def looped(port: int, key: str) -> tuple[float, float]:
    """Read all entries and drop them; return the seconds that it took, and the processor's."""
    command = [sys.executable, "-m", "benchmarks.spark.loop", str(port), key]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, cpu = done.stdout.split()
    return float(seconds), float(cpu)


if __name__ == "__main__":
    began, ran = time.perf_counter(), time.process_time()
    deque(loop(int(sys.argv[1]), sys.argv[2]), maxlen=0)
    print(time.perf_counter() - began, time.process_time() - ran)
