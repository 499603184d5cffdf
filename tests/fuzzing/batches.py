"""Batches with valid checksums that were changed: refused, or applied as a whole.

    python -m tests.fuzzing.batches --cases 1000000

Random histories bring regions to where a unit of another region comes next. The unit is changed and
handed to the receiver of that region. A case fails if anything is raised but a refusal, if what was
refused has changed anything, if a stream breaks its promises or an entry is none afterwards, or if
memory runs out.
"""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

import hiredis
import msgspec
import pyzstd

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Member, Replica, region_of
from anabranch.oplog.batch import (
    COMPRESSED,
    Batch,
    Compressor,
    batch_pieces,
    decode_batch,
    pack,
)
from anabranch.oplog.snapshot import Contents, Snapshot, load_snapshot
from anabranch.region.region import Region
from anabranch.replication.frames import Refusal
from anabranch.replication.interface import Address, Local, ReplicationConfig, Transport
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession, Stage
from anabranch.replication.receiving import Receiver
from anabranch.stream.entry_id import text
from anabranch.stream.stream import Stream
from tests.active_active.elements import ElementHistory
from tests.active_active.histories import History
from tests.active_active.strings import StringHistory
from tests.fuzzing.mutations import changed_bytes, changed_tree
from tests.fuzzing.running import Outcomes, program
from tests.support.mesh import Node, Unit
from tests.support.region_harness import FakeClock, FakeHost

__all__ = ["run"]

HISTORIES: Final = (History, History, StringHistory, ElementHistory)

CASES_A_STAGE: Final = 200
"""With as many changes of one unit the next stage begins."""

STAGES_A_HISTORY: Final = 8

UNCHANGED_EVERY: Final = 50
"""Refusals behind which the whole state is compared with what it was."""

_LOOKS: Final = {
    *("xrange", "xlen", "xinfo", "xpending", "keys", "xadd", "ab.info", "ab.digest", "dump"),
}
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_COMMANDS: Final = [command for command in COMMANDS if command.name in _LOOKS]


class Moment(NamedTuple):
    """A region, and the unit that comes next there."""

    region: int
    settings: Settings
    clock_us: int
    state: bytes
    members: Mapping[int, Member]
    unit: Unit


@lru_cache(1)
def moments(seed: int) -> list[Moment]:
    """Where a history comes to."""
    found: list[Moment] = []
    taken = Node.receive

    def receive(self: Node, *units: Unit) -> None:
        for unit in units:
            look(self, unit)
            taken(self, unit)

    def look(self: Node, unit: Unit) -> None:
        if unit.fits(self.vector) and region_of(unit.replica_id) != self.number:
            state = Snapshot(self.region.keyspace, Contents(1)).whole()
            members = dict(self.replica.members)
            found.append(Moment(self.number, self.settings, self.clock.us, state, members, unit))

    while not found:
        Node.receive = receive  # type: ignore[method-assign]
        try:
            HISTORIES[seed % len(HISTORIES)](seed).run()
        except (AssertionError, hiredis.ReplyError):  # for histories to find
            found.clear()
        finally:
            Node.receive = taken  # type: ignore[method-assign]
        seed += 1
    return found


class _Local:
    """What a receiver needs of a region."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.addresses: dict[int, Address] = {}
        self.is_full = self.is_over = self.is_joining = False

    @property
    def replica(self) -> Replica:
        return self._target.replica

    @property
    def vector(self) -> Mapping[int, int]:
        return self._target.replica.vector

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        return None

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        self._target.region.merging.apply(units)

    def reopen(self, epoch: int) -> None:
        pass

    def note_addresses(self, addresses: Mapping[int, Address]) -> None:
        str(addresses)

    def report_event(self, event: str, **facts: object) -> None:
        str(facts)


class _Silence:
    """A transport over which nothing goes."""

    def send(self, link: int, frame: bytes) -> None:
        assert len(frame) < 1 << 20

    def close(self, link: int) -> None:
        pass


class Target:
    """A region at a stage."""

    def __init__(self, stage: Moment) -> None:
        self.stage = stage
        clock = FakeClock(stage.clock_us // 1000)
        self.host = FakeHost()
        self.region = Region(copy(stage.settings), clock, self.host, _COMMANDS)
        self.clock = clock
        for _ in load_snapshot(io.BytesIO(stage.state), "stage", self.region.keyspace):
            pass
        replica = self.region.replica
        self.replica: Replica = replica
        replica.members.update(stage.members)
        self.session = self.region.open_session("127.0.0.1:1", "127.0.0.1:2")
        self._fresh: tuple[Receiver, PeerSession] | None = None
        self.before = self.whole_snapshot()
        self.vector = dict(replica.vector)

    def whole_snapshot(self) -> bytes:
        """Everything."""
        return b"".join(Snapshot(self.region.keyspace, Contents(1)).bodies())

    def receive(self, batches: Sequence[bytes]) -> str:
        """Hand over batches of a link; what became of them."""
        if self._fresh is None:
            self._fresh = self._receiver()
        receiver, session = self._fresh
        try:
            for left, raw in zip(range(len(batches) - 1, -1, -1), batches, strict=True):
                if receiver.batch(session, raw, 0.0, more_follows=left > 0):
                    continue
                receiver.deliver(0.0)
                receiver.want(0.0)
                receiver.grant(session)
        except Refusal:
            return "refused"
        finally:
            if receiver.buffer or receiver.rejected or session.ungranted:
                self._fresh = None
        assert receiver.refused is None, receiver.refused
        if receiver.rejected:
            return "rejected"
        if self.replica.vector != self.vector:
            return "applied"
        return "waits" if receiver.buffer else "repeated"

    def _receiver(self) -> tuple[Receiver, PeerSession]:
        """A receiver with a link that is up, and has heard nothing yet."""
        config = ReplicationConfig("r", "h", 1, "run", lambda: self.clock.us // 1000)
        local = cast("Local", _Local(self))
        links = Links(local, cast("Transport", _Silence()), config, random.Random(1))
        replica_id = self.stage.unit.replica_id
        session = PeerSession(1, Stage.UP, None, 0.0)
        session.region, session.replica_id = region_of(replica_id), replica_id
        links.sessions[1] = session
        links.peer(session.region).session = session
        return Receiver(links), session

    def look(self, *, closely: bool) -> None:
        """Everything that is there is as it should be, and can be read."""
        reader = hiredis.Reader()
        for database in self.region.keyspace.databases:
            for key, value in [*database.values.items(), *database.remembered.items()]:
                is_there = key in database.values and key not in database.deadlines
                asks = closely and is_there and not database.index
                if asks:
                    self.ask(reader, [b"AB.INFO", key], [b"AB.DIGEST", key])
                if not isinstance(value, Stream):
                    for elements in value.shared.elements.values():
                        elements.check()
                    if asks:
                        self.ask(reader, [b"DUMP", key])
                    continue
                value.check()
                check_entries(value)
                if asks:
                    self.ask(reader, [b"XRANGE", key, b"-", b"+"],
                             [b"XINFO", b"STREAM", key, b"FULL"])  # fmt: skip
        if closely:
            self.clock.us += 60_000_000
            for _ in range(3):
                self.region.tick()
            state = Snapshot(self.region.keyspace, Contents(1)).whole()
            again = Keyspace(len(self.region.keyspace.databases))
            again.replica = Replica(self.replica.own, lambda: (100, 100))
            for _ in load_snapshot(io.BytesIO(state), "state", again):
                pass

    def ask(self, reader: hiredis.Reader, *commands: list[bytes]) -> None:
        self.region.execute(self.session, list(commands))
        reader.feed(b"".join(self.session.outbox))
        self.session.outbox.clear()
        for command in commands:
            reply = reader.gets()
            assert reply is not False, f"no reply to {command}"
            assert not isinstance(reply, hiredis.ReplyError), f"{command}: {reply}"
        assert reader.gets() is False


def check_entries(stream: Stream) -> None:
    """Every entry is what XADD would have written."""
    for log in stream.logs.values():
        for block in log.blocks:
            for low, high in block.runs(0, len(block.ids)):
                fragments = block.fragments(low, high)
                for entry_id, fragment in zip(block.ids[low:high], fragments, strict=True):
                    check_entry(text(entry_id), fragment)


def check_entry(shown: bytes, fragment: bytes) -> None:
    head = b"*2\r\n$%d\r\n%b\r\n*" % (len(shown), shown)
    assert fragment.startswith(head), fragment[:60]
    line = fragment.index(b"\r\n", len(head))
    count = int(fragment[len(head) : line])
    assert count > 0 == count % 2, fragment[:60]
    at = line + 2
    parts = [head, b"%d\r\n" % count]
    for _ in range(count):
        line = fragment.index(b"\r\n", at)
        size = int(fragment[at + 1 : line])
        parts.append(b"$%d\r\n%b\r\n" % (size, fragment[line + 2 : line + 2 + size]))
        at = line + 4 + size
    assert b"".join(parts) == fragment, fragment[:60]


# -- changes ----------------------------------------------------------------------------------


def changed(rng: random.Random, unit: Unit) -> list[bytes]:
    """The batches of a unit, changed."""
    raws = list(unit.batches)
    if rng.random() < 0.05:
        at = rng.randrange(len(raws) + 1)
        shuffles: list[list[bytes]] = [raws + raws, raws[::-1], raws[:at], raws[at:], raws * 3]
        return rng.choice(shuffles)
    at = rng.randrange(len(raws))
    for _ in range(1 if rng.random() < 0.9 else 3):
        raws[at] = changed_batch(rng, raws[at])
    return raws


def changed_batch(rng: random.Random, raw: bytes) -> bytes:
    """One batch, changed, with a checksum that fits."""
    try:
        batch = decode_batch(raw)
    except Exception:  # it was changed already
        return changed_bytes(rng, raw)
    header = {
        "region": batch.region,
        "epoch": batch.epoch,
        "first": batch.first,
        "count": batch.numbered,
        "wall_ms": batch.wall_ms,
        "flags": batch.flags & ~COMPRESSED,
    }
    tree: list[Any] = [batch.context, batch.effects]
    dice = rng.random()
    if dice < 0.7:
        body = _encode([batch.context, changed_tree(rng, batch.effects)])
    elif dice < 0.8:
        body = _encode(changed_tree(rng, tree))
    elif dice < 0.9:
        body = changed_bytes(rng, _encode(tree))
    else:
        body = _encode(tree)
    if rng.random() < 0.5 and header["flags"] >= 0:  # numbers that fit to what is there now
        header["count"] = _numbers_in(body, header["count"])
    if dice >= 0.95:
        name = rng.choice(list(header))
        bits = {"region": 8, "flags": 8, "epoch": 32, "count": 32}.get(name, 64)
        header[name] = changed_tree(rng, header[name])
        value = header[name] if type(header[name]) is int else rng.getrandbits(bits)
        header[name] = value & (1 << bits) - 1
    elif dice >= 0.9:
        body = squeezed(rng, body)
        header["flags"] |= COMPRESSED
    if rng.random() < 0.1 and not header["flags"] & COMPRESSED:
        packed, [body] = pack([body], Compressor())
        header["flags"] |= packed
    return b"".join(batch_pieces([body], **header))


def _numbers_in(body: bytes, otherwise: int) -> int:
    try:
        _, effects = _decode(body)
        return sum(len(each[5]) if each[0] == 7 else 1 for each in effects) & 0xFFFFFFFF
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, UnicodeDecodeError):
        return otherwise


def squeezed(rng: random.Random, body: bytes) -> bytes:
    """A compressed body, of some odd form."""
    whole = pyzstd.compress(body, 1)
    match rng.randrange(6):
        case 0:
            return pyzstd.compress(body, {pyzstd.CParameter.contentSizeFlag: 0})
        case 1:
            return whole + whole
        case 2:
            return changed_bytes(rng, whole)
        case 3:  # it says that it is long
            size = rng.choice([1 << 27, 1 << 31, 1 << 40, 1 << 62])
            return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + whole[6:]
        case 4:
            return BOMB
        case _:
            return whole


BOMB: Final = pyzstd.compress(bytes(200 << 20), 1)


def run(cases: range, seed: int, outcomes: Outcomes) -> None:
    """Some cases."""
    target: Target | None = None
    refusals = 0
    block = -1
    stage: Moment | None = None
    for case in cases:
        if stage is None or block != case // CASES_A_STAGE:
            block = case // CASES_A_STAGE
            some = moments(seed * 1_000_000 + block // STAGES_A_HISTORY)
            stage = random.Random(f"{seed} {block}").choice(some)
            target = None
        rng = random.Random(f"{seed} {case}")
        try:
            batches = changed(rng, stage.unit)
            if target is None:
                target = Target(stage)
                refusals = 0
            outcome = target.receive(batches)
            if outcome == "applied":
                target.look(closely=rng.random() < 0.2)
                target = None
            else:
                assert target.replica.vector == target.vector, "numbers were taken"
                refusals += 1
                if refusals % UNCHANGED_EVERY == 0 or case == cases[-1]:
                    assert target.whole_snapshot() == target.before, "something was changed before"
            outcomes.counts[outcome] += 1
        except Exception as problem:
            outcomes.failed(case, problem)
            target = None


if __name__ == "__main__":
    raise SystemExit(program(run, __doc__))
