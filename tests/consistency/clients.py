"""The clients whose history is checked, and the faults during it: three real processes."""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.consistency.history import Recorder
from tests.support.inspection import wait_until
from tests.support.region_processes import (
    Caller,
    RegionProcesses,
    RegionServer,
    Unreachable,
)
from tests.support.wire import Reply

REGIONS: Final = range(3)
STREAMS: Final = [f"s{n}" for n in range(8)]
MESSAGES: Final = "messages"
QUEUE: Final = "queue"
GROUP: Final = "g"
WAIT_MS: Final = 300
BREATH_S: Final = 0.01  # between two steps of a client
SETTINGS: Final = (
    *("--stream-idmp-duration", "86400", "--stream-idmp-maxsize", "10000"),
    *("--oplog-segment-bytes", "65536"),
)


_SERVE: Final = "\nfrom anabranch.cli.main import main\nmain()"
MISTAKES: Final = {
    "WAITFOR does not wait": """
from anabranch.commands.extensions import regional_read
regional_read.waitfor = lambda ctx, args: b"+OK\\r\\n"
""",
    "WAIT counts regions that have nothing yet": """
from anabranch.commands.server import administration
administration.wait = lambda ctx, args: b":%s\\r\\n" % args[1]
""",
    "idempotent IDs are not recognised": """
from anabranch.stream.producer import Producers
Producers.find = lambda *_: None
""",
    "a group forgets what it has delivered": """
from anabranch.stream.groups.shared_progress import SharedProgress
SharedProgress.hand_out = lambda *_: None
""",
}
"""What a server with a mistake runs first: each must be found. A compiled module cannot."""


class Refused(Exception):
    """An error in reply: nothing was done."""


class Client(threading.Thread):
    """Takes steps until the run is over; a mistake of its own is kept in `failure`."""

    def __init__(self, run: Run, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = run
        self.rng = random.Random(f"{run.seed} {name}")
        self.caller = Caller(run.cluster.servers)
        self.process = run.recorder.new_process()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.world.over.is_set():
                with suppress(Unreachable, Refused):
                    self.step()
                self.world.over.wait(BREATH_S)
        except BaseException as failure:
            self.failure = failure
            self.world.over.set()
        finally:
            self.caller.close()

    def step(self) -> None:
        raise NotImplementedError

    @contextmanager
    def noted(self, f: str, value: object) -> Iterator[list[object]]:
        """Note the beginning and the end of an operation; the block sets the value of the end."""
        recorder = self.world.recorder
        recorder.note(self.process, "invoke", f, value)
        answer: list[object] = [value]
        try:
            yield answer
        except Refused:
            recorder.note(self.process, "fail", f, value)
            raise
        except Unreachable:
            recorder.note(self.process, "info", f, value)
            self.process = recorder.new_process()
            raise
        recorder.note(self.process, "ok", f, answer[0])
        if isinstance(self, SessionClient):
            self.world.count()

    def ask(self, region: int, *words: str | int | bytes) -> Reply:
        """A reply that is no error."""
        reply = self.caller.call(region, *words)
        if reply[0] == "-":
            raise Refused(reply[1].decode())
        return reply


class SessionClient(Client):
    """Adds and reads, moves between regions, and passes its token, unless told not to."""

    token = b"0"

    def step(self) -> None:
        rng = self.rng
        region = rng.choice(REGIONS)
        wait = ("AB.WAITFOR", self.token, WAIT_MS)
        if self.world.passes_tokens and self.ask(region, *wait) != ("+", b"OK"):
            return
        stream = rng.choice(STREAMS)
        if rng.random() < 0.5:
            value = self.world.next_value()
            self.transact(region, ["append", stream, value], "XADD", stream, "*", "v", value)
            if rng.random() < 0.3:
                self.wait(region, stream, value)
        else:
            self.transact(region, ["r", stream, None], "XRANGE", stream, "-", "+")

    def transact(self, region: int, what: list[object], *words: str | int) -> None:
        """One command and the token after it, at one moment of the region."""
        with self.noted("txn", [what]) as noted:
            for each in (("MULTI",), words, ("AB.TOKEN",)):
                self.ask(region, *each)
            answer, token = self.ask(region, "EXEC")[1]
            if answer[0] == "-":
                raise Refused(answer[1].decode())
            self.token = token[1]
            if what[0] == "r":
                noted[0] = [["r", what[1], values_of(answer[1])]]

    def wait(self, region: int, stream: str, value: int) -> None:
        with self.noted("wait", [stream, value, None]) as noted:
            reply = self.ask(region, "WAIT", len(REGIONS) - 1, WAIT_MS)
            noted[0] = [stream, value, reply[1]]


class Onlooker(Client):
    """Reads without a token, each time as a new session: what WAIT promised, it must see."""

    def step(self) -> None:
        self.process = self.world.recorder.new_process()
        stream = self.rng.choice(STREAMS)
        with self.noted("txn", [["r", stream, None]]) as noted:
            reply = self.ask(self.rng.choice(REGIONS), "XRANGE", stream, "-", "+")
            noted[0] = [["r", stream, values_of(reply[1])]]


class Sender(Client):
    """Sends each message until it is acknowledged, to one region after the other; some again."""

    sent = 0

    def step(self) -> None:
        self.sent += 1
        self.send(f"{self.name}-{self.sent}")
        if self.rng.random() < 0.3:
            self.send(f"{self.name}-{self.rng.randint(1, self.sent)}")

    def send(self, message: str) -> None:
        while not self.world.over.is_set():
            with suppress(Unreachable, Refused), self.noted("send", [MESSAGES, message]):
                words = ("XADD", MESSAGES, "IDMP", self.name, message, "*", "v", message)
                self.ask(self.rng.choice(REGIONS), *words)
                return
            self.world.over.wait(BREATH_S)


class Consumer(Client):
    """Adds to the queue, reads it as a group in one region, and acknowledges what it got."""

    def __init__(self, run: Run, region: int) -> None:
        super().__init__(run, f"consumer{region}")
        self.region = region

    def step(self) -> None:
        if self.rng.random() < 0.5:
            value = self.world.next_value()
            with self.noted("txn", [["append", QUEUE, value]]):
                self.ask(self.region, "XADD", QUEUE, "*", "v", value)
        else:
            self.read(">")

    def read(self, after: str) -> int:
        """Take new entries (``>``) or those in hand (``0``), and acknowledge most of them."""
        f = "deliver" if after == ">" else "recover"
        words = ("XREADGROUP", "GROUP", GROUP, self.name, "COUNT", 5, "STREAMS", QUEUE, after)
        with self.noted(f, [QUEUE, self.region, None]) as noted:
            reply = self.ask(self.region, *words)
            rows = reply[1][0][1][1][1] if reply[1] else []
            noted[0] = [QUEUE, self.region, values_of(rows)]
        for row in rows:
            if after == "0" or self.rng.random() < 0.8:
                self.ask(self.region, "XACK", QUEUE, GROUP, row[1][0][1])
        return len(rows)


class Run:
    """A cluster, its clients, its faults, and the history that comes of it."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        passes_tokens: bool = True,
        mistake: str | None = None,
    ) -> None:
        """`mistake`: one of :data:`MISTAKES` that all servers have."""
        self.seed = seed
        self.rng = random.Random(f"{seed} faults")
        self.passes_tokens = passes_tokens
        self.recorder = Recorder()
        self.over = threading.Event()
        self.cluster = RegionProcesses(directory, ["zone-a", "zone-b", "zone-c"], *SETTINGS)
        if mistake is not None:
            for each in self.cluster.servers:
                each.program = [sys.executable, "-c", MISTAKES[mistake] + _SERVE]
        self._values = itertools.count(1)
        self._steps = 0
        self._stepped = threading.Condition()
        self.done: list[str] = []

    def next_value(self) -> int:
        """A value that nobody else writes."""
        with self._stepped:
            return next(self._values)

    def count(self) -> None:
        """A session was answered."""
        with self._stepped:
            self._steps += 1
            self._stepped.notify_all()

    def let(self, steps: int) -> None:
        """Wait until the sessions had so many answers, or one of them has failed."""
        with self._stepped:
            until = self._steps + steps
            self._stepped.wait_for(lambda: self._steps >= until or self.over.is_set(), 60)

    def perform(self, faults: int, steps: int) -> Recorder:
        """Run everything, heal everything, and look at the end."""
        with self.cluster:
            first = self.cluster.servers[0]
            self.cluster.call(first, "XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM")
            wait_until(self.cluster.converged, "the group is known")
            consumers = [Consumer(self, region) for region in REGIONS]
            clients: list[Client] = [SessionClient(self, f"session{n}") for n in range(4)]
            clients += [Onlooker(self, "onlooker")]
            clients += [Sender(self, f"p{n}") for n in range(2)]
            clients += consumers
            for each in clients:
                each.start()
            self.let(steps)
            kinds = [self.cut_off, self.kill, self.pause_links, self.stop]
            for number in range(faults):
                kinds[number % len(kinds)](steps)
                self.let(steps // 2)
            self.over.set()
            for each in clients:
                each.join(60)
                if each.failure is not None:
                    raise each.failure
            self.cluster.heal()
            wait_until(self.cluster.converged, "all regions have applied the same", 60)
            self._look(consumers)
        return self.recorder

    # -- faults -------------------------------------------------------------------------------

    def kill(self, steps: int) -> None:
        """``kill -9``, and a start."""
        server = self.rng.choice(self.cluster.servers)
        server.kill()
        self.let(steps)
        server.start()
        self.done.append(f"kill -9 of {server.region}")

    def stop(self, steps: int) -> None:
        """SIGSTOP and SIGCONT."""
        server = self.rng.choice(self.cluster.servers)
        server.signal(signal.SIGSTOP)
        self.let(steps)
        server.signal(signal.SIGCONT)
        self.done.append(f"SIGSTOP of {server.region}")

    def pause_links(self, steps: int) -> None:
        """``AB.LINK PAUSE`` between two regions, both ways."""
        self._links(self.rng.sample(self.cluster.servers, 2), steps)

    def cut_off(self, steps: int) -> None:
        """One region alone."""
        self._links(self.rng.sample(self.cluster.servers, 3), steps)

    def _links(self, servers: list[RegionServer], steps: int) -> None:
        one, *others = servers
        for word in ("PAUSE", "RESUME"):
            for other in others:
                self.cluster.call(one, "AB.LINK", other.number, word)
                self.cluster.call(other, "AB.LINK", one.number, word)
            if word == "PAUSE":
                self.let(steps)
        self.done.append(f"{one.region} without {' and '.join(each.region for each in others)}")

    # -- the end ------------------------------------------------------------------------------

    def _look(self, consumers: Iterable[Consumer]) -> None:
        for consumer in consumers:
            consumer.caller.close()
            consumer.caller = Caller(self.cluster.servers, timeout=60)  # nothing is away any more
            for after in ("0", ">"):
                while consumer.read(after):
                    pass
            consumer.caller.close()
        for server in self.cluster.servers:
            process = self.recorder.new_process()
            for stream in [*STREAMS, MESSAGES, QUEUE]:
                self.recorder.note(process, "invoke", "final", [server.number, stream, None])
                reply = self.cluster.call(server, "XRANGE", stream, "-", "+")
                values = [server.number, stream, values_of(reply[1])]
                self.recorder.note(process, "ok", "final", values)


def values_of(rows: list[Reply]) -> list[int | str]:
    """The value of each entry: numbers where they were numbers."""
    read: Callable[[bytes], int | str] = lambda text: (  # noqa: E731
        int(text) if text.isdigit() else text.decode()
    )
    return [read(row[1][1][1][1][1]) for row in rows]
