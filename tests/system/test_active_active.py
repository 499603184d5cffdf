"""Three regions under everything that can happen to them, judged from outside.

Clients write and read in all regions while links are cut, slowed, reset and left half-open, and
while processes are killed, stopped for a while and restarted. Then all is healed, and must be as if
nothing had happened: every region holds the same, nothing that was acknowledged is missing, nothing
is there twice, no group and no reader missed an entry.

``ANABRANCH_REGION_ROUNDS`` asks for more faults, ``ANABRANCH_REGION_SEED`` for others.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.inspection import mistakes, wait_until
from tests.support.proxy import Weather
from tests.support.region_processes import (
    Caller,
    RegionProcesses,
    RegionServer,
    Unreachable,
    seed_of,
)
from tests.support.wire import Reply

ROUNDS = seed_of("ANABRANCH_REGION_ROUNDS", 9)
SEED = seed_of("ANABRANCH_REGION_SEED", 1)
NAMES = ("zone-eu", "zone-us", "zone-ap")
REGIONS = range(len(NAMES))
UNIQUE = [f"unique{n}" for n in range(3)]
QUEUES = [f"queue{n}" for n in range(2)]
EVENTS = "events"
CHURN = [f"churn{n}" for n in range(3)]
KEYS = [*UNIQUE, *QUEUES, EVENTS, *CHURN]
PATIENCE_S = 90.0
BREATH_S = 0.002

SETTINGS = (
    *("--stream-idmp-duration", "86400", "--stream-idmp-maxsize", "10000"),
    *("--oplog-segment-bytes", "65536", "--auto-aof-rewrite-min-size", "200kb"),
    *("--stream-node-max-entries", "16"),
)
"""Small nodes, segments and snapshots, so that each of their ends is met."""


class Worker(threading.Thread):
    """Goes on until it is told to end; what it finds wrong is kept in `failure`."""

    def __init__(self, trial: Trial, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.trial = trial
        self.rng = random.Random(f"{trial.seed} {name}")
        self.caller = Caller(trial.cluster.servers)
        self.done = 0
        self.unanswered = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.trial.over.is_set():
                try:
                    self.step()
                    self.done += 1
                except Unreachable:
                    self.unanswered += 1
                    time.sleep(BREATH_S * 10)
                time.sleep(BREATH_S)
        except BaseException as failure:
            self.failure = failure
        finally:
            self.caller.close()

    def step(self) -> None:
        raise NotImplementedError


class Adder(Worker):
    """Adds unique values; never repeats one."""

    def __init__(self, trial: Trial, region: int) -> None:
        super().__init__(trial, f"adder {region}")
        self.region = region
        self.sent = 0
        self.acknowledged: dict[tuple[str, str], bytes] = {}
        """Key and value, and the ID under which it was taken."""

    def step(self) -> None:
        key = self.rng.choice(UNIQUE + QUEUES)
        self.sent += 1
        value = f"{self.region}-{self.sent}"
        reply = self.caller.call(self.region, "XADD", key, "*", "v", value)
        assert reply[0] == "$", reply
        self.acknowledged[key, value] = reply[1]


class Producer(Worker):
    """Sends each event until it is acknowledged, to one region after the other, sometimes twice."""

    def __init__(self, trial: Trial, number: int) -> None:
        super().__init__(trial, f"producer {number}")
        self.number = number
        self.acknowledged: dict[str, set[bytes]] = {}
        self.redirected = 0
        self.last_id = 0

    def step(self) -> None:
        self.last_id += 1
        event = str(self.last_id)
        region = self.number
        while not self.trial.over.is_set():
            try:
                self.send(region, event)
                break
            except Unreachable:
                self.unanswered += 1
                self.redirected += 1
                region = self.rng.choice(REGIONS)
                time.sleep(BREATH_S * 5)
        if self.rng.random() < 0.2:
            self.send(self.rng.choice(REGIONS), str(self.rng.randint(1, self.last_id)))

    def send(self, region: int, event: str) -> None:
        name = f"p{self.number}"
        reply = self.caller.call(
            *(region, "XADD", EVENTS, "IDMP", name, event, "*", "v", f"{name}/{event}")
        )
        assert reply[0] == "$", reply
        self.acknowledged.setdefault(f"{name}/{event}", set()).add(reply[1])


class Consumer(Worker):
    """Reads as a group, acknowledges in any order, and moves to another region at times."""

    def __init__(self, trial: Trial, number: int) -> None:
        super().__init__(trial, f"consumer {number}")
        self.region = number
        self.held: list[tuple[str, bytes]] = []

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.01:
            self.region = rng.choice(REGIONS)
            self.held.clear()  # they stay pending
        name = f"{self.name} in {self.region}"
        key = rng.choice(QUEUES)
        if rng.random() < 0.6:
            reply = self.caller.call(
                *(self.region, "XREADGROUP", "GROUP", "workers", name, "COUNT", rng.randint(1, 9)),
                *("STREAMS", key, ">"),
            )
            self.held += [(key, row[1][0][1]) for row in entries_of(reply)]
        elif self.held and rng.random() < 0.9:
            some = rng.sample(self.held, min(len(self.held), rng.randint(1, 6)))
            for key, entry_id in some:
                self.trial.acknowledgements.add((key, entry_id))
                self.caller.call(self.region, "XACK", key, "workers", entry_id)
                self.held.remove((key, entry_id))
        else:
            self.caller.call(
                *(self.region, "XAUTOCLAIM", key, "workers", name, 50, "-", "COUNT", 5, "JUSTID")
            )


class Reader(Worker):
    """Follows one key with a cursor, in whatever region answers."""

    def __init__(self, trial: Trial, number: int) -> None:
        super().__init__(trial, f"reader {number}")
        self.key = UNIQUE[number]
        self.region = number
        self.cursor: bytes | str = "0"
        self.seen: list[bytes] = []

    def step(self) -> None:
        if self.rng.random() < 0.05:
            self.region = self.rng.choice(REGIONS)
        self.read(self.region)

    def read(self, region: int) -> int:
        """One call; returns how many entries came."""
        reply = self.caller.call(*(region, "AB.READ", "COUNT", 7, "STREAMS", self.key, self.cursor))
        assert reply[0] == "*", reply
        [(_, (_, (_, cursor), (_, rows)))] = reply[1]
        self.cursor = cursor
        self.seen += [row[1][0][1] for row in rows]
        return len(rows)


class Churner(Worker):
    """Everything else that changes streams; only that all regions agree is looked at."""

    def __init__(self, trial: Trial, region: int) -> None:
        super().__init__(trial, f"churner {region}")
        self.region = region
        self.ids: list[bytes] = [b"1-1"]

    def step(self) -> None:
        rng = self.rng
        key, other = rng.sample(CHURN, 2)
        group = f"g{rng.randint(0, 2)}"
        some = rng.choice(self.ids[-50:])
        words: tuple[str | int | bytes, ...] = rng.choice(
            [
                ("XADD", key, "*", "v", "1"),
                ("XADD", key, "*", "v", "1"),
                ("XADD", key, "MAXLEN", "~", 50, "*", "v", "2"),
                ("XDEL", key, some),
                ("XTRIM", key, "MAXLEN", rng.randint(5, 40)),
                ("XTRIM", key, "MINID", some),
                ("XGROUP", "CREATE", key, group, rng.choice(["0", "$"]), "MKSTREAM"),
                ("XGROUP", "DESTROY", key, group),
                ("XREADGROUP", "GROUP", group, "c", "COUNT", 5, "STREAMS", key, ">"),
                ("XACK", key, group, some),
                ("XDELEX", key, "DELREF", "IDS", 1, some),
                ("XACKDEL", key, group, "IDS", 1, some),
                ("XGROUP", "SETID", key, group, "0"),
                ("EXPIRE", key, 3600 + rng.randint(0, 99)),
                ("PERSIST", key),
                ("DEL", key) if rng.random() < 0.3 else ("XLEN", key),
                ("COPY", key, other, "REPLACE") if rng.random() < 0.2 else ("XLEN", key),
                ("RENAME", key, other) if rng.random() < 0.2 else ("XLEN", key),
            ]
        )
        reply = self.caller.call(self.region, *words)
        if words[0] == "XADD":
            assert reply[0] == "$", reply
            self.ids.append(reply[1])


class Trial:
    """The cluster, its clients, and what is done to it."""

    def __init__(self, cluster: RegionProcesses, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.rng = random.Random(seed)
        self.over = threading.Event()
        self.acknowledgements: set[tuple[str, bytes]] = set()
        """What somebody has tried to acknowledge, answered or not."""
        self.done: Counter[str] = Counter()
        self.adders = [Adder(self, region) for region in REGIONS]
        self.producers = [Producer(self, region) for region in REGIONS]
        self.consumers = [Consumer(self, region) for region in REGIONS]
        self.readers = [Reader(self, region) for region in REGIONS]
        self.workers: list[Worker] = [
            *self.adders,
            *self.producers,
            *self.consumers,
            *self.readers,
            *(Churner(self, region) for region in REGIONS),
        ]

    # -- while it runs ------------------------------------------------------------------------

    def work(self, steps: int) -> None:
        """Let the clients get on; in a region that does not answer they cannot."""
        goal = sum(worker.done for worker in self.workers) + steps
        wait_until(
            lambda: (
                sum(worker.done for worker in self.workers) >= goal or self.failed() is not None
            ),
            "the clients get on",
            PATIENCE_S,
        )
        failure = self.failed()
        if failure is not None:
            raise failure

    def failed(self) -> BaseException | None:
        return next((w.failure for w in self.workers if w.failure is not None), None)

    def link(self, one: RegionServer, other: RegionServer, *words: str | int) -> None:
        """A fault inside the servers, on both sides."""
        for server, peer in ((one, other), (other, one)):
            reply = self.cluster.call(server, "AB.LINK", peer.number, *words)
            assert reply == ("+", b"OK"), reply

    def fault(self) -> None:
        """One of all faults, with some work while it lasts."""
        rng, cluster = self.rng, self.cluster
        one, other, third = rng.sample(cluster.servers, 3)
        ends = one.region, other.region
        kinds: dict[str, Callable[[], None]] = {
            "cut": lambda: cluster.proxy.set(*ends, Weather(cut=True)),
            "silent": lambda: cluster.proxy.set(*ends, Weather(silent=True)),
            "late": lambda: cluster.proxy.set(*ends, Weather(delay_s=rng.uniform(0.02, 0.4))),
            "narrow": lambda: cluster.proxy.set(*ends, Weather(bytes_per_s=20_000)),
            "reset": lambda: cluster.proxy.reset(*ends),
            "alone": lambda: [
                cluster.proxy.set(one.region, each.region, Weather(cut=True))
                for each in (other, third)
            ] and None,
            "paused": lambda: self.link(one, other, "PAUSE"),
            "delayed": lambda: self.link(one, other, "DELAY", rng.randint(5, 200), 20),
            "lossy": lambda: self.link(one, other, "LOSS", 5),
            "slow": lambda: self.link(one, other, "RATE", 50_000),
            "killed": lambda: self.restart(one, killed=True),
            "stopped": lambda: self.restart(one, killed=False),
            "frozen": lambda: self.freeze(one),
        }  # fmt: skip
        # Everything once, then at random.
        fresh = [kind for kind in kinds if kind not in self.done]
        kind = rng.choice(fresh or list(kinds))
        self.done[kind] += 1
        kinds[kind]()
        self.work(rng.randint(200, 700))

    def restart(self, server: RegionServer, *, killed: bool) -> None:
        if killed:
            server.kill()
        else:
            server.signal(signal.SIGTERM)
            assert server.process is not None
            assert server.process.wait(PATIENCE_S) == 0
        self.work(200)
        server.start()

    def freeze(self, server: RegionServer) -> None:
        server.signal(signal.SIGSTOP)
        try:
            self.work(200)
        finally:
            server.signal(signal.SIGCONT)

    def run(self, rounds: int) -> None:
        """Faults come and go, some at once with others."""
        self.done.clear()
        assert all(
            self.cluster.call(
                *(self.cluster.servers[0], "XGROUP", "CREATE", key, "workers", "0", "MKSTREAM")
            ) == ("+", b"OK")
            for key in QUEUES
        )  # fmt: skip
        wait_until(self.cluster.converged, "the groups are everywhere", PATIENCE_S)
        for worker in self.workers:
            worker.start()
        self.work(100)
        for _ in range(rounds):
            self.fault()
            if self.rng.random() < 0.6:
                self.cluster.heal()
        self.cluster.heal()
        self.work(100)
        self.over.set()
        for worker in self.workers:
            worker.join(PATIENCE_S)
            assert not worker.is_alive(), worker.name
        failure = self.failed()
        if failure is not None:
            raise failure

    # -- afterwards ---------------------------------------------------------------------------

    def ask(self, region: int, *words: str | int | bytes) -> Reply:
        with self.cluster.servers[region].client() as client:
            return client.call(*words)

    def entries(self, region: int, key: str) -> list[tuple[bytes, bytes]]:
        """IDs, and the value of the first field."""
        rows = self.ask(region, "XRANGE", key, "-", "+")[1]
        return [(row[1][0][1], row[1][1][1][1][1]) for row in rows]

    def observed(self, region: int) -> dict[str, Any]:
        """All that regions have to agree on, as clients see it."""
        seen: dict[str, Any] = {}
        for key in KEYS:
            seen[key] = [self.ask(region, "TYPE", key), self.ask(region, "XRANGE", key, "-", "+")]
            seen[key].append(self.ask(region, "PEXPIRETIME", key))
            groups = self.ask(region, "XINFO", "GROUPS", key)
            if groups[0] == "*":
                seen[key].append(sorted(row[1][1][1] for row in groups[1]))
            seen[key].append(self.ask(region, "AB.DIGEST", key))
        return seen

    def check(self) -> None:
        """Raises :class:`AssertionError` with what is wrong."""
        wait_until(self.cluster.converged, "all have applied the same", PATIENCE_S)
        wait_until(self._is_collapsed, "one entry of each event is left", PATIENCE_S)
        wait_until(self.cluster.converged, "all have applied the same", PATIENCE_S)
        self._check_equal()
        self._check_entries()
        self._check_events()
        self._check_readers()
        self._check_groups()
        wait_until(self.cluster.converged, "all have applied the same", PATIENCE_S)
        self._check_equal()

    def _is_collapsed(self) -> bool:
        values = [value for _, value in self.entries(0, EVENTS)]
        return len(values) == len(set(values))

    def _check_equal(self) -> None:
        first = self.observed(0)
        for region in REGIONS:
            other = self.observed(region)
            for key in KEYS:
                assert first[key] == other[key], f"{key} differs in {NAMES[0]} and {NAMES[region]}"

    def _check_entries(self) -> None:
        for key in UNIQUE + QUEUES:
            found = self.entries(0, key)
            expected = [
                (entry_id, value.encode())
                for adder in self.adders
                for (where, value), entry_id in adder.acknowledged.items()
                if where == key
            ]
            lost = set(expected) - set(found)
            assert not lost, f"{key}: acknowledged and not there: {sorted(lost)}"
            no_duplicates(key, (entry_id for entry_id, _ in found))
            no_duplicates(key, (value for _, value in found))
            no_duplicates(key, (entry_id for entry_id, _ in expected))

    def _check_events(self) -> None:
        found = self.entries(0, EVENTS)
        no_duplicates(EVENTS, (entry_id for entry_id, _ in found))
        by_value = {value.decode(): entry_id for entry_id, value in found}
        for producer in self.producers:
            for value, answers in producer.acknowledged.items():
                assert value in by_value, f"{value} was acknowledged as {answers}, and is not there"
                within = Counter(region_of(entry_id) for entry_id in answers)
                assert max(within.values()) == 1, f"{value} was taken twice in a region: {answers}"

    def _check_readers(self) -> None:
        for reader in self.readers:
            while reader.read(self.rng.choice(REGIONS)):
                pass
            reader.caller.close()
            no_duplicates(f"{reader.name}, {reader.key}", reader.seen)
            live = {entry_id for entry_id, _ in self.entries(0, reader.key)}
            assert set(reader.seen) == live, f"{reader.name} missed {live - set(reader.seen)}"

    def _check_groups(self) -> None:
        """In every region each entry gets delivered, unless somebody has acknowledged it."""
        for key in QUEUES:
            live = {entry_id for entry_id, _ in self.entries(0, key)}
            done = {entry_id for where, entry_id in self.acknowledgements if where == key}
            for region in REGIONS:
                with self.cluster.servers[region].client() as client:
                    while entries_of(
                        client.call(
                            *("XREADGROUP", "GROUP", "workers", "last", "COUNT", 500),
                            *("STREAMS", key, ">"),
                        )
                    ):
                        pass
                    pending = client.call("XPENDING", key, "workers", "-", "+", 1_000_000)[1]
                    held = {row[1][0][1] for row in pending}
                    missed = live - held - done
                    assert not missed, f"{key} in {NAMES[region]} never got {sorted(missed)}"
                    groups = client.call("XINFO", "GROUPS", key)[1]
                    facts = [each[1] for each in groups[0][1]]
                    assert facts[facts.index(b"lag") + 1] == 0


def entries_of(reply: Reply) -> list[Reply]:
    """Entries of XREADGROUP on one key; none if there is nothing, or an error."""
    if reply[0] != "*" or reply[1] is None:
        return []
    [(_, (_, (_, rows)))] = reply[1]
    return [row for row in rows if row[1][1][1] is not None]


def region_of(entry_id: bytes) -> int:
    """The region that has made an ID."""
    return int(entry_id.partition(b"-")[2]) % 256


def no_duplicates(what: str, values: Iterable[bytes]) -> None:
    """Fails with what is there more than once."""
    twice = sorted(value for value, count in Counter(values).items() if count > 1)
    assert not twice, f"{what}: twice there: {twice}"


@pytest.mark.timeout(240 + 20 * ROUNDS)
def test_whatever_happens_regions_agree_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with RegionProcesses(tmp_path, NAMES, *SETTINGS) as cluster:
        trial = Trial(cluster, SEED)
        try:
            trial.run(ROUNDS)
            trial.check()
        finally:
            trial.over.set()
        for server in cluster.servers:
            assert not mistakes(server), server.region
            assert "divergence" not in server.log_text(), server.region
        assert all(adder.acknowledged for adder in trial.adders)
        assert all(reader.seen for reader in trial.readers)
        assert trial.acknowledgements
        assert cluster.proxy.carried
