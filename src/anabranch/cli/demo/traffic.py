"""Live traffic of a demonstration: a producer and a consumer in each region, in threads.

A producer numbers its orders and sends each under an idempotent ID. If a region does not answer,
the producer sends the same order to the next one: it does not know whether the first one took it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, Final

import redis

from anabranch.cli.cluster_files import Member
from anabranch.cli.cluster_servers import connect
from anabranch.cli.demo.cluster import STREAM, TEXTS, DemoCluster

ANSWER_S: Final = 2.0
BLOCK_MS: Final = 200
BATCH: Final = 100
PAUSE_S: Final = 0.05
STOP_S: Final = 10.0

Order = tuple[str, int]
"""Shop and number."""


class _TrafficWorker(ABC):
    """Repeats a piece of work in a thread, until it rests or all ends."""

    def __init__(self, ends: threading.Event) -> None:
        self._ends = ends
        self._rests = threading.Event()
        self._running: Future[None] | None = None

    def go_on(self, pool: ThreadPoolExecutor) -> None:
        """Repeat the work in a thread of the pool."""
        self._rests.clear()
        if self._running is None or self._running.done():
            self._running = pool.submit(self._repeat)

    def rest(self) -> None:
        """Wait until the last piece is done; raises what the work has raised."""
        self._rests.set()
        if self._running is not None:
            self._running.result(STOP_S)

    def _repeat(self) -> None:
        while not (self._rests.is_set() or self._ends.is_set()):
            self.work()

    @abstractmethod
    def work(self) -> None:
        """Do one piece of the work."""


class OrderProducer(_TrafficWorker):
    """Sends orders to its region, and to the next ones while that does not answer."""

    def __init__(
        self, members: list[Member], home: Member, rate: float, ends: threading.Event
    ) -> None:
        super().__init__(ends)
        at = members.index(home)
        self.home = home
        self.producer = f"shop-{home.name}"
        self._servers = [
            (each, connect(each, ANSWER_S, **TEXTS)) for each in members[at:] + members[:at]
        ]
        self._pause_s = 1 / rate
        self.acknowledged: dict[Order, tuple[str, str]] = {}
        """The ID of the entry of each order, and the region that accepted it."""
        self.sent_again = 0
        """Orders that a region did not answer, and that were sent to another one."""
        self.number = 0

    def work(self) -> None:
        """Send one order until a region accepts it."""
        self.number += 1
        began = time.monotonic()
        failed = False
        while not self._ends.is_set():
            for member, server in self._servers:
                try:
                    entry_id: Any = server.execute_command(
                        *("XADD", STREAM, "IDMP", self.producer, self.number, "*"),
                        *("shop", self.home.name, "order", self.number),
                    )
                except (redis.RedisError, OSError):
                    failed = True
                    continue
                self.sent_again += failed
                self.acknowledged[self.home.name, self.number] = entry_id, member.name
                self._ends.wait(max(0.0, began + self._pause_s - time.monotonic()))
                return
            self._ends.wait(PAUSE_S)


class OrderConsumer(_TrafficWorker):
    """Processes the stream for the group of its region."""

    def __init__(self, home: Member, ends: threading.Event) -> None:
        super().__init__(ends)
        self.home = home
        self.group = f"{home.name}-workers"
        self._server = connect(home, ANSWER_S, **TEXTS)
        self._after = "0"
        self.delivered: Counter[str] = Counter()
        """How often each entry was delivered, by ID."""
        self.processed: Counter[Order] = Counter()
        """How often each order was processed."""

    def create_group(self) -> None:
        """The group begins with the first entry; raises :class:`redis.RedisError`."""
        self._server.xgroup_create(STREAM, self.group, id="0", mkstream=True)

    def work(self) -> None:
        """Read, process, acknowledge; after a failure first what is pending."""
        try:
            reply: Any = self._server.xreadgroup(
                self.group, "worker-1", {STREAM: self._after}, count=BATCH, block=BLOCK_MS
            )
            entries = {entry_id: fields for _, rows in reply for entry_id, fields in rows}
            ids = list(entries)
            if not ids:
                self._after = ">"
                return
            self.delivered.update(ids)
            self.processed.update(map(order_of, filter(None, entries.values())))
            self._server.xack(STREAM, self.group, *ids)
        except (redis.RedisError, OSError):
            self._after = "0"
            self._ends.wait(PAUSE_S)


class Traffic:
    """All producers and consumers."""

    def __init__(self, cluster: DemoCluster, rate: float) -> None:
        """``rate``: orders a second in each region."""
        members = cluster.members
        self._cluster = cluster
        self._ends = threading.Event()
        self._pool = ThreadPoolExecutor(2 * len(members))
        self.producers = [OrderProducer(members, each, rate, self._ends) for each in members]
        self.consumers = [OrderConsumer(each, self._ends) for each in members]

    def start(self) -> None:
        """Create the groups, and begin."""
        for consumer in self.consumers:
            consumer.create_group()
        self._cluster.spread()
        self.go_on()

    def go_on(self) -> None:
        """All producers and consumers work."""
        for worker in (*self.producers, *self.consumers):
            worker.go_on(self._pool)

    def rest(self) -> None:
        """Pause all; consumers first process everything."""
        for producer in self.producers:
            producer.rest()
        self._cluster.spread()
        for consumer in self.consumers:
            self._cluster.until(
                lambda c=consumer: not self.unprocessed(c),  # type: ignore[misc]
                f"group {consumer.group} has processed everything",
            )
            consumer.rest()

    def end(self) -> None:
        """End all threads, and wait for them."""
        self._ends.set()
        self._pool.shutdown()

    def acknowledged(self) -> dict[Order, tuple[str, str]]:
        """All orders that some region has accepted: ID and region."""
        return {
            order: taken
            for each in self.producers
            for order, taken in each.acknowledged.copy().items()
        }

    def unprocessed(self, consumer: OrderConsumer) -> set[Order]:
        """Orders that their region has and no consumer has processed.

        If two regions accepted an order, one entry stays; it counts as processed if the other one
        was. So orders are compared, not IDs.
        """
        return set(map(order_of, self._cluster.entries(consumer.home).values())) - (
            consumer.processed.keys()
        )


def order_of(fields: dict[str, str]) -> Order:
    """Shop and number of the order in an entry."""
    return fields["shop"], int(fields["order"])


def some(things: Iterable[object], most: int = 3) -> str:
    """A few of many, for a message."""
    found = [str(thing) for thing in islice(iter(things), most + 1)]
    return ", ".join(found[:most]) + (", ..." if len(found) > most else "")
