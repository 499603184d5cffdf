"""One region by itself: the process of a machine, which only does what reaches it.

A :class:`RegionRun` gets inputs one after the other: a command, a frame, time. It returns what
leaves it: frames, dials, ended connections. Nothing else influences it, so equal inputs give equal
runs; :mod:`reactions` depends on this. After each input the invariants of one region are checked.

Inputs are tuples of a word and its arguments:

================= ==============================================================================
``start``         the process starts; true for the region that creates the cluster
``do``            a command of a client, as a tuple of words with places, see :mod:`script`
``up``            a connection was made: the other region, and whether this region has dialled
``down``          a connection has ended
``frame``         a frame of a connection has arrived: the connection, and its number
``failed``        the dial of a region has failed
``wait``          so many ms pass
``sync``          everything is synced; where disks are slow, what they were asked to sync
``snapshot``      a snapshot is taken
``kill``, ``stop``    the process ends
``crash``         the power fails: what stays of names, of writes, and whether one is torn
``lose-disk``     the machine gets an empty disk; which of its effects each other region has
================= ==============================================================================
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from anabranch.oplog.batch import is_local, sent_batch, wire_form
from anabranch.oplog.snapshot import Snapshot
from anabranch.replication.former_epochs import ANSWER_MS
from anabranch.replication.framing import FrameType
from anabranch.simulator import looking
from anabranch.simulator.checks import Checks
from anabranch.simulator.exploration.retry_checks import (
    check_answers,
    check_count,
    check_once,
    check_processed,
)
from anabranch.simulator.exploration.script import NotPossibleError, commands_of
from anabranch.simulator.machine import HOST, Machine
from anabranch.simulator.network import HEAD_BYTES, End, Network, Wire
from anabranch.simulator.record import RunRecord
from anabranch.simulator.timeline import Timeline
from anabranch.simulator.workload import Workload

if TYPE_CHECKING:
    from anabranch.simulator.exploration.script import SmallWorld
    from anabranch.simulator.machine import Process
    from anabranch.stream.stream import Stream

Input = tuple[Any, ...]

SNAPSHOT_MS: Final = 200
"""The longest time of a snapshot of a small region."""

LOG_FILES: Final = "log-"


class Frame(NamedTuple):
    """A frame on its way."""

    data: bytes
    facts: tuple[bytes, ...] = ()
    """Where it belongs to a full sync: all batches that its sender knew."""

    @property
    def kind(self) -> int:
        """Its type; see :class:`FrameType`."""
        return self.data[4]


@dataclass
class RegionOutput:
    """What leaves a region after an input."""

    frames: list[tuple[int, Frame | None]] = field(default_factory=list)
    """By connection, in their order; None is the end of the connection."""
    dials: list[int] = field(default_factory=list)
    """The regions to which a connection is wanted."""
    reply: object = None
    """Of a command."""


class _Fixed(random.Random):
    """Draws the first of all possibilities, so that nothing depends on chance."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]


class _Prefix(random.Random):
    """What a power failure leaves, by choice."""

    def __init__(self, names: int, kept: int, *, torn: bool) -> None:
        super().__init__(0)
        self._names = names
        self._kept = kept
        self._draws = [0.9, 0.1 if torn else 0.9]

    def random(self) -> float:
        """First whether there are holes (there are none), then whether a write is torn."""
        return self._draws.pop(0) if len(self._draws) > 1 else self._draws[0]

    def choice(self, seq: Any) -> Any:
        return seq[min(self._names, len(seq) - 1)]

    def randint(self, a: int, b: int) -> int:
        """How many writes stay, or how many bytes of a torn one: half of them."""
        if self._kept >= 0:
            return min(self._kept, b)
        return (a + b) // 2


class _Outbound(Network):
    """The network as one region sees it: what it sends is collected."""

    def __init__(self, timeline: Timeline, record: RegionRecord) -> None:
        super().__init__(timeline, _Fixed(0))
        self.output = RegionOutput()
        self._record = record

    def send(self, end: End, frame: bytes) -> None:
        """Collect a frame."""
        facts: tuple[bytes, ...] = ()
        if frame[4] == FrameType.BATCH:
            head = sent_batch(frame[HEAD_BYTES:])
            self._record.leaves(head.replica_id, head.last)
        elif frame[4] in (FrameType.FULL_SYNC_BEGIN, FrameType.KEYS):
            facts = tuple(self._record.batches)
        self.output.frames.append((end.number, Frame(bytes(frame), facts)))

    def carry(self, end: End, frame: bytes | None) -> None:
        """Collect the end of a connection."""
        assert frame is None
        self.output.frames.append((end.number, None))

    def dial(self, wire: Wire, host: str, port: int) -> None:
        """Collect a dial."""
        self.output.dials.append(port - self.first_port)


class RegionRecord(RunRecord):
    """The record of one region: the effects that it has made and received."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline)
        self.batches: dict[bytes, None] = {}
        """All batches in their wire form, in the order in which they came to be known."""

    def made(self, data: bytes) -> None:
        """A region has written a batch of its own."""
        super().made(data)
        if not is_local(data):
            self.batches[wire_form(data)] = None

    def arrives(self, raw: bytes) -> None:
        """A batch of another region is about to be applied."""
        self.learn([raw])

    def learn(self, batches: Iterable[bytes]) -> None:
        """Batches of others have become known, as effects or as a part of a full sync."""
        for raw in batches:
            if raw not in self.batches:
                super().made(raw)
                self.batches[raw] = None

    def lost(self, replica_id: int, after: int) -> None:
        """The region has lost its newest effects."""
        super().lost(replica_id, after)
        gone_after = max(after, self.left.get(replica_id, 0))
        for raw in list(self.batches):
            head = sent_batch(raw)
            if head.replica_id == replica_id and head.first > gone_after:
                del self.batches[raw]


@dataclass(frozen=True)
class Sight:
    """What the search must know of a region, once its state was reached."""

    is_up: bool = False
    is_member: bool = False
    """Whether it belongs to the cluster and has admitted itself to clients."""
    members: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    """The regions that were removed and have not joined again, as far as it knows."""
    linked: tuple[int, ...] = ()
    """The regions with a session that is up."""
    has_work: bool = False
    """Whether its disk has work that waits for ``sync``."""
    vector: tuple[tuple[int, int], ...] = ()
    """The applied effects; while no process runs, those that are certainly on the disk."""
    former: tuple[tuple[int, int, int], ...] = ()
    """If it has lost its disk: by other region, its former effects that this one had then."""
    is_young: bool = False
    """Whether it waits for all members; later it leaves out those that it cannot reach."""
    visible: bytes = b""
    """A digest of all data that must be equal in regions with the same vector."""
    is_comparable: bool = False
    """Whether the data belong to the vector: not while a full sync is joined."""
    leftover: str = ""
    """What it keeps although it need not after the faults; empty if nothing."""
    unsynced: tuple[int, int] = (0, 0)
    """Changes of the directory and writes to one file that are not on the disk."""


class RegionRun:
    """One region, from an empty disk on."""

    def __init__(self, number: int, world: SmallWorld) -> None:
        self.number = number
        self._world = world
        self._timeline = Timeline()
        self.record = RegionRecord(self._timeline)
        self._network = _Outbound(self._timeline, self.record)
        settings = copy(world.settings_of[number])
        self.machine = Machine(
            settings, self._timeline, self._network, self.record, _Fixed(number), _nothing
        )
        self.machine.work_ms = self.machine.late_ms = (0,)
        self.machine.secret = ""
        self.machine.commands = world.commands
        self._work = Workload(_Fixed(0), _Fixed(0), _Fixed(0))
        self._work.mode = settings.xadd_id_uniqueness_mode
        self._work.conflict = settings.idmp_conflict
        self._work.keys = list(world.keys)
        self._work.copies = world.copies
        self.checks = Checks([self.machine], self.record, self._work)
        self.checks.configured = world.forgets_tags
        self._links = 0
        self._former: tuple[tuple[int, int, int], ...] = ()
        self._is_held = world.holds_disk

    # -- inputs -------------------------------------------------------------------------------

    def put(self, given: Input, frames: Sequence[Frame]) -> RegionOutput:
        """Let something happen; returns what leaves the region.

        Raises :class:`Violation`, or what the code raises; :class:`NotPossibleError` if a place in
        a command stands for nothing.
        """
        output = self._network.output = RegionOutput()
        name, *rest = given
        if name == "frame":
            self._frame(rest[0], frames[rest[1]])
        else:
            getattr(self, "_" + name.replace("-", "_"))(*rest)
        self._timeline.run_until(self._timeline.now_ms)
        process = self.machine.process
        if process is not None:
            self.checks.scan(process)
        return output

    def _start(self, creates: bool) -> None:
        others = [each for each in self._world.numbers if each != self.number]
        self.machine.seeds = [(HOST, self._network.port(each)) for each in others]
        self.machine.start(found=creates)
        if self.machine.process is not None:
            self.machine.process.driver.is_held = self._is_held

    def _do(self, words: tuple[bytes, ...]) -> None:
        process = self._process()
        commands = commands_of(words, process, self._work)

        def act() -> None:
            for given in commands:
                self._network.output.reply = self.checks.command(process, given)

        process.happen(act)

    def _up(self, other: int, is_dialled: bool) -> None:
        process = self._process()
        self._links += 1
        process.wire.ends[self._links] = End(self._links, process.wire)
        address = (HOST, self._network.port(other)) if is_dialled else None
        process.link_up(self._links, address)

    def _down(self, link: int) -> None:
        process = self._process()
        process.wire.ends.pop(link, None)
        process.link_down(link)

    def _frame(self, link: int, frame: Frame) -> None:
        self.record.learn(frame.facts)
        process = self._process()
        if link in process.wire.ends:
            process.frame(link, frame.data)

    def _failed(self, other: int) -> None:
        self._process().dial_failed(HOST, self._network.port(other), "no answer")

    def _wait(self, ms: float) -> None:
        self._timeline.run_until(self._timeline.now_ms + ms)

    def _sync(self) -> None:
        process = self._process()
        if self._is_held:
            process.driver.finish_work()
        else:
            process.happen(process.durability.sync_all)

    def _snapshot(self) -> None:
        process = self._process()
        count = process.core.persistence.snapshots.count
        process.happen(process.begin_snapshot)
        until_ms = self._timeline.now_ms + SNAPSHOT_MS
        while (
            process.core.persistence.snapshots.count == count and self._timeline.now_ms < until_ms
        ):
            self._timeline.run_until(self._timeline.now_ms + 1)

    def _kill(self) -> None:
        self.machine.kill()

    def _stop(self) -> None:
        self.machine.stop()

    def _crash(self, names: int, kept: int, torn: bool) -> None:
        chance, self.machine.chance = self.machine.chance, _Prefix(names, kept, torn=torn)
        self.machine.lose_power()
        self.machine.chance = chance

    def _lose_disk(self, former: tuple[tuple[int, int, int], ...]) -> None:
        self.machine.lose_disk()
        self._former = former

    def _process(self) -> Process:
        process = self.machine.process
        if process is None:
            raise NotPossibleError
        return process

    # -- what there is to see -----------------------------------------------------------------

    @property
    def links(self) -> int:
        """The number of the newest connection."""
        return self._links

    @property
    def streams(self) -> Mapping[bytes, Stream]:
        """The streams of its process, by key."""
        return looking.streams(self._process().region.keyspace)

    def check_formulas(self) -> None:
        """Compare the data with what the formulas compute from the applied effects."""
        process = self.machine.process
        if process is not None and not process.is_joining:
            self.checks.compare_with_formulas(process)
            if self._knows_tags:
                check_answers(process, self.record, self._world.keys)

    @property
    def _knows_tags(self) -> bool:
        """Whether it is known exactly which idempotent IDs a region remembers."""
        return not (self._world.copies or self._world.forgets_tags)

    def finish(self, acknowledged: Mapping[Any, set[Any]]) -> None:
        """Check a region that has all effects, and read its groups to their ends.

        ``acknowledged`` is what clients of all regions have acknowledged.
        """
        process = self.machine.process
        if process is None:
            return
        self.record.acknowledged_under.update(acknowledged)
        self.checks.finish([process])
        if self._knows_tags:
            check_count(process, self.record, self._world.keys)
        if self._world.is_once:
            check_once(process, self.record)
        self.checks.drain(process)
        check_processed(process, self.record)

    def sight(self) -> Sight:
        """What the search must know."""
        machine = self.machine
        process = machine.process
        unsynced = machine.disk.unsynced(LOG_FILES)
        if process is None:
            return Sight(vector=tuple(sorted(machine.has().items())), unsynced=unsynced)
        replica = process.replica
        return Sight(
            is_up=True,
            is_member=bool(replica.cluster_id) and not process.exchange.gate.is_newcomer,
            members=tuple(sorted(replica.members)),
            removed=tuple(sorted(replica.removed.keys() - replica.members.keys())),
            linked=tuple(
                sorted(
                    peer.region
                    for peer in process.exchange.peers()
                    if peer.connected_ms is not None
                )
            ),
            has_work=process.driver.is_waiting,
            vector=tuple(sorted(replica.vector.items())),
            former=self._former,
            is_young=self._timeline.now_ms - process.began_ms < ANSWER_MS,
            visible=_digest(looking.equal(process.region.keyspace)),
            is_comparable=not process.is_joining and not process.durability.broken,
            leftover=self.checks.leftover(process) or "",
            unsynced=unsynced,
        )

    def digest(self) -> bytes:
        """A digest of everything on which the future of the region depends."""
        machine = self.machine
        parts: list[Any] = [self._timeline.now_ms, self._links, *self._observed()]
        process = machine.process
        if process is None:
            files = sorted(machine.disk.files().items())
            parts += [files, machine.boots, machine.disk.boot, machine.due]
        else:
            parts += [*_contents(process), *_exchanged(process)]
            if self._world.keeps_order:
                parts.append(machine.disk.pending())
        return _digest(parts)

    def _observed(self) -> list[Any]:
        """What the checks remember."""
        record = self.record
        return [
            sorted(record.promised.items()),
            sorted(record.left.items()),
            sorted((dot, sorted(some)) for dot, some in record.acknowledged_under.items()),
            sorted(map(xxh3_64_intdigest, record.batches)),
            self.checks.remembered(),
            list(self._work.payloads),
            self._former,
        ]


def _nothing(_: object) -> None:
    pass


def _contents(process: Process) -> list[Any]:
    """The data, and how much of them is on the disk."""
    keyspace = process.region.keyspace
    contents = process.core.persistence._contents()  # noqa: SLF001
    bodies = Snapshot(keyspace, contents, None, keeps_last_effects=True).bodies()
    log = process.log
    return [
        looking.everything(keyspace),
        [xxh3_64_intdigest(body) for body in bodies if body],
        log.end - log.synced,
        sorted(process.exchange.local.durable.items()),
        len(process.durability.replies._held),  # noqa: SLF001
        sorted(process.machine.disk.names()),
        process.driver.is_waiting,
        sorted(process.replica.removed.items()),
        sorted(keyspace.databases[0].policies.bound),
    ]


def _exchanged(process: Process) -> list[Any]:
    """What the exchange with other regions remembers."""
    replicator = process.replicator
    links, receiver, gossip = replicator.links, replicator.receiver, replicator.gossip
    incoming = receiver.joiner.incoming
    return [
        [_session(each) for _, each in sorted(links.sessions.items())],
        sorted((region, repr(row)) for region, row in links.rows.rows.items()),
        sorted((o, list(some.items())) for o, some in links.rows._vouched.items()),  # noqa: SLF001
        sorted(
            (o, [xxh3_64_intdigest(each.raw) for each in held])
            for o, held in receiver.buffer._held.items()  # noqa: SLF001
        ),
        sorted(receiver.relays.items()),
        sorted((o, each.session.link, each.reach) for o, each in receiver._fetching.items()),  # noqa: SLF001
        sorted(receiver._progress.items()),  # noqa: SLF001
        None
        if incoming is None
        else (incoming.session.link, incoming.transfer, incoming.bytes, str(incoming.vector)),
        sorted(receiver.joiner._behind),  # noqa: SLF001
        gossip._version,  # noqa: SLF001
        sorted(gossip.watermark.items()),
        process.exchange.gate.is_newcomer,
        replicator.caught_up,
        links.is_set_back,
        links.is_expelled,
    ]


_OF_SESSION: Final = attrgetter(
    *("link", "stage.name", "region", "replica_id", "subscribed", "position", "credit", "window"),
    *("full_sync_credit", "ungranted", "full_sync_ungranted", "row_sent_ms", "heard_ms", "stamp"),
    "in_sync",
)


def _session(session: Any) -> list[Any]:
    outgoing = session.outgoing
    return [
        *_OF_SESSION(session),
        len(session.unechoed),
        session.choosing is not None,
        None if outgoing is None else outgoing.sent,
        sorted((region, repr(row)) for region, row in session.rows_sent.items()),
    ]


def _digest(value: object) -> bytes:
    return xxh3_128_digest(repr(value).encode())
