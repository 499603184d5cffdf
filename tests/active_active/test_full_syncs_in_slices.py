"""A full sync of many keys is joined in slices of time; clients see joined keys only."""

from __future__ import annotations

import random
from contextlib import nullcontext
from typing import Any

import pytest

from anabranch.effects import join
from anabranch.engine.session import Session
from anabranch.node import full_syncs
from anabranch.scheduling import in_one_go
from anabranch.simulator import looking
from tests.active_active.test_partial_full_syncs import digests, twin_of
from tests.support.mesh import Mesh, Node
from tests.support.packing import packing_at_once

KEYS = 12
LINES = (
    "XADD {k} * f {n}",
    "XADD {k} * f {n}",
    "XADD {k} IDMP p {n} * f v",
    "XADD {k} MAXLEN 2 * f {n}",
    "XDEL {k} {id}",
    "XTRIM {k} MAXLEN 1",
    "XGROUP CREATE {k} g 0 MKSTREAM",
    "XGROUP DESTROY {k} g",
    "XREADGROUP GROUP g c COUNT 2 STREAMS {k} >",
    "XREADGROUP GROUP g c COUNT 2 STREAMS {k} 0",
    "XACK {k} g {id}",
    "XSETID {k} {id}",
    "EXPIRE {k} 1000",
    "DEL {k}",
    "DEL {k}",
    "DEL {k} {k2}",
    "RENAME {k} {k2}",
    "XCFGSET {k} IDMP-MAXSIZE 5",
)
LOOKS = (
    "XRANGE {k} - +",
    "XINFO STREAM {k} FULL",
    "XPENDING {k} g",
    "EXISTS {k} {k2}",
    "XREAD STREAMS {k} {k2} 0 0",
    "PTTL {k}",
    "AB.DIGEST {k}",
)


def line(rng: random.Random, lines: tuple[str, ...], ids: list[str]) -> list[str]:
    """A random command."""
    words = {
        "k": f"key:{rng.randrange(KEYS)}",
        "k2": f"key:{rng.randrange(KEYS)}",
        "n": str(rng.randrange(5)),
        "id": rng.choice(ids[-20:] or ["1-1"]),
    }
    return rng.choice(lines).format(**words).split()


def act(node: Node, rng: random.Random, ids: list[str], count: int) -> None:
    """Random changes; errors are part of it."""
    for _ in range(count):
        node.clock.us += rng.randrange(3) * 1000
        (reply,) = node.ask(line(rng, LINES, ids))
        if isinstance(reply, bytes) and b"-" in reply:
            ids.append(reply.decode())


def parted(rng: random.Random, ids: list[str], count: int) -> tuple[Mesh, Node, Node]:
    """Three regions with a common past; the first two have changed since, the third as well."""
    mesh = Mesh(3)
    for _ in range(4):
        for node in mesh.nodes.values():
            act(node, rng, ids, count)
        mesh.settle()
    one, two, three = mesh.nodes.values()
    act(three, rng, ids, count)
    mesh.exchange([1, 3])
    act(one, rng, ids, count)
    act(two, rng, ids, count)
    two.sync()
    return mesh, one, two


def drive(node: Node) -> None:
    """From now on every slice is over after one step."""
    node.clock.tick_ns = 1_500_000
    node.region.scheduler.drive(lambda: None)


def facts(node: Node) -> tuple[Any, Any]:
    return digests(node.region.keyspace), looking.everything(node.region.keyspace)


@pytest.mark.parametrize("seed", range(40))
def test_it_comes_to_the_same_as_a_join_in_one_go(seed: int) -> None:
    rng = random.Random(seed)
    ids: list[str] = []
    with packing_at_once() if seed % 2 else nullcontext():
        mesh, one, two = parted(rng, ids, 10)
        is_partial = seed % 4 < 2
        state = one.whole_snapshot(
            in_one_go(one.replica.last_effects.beyond(two.vector)) if is_partial else None
        )
        twin = twin_of(two)
        twin.join(state, one, partial=is_partial)
        assert not twin.local.is_joining
        drive(two)
        two.join(state, one, partial=is_partial)
        # Conflicts of idempotent IDs are resolved at the end, so later effects get other numbers.
        numbers_agree = two.vector == twin.vector
        slices = 0
        while two.local.is_joining:
            for _ in range(rng.randrange(4)):
                words = line(rng, LINES + LOOKS, ids)
                assert repr(two.ask(words)) == repr(twin.ask(words)), words
            two.region.scheduler.run_turn()
            slices += 1
        assert slices > 3
        two.end_turn()
        if numbers_agree:
            assert facts(two) == facts(twin)
        two.sync()
        assert facts(twin_of(two)) == facts(two), "what recovery makes of the log"

        two.clock.tick_ns = 1
        mesh.settle()
        mesh.settle()
        found = [digests(node.region.keyspace) for node in mesh.nodes.values()]
        assert found[0] == found[1] == found[2]


def joining(seed: int = 1) -> tuple[Mesh, Node, Node]:
    """The second region joins a full sync of the first one, and has begun to."""
    mesh, one, two = parted(random.Random(seed), [], 20)
    drive(two)
    two.join(one.whole_snapshot(), one)
    assert two.local.is_joining
    return mesh, one, two


def run(node: Node, session: Session, *lines: str) -> None:
    """Run requests of a connection, one in each slice, as far as they can run."""
    region = node.region
    region.execute(session, [line.encode().split() for line in lines])
    for _ in lines:
        region.resume(session)


def finish(node: Node) -> None:
    """Let turns pass until the join is over, and who waited for it has got replies."""
    while node.local.is_joining:
        node.region.scheduler.run_turn()
    for _ in range(3):
        pending = list(node.region.channels.pending)
        node.region.channels.pending.clear()
        for session in pending:
            node.region.resume(session)
        node.region.scheduler.run_turn()


@pytest.mark.parametrize(
    "words",
    [
        "DBSIZE",
        "KEYS *",
        "RANDOMKEY",
        "AB.TOKEN",
        "COPY key:1 copy DB 1",
        "EVAL return(1) 0 ",
        "FLUSHDB",
    ],
)
def test_requests_that_may_see_other_keys_wait(words: str) -> None:
    _, _, two = joining()
    run(two, two.session, words, "PING")
    assert two.session.outbox == []
    other = two.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    run(two, other, "PING", "XLEN key:1", "CLIENT ID")
    assert len(other.outbox) == 3
    assert two.local.is_joining
    finish(two)
    two.region.resume(two.session)
    assert len(two.session.outbox) == 2


def test_a_transaction_is_queued_and_waits_with_exec() -> None:
    _, _, two = joining()
    run(two, two.session, "MULTI", "XLEN key:1", "EXEC")
    assert two.session.outbox == [b"+OK\r\n", b"+QUEUED\r\n"]
    finish(two)
    assert len(two.session.outbox) == 3
    assert two.session.outbox[-1].startswith(b"*1\r\n:")


def test_a_blocked_reader_is_served_at_the_end() -> None:
    _, one, two = parted(random.Random(3), [], 10)
    one.do("XADD", "new", "*", "f", "v")
    reader = two.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    two.region.execute(reader, [[b"XREAD", b"BLOCK", b"0", b"STREAMS", b"new", b"0"]])
    drive(two)
    two.join(one.whole_snapshot(), one)
    assert two.local.is_joining
    two.do("EXISTS", "new")
    assert reader.outbox == []
    finish(two)
    assert len(reader.outbox) == 1


@pytest.mark.parametrize(
    "words", ["FLUSHALL", "DEL key:1", "XADD key:1 * f v", "XADD new * f v", "EXPIRE key:2 1000"]
)
@pytest.mark.parametrize("steps", [0, 1, 5, 40])
def test_what_changes_while_keys_are_looked_for_is_in_the_full_sync(words: str, steps: int) -> None:
    with packing_at_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(full_syncs, "PLACES_A_STEP", 1)
        mesh, one, two = parted(random.Random(5), [], 20)
        choosing = one.local.choose(dict(two.vector))
        for _ in range(steps):
            next(choosing)
        one.do(*words.split())
        places = in_one_go(choosing)
        assert (places is None) == (words == "FLUSHALL")
        state = b"".join(one.local.full_sync(places))
        two.join(state, one, partial=places is not None)
        mesh.settle()
        mesh.settle()
        found = [digests(node.region.keyspace) for node in mesh.nodes.values()]
        assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("by_request", [False, True])
def test_a_mistake_stops_the_server_and_nobody_sees_half_of_the_data(by_request: bool) -> None:
    _, _, two = joining()
    logged: list[str] = []

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "renew_producers", fail)
        patch.setattr(two.host, "log", lambda _, event, **__: logged.append(event))
        if by_request:
            left = next(iter(two.region.merging._joining._join._theirs.databases[0].values))
            run(two, two.session, f"XLEN {left.decode()}")
        for _ in range(3):
            two.region.scheduler.run_turn()
    assert logged == ["region.join_failed"]
    assert [each["save"] for each in two.host.shutdowns] == [False]
    run(two, two.session, "XLEN key:1", "DBSIZE")
    assert two.session.outbox == []
    two.restart()
    assert not two.local.is_joining, "a start joins it from the log"


@pytest.mark.parametrize(
    "words",
    ["XREAD", "XREAD STREAMS", "XREAD COUNT 1 key:1 0", "XREADGROUP GROUP g c STREAMS key:1",
     "XADD key:1", "DEL", "XINFO STREAM", "XGROUP CREATE", "MEMORY USAGE", "OBJECT ENCODING"],
)  # fmt: skip
def test_a_malformed_request_gets_its_error_and_harms_nobody(words: str) -> None:
    _, _, two = joining()
    run(two, two.session, words)
    assert two.local.is_joining
    assert two.host.shutdowns == []
    assert [reply[:1] for reply in two.session.outbox] == [b"-"]


def test_time_waits_too() -> None:
    _, _, two = joining()
    two.do("XADD", "short", "*", "f", "v")
    two.do("PEXPIRE", "short", 10)
    two.clock.us += 20_000
    deletions = len(two.issued)
    two.tick()
    assert len(two.issued) == deletions
    finish(two)
    two.tick()
    assert len(two.issued) == deletions + 1


def test_an_effect_that_arrives_meanwhile_joins_the_rest_first() -> None:
    mesh, _, two = joining()
    mesh.send(1, 3)
    mesh.nodes[3].do("XADD", "late", "*", "f", "v")
    mesh.send(3, 2)
    assert not two.local.is_joining
    assert two.do("XLEN", "late") == 1
    two.sync()
    assert facts(twin_of(two)) == facts(two)


@pytest.mark.parametrize("what", ["a snapshot", "a full sync"])
def test_what_needs_all_keys_joins_the_rest_at_once(what: str) -> None:
    mesh, _, two = joining()
    if what == "a snapshot":
        two.snapshot()
    else:
        mesh.begin_full_sync(2, 3)
    assert not two.local.is_joining
    assert not two.region.scheduler.is_exclusive
    two.sync()
    assert facts(twin_of(two)) == facts(two)
