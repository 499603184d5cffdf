"""Workers with leases in the simulator: ``python -m tests.simulator.leases --seeds 1-1000``.

One region, or three, have a group with policies, and workers that are unmodified clients. Workers
are killed, stand still, are cut off without a word, and start again; tasks take 0 to 20 times the
time of the lease. Servers are killed, lose power, stop in order, stand still, and take snapshots;
lines between regions are cut. :mod:`tests.simulator.lease_watch` says what is checked meanwhile. At
the end everything is healed, somebody does what is left, and each entry was done or is a dead
letter, once.

Everything follows from the seed.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.simulator.client import SimulatedClient, run_at_once
from anabranch.simulator.machine import HOST, Machine, Process
from anabranch.simulator.network import Network
from anabranch.simulator.record import RunRecord
from anabranch.simulator.timeline import BEGIN_MS, Timeline
from anabranch.stream.stream import Stream
from tests.simulator.lease_mistakes import MISTAKES, REGIONS
from tests.simulator.lease_watch import DEAD, GROUP, KEY, Everywhere, GroupRules, Watch, require
from tests.simulator.seeded_runs import SeededRuns

__all__ = ["RUNS", "LeaseRun"]

LOOK_MS: Final = 200.0
THREE: Final = 0.1
"""The share of runs with three regions."""
END_MS: Final = 40_000.0
"""The longest time until everything is done after the faults."""

_WORDS: Final = {
    "ab.policy", "ab.renew", "xack", "xadd", "xautoclaim", "xgroup", "xinfo", "xnack", "xpending",
    "xrange", "xreadgroup",
}  # fmt: skip
_USED: Final = [command for command in COMMANDS if command.name in _WORDS]

_SEQ: Final = (1 << 64) - 1

Words = list[bytes]
Then = Callable[[Any], None]


def words_of(*parts: object) -> Words:
    """A request."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


def ids_of(reply: Any) -> list[bytes]:
    """The IDs in the reply of an XREADGROUP."""
    return [] if not reply else [entry[0] for _, entries in reply for entry in entries]


def ids_claimed(reply: Any) -> list[bytes]:
    """The IDs in the reply of an XAUTOCLAIM with JUSTID; none without a group."""
    return [] if isinstance(reply, Exception) else list(reply[1])


class Connection(SimulatedClient):
    """A connection. The watch sees a reply when it is made, the worker when it comes."""

    def __init__(self, site: Site, process: Process, name: bytes) -> None:
        super().__init__(process)
        self.name = name
        self.is_open = True
        self.asked: deque[tuple[Words, Then]] = deque()
        self.unsure: list[bytes] = []
        """Entries of replies that have not come."""
        self._site = site
        self._serving = process
        site.watch.opened(self)

    def ask(self, words: Words, then: Then) -> None:
        """Send a request; ``then`` gets the reply, unless the connection ends before."""
        self._serving.happen(lambda: self._run(words, then))

    def _run(self, words: Words, then: Then) -> None:
        if not self.is_open:
            return
        site = self._site
        if self.waits:  # it was sent while the server stood still
            site.run.timeline.after(100, lambda: self.ask(words, then))
            return
        site.is_asked = True
        if words[0] in (b"XREADGROUP", b"XAUTOCLAIM", b"AB.RENEW"):
            site.uses(self, words)
        self.asked.append((words, then))
        run_at_once(self._serving.region, self.session, words)
        self.flush()
        site.is_asked = False

    @property
    def waits(self) -> bool:
        """Whether it is blocked in a read."""
        return self.session.waiter is not None

    def close(self) -> None:
        """The server sees the end of the connection."""
        self._serving.happen(self._end)

    def _end(self) -> None:
        if self.is_open:
            self.is_open = False
            self._serving.region.close_session(self.session)
            self._site.watch.closed(self, self._site.now_ms)

    def _parse(self) -> None:
        super()._parse()
        while self._replies:
            words, then = self.asked.popleft()
            reply = self._replies.popleft()
            touched = self._site.decided(self, words, reply)
            self.unsure += touched
            self.on_answer(partial(self._comes, then, reply, len(touched)))

    def _comes(self, then: Then, reply: Any, touched: int) -> None:
        del self.unsure[:touched]
        if self.is_open:
            then(reply)


class Site:
    """A region: its machine, its workers, and the watch."""

    def __init__(self, run: LeaseRun, machine: Machine, watch: Watch) -> None:
        self.run = run
        self.machine = machine
        self.watch = watch
        self.overs: dict[bytes, int | None] = {}
        """When leases were over before the present event."""
        self.is_asked = False
        self.connections: list[Connection] = []
        self._process: Process | None = None

    @property
    def now_ms(self) -> int:
        """The clock of the server."""
        return self.machine.clock.now_us() // 1000

    @property
    def process(self) -> Process | None:
        """The process that runs, of which the watch knows."""
        process = self.machine.process
        if process is not None and process is not self._process:
            self._process = process
            unsure = [each for one in self.connections for each in one.unsure]
            self.connections.clear()
            self.watch.starts(int(BEGIN_MS + process.began_ms), unsure)
            if process.replica.cluster_id:
                self.watch.look(process, (), self.now_ms)
        return process

    def connect(self, name: bytes) -> Connection | None:
        """A new connection; None while no process runs."""
        process = self.process
        if process is None or not process.replica.cluster_id:
            return None
        self.connections = [each for each in self.connections if each.is_open or each.unsure]
        self.connections.append(Connection(self, process, name))
        return self.connections[-1]

    def uses(self, connection: Connection, words: Words) -> None:
        """A request uses the name of a consumer, as far as it is there."""
        name = words[3]
        if words[0] == b"AB.RENEW":
            assert self.process is not None
            rows = self.process.inspect([b"XINFO", b"CONSUMERS", KEY, GROUP])
            if isinstance(rows, Exception) or name not in {row[1] for row in rows}:
                return
        self.watch.used(connection, name, self.now_ms)

    def decided(self, connection: Connection, words: Words, reply: Any) -> list[bytes]:
        """The server has made a reply; returns the entries that it is about."""
        watch, now_ms = self.watch, self.now_ms
        if isinstance(reply, Exception):  # XREADGROUP alone makes a group
            made_later = watch.rules.creates and words[0] in (b"XAUTOCLAIM", b"AB.RENEW")
            require(made_later, "lost", f"{words} is answered {reply}")
            return []
        match words[0]:
            case b"XREADGROUP":
                found = ids_of(reply)
                watch.handed(words[2 + 1], found, self.overs, now_ms)
                if found:
                    watch.used(connection, words[3], now_ms)
                    self._within_room(words[3])
            case b"XAUTOCLAIM":
                found = [each for each in reply[1] if not self._has(each, words[3])]
                watch.handed(words[3], found, self.overs, now_ms, counts=False)
            case b"XACK" | b"XNACK":
                found = [words[-1]]
                due = watch.counts_for(connection, words[-1])
                known = watch.given.get(words[-1])
                if reply and known is not None:  # it uses the name of who has the entry
                    watch.used(connection, known.name, now_ms)
                if due and not reply and watch.rules.deliveries:
                    assert self.process is not None
                    watch.look_at_dead(self.process)  # it may have died a moment ago
                    due = words[-1] not in watch.everywhere.dead
                is_known = watch.is_alone or words[-1] not in watch.everywhere.over
                require(reply == due or not is_known, "twice", f"{words} is answered {reply}")
                if reply and words[0] == b"XACK":
                    watch.acknowledged(words[-1])
                    connection.on_answer(partial(watch.everywhere.sure.add, words[-1]))
                elif reply:
                    watch.gave_back(words[-1], now_ms)
            case b"AB.RENEW":
                found = reply
                for entry_id in reply:
                    require(self._has(entry_id, words[3]), "held", f"{words[3]!r} has {entry_id!r}")
                    watch.given[entry_id].at_ms = now_ms
            case b"XADD":
                found = []
                connection.on_answer(lambda: watch.everywhere.added.add(reply))
            case _:
                found = []
        return list(found)

    def _has(self, entry_id: bytes, name: bytes) -> bool:
        known = self.watch.given.get(entry_id)
        return known is not None and known.name == name

    def _within_room(self, name: bytes) -> None:
        room = self.watch.rules.room
        if room and self.process is not None:
            rows = self.process.inspect(words_of("XPENDING", KEY, GROUP, "-", "+", 1000, name))
            require(len(rows) <= room, "waits", f"{name!r} has {len(rows)} entries")

    def look(self) -> None:
        """Compare what the server shows with what must be."""
        process = self.process
        if process is None or self.run.timeline.now_ms < self.machine.paused_until:
            return
        self.has_changed(process)
        waiting = [each.name for each in self.connections if each.is_open and each.waits]
        self.watch.look(process, waiting, self.now_ms)
        process.region.leases.check()

    def has_changed(self, process: Process) -> None:
        """An event is over: what comes next is decided by what is known now."""
        if process is not self._process or self.is_asked:
            return
        stream = process.region.keyspace.databases[0].values.get(KEY)
        if type(stream) is Stream and GROUP in stream.groups:
            for entry in stream.groups[GROUP].pending.released:
                self.watch.freed(
                    b"%d-%d" % (entry.entry_id >> 64, entry.entry_id & _SEQ),
                    self.overs,
                    self.now_ms,
                )
        self.overs = self.watch.overs()


class Worker:
    """An unmodified client: it reads, works, acknowledges, and has accidents."""

    def __init__(self, site: Site, name: bytes) -> None:
        self.site = site
        self.run = site.run
        self.chance = site.run.chance
        self.name = name
        self.blocks = self.chance.random() < 0.8
        self.claims = self.chance.random() < 0.2 and not site.watch.rules.room
        self.beats = self.chance.random() < 0.5
        self.connections: list[Connection] = []
        self.paused_until = 0.0
        self._life = 0  # what was planned in an earlier life is void

    def begin(self) -> None:
        """Connect and read."""
        self._life += 1
        life = self._life
        for each in self.connections:
            each.close()
        opened = [self.site.connect(self.name) for _ in range(self.chance.choice([1, 1, 2]))]
        self.connections = [each for each in opened if each is not None]
        if not self.connections:
            self._later(300, self.begin)
        else:
            self._read(life)
            if self.beats:
                self._beat(life)

    def _later(self, ms: float, action: Callable[[], None]) -> None:
        """Act after a while, and not while the worker stands still."""
        life = self._life

        def act() -> None:
            rest = self.paused_until - self.run.timeline.now_ms
            if self._life != life or self.run.is_over:
                return
            if rest > 0:
                self._later(rest, action)
            elif (
                self.site.process is None
                or not any(each.is_open for each in self.connections)
                or any(each._serving.has_ended for each in self.connections)
            ):
                self.begin()
            else:
                action()

        self.run.timeline.after(ms, act)

    def _ask(self, words: Words, then: Then) -> None:
        free = [each for each in self.connections if each.is_open and not each.waits]
        if free:
            self.chance.choice(free).ask(words, then)
        else:
            self._later(100, lambda: self._ask(words, then))

    def _read(self, life: int) -> None:
        if life != self._life:
            return
        chance = self.chance
        count = words_of("COUNT", chance.randint(1, 3))
        block = words_of("BLOCK", 0) if self.blocks else []
        if self.claims and chance.random() < 0.3:
            claim = words_of("XAUTOCLAIM", KEY, GROUP, self.name, 1500, 0, *count, "JUSTID")
            self._ask(claim, lambda reply: self._work(ids_claimed(reply)))
            return
        self._ask(
            words_of("XREADGROUP", "GROUP", GROUP, self.name, *count, *block, "STREAMS", KEY, ">"),
            lambda reply: self._work(ids_of(reply)),
        )

    def _beat(self, life: int) -> None:
        if life == self._life:
            lease_ms = self.site.watch.rules.lease_ms
            self._ask(words_of("AB.RENEW", KEY, GROUP, self.name, max(lease_ms, 1)), lambda _: None)
            self._later(
                max(lease_ms, 100) * self.chance.choice([0.3, 0.8]), lambda: self._beat(life)
            )

    def _work(self, ids: list[bytes]) -> None:
        """Do one entry after the other, then read again."""
        life = self._life
        if not ids:
            self._later(self.chance.choice([50, 300]), lambda: self._read(life))
            return
        lease_ms = max(self.site.watch.rules.lease_ms, 100)
        takes = self.chance.choice([0, 0.1, 0.5, 1, 3, self.chance.uniform(0, 20)]) * lease_ms
        self._later(takes, lambda: self._finish(ids))

    def _finish(self, ids: list[bytes]) -> None:
        dice, entry_id = self.chance.random(), ids[0]
        if dice < 0.08:
            self.die()
        elif dice < 0.3:
            words = words_of("XNACK", KEY, GROUP, "FAIL", "IDS", 1, entry_id)
            self._ask(words, lambda _: self._work(ids[1:]))
        else:
            self._ask(words_of("XACK", KEY, GROUP, entry_id), lambda _: self._work(ids[1:]))

    # -- accidents -------------------------------------------------------------------------------

    def die(self) -> None:
        """Kill -9, and a new start later, perhaps."""
        self._life += 1
        for each in self.connections:
            each.close()
        self.run.say(self.site, f"{self.name.decode()} dies")
        self.run.reached["worker killed"] += 1
        if self.chance.random() < 0.7:
            ms = self.chance.choice([10, 500, 3000, 15_000])
            self.run.timeline.after(ms, self._come_back)

    def _come_back(self) -> None:
        if not self.run.is_over:
            self.begin()

    def stand_still(self) -> None:
        """Its connections stay open."""
        ms = self.chance.uniform(0, 10 * max(self.site.watch.rules.lease_ms, 100))
        self.paused_until = self.run.timeline.now_ms + ms
        self.run.say(self.site, f"{self.name.decode()} stands still for {ms:.0f} ms")
        self.run.reached["worker paused"] += 1

    def be_cut_off(self) -> None:
        """The server sees the end of its connections much later; it connects anew at once."""
        lost, self.connections = self.connections, []
        self.run.say(self.site, f"{self.name.decode()} is cut off")
        self.run.reached["worker cut off"] += 1
        for each in lost:
            self.run.timeline.after(self.chance.choice([100, 4000, 10_000]), each.close)
        self.begin()


class LeaseRun:
    """The run of a seed. A :class:`Violation` if a promise is broken."""

    def __init__(self, seed: int, kind: str | None = None) -> None:
        """``kind`` is a mode of the lease, or :data:`REGIONS`; otherwise the seed draws them."""
        chance = self.chance = random.Random(f"{seed}/leases")
        self.timeline = Timeline()
        self.record = RunRecord(self.timeline)
        self.network = Network(self.timeline, random.Random(f"{seed}/network"))
        self.network.reached = self.record.reached
        self.reached = Counter[str]()
        self.is_over = False
        self.is_breaking = True
        drawn = chance.choice(["connection", "heartbeat", "time"])
        regions = 3 if chance.random() < THREE or kind == REGIONS else 1
        self.rules = self._drawn_rules(drawn if kind in (None, REGIONS) else kind)
        self.fsync = chance.choice(["always", "always", "everysec", "no"])
        self.everywhere = Everywhere()
        self.sites: list[Site] = []
        for number in range(1, regions + 1):
            machine = Machine(
                Settings(
                    region_id=number,
                    databases=1,
                    appendfsync=self.fsync,
                    stream_node_max_entries=chance.choice([100, 2]),
                ),
                self.timeline,
                self.network,
                self.record,
                random.Random(f"{seed}/region {number}"),
                self._has_changed,
            )
            machine.commands = _USED
            machine.seeds = [(HOST, self.network.port(1))] if number > 1 else []
            watch = Watch(self.rules, self.everywhere, is_alone=regions == 1)
            watch.reached = self.reached
            self.sites.append(Site(self, machine, watch))
        self.workers = [
            Worker(site, b"w%d" % number)
            for site in self.sites
            for number in range(chance.randint(2, 4))
        ]
        self._added = 0

    def _drawn_rules(self, mode: str) -> GroupRules:
        chance = self.chance
        rules = GroupRules(
            mode,
            chance.choice([0, 200, 1000] if mode == "connection" else [200, 500, 1000]),
            deliveries=chance.choice([0, 0, 1, 2, 3]),
            delays=chance.choice([(), (), (300,), (100, 1000)]),
            room=chance.choice([0, 0, 1, 2]),
            ttl_ms=chance.choice([0, 0, 500, 3000]),
            keeps=chance.random() < 0.5,
            creates=chance.random() < 0.3,
        )
        # Before there is a group, limits hold.
        return replace(rules, creates=rules.creates and not rules.keeps)

    def say(self, site: Site, text: str) -> None:
        """A line of what happens."""
        self.record.say(site.machine.number, text)

    def _has_changed(self, process: Process) -> None:
        for site in self.sites:
            if site.machine.process is process:
                site.has_changed(process)

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it."""
        self._begin()
        chance, timeline = self.chance, self.timeline
        length = chance.choice([4000, 8000, 16_000])
        entries = chance.randint(3, 15)
        for _ in range(entries):
            timeline.after(
                chance.uniform(0, length * 0.7), lambda: self._add(chance.choice(self.sites))
            )
        for worker in self.workers:
            timeline.after(chance.choice([0, 10, 500]), worker.begin)
        for _ in range(chance.randint(0, 8)):
            timeline.after(chance.uniform(0, length), self._hit_a_worker)
        for _ in range(chance.choice([0, 0, 1, 2, 3]) * len(self.sites)):
            timeline.after(chance.uniform(0, length), self._hit_a_server)
        for _ in range(chance.choice([0, 1, 2])):
            timeline.after(chance.uniform(0, length), self._snapshot)
        self._pass(length)
        self._end()

    def _pass(self, ms: float) -> None:
        """Let time pass, and look."""
        until = self.timeline.now_ms + ms
        while self.timeline.now_ms < until:
            self.timeline.run_until(min(until, self.timeline.now_ms + LOOK_MS))
            for site in self.sites:
                site.look()

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        until = self.timeline.now_ms + END_MS
        while not is_so():
            require(self.timeline.now_ms < until, "late", what)
            self.timeline.run_until(self.timeline.now_ms + LOOK_MS)

    def _begin(self) -> None:
        for site in self.sites:
            site.machine.start(found=site.machine.number == 1)
        first = self.sites[0]

        def is_set() -> bool:
            process = first.process
            if process is None or len(process.replica.members) < len(self.sites):
                return False
            reply = self._do(first, "AB.POLICY", "SET", KEY, *self.rules.words())
            return not isinstance(reply, Exception)

        self._wait_until(is_set, "the policies cannot be set")
        if not self.rules.creates:
            self._do(first, "XGROUP", "CREATE", KEY, GROUP, "0", "MKSTREAM")
        self._wait_until(self._have_equal_vectors, "regions do not hear of it")
        for site in self.sites:
            site.machine.seeds = [
                (HOST, self.network.port(each.machine.number))
                for each in self.sites
                if each is not site
            ]
            assert site.process is not None
            site.process.durability.sync_all()

    def _have_equal_vectors(self) -> bool:
        vectors = [
            None if each.process is None else each.process.replica.vector for each in self.sites
        ]
        return None not in vectors and all(each == vectors[0] for each in vectors)

    def _do(self, site: Site, *parts: object) -> Any:
        """A command of an administrator."""
        process, replies = site.process, list[Any]()
        assert process is not None
        process.happen(lambda: replies.append(process.do(words_of(*parts))))
        return replies[0] if replies else None

    def _add(self, site: Site) -> None:
        connection = site.connect(b"")
        if connection is None:
            self.timeline.after(500, lambda: self._add(site))
            return
        self._added += 1
        connection.ask(
            words_of("XADD", KEY, "*", "task", self._added), lambda _: connection.close()
        )

    # -- faults ----------------------------------------------------------------------------------

    def _hit_a_worker(self) -> None:
        worker = self.chance.choice(self.workers)
        if any(each.is_open for each in worker.connections):
            self.chance.choice([worker.die, worker.stand_still, worker.be_cut_off])()

    def _hit_a_server(self) -> None:
        if not self.is_breaking:
            return
        site, dice = self.chance.choice(self.sites), self.chance.random()
        machine = site.machine
        if machine.process is None:
            return
        if dice < 0.2:
            ms = self.chance.choice([100, 1500, 5000])
            machine.pause(ms)
            self.timeline.after(ms, lambda: site.watch.stood_still(site.now_ms))
            return
        if dice < 0.5 and len(self.sites) > 1:
            self._cut(site)
            return
        machine.wake()
        if dice < 0.7 or self.fsync != "always":
            machine.kill()
        elif dice < 0.85:
            machine.lose_power()
        else:
            machine.stop()
        self.reached["server ended"] += 1
        self.timeline.after(self.chance.choice([10, 300, 2000]), machine.start)

    def _cut(self, site: Site) -> None:
        other = self.chance.choice([each for each in self.sites if each is not site])
        one, two = site.machine.number, other.machine.number
        for pair in ((one, two), (two, one)):
            self.network.line(*pair).cut = True
        self.reached["line cut"] += 1

    def _mend(self) -> None:
        for pair, line in list(self.network.lines.items()):
            if line.cut:
                self.network.mend(*pair)

    def _snapshot(self) -> None:
        process = self.chance.choice(self.sites).process
        if process is not None:
            process.happen(process.begin_snapshot)
            self.reached["snapshot"] += 1

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> None:
        """All is healed, all workers die, and what is left is done."""
        self.is_breaking = False
        self._mend()
        for site in self.sites:
            site.machine.wake()
            site.machine.start()
            site.watch.stood_still(site.now_ms)
        self._pass(3000)
        self.is_over = True
        for worker in self.workers:
            for connection in worker.connections:
                connection.close()
        for site in self.sites:
            self._finish(site)
        done = self.everywhere
        self._wait_until(self._looked, "there are entries that nobody is given")
        self._wait_until(self._have_equal_vectors, "regions do not agree")
        for site in self.sites:
            self._check_end(site)
        require(done.added <= done.over, "lost", f"{done.added - done.over}")
        self.reached["entries"] += len(done.added)

    def _looked(self) -> bool:
        for site in self.sites:
            site.look()
        return all(map(self._is_done, self.sites))

    def _finish(self, site: Site) -> None:
        """Read and acknowledge until nothing is left."""
        connection = site.connect(b"last")
        assert connection is not None
        room = site.watch.rules.room or 100

        def took(reply: Any) -> None:
            for entry_id in ids_of(reply):
                connection.ask(words_of("XACK", KEY, GROUP, entry_id), lambda _: None)
            self.timeline.after(100, read)

        def read() -> None:
            words = words_of(
                "XREADGROUP", "GROUP", GROUP, "last", "COUNT", room, "STREAMS", KEY, ">"
            )
            connection.ask(words, took)

        read()

    def _is_done(self, site: Site) -> bool:
        process = site.process
        assert process is not None
        if self.everywhere.added - self.everywhere.over:
            return False
        rows = process.inspect(words_of("XPENDING", KEY, GROUP, "-", "+", 1000))
        return not rows and not isinstance(rows, Exception)

    def _check_end(self, site: Site) -> None:
        assert site.process is not None
        letters = site.process.inspect(words_of("XRANGE", DEAD, "-", "+"))
        ids = [words[words.index(b"ab-id") + 1] for _, words in letters]
        require(len(ids) == len(set(ids)), "dead", f"{ids} have several copies")
        require(set(ids) == self.everywhere.dead, "dead", f"{ids} are not {self.everywhere.dead}")
        for database in site.process.region.keyspace.databases:
            database.check()


# -- the program ----------------------------------------------------------------------------------


RUNS: Final = SeededRuns(LeaseRun, MISTAKES)

if __name__ == "__main__":
    sys.exit(RUNS.main(__doc__))
