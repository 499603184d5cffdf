"""Frames between regions that were changed, or come when they should not.

    python -m tests.fuzzing.gossip --cases 1000000

A region has a link with another one that says what real regions have said to each other, changed:
with checksums and seals that fit, mostly. A case fails if anything is raised, if something is
applied that is no whole batch in its turn, if the region says what others cannot read, or if memory
runs out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any, Final

import msgspec

from anabranch.errors import AnabranchError
from anabranch.keyspace.equality import Digests
from anabranch.oplog.batch import decode_batch, span
from anabranch.replication import frames
from anabranch.replication.frames import FrameType, Refusal
from anabranch.replication.peer import Session, Stage
from anabranch.replication.sealing import Seal
from tests.fuzzing.mutations import changed_bytes, changed_tree
from tests.fuzzing.running import Outcomes, program
from tests.support.mesh import Mesh
from tests.support.replication_world import Node, ToyRegion, World, batch_bytes

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


class Toy(ToyRegion):
    """A region that joins states as they are, and believes what rows tell."""

    @property
    def digests(self) -> Digests:
        """Of contents of its own, which nobody changes."""
        if not hasattr(self, "_digests"):
            streams = Mesh(self.number)
            for key in ("a", "b", f"of {self.number}"):
                streams.nodes[self.number].do("XADD", key, "*", "f", str(self.number))
            self._digests = Digests(streams.nodes[self.number].region.keyspace)
        return self._digests

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        try:
            batches, members, removed = msgspec.msgpack.decode(bytes(self.staged or b""))
            for _, raws in batches:
                for raw in raws:
                    decode_batch(raw)
            str((dict(members), dict(removed)))
        except Exception as problem:
            raise AnabranchError(f"the state is damaged: {problem}") from None
        finally:
            self.staged = None

    def read(self, origin: int, after: int, max_bytes: int) -> list[bytes] | None:
        if after < self.cut.get(origin, 0):
            return None
        later = [raw for raw in self.batches.get(origin, ()) if span(raw).last > after]
        return later[: 1 + max_bytes // 1000]

    def stable(self, vector: dict[int, int]) -> None:
        pass

    def _check_stable(self, batch: Any) -> None:
        pass

    def take_key(self, db: int, key: bytes) -> None:
        raise AnabranchError("toys have no keys")


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
    """A region, and a link over which the other side says anything."""

    def __init__(self, seed: int, corpus: Corpus) -> None:
        self.rng = random.Random(seed)
        self.corpus = corpus
        self.world = World(seed)
        secret = SECRET if seed % 2 else b""
        self.one, self.two, _ = self.world.cluster(3, secret=secret, digest_interval_ms=500.0)
        for node in self.world.nodes.values():
            node.local.__class__ = Toy
        self.world.cut(1, 3)
        self.world.cut(2, 3)
        self.world.delay_ms[frozenset((1, 2))] = 0.0  # what the other side says itself comes first
        self.one.write(batches=2)
        self.two.write(batches=2)
        self.world.run(300)
        self.world.on_frame = self._watch
        self.next = self.two.local.vector[2] + 1

    def _watch(self, source: int, target: int, frame: bytes) -> bytes:
        """What our region says can be read; the puppet says nothing of its own."""
        if source == 1:
            readable(frame, self._sealed(self.one))
        return frame

    def _sealed(self, node: Node) -> bool:
        return any(each.sealing is not None for each in node.replicator._mesh.sessions.values())

    def session(self, node: Node) -> Session | None:
        sessions = node.replicator._mesh.sessions.values()
        return next((each for each in sessions if each.stage is Stage.UP), None)

    def link(self) -> tuple[int, Seal | None]:
        """The number of a link that is up at our region, and the seal of the other side."""
        for _ in range(40):
            ours, theirs = self.session(self.one), self.session(self.two)
            if ours is not None and theirs is not None:
                return ours.link, theirs.sealing
            if not self.one.halves or not self.two.halves:
                self.world.dialled(self.two, self.one.address)
            self.world.run(25)
        for local in (self.one.local, self.two.local):
            if local.noted("set_back") or local.noted("removed"):
                raise Stopped
        raise AssertionError(f"no link comes up any more: {self.one.local.notes[-3:]}")

    def say(self, count: int) -> str:
        """Say so many things in a row; what became of it."""
        rng = self.rng
        link, seal = self.link()
        self.world.run(0.001)
        before = state_of(self.one.local)
        applied: list[bytes] = []
        for _ in range(count):
            kind, payload = self.frame(seal)
            if kind == FrameType.BATCH:
                applied.append(payload)
            self.one.replicator.receive(link, kind, payload, self.world.now_ms)
            if link not in self.one.halves:
                break
        after = state_of(self.one.local)
        if after != before:
            self.check_applied(before, after)
        if rng.random() < 0.1:
            self.world.run(rng.choice([1, 60, 300]))
        outcome = "refused" if link not in self.one.halves else "borne"
        return "applied" if after != before else outcome

    def check_applied(self, before: Any, after: Any) -> None:
        for origin, raws in after[0].items():
            known = before[0].get(origin, [])
            assert raws[: len(known)] == known, f"what was applied of {origin} has changed"
            number = 0
            for raw in raws:
                batch = decode_batch(raw)
                assert batch.first == number + 1
                number = batch.last
            assert after[1][origin] == number

    def greet(self) -> str:
        """Say things to a region that knows nothing of the other side yet."""
        world, node, rng = self.world, self.one, self.rng
        number = world._next_link()
        dialled = rng.choice([None, None, self.two.address])
        node.replicator.link_up(number, world.now_ms, dialled)
        for _ in range(rng.randrange(1, 4)):
            kind, payload = self.frame(None, early=True)
            node.replicator.receive(number, kind, payload, world.now_ms)
        if number in node.replicator._mesh.sessions:
            node.replicator.link_down(number, world.now_ms)
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
        if dice < 0.55 and kind not in (FrameType.BATCH, FrameType.STATE):
            body = changed_message(rng, body)
        elif dice < 0.75:
            body = changed_bytes(rng, body)
        elif dice < 0.8:
            kind = rng.randrange(256)
        payload = body
        if kind != FrameType.BATCH:
            payload = frames._checksum(kind, body) + body
        if rng.random() < 0.02:
            payload = changed_bytes(rng, payload)
        if seal is not None:
            sealed = seal.close(frames._HEAD.pack(len(payload) + 1, kind) + payload)
            payload = sealed[5:]
            if rng.random() < 0.02:
                payload = changed_bytes(rng, payload)
        return kind, payload

    def batch(self) -> bytes:
        """A batch that may come next, or not."""
        rng = self.rng
        origin = rng.choice([2, 2, 2, 2, 3, 258, 1, 77])
        number = self.one.local.vector.get(origin, 0) + 1
        first = number if rng.random() < 0.7 else max(1, number + rng.randrange(-2, 4))
        edges = [(1, rng.randrange(4)), (3, rng.randrange(3))][: rng.randrange(3)]
        return batch_bytes(
            origin, first, rng.randrange(1, 4), dependencies=edges, continues=rng.random() < 0.1
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


def state_of(local: ToyRegion) -> Any:
    """What a region has applied of others, by content and by number."""
    vector = {origin: number for origin, number in local.vector.items() if origin & 0xFF != 1}
    return {origin: list(local.batches[origin]) for origin in vector}, vector


def readable(frame: bytes, sealed: bool) -> None:
    """What a region says must be readable for others: AssertionError."""
    kind, payload = frame[4], frame[5:]
    if sealed and kind not in (FrameType.HELLO, FrameType.WELCOME):
        return
    name = FrameType(kind)
    if name in (FrameType.BATCH, FrameType.STATE):
        return
    struct = frames._STRUCTS[name]
    try:
        frames.decode(struct, frames.body_of(kind, payload))
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
                duel = Duel(seed * 1_000_000 + case, corpus)
            dice = duel.rng.random()
            outcome = duel.greet() if dice < 0.15 else duel.say(1 if dice < 0.8 else 5)
            outcomes.counts[outcome] += 1
        except Stopped:
            outcomes.counts["stopped"] += 1
            duel = None
        except Exception as problem:
            outcomes.failed(case, problem)
            duel = None


if __name__ == "__main__":
    raise SystemExit(program(run, __doc__))
