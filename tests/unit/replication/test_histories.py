"""Random lives of whole meshes: everything that may break breaks, then all is healed.

At every step :mod:`tests.support.replication_world` asserts order, gaps, causes, and that nothing
is stable before it is on every disk, or met by something that does not know of it. At the end all
members must have the same, nothing may be half-way, and only heartbeats are sent.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.support.replication_world import World

HISTORIES = int(os.environ.get("ANABRANCH_HISTORIES", "40"))
HEAL_MS = 60_000


def live(seed: int, reached: Counter[str], steps: int = 60) -> World:
    """One history; the world as it is when all is healed."""
    chance = random.Random(seed)
    world = World(seed)
    count = chance.choice([2, 3, 3, 4])
    limits: dict[str, Any] = chance.choice([{}, {"window_bytes": 1500, "hold_bytes": 4000}])
    if chance.random() < 0.3:
        limits = {**limits, "secret": b"s3"}
    world.cluster(count, **limits)
    lossy = chance.random() < 0.3
    crashing = chance.random() < 0.5
    always = chance.random() < 0.3
    for node in world.nodes.values():
        node.local.always = always

    def damage(source: int, target: int, frame: bytes) -> bytes | None:
        if chance.random() < 0.003:
            at = chance.randrange(4, len(frame))
            reached["damaged"] += 1
            return frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
        return frame

    world.on_frame = damage if lossy else None

    def pair() -> tuple[int, int]:
        one, two = chance.sample(sorted(world.nodes), 2)
        return one, two

    def wake(number: int) -> None:
        node = world.nodes[number]
        if not node.alive:
            node.start()

    for _ in range(steps):
        world.run(chance.choice([0, 1, 5, 20, 60, 300, 1500]))
        alive = [node for node in world.nodes.values() if node.alive]
        what = chance.random()
        if what < 0.55 and alive:
            node = chance.choice(alive)
            if node.replicator.caught_up or node.local.vector:
                node.write(
                    batches=chance.choice([1, 1, 1, 4]),
                    effects=chance.randint(1, 3),
                    size=chance.choice([5, 50, 400]),
                )
        elif what < 0.65:
            world.cut(*pair(), silently=chance.random() < 0.4)
        elif what < 0.72:
            world.heal(*pair())
        elif what < 0.80 and alive:
            chance.choice(alive).local.sync()
        elif what < 0.86 and alive:
            chance.choice(alive).local.cut_log()
        elif what < 0.90:
            world.delay_ms[frozenset(pair())] = chance.choice([0, 1, 50, 400])
        elif what < 0.93:
            world.bytes_per_ms[frozenset(pair())] = chance.choice([2, 20, 1e9])
        elif what < 0.95 and alive:
            node = chance.choice(alive)
            node.local.trouble = OSError("full") if node.local.trouble is None else None
        elif crashing and alive:
            node = chance.choice(alive)
            clean = chance.random() < 0.3
            reached["clean stop" if clean else "crash"] += 1
            node.crash(clean=clean)
            world.after(chance.choice([10, 1000, 9000]), partial(wake, node.number))
    world.run(10_000)
    heal(world, reached)
    return world


def heal(world: World, reached: Counter[str]) -> None:
    world.on_frame = None
    world.heal()
    world.bytes_per_ms.clear()
    for number in sorted(world.nodes):
        node = world.nodes[number]
        node.local.trouble = None
        if not node.alive:
            node.start()
    world.run_until(world.converged, HEAL_MS)
    world.sync_all()
    world.run_until(world.is_settled, HEAL_MS)
    world.run(15_000)  # everybody has dialled everybody by then
    for node in world.nodes.values():
        for event, _ in node.local.notes:
            reached[event] += 1
        facts = node.replicator.facts(world.now_ms)
        reached["fetches"] += int(facts["fetches"])
        reached["duplicates"] += int(facts["duplicates"])
        reached["joins"] += node.local.joins
        assert not facts["held_bytes"]
        assert facts["peers_in_sync"] == len(world.nodes) - 1
        assert node.local.watermark == node.local.vector
    world.frames.clear()
    world.run(3000)
    assert {name for _, _, name in world.frames} == {"ROW"}


def test_every_history_ends_well_and_all_cases_occur() -> None:
    reached: Counter[str] = Counter()
    for seed in range(HISTORIES):
        try:
            live(seed, reached)
        except Exception as problem:
            raise AssertionError(f"history {seed}: {problem}") from problem
    if HISTORIES >= 40:
        rare = {"relay", "relay_ended", "joins", "fetches", "crash", "clean stop", "duplicates",
                "damaged", "not_applied", "unreachable", "caught_up"}  # fmt: skip
        assert not {case for case in rare if not reached[case]}, reached


@pytest.mark.parametrize("seed", range(5))
def test_both_sides_may_be_behind_each_other(seed: int) -> None:
    chance = random.Random(seed)
    world = World(seed)
    nodes = world.cluster(3, window_bytes=chance.choice([1000, 8 << 20]))
    world.run(500)
    for pair in [(1, 2), (1, 3), (2, 3)]:
        world.cut(*pair)
    for _ in range(chance.randint(3, 30)):
        chance.choice(nodes).write(size=100)
        world.run(10)
    for node in nodes:
        node.local.cut_log()
    for _ in range(chance.randint(0, 5)):
        chance.choice(nodes).write()
    world.heal()
    heal(world, Counter())
    assert sum(node.local.joins for node in nodes) >= 2


@pytest.mark.parametrize("seed", range(12))
def test_regions_come_and_go_while_others_write(seed: int) -> None:
    chance = random.Random(seed)
    world = World(seed)
    world.cluster(2, secret=b"s")
    world.run(chance.choice([0, 300]))
    for _ in range(chance.randint(0, 10)):
        chance.choice(list(world.nodes.values())).write()
        world.run(chance.choice([0, 30]))
    for node in world.nodes.values():
        if chance.random() < 0.5:
            node.local.cut_log()
    for number in (3, 4):
        seeds = chance.sample([node.address for node in world.nodes.values()], 2)
        world.region(number, secret=b"s", join=seeds)
        world.run(chance.choice([0, 20, 500]))
    for _ in range(30):
        node = chance.choice(list(world.nodes.values()))
        if node.replicator.caught_up:
            node.write()
        if chance.random() < 0.15:
            world.cut(*chance.sample([1, 2, 3, 4], 2))
        if chance.random() < 0.3:
            node.local.sync()
        world.run(chance.choice([5, 50, 500]))
    world.heal()
    world.run_until(lambda: all(len(n.local.members) == 4 for n in world.nodes.values()))
    heal(world, Counter())

    gone = chance.choice([3, 4])
    world.cut(1, gone)
    world.nodes[gone].write()
    world.run(chance.choice([0, 3, 300]))
    world.nodes[2].replicator.remove(gone, force=True)
    world.nodes[2].replicator.appended(world.now_ms)
    world.run(chance.choice([0, 100, 3000]))
    world.nodes[gone].write()
    del world.nodes[gone]
    world.cuts.clear()
    for _ in range(10):
        node = chance.choice(list(world.nodes.values()))
        node.write()
        if chance.random() < 0.5:
            node.local.sync()
        world.run(chance.choice([5, 50, 500]))
    heal(world, Counter())
    assert all(gone not in node.local.members for node in world.nodes.values())
