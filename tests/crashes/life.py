"""Lives of a server, one after the other on one disk, each ended by a crash.

While one goes on, the disk fails now and then: writes, syncs, new files; for a moment or for good.
After each crash a start has to find everything that anybody was told, and nothing that somebody was
told to be gone.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter, defaultdict
from functools import partial
from typing import Any

from anabranch.simulator.disk import DiskFault, MemoryStorage
from tests.crashes.clients import KEYS, STREAMS, Client, Cursor, Writing, a_read
from tests.crashes.harness import VirtualLoop, World
from tests.crashes.model import Group, Request, State, Stream, plain
from tests.crashes.tracker import Tracker, Violation, is_refusal, matches, refused_keys

__all__ = ["Lives"]

DATABASES = 2
READERS = 3
STEPS = (10, 40)
FULL = 1 << 30
MIXED = "changed on the way"
REGIONAL = {"region_id": 1, "cluster_create": True, "xadd_id_uniqueness_mode": "liberal"}


class Lives:
    """A disk, and what was told of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.boots = 1
        self.disk = MemoryStorage(boot="boot 1")
        self.trackers = [Tracker(db) for db in range(DATABASES)]
        self.reached: Counter[str] = Counter()
        """What has happened, and how often."""
        self._now_s = 1000.0
        self.is_regional = self.chance.random() < 0.3
        regional = self.is_regional
        self._writing = [Writing(db, self.chance, regional=regional) for db in range(DATABASES)]
        self._cursors: defaultdict[tuple[int, str], Cursor] = defaultdict(Cursor)
        self._later: list[tuple[int, Request, Any]] = []  # told after a sync had failed
        self._policy = self._policy_before = ""
        self._broken = False
        self._world: World

    def go_on(self) -> None:
        """Start, live, crash; raises :class:`Violation`."""
        loops: list[VirtualLoop] = []

        def new_loop() -> VirtualLoop:
            loops.append(VirtualLoop(self._now_s))
            return loops[0]

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._live())
        self._now_s = loops[0].now_s
        self.reached["crash"] += 1

    async def _live(self) -> None:
        chance = self.chance
        self._policy = chance.choice(("always", "always", "everysec", "no"))
        self._world = World(
            self.disk,
            chance,
            {
                "appendfsync": self._policy,
                "databases": DATABASES,
                "oplog_segment_bytes": chance.choice((1024, 1024, 1 << 20)),
                "auto_aof_rewrite_percentage": 0,
                "enable_debug_command": "yes",
                "notify_keyspace_events": "E$",
                **(REGIONAL if self.is_regional else {}),
            },
        )
        await self._world.start()
        await self._find()
        await self._happen()
        self._crash()

    # -- a start ----------------------------------------------------------------------------------

    async def _find(self) -> None:
        """Compare what the start has found with what was told."""
        for cursor in self._cursors.values():
            cursor.is_asking = False
        for tracker in self.trackers:
            found = await self._read(tracker.db)
            if self._broken and self._policy_before != "always":
                for db, words, told in self._later:
                    if db == tracker.db and not matches(found, words, told):
                        raise Violation(
                            f"db {db}: {words} was answered {told!r} after a failed sync, and a "
                            f"power failure leaves {found}"
                        )
            else:
                tracker.check(found)
            tracker.restart(found)
            await self._read_on(tracker.db, found)
        self._later.clear()
        self._broken = False

    async def _read_on(self, db: int, found: State) -> None:
        """Readers with a cursor get what they do not know, as if nothing had happened."""
        if self._broken and self._policy_before != "always":
            self._cursors.clear()  # what is lost by a power failure may have been read
        asking = Client(self._world, self._cursor_hears)
        asking.db = db
        asking.send([("SELECT", str(db))], 0, self.chance)
        for key in STREAMS:
            cursor = self._cursors[db, key]
            asking.send([cursor.request(key)], 0, self.chance)
            while asking.waiting:  # noqa: ASYNC110 - of time that is ours
                await asyncio.sleep(0.01)
            stream = found.get(key, Stream())
            assert isinstance(stream, Stream)
            missed = {f"{number}-0" for number in stream.entries} - cursor.known
            if missed:
                raise Violation(f"db {db}: a reader with a cursor never got {missed} of {key}")
        asking.wire.close()

    def _cursor_hears(self, client: Client, words: Request, _since: int, reply: Any) -> None:
        if words[0] == "AB.READ":
            cursor = self._cursors[client.db, words[1]]
            cursor.is_asking = False
            if not is_refusal(reply):
                cursor.was_given(reply)

    async def _read(self, db: int) -> State:
        """A database, asked for with commands."""
        replies: list[Any] = []
        client = Client(self._world, lambda _client, _words, _now, reply: replies.append(reply))

        async def ask(*words: str) -> Any:
            replies.clear()
            client.send([words], 0, self.chance)
            while not replies:  # noqa: ASYNC110 - of time that is ours
                await asyncio.sleep(0.01)
            return plain(words, replies[0])

        await ask("SELECT", str(db))
        found: State = {}
        for key in await ask("KEYS", "*"):
            if not key.startswith("s"):
                found[key] = await ask("GET", key)
                continue
            entries = await ask("XRANGE", key, "-", "+")
            _, last, deleted, added, _ = await ask("XINFO", "STREAM", key)
            groups = {}
            for row in await ask("XINFO", "GROUPS", key):
                facts = dict(zip(row[::2], row[1::2], strict=True))
                name = facts["name"]
                rows = await ask("XPENDING", key, name, "-", "+", "1000")
                pending = {_number(row[0]): row[1] for row in rows}
                groups[name] = Group(_number(facts["last-delivered-id"]), pending)
            found[key] = Stream(
                {_number(each[0]): each[1][1] for each in entries},
                *(_number(last), _number(deleted), added, groups),
            )
        client.wire.close()
        return found

    # -- a life -----------------------------------------------------------------------------------

    async def _happen(self) -> None:
        chance = self.chance
        writers = [Client(self._world, self._writer_hears) for _ in self.trackers]
        readers = []
        for number, client in enumerate(
            (*writers, *(Client(self._world, self._reader_hears) for _ in range(READERS)))
        ):
            client.db = number % DATABASES
            client.send([("SELECT", str(client.db))], 0, chance)
            if client not in writers:
                readers.append(client)
        for tracker in self.trackers:
            subscriber = Client(self._world, lambda *_: None)
            subscriber.on_push = partial(self._hear, tracker)
            channels = (f"c{tracker.db}", f"__keyevent@{tracker.db}__:set")
            subscriber.send([("SUBSCRIBE", *channels)], 0, chance)
        await asyncio.sleep(0.01)
        durability = self._world.server.durability
        for _ in range(chance.randint(*STEPS)):
            self._meddle()
            for client in (*writers, *readers):
                client.push()
            client = chance.choice((*writers, *writers, *readers))
            if not client.waiting and not client.is_closed:
                tracker = self.trackers[client.db]
                if client in writers:
                    requests = self._writing[client.db].requests()
                    for words in requests:
                        tracker.sent(words)
                        if words[0] == "CONFIG":
                            self._policy = MIXED
                elif client.watched is not None:
                    requests = [(*a_read(chance), ";", *a_read(chance))]
                elif chance.random() < (0.15 if durability.trouble is None else 0.5):
                    requests = self._ask_on(client.db)
                elif chance.random() < 0.1:
                    requests = [("WATCH", chance.choice(KEYS))]
                    client.watched = requests[0][1], len(tracker.history)
                else:
                    requests = [a_read(chance, may_block=True)]
                client.send(requests, len(tracker.history), chance)
            await self._pass()
        self._look()

    def _ask_on(self, db: int) -> list[Request]:
        """A reader with a cursor asks for more; or something else if it waits already."""
        key = self.chance.choice(STREAMS)
        cursor = self._cursors[db, key]
        return [a_read(self.chance) if cursor.is_asking else cursor.request(key)]

    async def _pass(self) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 2, 5))):
            await asyncio.sleep(0)
        if self.chance.random() < 0.3:
            await asyncio.sleep(self.chance.choice((0.001, 0.03, 0.3, 1.5)))

    def _meddle(self) -> None:
        """The disk fails, or works again."""
        chance, disk = self.chance, self.disk
        if disk.faults and chance.random() < 0.1:
            disk.faults.clear()
        elif not disk.faults and chance.random() < 0.12:
            operation = chance.choice(("write", "write", "write", "sync", "sync", "create"))
            code = chance.choice((errno.ENOSPC, errno.EIO))
            if operation == "sync":
                code = chance.choice((errno.EIO, errno.EIO, errno.ENOENT))
            times = chance.choice((1, 3, FULL, FULL))
            keep = chance.choice((0, 0, 3, 40))
            disk.faults = [DiskFault(operation, code, times, chance.randrange(3), keep, "log-")]
            self.reached[f"fault: {operation}"] += 1

    def _look(self) -> None:
        durability = self._world.server.durability
        self._broken = durability.broken
        self._policy_before = self._policy
        self.reached["crash in trouble"] += durability.trouble is not None
        self.reached["crash after a failed sync"] += durability.broken
        self.reached["crash with open requests"] += any(each.open for each in self.trackers)

    def _crash(self) -> None:
        self._world.has_ended = True
        is_power = self._policy == "always" and self.chance.random() < 0.5
        if self._broken and self._policy != "always":
            is_power = True
        self.disk.faults.clear()
        if is_power:
            self.boots += 1
            self.disk = self.disk.crash(self.chance)
            self.disk.boot = f"boot {self.boots}"
            self.reached["power failure"] += 1
        else:
            self.disk = MemoryStorage(self.disk.files(), self.disk.boot)

    # -- what is told -----------------------------------------------------------------------------

    def _writer_hears(self, client: Client, words: Request, _since: int, reply: Any) -> None:
        if words[0] != "SELECT":
            self.trackers[client.db].was_answered(words, reply)
            self.reached["write refused"] += is_refusal(reply)

    def _reader_hears(self, client: Client, words: Request, since: int, reply: Any) -> None:
        if words[0] == "SELECT":
            return
        self._cursor_hears(client, words, since, reply)
        tracker = self.trackers[client.db]
        durability = self._world.server.durability
        for keys in refused_keys(words, reply):
            self.reached["read refused"] += 1
            others = () if keys is not None else self.trackers
            is_plain = not durability.broken and self._policy != MIXED
            if is_plain and not (
                tracker.has_changes(keys, since)
                or any(each.open or each.history[-3:] for each in others)
            ):
                raise Violation(f"db {client.db}: {words} was refused for nothing")
        watched = client.watched
        if words[0] != "WATCH" or is_refusal(reply):
            client.watched = None
        if is_refusal(reply):
            return
        if ";" in words and reply is None:
            assert watched is not None
            tracker.saw_a_change(*watched)
            self.reached["change of a watched key told"] += 1
            return
        tracker.was_told(words, reply, since)
        self.reached["read answered"] += 1
        if durability.trouble is not None:
            self.reached["read answered in trouble"] += 1
        if durability.broken and self._policy != "always" and ";" not in words:
            self._later.append((client.db, words, plain(words, reply)))

    def _hear(self, tracker: Tracker, message: Any) -> None:
        if message[0] == b"message" and message[2][:1] in b"mx":
            tracker.heard(message[2].decode())
            self.reached["message heard"] += 1


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
