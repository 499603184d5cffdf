"""A Region without sockets: commands in, decoded replies out, time under the test's control."""

from __future__ import annotations

import io
import random
from typing import Any

import hiredis

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.engine.host import HostRegions
from anabranch.engine.script_machine import ScriptMachine
from anabranch.engine.session import Session
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.region.region import Region
from anabranch.scripting import new_machine
from anabranch.server.cron import next_by_cron

__all__ = ["FakeClock", "FakeHost", "Harness", "ReplyError"]

ReplyError = hiredis.ReplyError


class FakeClock:
    """Wall-clock time that moves only when told to."""

    def __init__(self, now_ms: int) -> None:
        self.us = now_ms * 1000
        self.ticks = 0
        self.tick_ns = 1000  # that pass between one look at the clock and the next

    def now_us(self) -> int:
        return self.us

    def cpu_ns(self) -> int:
        """Nothing else works on this processor."""
        return self.ticks

    def ticks_ns(self) -> int:
        self.ticks += self.tick_ns
        return self.ticks


class MemoryDisk:
    """Keeps what is saved in memory: the bytes of a snapshot, no log."""

    def __init__(self) -> None:
        self.region: Region
        self.saved = b""
        self.begun: list[dict[str, bool]] = []
        self.is_logging = False
        self.end = 0
        self.synced_position = 0

    def position(self) -> int:
        return self.end

    def synced(self) -> int:
        return self.synced_position

    def save(self) -> None:
        self.saved = Snapshot(self.region.keyspace, Contents(1)).whole()

    def save_for(self) -> Inquiry:
        self.save()
        return Inquiry(is_done=True)

    def begin_save(self, *, rewrite: bool = False, schedule: bool = False) -> bool:
        self.begun.append({"rewrite": rewrite, "schedule": schedule})
        self.save()
        return True

    def reload(self, *, save: bool) -> None:
        if save:
            self.save()
        keyspace = Keyspace(len(self.region.keyspace.databases))
        for _ in load_snapshot(io.BytesIO(self.saved), "memory", keyspace):
            pass
        self.region.replace_contents(keyspace)

    def facts(self) -> dict[str, int | float | str]:
        return {"rdb_last_save_time": self.region.stats.started_ms // 1000}


class FakeHost:
    """Records what the core wishes from the outside."""

    def __init__(self) -> None:
        self.persistence = MemoryDisk()
        self.regions: HostRegions | None = None
        self.random = random.Random(1)
        self.logs: list[tuple[str, str, dict[str, object]]] = []
        self.closed: list[Session] = []
        self.slept: list[float] = []
        self.purges = 0
        self.shutdowns: list[dict[str, object]] = []
        self.acl_text = ""
        self.rewritten: list[list[bytes]] | None = None
        self.applied: list[str] = []
        self.machine: ScriptMachine | None = None

    def random_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    def random_below(self, bound: int) -> int:
        return self.random.randrange(bound)

    def next_by_cron(self, line: bytes, zone: bytes, after_ms: int) -> int | None:
        return next_by_cron(line, zone, after_ms)

    def script_machine(self) -> ScriptMachine:
        if self.machine is None:
            self.machine = new_machine(64 << 20)
        return self.machine

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logs.append((level, event, fields))
        mistake = fields.get("exc")
        if isinstance(mistake, Exception):
            raise mistake

    def close(self, session: Session) -> None:
        session.closing = True
        self.closed.append(session)

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        self.shutdowns.append({"save": save, "now": now, "force": force})

    def process_info(self) -> dict[str, object]:
        return {}

    def give_back_memory(self) -> None:
        self.purges += 1

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        self.rewritten = users

    def read_acl_file(self) -> str:
        return self.acl_text

    def write_acl_file(self, text: str) -> None:
        self.acl_text = text

    def apply_setting(self, name: str) -> None:
        self.applied.append(name)


class Harness:
    """One region; ``do`` runs a command on the default connection."""

    def __init__(
        self, now_ms: int = 1_700_000_000_000, *, resp3: bool = False, **settings: Any
    ) -> None:
        """``settings`` are attributes that are not as by default."""
        self.clock = FakeClock(now_ms)
        self.host = FakeHost()
        self.settings = Settings(**settings)
        self.region = Region(self.settings, self.clock, self.host, COMMANDS)
        self.host.persistence.region = self.region
        self.session = self.connect(resp3=resp3)

    def connect(self, *, resp3: bool = False) -> Session:
        """Another connection."""
        session = self.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
        if resp3:
            session.resp3 = True
            session.refresh()
        return session

    def raw(self, *args: object, session: Session | None = None) -> bytes:
        """Run a command; all bytes the connection got, in order (empty while it blocks)."""
        session = session or self.session
        self.region.execute(session, [[_bytes(arg) for arg in args]])
        self.settle()
        return self.received(session)

    def settle(self) -> None:
        """Let connections go on that were served."""
        while pending := list(self.region.channels.pending):
            self.region.channels.pending.clear()
            for session in pending:
                self.region.resume(session)

    def received(self, session: Session) -> bytes:
        """What a connection got since last asked."""
        data = b"".join(session.outbox)
        session.outbox.clear()
        return data

    def replies(self, session: Session) -> list[Any]:
        """The same, decoded."""
        return decode_all(self.received(session))

    def do(self, *args: object, session: Session | None = None) -> Any:
        """Run a command; its decoded reply. Error replies are raised; None while it blocks."""
        replies = decode_all(self.raw(*args, session=session))
        if not replies:
            return None
        if isinstance(replies[0], hiredis.ReplyError):
            raise replies[0]
        return replies[0]

    def error(self, *args: object, session: Session | None = None) -> str:
        """Run a command that must fail; the error text."""
        replies = decode_all(self.raw(*args, session=session))
        assert len(replies) == 1, replies
        assert isinstance(replies[0], hiredis.ReplyError), replies[0]
        return str(replies[0])

    def advance(self, ms: int) -> None:
        """Let time pass, and the server notice."""
        self.clock.us += ms * 1000
        self.region.tick()
        self.settle()

    def check(self) -> None:
        """Assert every invariant of every stream."""
        from anabranch.stream.stream import Stream

        for database in self.region.keyspace.databases:
            for value in database.values.values():
                if isinstance(value, Stream):
                    value.check()
        account = self.region.keyspace.account
        account.check([database.values for database in self.region.keyspace.databases])


def _bytes(arg: object) -> bytes:
    if isinstance(arg, bytes):
        return arg
    return str(arg).encode()


def decode_all(data: bytes) -> list[Any]:
    """Every reply in these bytes."""
    reader = hiredis.Reader()
    reader.feed(data)
    replies = []
    while (reply := reader.gets()) is not False:
        replies.append(reply)
    return replies
