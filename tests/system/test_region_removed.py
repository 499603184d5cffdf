"""A region that was removed while it was away: it is told, writes no more, and is salvaged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.inspection import mistakes, wait_until
from tests.support.servers import AnabranchServer, free_port, regions_in, server_in


def client_of(server: AnabranchServer) -> Any:
    return redis.Redis(port=server.port, decode_responses=True, protocol=3)


def states(client: Any) -> dict[str, str]:
    return {row["name"]: row["state"] for row in client.execute_command("AB.PEERS")}


def are(client: Any, wanted: str, count: int) -> Callable[[], bool]:
    """Whether so many others are in a state."""
    return lambda: list(states(client).values()).count(wanted) == count


def has(client: Any, count: int) -> Callable[[], bool]:
    return lambda: client.xlen("s") == count


def state(client: Any, region: int) -> str:
    rows = client.execute_command("AB.REGION", "LIST")
    return next((row["state"] for row in rows if row["region"] == region), "unheard of")


class Partition:
    """Three regions; the third was cut off, went on writing, and was removed."""

    def __init__(self, directory: Path) -> None:
        self.servers = regions_in(directory, "eu", "us", "ap")
        self.eu, self.us, self.ap = map(client_of, self.servers)
        for client in (self.eu, self.us, self.ap):
            wait_until(are(client, "in_sync", 2), "in sync")

    def part(self) -> None:
        self.shared = self.ap.xadd("s", {"by": "ap", "n": 0})
        self.ap.wait(2, 60_000)
        for other in ("eu", "us"):
            self.ap.execute_command("AB.LINK", other, "PAUSE")
        for client in (self.eu, self.us):
            wait_until(are(client, "unreachable", 1), "ap is missed")
        self.only_there = [self.ap.xadd("s", {"by": "ap", "n": n}) for n in range(1, 251)]
        self.ap.xdel("s", self.only_there[100])
        self.ap.xadd("t", {"f": "v"}, id="5-*")
        self.ap.select(3)
        self.ap.xadd("u", {"f": b"\x00\xff"})
        self.ap.select(0)
        self.ap.xgroup_create("s", "only there", "0")
        self.eu.xadd("s", {"by": "eu"})
        self.eu.execute_command("AB.REGION", "REMOVE", "ap", "FORCE")
        wait_until(lambda: state(self.us, 3) == "removed", "all know that it is removed")

    def heal(self) -> None:
        for other in ("eu", "us"):
            self.ap.execute_command("AB.LINK", other, "RESUME")
        wait_until(lambda: refused(self.ap), "ap was told")


def refused(client: Any) -> bool:
    try:
        client.xadd("after", {"f": "v"})
    except redis.ReadOnlyError as refusal:
        return "region 3 was removed from the cluster" in str(refusal)
    return False


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Partition]:
    made = Partition(tmp_path)
    made.part()
    yield made
    for client in (made.eu, made.us, made.ap):
        client.close()


def gossip_of(server: AnabranchServer) -> str:
    """Where other regions reach it."""
    return f"127.0.0.1:{server.extra[server.extra.index('--gossip-port') + 1]}"


def test_a_removed_region_is_told_and_only_read_from_then_on(
    parted: Partition, tmp_path: Path
) -> None:
    parted.heal()
    assert parted.ap.xlen("s") == 250, "reads go on"
    parted.ap.xread({"s": "0"})
    assert parted.eu.exists("t", "after") == 0
    assert parted.eu.xlen("s") == 2, "nothing of it is taken"
    assert parted.us.xlen("s") == 2
    log = parted.servers[2].log_text()
    assert log.count('"region.removed"') == 1
    # A restart remembers it, also when nobody is there to tell.
    for server in parted.servers:
        server.kill()
    again = parted.servers[2].start()
    with client_of(again) as client:
        assert refused(client)
        assert client.xlen("s") == 250
    assert not mistakes(again)
    newcomer = server_in(
        tmp_path, "--region-id", "4", "--gossip-port", str(free_port()), "--join", gossip_of(again)
    )
    newcomer.start()
    wait_until(
        lambda: "region 3 was removed from the cluster" in newcomer.log_text(), "it is refused"
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch", "region", "salvage", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_what_only_a_removed_region_had_is_salvaged(parted: Partition) -> None:
    place = ["--dir", str(parted.servers[2].directory / "data")]
    to = ["--to", f"redis://127.0.0.1:{parted.servers[0].port}"]
    in_use = run(*place, *to)
    assert in_use.returncode == 1
    assert "a server uses" in in_use.stderr
    parted.servers[2].kill()

    dry = json.loads(run(*place, *to, "--dry-run", "--json").stdout)
    assert (dry["region"], dry["name"], dry["entries"], dry["keys"]) == (3, "ap", 251, 3)
    assert list(dry["effects"]) == ["3.0"]
    assert parted.eu.xlen("s") == 2

    parted.eu.xgroup_create("s", "readers", "0")
    parted.eu.xreadgroup("readers", "c", {"s": ">"})
    done = run(*place, *to)
    assert done.returncode == 0, done.stderr
    assert "251 entries were added" in done.stdout
    for client in (parted.eu, parted.us):
        wait_until(has(client, 251), "all have them")
        ids = [entry_id for entry_id, _ in client.xrange("s")]
        assert ids == sorted(ids, key=lambda each: tuple(map(int, each.split("-"))))
        gone = parted.only_there.pop(100)
        assert set(parted.only_there) < set(ids), "with their IDs"
        assert gone not in ids, "what it had deleted stays so"
        parted.only_there.insert(100, gone)
        assert client.xrange("t") == [("5-3", {"f": "v"})]
        assert [group["name"] for group in client.xinfo_groups("s")] == ["readers"]
        assert state(client, 3) == "removed"
    with redis.Redis(port=parted.servers[1].port, db=3) as other:
        found: Any = other.xrange("u")
        assert [fields for _, fields in found] == [{b"f": b"\x00\xff"}]
    ((late,),) = parted.eu.xreadgroup("readers", "c", {"s": ">"}, count=1000).values()
    assert len(late) == 249, "groups miss nothing that comes late"

    again = run(*place, *to)
    assert again.returncode == 0
    assert "nothing to do" in again.stdout
    assert parted.eu.xlen("s") == 251
    for server in parted.servers[:2]:
        assert not mistakes(server)


def test_after_an_attempt_that_broke_off_the_rest_is_added(parted: Partition) -> None:
    place = ["--dir", str(parted.servers[2].directory / "data")]
    to = ["--to", f"redis://127.0.0.1:{parted.servers[0].port}"]
    parted.servers[2].kill()
    assert run(*place, *to).returncode == 0
    (parted.servers[2].directory / "data" / "appendonlydir" / "salvaged").unlink()
    parted.eu.xdel("s", *parted.only_there[:10])
    done = run(*place, *to)
    assert done.returncode == 0, done.stderr
    assert "10 entries were added" in done.stdout
    assert parted.eu.xlen("s") == 251


def test_a_region_that_joins_anew_passes_its_former_removal(tmp_path: Path) -> None:
    """It gets all effects from the first one on, and its admission long after its removal."""
    eu, us = regions_in(tmp_path, "eu", "us")
    us.kill()
    with client_of(eu) as client:
        client.execute_command("AB.REGION", "REMOVE", "us", "FORCE")
        pipe = client.pipeline(transaction=False)
        for _ in range(5):
            for _ in range(2000):
                pipe.xadd("s", {"f": "v"})
            pipe.execute()
        shutil.rmtree(us.directory / "data")
        us.start()
        us.wait_for_writes()
        with client_of(us) as there:
            wait_until(has(there, 10_000), "it has all entries")
            there.xadd("s", {"by": "us"})
        wait_until(has(client, 10_001), "its writes arrive")
        wait_until(are(client, "in_sync", 1), "both have what the other had when they met")
    assert '"region.removed"' not in us.log_text()


def test_a_member_is_not_salvaged(tmp_path: Path) -> None:
    eu, us = regions_in(tmp_path, "eu", "us")
    with client_of(eu) as client:
        wait_until(lambda: states(client) == {"us": "in_sync"}, "both are there")
    us.kill()
    done = run("--dir", str(us.directory / "data"), "--to", f"redis://127.0.0.1:{eu.port}")
    assert done.returncode == 1
    assert "region 2 is no removed region there" in done.stderr
    assert run("--dir", str(us.directory / "data")).returncode == 2
    dry = run("--dir", str(us.directory / "data"), "--dry-run")
    assert dry.returncode == 0
    assert "0 live entries" in dry.stdout


def test_of_two_that_remove_each_other_a_third_one_keeps_what_is_written(tmp_path: Path) -> None:
    servers = regions_in(tmp_path, "eu", "us", "ap")
    eu, us, ap = clients = [client_of(server) for server in servers]
    for client in clients:
        wait_until(are(client, "in_sync", 2), "in sync")
    eu.execute_command("AB.LINK", "us", "PAUSE")
    us.execute_command("AB.LINK", "eu", "PAUSE")
    eu.execute_command("AB.REGION", "REMOVE", "us", "FORCE")
    us.execute_command("AB.REGION", "REMOVE", "eu", "FORCE")

    def takes_writes(client: Any) -> bool:
        with suppress(redis.ReadOnlyError):
            return bool(client.xadd("s", {"f": "v"}))
        return False

    def members(client: Any) -> set[int]:
        rows = client.execute_command("AB.REGION", "LIST")
        return {row["region"] for row in rows if row["state"] != "removed"}

    def writers() -> list[Any]:
        return [client for client in clients if takes_writes(client)]

    wait_until(lambda: len(writers()) < 3, "one of them is told")
    # A pause is lifted although its region is no member any more.
    eu.execute_command("AB.LINK", "us", "RESUME")
    us.execute_command("AB.LINK", "eu", "RESUME")
    wait_until(lambda: len(writers()) == len(members(ap)), "all are told that are to stop")
    going_on = writers()
    assert ap in going_on
    assert all(members(client) == members(ap) for client in going_on)
    wait_until(lambda: len({client.xlen("s") for client in going_on}) == 1, "they agree")
    for server in servers:
        assert not mistakes(server)
    for client in clients:
        client.close()
