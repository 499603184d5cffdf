"""An XADD leaves the same, whoever looks on, and the same as its effect applied elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.effects import kinds
from anabranch.effects.apply import apply
from anabranch.effects.recorded import numbers_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from tests.support.recorder import everything_in
from tests.support.recording import Recording
from tests.support.streams import Streams

REGION = {"region_id": 3}


def additions(seed: int) -> list[str]:
    """Of few keys, some of which are deleted and made again, with nodes of few entries."""
    rng = random.Random(seed)
    lines = ["CONFIG SET stream-node-max-entries 5"]
    for _ in range(300):
        key = rng.choice("stu")
        fields = " ".join(
            f"f{n} {'v' * rng.choice((1, 3, 300, 3000))}"
            for n in range(rng.choice((1, 1, 2, 3, 4, 40)))
        )
        rule = rng.choice(("", "", "MAXLEN ~ 12 ", "MAXLEN 7 ", f"IDMP p {rng.randrange(9)} "))
        lines.append(f"XADD {key} {rule}* {fields}")
        if rng.random() < 0.05:
            lines.append(rng.choice((f"DEL {key}", f"XTRIM {key} MAXLEN 1")))
    return lines


def nobody(_: Streams, recorded: list[kinds.Effect]) -> None:
    """Nobody looks on."""


def a_log(server: Streams, recorded: list[kinds.Effect]) -> None:
    """Each effect is recorded."""
    server.region.effects.record = Recording(recorded)


def a_snapshot(server: Streams, recorded: list[kinds.Effect]) -> None:
    """Each effect is reported before it is applied."""
    server.region.watch_changes(recorded.append)


def a_subscriber(server: Streams, recorded: list[kinds.Effect]) -> None:
    """Keyspace events are published."""
    server.run("CONFIG SET notify-keyspace-events KEA")


def everybody(server: Streams, recorded: list[kinds.Effect]) -> None:
    """All of them."""
    a_log(server, recorded)
    a_snapshot(server, [])
    a_subscriber(server, recorded)


def after(
    seed: int, settings: dict[str, Any], onlooker: Callable[..., None]
) -> tuple[Streams, list[kinds.Effect]]:
    """A server after the additions, and what was noted of them."""
    server = Streams(**settings)
    recorded: list[kinds.Effect] = []
    onlooker(server, recorded)
    for at, line in enumerate(additions(seed)):
        server.clock.us += 1000 * (at % 3)
        server.run(line)
    server.check()
    return server, recorded


@pytest.mark.parametrize("settings", [{}, REGION], ids=["alone", "regional"])
@pytest.mark.parametrize("seed", range(3))
def test_who_looks_on_changes_nothing(seed: int, settings: dict[str, Any]) -> None:
    plain, _ = after(seed, settings, nobody)
    for onlooker in (a_log, a_snapshot, a_subscriber, everybody):
        watched, _ = after(seed, settings, onlooker)
        assert everything_in(watched.region.keyspace) == everything_in(plain.region.keyspace)
        assert watched.region.replica.vector == plain.region.replica.vector


@pytest.mark.parametrize("settings", [{}, REGION], ids=["alone", "regional"])
@pytest.mark.parametrize("seed", range(3))
def test_the_effects_of_additions_give_the_same_elsewhere(
    seed: int, settings: dict[str, Any]
) -> None:
    server, effects = after(seed, settings, a_log)
    assert any(type(each) is kinds.Add for each in effects)
    source = server.region.replica
    replica = Replica(source.own, source.default_limits)
    keyspace = Keyspace(len(server.region.keyspace.databases), replica)
    for effect in effects:
        if replica.is_regional and not effect.local:
            replica.begin_own()
            apply(keyspace, effect)
            replica.finish(effect, numbers_of(effect))
        else:
            apply(keyspace, effect)
    assert everything_in(keyspace) == everything_in(server.region.keyspace)
    assert replica.vector == source.vector
