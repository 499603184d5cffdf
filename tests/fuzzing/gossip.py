"""Frames between regions that were changed, or come when they should not.

    python -m tests.fuzzing.gossip --cases 1000000

A region has a link with another one that says what real regions have said to each other, changed:
with checksums and seals that fit, mostly. A case fails if anything is raised, if something is
applied that is no whole batch in its turn, if the region says what others cannot read, or if memory
runs out.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from typing import Any, Final

import msgspec

from anabranch.errors import AnabranchError
from anabranch.keyspace.equality import KeyDigests
from anabranch.keyspace.replica import Member
from anabranch.oplog.batch import SentBatch, decode_batch, sent_batch
from anabranch.replication import frames
from anabranch.replication.frames import Refusal
from anabranch.replication.framing import FrameType, checksum, framed
from anabranch.replication.handshake import proof_of
from anabranch.replication.sealing import Seal, keys_of
from tests.fuzzing.mutations import changed_bytes, changed_tree
from tests.fuzzing.running import Outcomes, program
from tests.support.counted_region import CountedRegion, batch_bytes
from tests.support.mesh import Mesh
from tests.support.replication_world import NAMES, World

__all__ = ["run"]

CASES_A_WORLD: Final = 500
SECRET: Final = b"s" * 32

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder().decode
_NAMED: Final = {each.value: each for each in FrameType}

Frame = tuple[int, bytes]
"""Type and body."""

Corpus = dict[int, list[bytes]]
"""Bodies by type."""


class Stopped(Exception):
    """The region has been told to stop, by another one that may do so."""


class Toy(CountedRegion):
    """A region that joins full syncs unchecked, and believes every status row."""

    @property
    def digests(self) -> KeyDigests:
        """Of contents of its own, which nobody changes."""
        if not hasattr(self, "_digests"):
            streams = Mesh(self.number)
            for key in ("a", "b", f"of {self.number}"):
                streams.nodes[self.number].do("XADD", key, "*", "f", str(self.number))
            self._digests = KeyDigests(streams.nodes[self.number].region.keyspace)
        return self._digests

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        try:
            batches, members, removed = msgspec.msgpack.decode(bytes(self.staged or b""))
            for _, raws in batches:
                for raw in raws:
                    decode_batch(raw)
            str((dict(members), dict(removed)))
        except Exception as problem:
            raise AnabranchError(f"the full sync is damaged: {problem}") from None
        finally:
            self.staged = None

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[SentBatch] | None:
        if after < self.cut.get(replica_id, 0):
            return None
        batches = map(sent_batch, self.batches.get(replica_id, ()))
        later = [batch for batch in batches if batch.last > after]
        return later[: 1 + max_bytes // 1000]

    def watermark_moved(self, vector: dict[int, int]) -> None:
        pass

    def _check_stable(self, batch: Any) -> None:
        pass

    def take_key(self, db: int, key: bytes) -> None:
        raise AnabranchError("counted contents have no keys")


def talk(seed: int) -> Corpus:
    """What region 2 says to others in a while in which everything happens once."""
    said: Corpus = defaultdict(list)

    def listen(source: int, target: int, frame: bytes) -> bytes:
        kind = frame[4]
        if source == 2 or kind in (FrameType.BYE, FrameType.MEMBERS, FrameType.DIFFERING):
            said[kind].append(frames.body_of(kind, frame[5:]))
        return frame

    world = World(seed)
    world.on_frame = listen
    one, two, three = world.cluster(3, digest_interval_ms=200.0)
    for node in (one, two, three):
        node.local.__class__ = Toy
    for node in (one, two, three):
        node.write(batches=3, effects=2)
    world.run(700)
    world.cut(1, 2)
    one.write(batches=2)
    two.write()
    world.run(600)
    world.heal()
    world.run(1000)
    three.crash(clean=True)
    one.write(batches=5)
    one.local.cut_log()
    two.local.cut_log()
    three.local.__class__ = Toy
    three.start()
    world.run(1500)
    late = world.region(4, join=[one.address])
    late.local.__class__ = Toy
    world.run(1500)
    two.replicator.verify(1, [(0, b"a"), (0, b"of 1")], world.now_ms)
    one.replicator.remove(late.number, force=True)
    world.run(1000)
    return said


class Duel:
    """A region, and another side that says anything."""

    def __init__(self, seed: int, corpus: Corpus, *, sealed: bool) -> None:
        self.rng = random.Random(seed)
        self.corpus = corpus
        self.secret = SECRET if sealed else b""
        self.world = World(seed)
        self.closed: set[int] = set()
        self.heard: list[bytes] = []
        self.up: tuple[int, Seal | None] | None = None
        self.links = 0
        self.one = self.world.region(1, secret=self.secret, digest_interval_ms=500.0)
        self.local = self.one.local
        self.local.__class__ = Toy
        members = {number: Member(NAMES[number], NAMES[number], number) for number in (1, 2, 3)}
        self.local.enter("c", members)
        self.one.wire.send = self._hear  # type: ignore[method-assign]
        self.one.wire.close = self.closed.add  # type: ignore[method-assign, assignment]
        self.one.wire.dial = self._dial  # type: ignore[method-assign]
        self.one.write(batches=2)

    def _hear(self, link: int, frame: bytes) -> None:
        """What our region says can be read."""
        self.heard.append(frame)
        session = self.one.replicator.links.sessions.get(link)
        if session is None or session.sealing is None:
            readable(frame)

    def _dial(self, host: str, port: int) -> None:
        self.one.replicator.sessions.dial_failed(host, port, self.world.now_ms, "nobody listens")

    def receive(self, link: int, kind: int, payload: bytes) -> None:
        self.one.replicator.receive(link, kind, payload, self.world.now_ms)

    def pass_time(self, ms: float) -> None:
        self.world.timeline.now_ms += ms
        self.one.replicator.tick(self.world.now_ms)
        if self.up is not None and self.up[0] in self.closed:
            self.up = None

    def next_link(self) -> int:
        self.links += 1
        return self.links

    def link(self) -> tuple[int, Seal | None]:
        """The number of a link that is up at our region, and the seal of the other side."""
        if self.up is not None and self.up[0] not in self.closed:
            return self.up
        link = self.next_link()
        self.closed.clear()
        self.heard.clear()
        version = 2 if self.secret else self.rng.choice([1, 2])
        epoch = max(0, self.one.replicator.links.membership.known_epoch(2))
        facts = frames.Hello(
            1, version, "c", 2, "us", epoch, f"run {self.links}", 1, frames.MODULUS, "us", 2, -1,
            self.rng.randbytes(32), has_secret=bool(self.secret),
        )  # fmt: skip
        hello = frames.packed(facts)
        self.one.replicator.sessions.link_up(link, self.world.now_ms, None)
        self._say(link, FrameType.HELLO, hello)
        welcome = self._heard(FrameType.WELCOME)
        theirs = frames.decode(frames.Welcome, welcome).facts
        proof = proof_of(self.secret, b"proof", hello, theirs)
        self._say(link, FrameType.PROOF, frames.packed(frames.Proof(proof)))
        if link in self.closed:
            raise Stopped
        self._heard(FrameType.SUB if not self.secret else FrameType.PROOF)
        seal = Seal(keys_of(self.secret, hello, theirs)[0]) if self.secret else None
        self.up = link, seal
        return self.up

    def _say(self, link: int, kind: FrameType, body: bytes) -> None:
        self.receive(link, kind, framed(kind, body)[5:])

    def _heard(self, kind: FrameType) -> bytes:
        for frame in self.heard:
            if frame[4] == kind:
                return frames.body_of(kind, frame[5:])
        if self.local.noted("set_back") or self.local.noted("removed"):
            raise Stopped
        raise AssertionError(f"no {kind.name} is said any more: {self.local.notes[-3:]}")

    def say(self, count: int) -> str:
        """Say so many things in a row; what became of it."""
        link, seal = self.link()
        before = state_of(self.local)
        for _ in range(count):
            kind, payload = self.frame(seal)
            self.receive(link, kind, payload)
            if link in self.closed:
                break
        after = state_of(self.local)
        if after != before:
            check_applied(before, after)
        outcome = "refused" if link in self.closed else "borne"
        if self.rng.random() < 0.1:
            self.pass_time(self.rng.choice([1, 50, 300]))
        return "applied" if after != before else outcome

    def greet(self) -> str:
        """Say things to a region that knows nothing of the other side yet."""
        link = self.next_link()
        dialled = self.rng.choice([None, None, ("us", 2)])
        self.one.replicator.sessions.link_up(link, self.world.now_ms, dialled)
        for _ in range(self.rng.randrange(1, 4)):
            kind, payload = self.frame(None, early=True)
            self.receive(link, kind, payload)
        if link in self.one.replicator.links.sessions:
            self.one.replicator.sessions.link_down(link, self.world.now_ms)
            return "greeted"
        return "turned away"

    # -- what is said -------------------------------------------------------------------------

    def frame(self, seal: Seal | None, *, early: bool = False) -> Frame:
        """Type and payload of the next thing that is said."""
        rng = self.rng
        kinds = [each for each in self.corpus if (each > FrameType.MEMBERS) != early]
        kind = rng.choice(kinds if rng.random() < 0.95 else list(self.corpus))
        body = rng.choice(self.corpus[kind])
        if kind == FrameType.BATCH or rng.random() < 0.1:
            kind, body = FrameType.BATCH, self.batch()
        dice = rng.random()
        if kind == FrameType.BATCH and dice < 0.7:
            dice = 1.0  # mostly it is one that fits: what follows finds more there
        if dice < 0.55 and kind not in (FrameType.BATCH, FrameType.FULL_SYNC):
            body = changed_message(rng, body)
        elif dice < 0.75:
            body = changed_bytes(rng, body)
        elif dice < 0.8:
            kind = rng.randrange(256)
        payload = body
        if kind != FrameType.BATCH:
            payload = checksum(kind, body) + body
        if rng.random() < 0.02:
            payload = changed_bytes(rng, payload)
        if seal is not None:
            sealed = seal.close(struct.pack("<IB", len(payload) + 1, kind) + payload)
            payload = sealed[5:]
            if rng.random() < 0.02:
                payload = changed_bytes(rng, payload)
        return kind, payload

    def batch(self) -> bytes:
        """A batch that may come next, or not."""
        rng = self.rng
        replica_id = rng.choice([2, 2, 2, 2, 3, 258, 1, 77])
        number = self.local.vector.get(replica_id, 0) + 1
        first = number if rng.random() < 0.7 else max(1, number + rng.randrange(-2, 4))
        edges = [(1, rng.randrange(4)), (3, rng.randrange(3))][: rng.randrange(3)]
        return batch_bytes(
            replica_id, first, rng.randrange(1, 4), dependencies=edges, continues=rng.random() < 0.1
        )


def changed_message(rng: random.Random, body: bytes) -> bytes:
    try:
        tree = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return changed_bytes(rng, body)
    if rng.random() < 0.2 and isinstance(tree, list):
        return _encode([changed_message(rng, each) if isinstance(each, bytes) else each
                        for each in tree])  # fmt: skip
    return _encode(changed_tree(rng, tree))


def state_of(local: CountedRegion) -> Any:
    """What a region has applied of others, by content and by number."""
    vector = {
        replica_id: number for replica_id, number in local.vector.items() if replica_id & 0xFF != 1
    }
    return {replica_id: list(local.batches[replica_id]) for replica_id in vector}, vector


def check_applied(before: Any, after: Any) -> None:
    """What was applied before is there, and behind it are whole batches without a gap."""
    for replica_id, raws in after[0].items():
        known = before[0].get(replica_id, [])
        assert raws[: len(known)] == known, f"what was applied of {replica_id} has changed"
        number = 0
        for raw in raws:
            batch = decode_batch(raw)
            assert batch.first == number + 1
            number = batch.last
        assert after[1][replica_id] == number


def readable(frame: bytes) -> None:
    """What a region says must be readable for others: AssertionError."""
    kind, payload = FrameType(frame[4]), frame[5:]
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    if kind in (FrameType.BATCH, FrameType.FULL_SYNC):
        return
    try:
        frames.decode(frames.STRUCTS[kind], frames.body_of(kind, payload))
    except Refusal as refusal:
        raise AssertionError(f"others cannot read what is said: {refusal}") from refusal


def run(cases: range, seed: int, outcomes: Outcomes) -> None:
    """Some cases."""
    corpus: Corpus = {}
    duel: Duel | None = None
    at = -1
    for case in cases:
        if at != case // CASES_A_WORLD:
            at = case // CASES_A_WORLD
            corpus = talk(seed * 1_000_000 + at) if not corpus or at % 20 == 0 else corpus
            duel = None
        try:
            if duel is None:
                duel = Duel(seed * 2_000_000 + case, corpus, sealed=bool(at % 2))
            dice = duel.rng.random()
            outcome = duel.greet() if dice < 0.15 else duel.say(1 if dice < 0.8 else 5)
            outcomes.counts[outcome] += 1
        except Stopped:  # by another region that may do so
            outcomes.counts["stopped"] += 1
            duel = None
        except Exception as problem:
            outcomes.failed(case, problem)
            duel = None


if __name__ == "__main__":
    raise SystemExit(program(run, __doc__))
