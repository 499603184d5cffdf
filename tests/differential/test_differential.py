"""Our server against Redis 7.0 on random commands, and the machinery against itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.compare import Pair, Versions, report
from tests.differential.exceptions import DIFFERENCES
from tests.differential.generator import Command, Episode, Generator, consumers_are_settled
from tests.differential.run import Total, compare_seed
from tests.support.servers import AnabranchServer, RedisServer

COMMANDS_PER_SEED = 10_000


def told(total: Total) -> str:
    """All that was found, for a message."""
    return "\n\n".join([*map(report, total.found.values()), total.summary()])


@pytest.fixture(scope="module")
def against_redis(redis_server: RedisServer, anabranch_server: AnabranchServer) -> Iterator[Pair]:
    """Redis and our server."""
    with Pair(redis_server.port, anabranch_server.port) as pair:
        yield pair


@pytest.fixture(scope="module")
def redis_twice(redis_server: RedisServer, second_redis_server: RedisServer) -> Iterator[Pair]:
    """Redis and Redis."""
    with Pair(redis_server.port, second_redis_server.port, Versions.SAME) as pair:
        yield pair


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_replies_equal_those_of_redis(against_redis: Pair, seed: int) -> None:
    total = Total()
    compare_seed(against_redis, seed, COMMANDS_PER_SEED, total, most_kinds=8)
    assert not total.found, told(total)
    assert total.compared > COMMANDS_PER_SEED // 2, total.summary()


def test_redis_equals_itself(redis_twice: Pair) -> None:
    """What is masked suffices, and nothing that is sent depends on chance."""
    total = Total()
    compare_seed(redis_twice, 101, 20_000, total)
    assert not total.found, told(total)
    assert total.skipped == 0


class _Altered(Pair):
    """The second server says of a stream with three entries that it has four."""

    def replies(self, episode: Episode) -> list[list[bytes]]:
        old, new = super().replies(episode)
        for at, command in enumerate(episode.commands):
            if command.args[0].upper() == b"XLEN" and new[at] == b":3\r\n":
                new[at] = b":4\r\n"
        return [old, new]


def test_a_planted_difference_is_found_and_shrunk(
    redis_server: RedisServer, second_redis_server: RedisServer
) -> None:
    total = Total()
    with _Altered(redis_server.port, second_redis_server.port, Versions.SAME) as pair:
        compare_seed(pair, 7, 20_000, total)
    assert list(total.found) == ["XLEN | value"]
    (mismatch,) = total.found.values()
    commands = [command.args for command in mismatch.episode.commands]
    assert mismatch.reproduced
    assert commands[-1][0].upper() == b"XLEN"
    assert len(commands) <= 4, report(mismatch)
    assert "Redis: 3" in report(mismatch)
    assert "ours:  4" in report(mismatch)
    assert "seed 7" in report(mismatch)


def test_a_difference_inside_a_transaction_is_found(
    redis_server: RedisServer, second_redis_server: RedisServer
) -> None:
    class Altered(Pair):
        def replies(self, episode: Episode) -> list[list[bytes]]:
            old, new = super().replies(episode)
            return [old, [raw.replace(b"stream", b"stroll") for raw in new]]

    words = ("XADD s 1-1 f v", "MULTI", "XLEN s", "TYPE s", "EXEC")
    commands = tuple(Command(tuple(line.encode().split())) for line in words)
    episode = Episode(0, 0, 3, (), False, commands)
    with Altered(redis_server.port, second_redis_server.port, Versions.SAME) as pair:
        found = pair.run(episode).mismatch
    assert found is not None
    assert found.command.args == (b"TYPE", b"s")
    assert found.signature == "EXEC of TYPE | value"


def test_equal_seeds_give_equal_episodes() -> None:
    first, second = Generator(5), Generator(5)
    assert [first.episode(n) for n in range(3)] == [second.episode(n) for n in range(3)]
    assert Generator(5).episode(0) != Generator(6).episode(0)


def test_consumers_are_settled_in_every_episode() -> None:
    for seed in range(5):
        generator = Generator(seed)
        assert all(consumers_are_settled(generator.episode(n).commands) for n in range(5))


def test_each_difference_has_a_name_and_a_reason() -> None:
    names = [difference.name for difference in DIFFERENCES]
    assert len(set(names)) == len(names)
    assert all(difference.reason.endswith(".") for difference in DIFFERENCES)
