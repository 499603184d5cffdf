"""Policies of streams with real processes that are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.inspection import wait_until
from tests.support.killing import killing
from tests.support.servers import AnabranchServer, server_in
from tests.system.test_policies import client_of, set_policy, taken


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnabranchServer]:
    with server_in(tmp_path) as one:
        yield one


# -- auto-create-group --------------------------------------------------------------------------


def test_a_killed_server_makes_groups_again_after_all_was_flushed(server: AnabranchServer) -> None:
    with client_of(server) as r:
        set_policy(r, "jobs:1", "auto-create-group", "g:0")
        assert taken(r, "ann") == []
        r.flushall()
    server.kill()
    server.start()
    with client_of(server) as r:
        first = r.xadd("jobs:1", {"f": "v"})
        assert taken(r, "ann") == [first]
    server.kill()
    server.start()
    with client_of(server) as r:
        assert [row["message_id"] for row in r.xpending_range("jobs:1", "g", "-", "+", 9)] == [
            first
        ]
        r.execute_command("AB.POLICY", "DEL", "jobs:1")
        r.delete("jobs:1")
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            taken(r, "ann")


def test_workers_in_three_regions_begin_before_there_is_anything() -> None:
    with Cluster("eu", "us", "asia") as regions:
        clients = [client_of(each) for each in regions]
        set_policy(clients[0], "PATTERN", "jobs:*", "auto-create-group", "g:0")

        def is_made(client: redis.Redis) -> bool:
            try:
                return taken(client, "ann") == []
            except redis.ResponseError:  # the rule is not there yet
                return False

        for each in clients:
            wait_until(partial(is_made, each), "the reader has made the group")
        entry_id = clients[1].xadd("jobs:1", {"f": "v"})
        for each in clients:
            wait_until(partial(_gets, each, entry_id), "the entry is read")
            each.close()


def _gets(client: redis.Redis, entry_id: Any) -> bool:
    return taken(client, "ann") == [entry_id]


# -- retention ----------------------------------------------------------------------------------


def test_a_killed_server_keeps_what_is_not_acknowledged_and_no_more(
    server: AnabranchServer,
) -> None:
    """Killed at random moments while a producer, a worker and retention are at work."""
    acknowledged: set[str] = set()
    added: list[Any] = []
    with client_of(server) as r:
        r.xgroup_create("jobs:1", "g", mkstream=True)
        r.config_set("stream-node-max-entries", 10)
        set_policy(r, "jobs:1", "max-length", "20", "exact", "yes", "keep", "unacked")
    rng = random.Random(7)
    for _ in range(4):
        with client_of(server) as r, killing(server, rng.randint(3, 9)) as step:
            while True:
                step()
                added += [r.xadd("jobs:1", {"n": n}) for n in range(10)]
                for entry_id in [*taken(r, "c", count=12), *_some_pending(r, rng)]:
                    acknowledged.add(entry_id)  # before: the server may die between both
                    r.xack("jobs:1", "g", entry_id)
        server.start()
    with client_of(server) as r:
        left = [entry_id for entry_id, _ in entries_of(r)]
        assert set(added) - acknowledged <= set(left)
        while some := [*_some_pending(r, rng), *taken(r, "c")]:
            r.xack("jobs:1", "g", *some)
        wait_until(lambda: r.xlen("jobs:1") == 20, "the limit holds")


def entries_of(client: redis.Redis) -> list[Any]:
    found: list[Any] = client.execute_command("XRANGE", "jobs:1", "-", "+")
    return found


def _some_pending(client: redis.Redis, rng: random.Random) -> list[Any]:
    rows = client.xpending_range("jobs:1", "g", "-", "+", 100)
    return [row["message_id"] for row in rows if rng.random() < 0.9]


def test_three_regions_hold_one_limit() -> None:
    with Cluster("eu", "us", "asia") as regions:
        clients = [client_of(each) for each in regions]
        set_policy(clients[0], "jobs:1", "max-length", "50", "exact", "yes")
        for n in range(300):
            clients[n % 3].xadd("jobs:1", {"n": n})

        def agree() -> bool:
            first, *others = [entries_of(each) for each in clients]
            return len(first) <= 50 and all(each == first for each in others)

        wait_until(agree, "all regions have the same entries, and no more than the limit")
        assert len(entries_of(clients[0])) > 0
        for each in clients:
            each.close()


# -- AB.SEAL ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rewrites", [False, True])
def test_a_killed_server_has_its_seals(server: AnabranchServer, rewrites: bool) -> None:
    with client_of(server) as r:
        r.xadd("answer", {"token": "yes"})
        if rewrites:
            r.save()
        assert r.execute_command("AB.SEAL", "answer") == 1
        if rewrites:
            r.save()
    server.kill()
    server.start()
    with client_of(server) as r:
        with pytest.raises(redis.ResponseError, match=r"^SEALED"):
            r.xadd("answer", {"token": "more"})
        r.delete("answer")
        assert r.xadd("answer", {"token": "again"})


def test_a_reader_in_another_region_sees_the_end() -> None:
    with Cluster("eu", "us", "asia") as regions:
        eu, us, asia = (client_of(each) for each in regions)
        eu.xadd("answer", {"token": "yes"})
        wait_until(lambda: us.exists("answer") == 1, "us has the stream")
        ((cursor, entries, notes),) = us.execute_command(
            "AB.READ", "NOTES", "STREAMS", "answer", "0"
        ).values()
        assert (len(entries), notes) == (1, [])
        asked = threading.Event()

        def wait() -> None:
            with client_of(list(regions)[1]) as reader:
                asked.set()
                words = ("AB.READ", "NOTES", "BLOCK", "0", "STREAMS", "answer", cursor)
                replies.append(reader.execute_command(*words))

        replies: list[Any] = []
        thread = threading.Thread(target=wait)
        thread.start()
        asked.wait()
        eu.execute_command("AB.SEAL", "answer")
        thread.join()
        assert replies == [{"answer": [cursor, [], [["end"]]]}]
        wait_until(lambda: _is_sealed(asia), "asia has the seal")
        for each in (eu, us, asia):
            each.close()


def _is_sealed(client: redis.Redis) -> bool:
    info: dict[str, int] = client.execute_command("AB.INFO", "answer")
    return info["sealed"] == 1


# -- gaps ---------------------------------------------------------------------------------------


def test_a_killed_server_tells_a_slow_reader_exactly_what_was_removed(
    server: AnabranchServer,
) -> None:
    with client_of(server) as r:
        r.config_set("stream-node-max-entries", 10)
        for n in range(100):
            r.xadd("jobs:1", {"n": n})
        cursor, entries, notes = _noted(r, "0", "COUNT", 30)
        assert (len(entries), notes) == (30, [])
        set_policy(r, "jobs:1", "max-length", "40", "exact", "yes")
        wait_until(lambda: r.xlen("jobs:1") == 40, "the limit holds")
        r.xdel("jobs:1", *(entry_id for entry_id, _ in entries_of(r)[:5]))
    server.kill()
    server.start()
    with client_of(server) as r:
        _, entries, notes = _noted(r, cursor)
        assert notes == [["gap", 31, 65]]
        assert [fields["n"] for _, fields in entries] == [str(n) for n in range(65, 100)]


def _noted(client: redis.Redis, cursor: str, *options: Any) -> tuple[str, list[Any], list[Any]]:
    """Cursor, entries, notes."""
    words = ("AB.READ", "NOTES", *options, "STREAMS", "jobs:1", cursor)
    after, entries, notes = client.execute_command(*words)["jobs:1"]
    shown = [
        (entry_id, dict(zip(flat[::2], flat[1::2], strict=True))) for entry_id, flat in entries
    ]
    return after, shown, notes
