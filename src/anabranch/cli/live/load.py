"""``anabranch load``: traffic of a given shape, with its rate, latencies and duplicates."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from anabranch.cli.address import Address
from anabranch.cli.interrupts import end_as_ctrl_c
from anabranch.cli.live.shared import BYTES, on_server, print_json, running
from anabranch.cli.options import FiniteRange, json_option, taken
from anabranch.cli.transfer.client import connect

LINE_S: Final = 1.0
GROUP: Final = "load"
BLOCK_MS: Final = 500
BATCH: Final = 100
SAMPLES_MAX: Final = 1_000_000


@click.command(
    help="""Add entries at a rate, and report what it took: entries a second, latencies, duplicates.

Ctrl-C ends it before the time, with the report.

Each producer is a connection that waits for each answer, as most clients do. With --retries some
messages are sent twice under the same idempotent ID; the second one must be answered with the entry
that is there. Consumers read and acknowledge for the group 'load'.

\b
Examples:
  anabranch load --rate 1000 --seconds 10
  anabranch load orders --producers 4 --size 500 --retries 5 --consumers 2
""",
)
@click.argument("stream", type=BYTES, metavar="KEY", default="load")
@click.option("--rate", type=FiniteRange(0), default=100.0, show_default=True,
              help="Entries a second, of all producers; 0 is as fast as they can.")  # fmt: skip
@click.option("--producers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--consumers", type=click.IntRange(0, 64), default=0, show_default=True)
@click.option("--size", type=click.IntRange(1, 1 << 20), default=100, show_default=True,
              help="Bytes of the payload of an entry.")  # fmt: skip
@click.option("--seconds", type=FiniteRange(0.1), default=10.0, show_default=True)
@click.option("--retries", type=FiniteRange(0, 100), default=0.0, show_default=True,
              help="Percentage of messages that are sent twice.")  # fmt: skip
@click.option("--maxlen", type=click.IntRange(1), help="Trim the stream to about so many entries.")
@json_option("Print one JSON object at the end.")
@on_server
def command(as_json: bool, db: int | None, **options: Any) -> None:
    """Make the traffic, print a line a second, and report at the end."""
    shape = taken(_TrafficShape, options)
    address = Address.of_options(**options)
    end_as_ctrl_c()
    with running(db, options) as client:
        client.ping()
        if shape.consumers:
            _create_group(client, shape.stream)
        number = address.db or 0 if db is None else db
        facts = _traffic(shape, partial(connect, address, number), as_json=as_json)
    if as_json:
        print_json(facts)
    else:
        print(
            f"{facts['sent']:,} entries in {facts['seconds']:.1f} s, {facts['per_second']:,.0f} a "
            f"second; latency p50 {facts['p50_ms']:.2f} ms, p95 {facts['p95_ms']:.2f} ms, "
            f"p99 {facts['p99_ms']:.2f} ms, max {facts['max_ms']:.2f} ms"
        )
        print(
            f"{facts['retried']:,} sent again, {facts['duplicates']:,} of them added twice; "
            f"{facts['consumed']:,} consumed"
        )
    if facts["duplicates"]:
        raise SystemExit(1)


@dataclass(frozen=True, slots=True)
class _TrafficShape:
    """What is sent and read, as the options say."""

    stream: bytes
    rate: float
    producers: int
    consumers: int
    size: int
    seconds: float
    retries: float
    maxlen: int | None


def _create_group(client: Any, key: bytes) -> None:
    import redis  # noqa: PLC0415 - only its exception

    try:
        client.xgroup_create(key, GROUP, id="$", mkstream=True)
    except redis.ResponseError as problem:
        if not str(problem).startswith("BUSYGROUP"):
            raise


def _traffic(
    shape: _TrafficShape, new_client: Callable[[], Any], *, as_json: bool
) -> dict[str, Any]:
    """Send and read until the time is over, Ctrl-C or a failure, which is raised; the figures."""
    tally, ends = _Tally(), threading.Event()
    works = [partial(_produce, shape) for _ in range(shape.producers)]
    works += [partial(_consume, shape, f"load-{each}") for each in range(shape.consumers)]
    began = time.monotonic()
    with ThreadPoolExecutor(len(works)) as pool:
        try:
            threads = [pool.submit(work, new_client(), tally, ends) for work in works]
            with suppress(KeyboardInterrupt):
                _watch(tally, threads, began + shape.seconds, as_json=as_json)
        finally:
            ends.set()
            spent_s = time.monotonic() - began
    for thread in threads:
        thread.result()
    return tally.facts(spent_s)


def _watch(tally: _Tally, threads: list[Future[None]], until_s: float, *, as_json: bool) -> None:
    """A line a second, until the time is over or a thread has failed."""
    sent, at = 0, time.monotonic()
    while (left := until_s - time.monotonic()) > 0:
        failed, _ = wait(threads, min(LINE_S, left), FIRST_EXCEPTION)
        if failed:
            return
        now, count = time.monotonic(), tally.counts["sent"]
        if not as_json and now - at >= LINE_S / 2:
            print(f"{(count - sent) / (now - at):,.0f} entries a second", flush=True)
        sent, at = count, now


class _Tally:
    """The counts of all threads; each addition is one operation of the interpreter."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.latencies_ms: list[float] = []
        self._lock = threading.Lock()

    def record(self, latency_ms: float, *, retried: bool, doubled: bool) -> None:
        """Count a message that was answered; ``doubled``: its repetition added an entry."""
        with self._lock:
            self.counts["sent"] += 1
            self.counts["retried"] += retried
            self.counts["duplicates"] += doubled
            if len(self.latencies_ms) < SAMPLES_MAX:
                self.latencies_ms.append(latency_ms)

    def consume(self, count: int) -> None:
        """So many entries were acknowledged."""
        with self._lock:
            self.counts["consumed"] += count

    def facts(self, seconds: float) -> dict[str, Any]:
        """The figures of the report, after so many seconds."""
        ordered = sorted(self.latencies_ms) or [0.0]

        def share(part: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3)

        return {
            "sent": self.counts["sent"],
            "seconds": round(seconds, 3),
            "per_second": round(self.counts["sent"] / seconds, 1),
            "p50_ms": share(0.5),
            "p95_ms": share(0.95),
            "p99_ms": share(0.99),
            "max_ms": share(1.0),
            "retried": self.counts["retried"],
            "duplicates": self.counts["duplicates"],
            "consumed": self.counts["consumed"],
        }


def _produce(shape: _TrafficShape, client: Any, tally: _Tally, ends: threading.Event) -> None:
    """Add entries, one after the other, each at its time, some of them twice."""
    trimming = ["MAXLEN", "~", str(shape.maxlen)] if shape.maxlen else []
    payload = random.Random(shape.size).randbytes(shape.size).hex()[: shape.size]  # noqa: S311
    pause_s = shape.producers / shape.rate if shape.rate else 0.0
    name = f"load-{time.time_ns()}-{id(client)}"
    next_s = time.monotonic()
    with client:
        for number in itertools.count(1):
            if pause_s:
                next_s = max(next_s + pause_s, time.monotonic() - 1.0)
                ends.wait(min(max(0.0, next_s - time.monotonic()), threading.TIMEOUT_MAX))
            if ends.is_set():
                return
            idempotent = ["IDMP", name, str(number)] if shape.retries else []
            fields = ["number", number, "payload", payload]
            words = ["XADD", shape.stream, *trimming, *idempotent, "*", *fields]
            began = time.perf_counter()
            entry_id = client.execute_command(*words)
            latency_ms = (time.perf_counter() - began) * 1000
            again = random.random() * 100 < shape.retries  # noqa: S311 - which ones are sent twice
            doubled = again and client.execute_command(*words) != entry_id
            tally.record(latency_ms, retried=again, doubled=doubled)


def _consume(
    shape: _TrafficShape, name: str, client: Any, tally: _Tally, ends: threading.Event
) -> None:
    """Read and acknowledge."""
    with client:
        while not ends.is_set():
            reply = client.xreadgroup(GROUP, name, {shape.stream: ">"}, count=BATCH, block=BLOCK_MS)
            ids = [entry_id for _, rows in reply for entry_id, _ in rows]
            if ids:
                tally.consume(int(client.xack(shape.stream, GROUP, *ids)))
