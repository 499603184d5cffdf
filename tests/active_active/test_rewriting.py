"""RENAME, COPY and RESTORE in slices: others change the stream meanwhile, and it is one moment."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.effects import rewriting
from anabranch.stream.stream import Stream
from tests.active_active.histories import History
from tests.support.mesh import Mesh, Node

SEEDS = (*range(12), 31, 96)  # the last two for what few find
HISTORIES = 12
STEPS_MAX = 1000


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is some thousand entries elsewhere is some here."""
    monkeypatch.setattr(rewriting, "LITTLE", 3)
    monkeypatch.setattr(rewriting, "RUN_ENTRIES_MAX", 6)


class Busy:
    """Two regions that change a stream while one of them writes it again, a step at a time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        uniqueness = self.rng.choice(["liberal", "strict"])
        self.mesh = Mesh(2, xadd_id_uniqueness_mode=uniqueness, stream_node_max_entries=4)
        self.one, self.two = self.mesh.nodes.values()
        self.next_ms = 1
        self.busy = self.rng.choice([0, 1, 3])
        self.keys = ["s"] if self.rng.random() < 0.7 else ["s", "t"]

    def change(self, node: Node) -> None:
        """Some client does something to the stream, or to the key that it is to get."""
        rng, key = self.rng, self.rng.choice(self.keys)
        dice = rng.random()
        if dice < 0.6:
            self.next_ms += rng.random() < 0.7
            node.ask(("XADD", key, f"{self.next_ms}-*", "f", rng.random()))
        elif dice < 0.75:
            ids = [entry[0] for entry in node.do("XRANGE", key, "-", "+")]
            node.ask(("XDEL", key, *rng.sample(ids, min(len(ids), 2))))
        elif dice < 0.9:
            node.ask(("XTRIM", key, "MAXLEN", rng.choice("~="), rng.randrange(10, 60)))
        elif dice < 0.95:
            self.exchange()
        elif dice < 0.97:
            node.ask(("DEL", key))
        else:
            node.ask(("XGROUP", "CREATE", key, f"g{rng.randrange(9)}", 0))

    def exchange(self) -> None:
        self.one.end_turn()
        self.mesh.settle()

    def begin(self) -> None:
        for _ in range(self.rng.randrange(10, 90)):
            self.change(self.one)
            if self.rng.random() < 0.3:
                self.change(self.two)
        self.exchange()

    def run(self, *words: object) -> tuple[Any, list[Any]]:
        """The reply, and what the source held at the moment at which it was carried out."""
        node = self.one
        region, other = node.region, node.session
        node.session = region.open_session("127.0.0.1:1", "127.0.0.1:2")
        session, node.session = node.session, other
        scheduler = region.scheduler
        scheduler.drive(lambda: None)  # every slice is over after one step
        held = node.do("XRANGE", "s", "-", "+")
        region.execute(
            session,
            [[str(word).encode() if not isinstance(word, bytes) else word for word in words]],
        )
        node.end_turn()
        for _ in range(STEPS_MAX):
            if session.outbox:
                break
            for _ in range(self.busy):
                self.change(self.rng.choice([self.one, self.one, self.two]))
            held = node.do("XRANGE", "s", "-", "+")
            assert session.sliced is not None
            scheduler.remove(session.sliced.go_on)
            session.sliced.go_on()
            node.end_turn()
        scheduler.deadline_ns = 1 << 63
        return b"".join(session.outbox), held

    def check(self) -> None:
        """Both regions hold the same, and so does the one after a restart."""
        for node in (self.one, self.two):
            while node.region.keyspace.deferred_free.sweep(lambda: False):
                pass
            for database in node.region.keyspace.databases:
                for value in [*database.values.values(), *database.remembered.objects.values()]:
                    assert type(value) is Stream
                    value.check()
                    for log in value.logs.values():
                        assert not any(block.shared for block in log.blocks)
        self.exchange()
        due = everything(self.one)
        assert everything(self.two) == due
        self.one.restart()
        assert everything(self.one) == due


def everything(node: Node) -> dict[bytes, Any]:
    return {key: (node.do("XRANGE", key, "-", "+"), counters(node, key)) for key in keys(node)}


def keys(node: Node) -> list[bytes]:
    return sorted(node.do("KEYS", "*"))


def counters(node: Node, key: bytes | str) -> list[Any]:
    info = node.do("XINFO", "STREAM", key)
    pairs = dict(zip(info[::2], info[1::2], strict=True))
    return [pairs[name] for name in (b"length", b"last-generated-id", b"entries-added")]


def renumbered(entries: list[Any]) -> Iterator[list[Any]]:
    """Of entries with equal IDs all but the first get the ID after that of the one before."""
    last = (0, 0)
    for entry_id, fields in entries:
        ms, seq = map(int, entry_id.split(b"-"))
        last = (ms, seq) if (ms, seq) > last else (last[0], last[1] + 1)
        yield [b"%d-%d" % last, fields]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_moment_although_others_go_on(seed: int) -> None:
    busy = Busy(seed)
    busy.begin()
    words = busy.rng.choice([("RENAME", "s", "t"), ("COPY", "s", "t", "REPLACE")])
    reply, held = busy.run(*words)
    if not held:
        assert reply[:1] == b"-" or reply == b":0\r\n" or keys(busy.one)
    else:
        assert reply in (b"+OK\r\n", b":1\r\n")
        assert busy.one.do("XRANGE", "t", "-", "+") == list(renumbered(held))
        if words[0] == "RENAME":
            assert b"s" not in keys(busy.one)
    busy.check()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_is_prepared_is_what_is_done_at_once(seed: int) -> None:
    History(500_000 + seed).run()


@pytest.mark.parametrize("others", [0, 2])
def test_a_quiet_stream_is_prepared_once_and_encoded_ahead(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is written to other keys meanwhile, which takes numbers and no positions."""
    busy = Busy(1)
    busy.busy = others
    monkeypatch.setattr(busy, "change", lambda _: busy.one.do("XADD", "other", "*", "f", "v"))
    for number in range(1, 100):
        busy.one.do("XADD", "s", f"{number}-1", "f", "v")
    busy.exchange()
    steps: list[int] = []
    turn = busy.one.turn
    encode = turn.encode_ahead

    def encode_ahead(effect: Any, **options: Any) -> None:
        steps.append(len(effect.ids))
        encode(effect, **options)

    busy.one.region.effects.encode_ahead = encode_ahead
    reply, _ = busy.run("COPY", "s", "t")
    assert reply == b":1\r\n"
    assert sum(steps) == 99
    assert len(steps) > 9
    unit = busy.one.missing({})[-1]
    assert len(unit.batches) == len(steps) + 1
    busy.check()


def test_a_client_that_goes_leaves_nothing_behind() -> None:
    busy = Busy(2)
    for number in range(1, 100):
        busy.one.do("XADD", "s", f"{number}-1", "f", "v")
    region = busy.one.region
    session = region.open_session("127.0.0.1:1", "127.0.0.1:2")
    region.scheduler.drive(lambda: None)
    region.execute(session, [[b"COPY", b"s", b"t"]])
    assert session.sliced is not None
    session.sliced.go_on()
    region.close_session(session)
    assert not region.keyspace.databases[0].remembered
    assert keys(busy.one) == [b"s"]
    busy.check()


@pytest.mark.parametrize("command", [("RENAME", "s", "t"), ("COPY", "s", "t")])
def test_the_greatest_deleted_id_goes_along(command: tuple[str, ...]) -> None:
    mesh = Mesh(2)
    one, _ = mesh.nodes.values()
    for ms in range(1, 4):
        one.do("XADD", "s", f"{ms}-*", "f", "v")
    ids = [entry[0] for entry in one.do("XRANGE", "s", "-", "+")]
    one.do("XDEL", "s", ids[1])
    one.do(*command)
    facts = one.do("AB.INFO", "t")
    assert facts[facts.index(b"max-deleted-entry-id") + 1] == ids[1]
