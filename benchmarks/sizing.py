"""Disk and CPU of entries, for docs/sizing.md: ``python -m benchmarks.sizing``.

A server of its own keeps its log in a temporary directory. For each kind of entry and each way to
send, the program prints bytes of the log and of a snapshot, and the CPU of the server. CPU counts,
not wall time, so other work of the machine disturbs little.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.shared.form import measured_form
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer

DEPTHS: Final = {1: 20_000, 100: 100_000}
"""Requests of a pipeline, and entries that are sent so."""

_CHANCE: Final = random.Random(1)  # noqa: S311 - the same in each run


def sensor(number: int) -> dict[str, str]:
    """Three fields as of a sensor."""
    celsius = f"{_CHANCE.gauss(20, 5):.2f}"
    return {"sensor": f"t{number % 50}", "celsius": celsius, "at": str(1795000000000 + number)}


def document(number: int) -> dict[str, str]:
    """About 150 bytes of JSON, of which 15 bytes are random."""
    note = f"{_CHANCE.randrange(16**30):030x}"
    facts = {"id": number, "user": f"u{_CHANCE.randrange(10**6)}", "note": note, "currency": "EUR"}
    return {"json": json.dumps({**facts, "amount": _CHANCE.randrange(10**5), "state": "accepted"})}


ENTRIES: Final[dict[str, Callable[[int], dict[str, str]]]] = {
    "three sensor fields": sensor,
    "150 bytes of JSON": document,
}


def _cpu_s(client: redis.Redis) -> float:
    found: Any = client.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def _log_bytes(client: redis.Redis) -> int:
    found: Any = client.info("persistence")
    return int(found["aof_current_size"])


def measure(entry: Callable[[int], dict[str, str]], depth: int, count: int) -> list[float]:
    """Bytes of the log and of a snapshot, and microseconds of CPU, for each entry."""
    with (
        tempfile.TemporaryDirectory() as directory,
        AnabranchServer(Path(directory)) as server,
        redis.Redis(port=server.port) as client,
    ):
        bytes_before, cpu_before_s = _log_bytes(client), _cpu_s(client)
        for start in range(0, count, depth):
            pipe: Any = client.pipeline(transaction=False)
            for number in range(start, start + depth):
                pipe.xadd("s", entry(number))
            pipe.execute()
        cpu_s, log = _cpu_s(client) - cpu_before_s, _log_bytes(client) - bytes_before
        client.bgsave()
        wait_until(lambda: list(Path(directory).rglob("*.absnap")), "the snapshot is written")
        snapshot = sum(each.stat().st_size for each in Path(directory).rglob("*.absnap"))
    return [log / count, snapshot / count, cpu_s / count * 1e6]


def main() -> None:
    """Print a table."""
    print(f"anabranch {measured_form()}\n")
    print("| entry | requests in a pipeline | log, bytes | snapshot, bytes | CPU, µs |")
    print("|---|---:|---:|---:|---:|")
    for name, entry in ENTRIES.items():
        for depth, count in DEPTHS.items():
            figures = " | ".join(f"{each:.1f}" for each in measure(entry, depth, count))
            print(f"| {name} | {depth} | {figures} |")


if __name__ == "__main__":
    main()
