"""What went wrong in other systems with several regions must not go wrong here: processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from anabranch.cli.group import command
from anabranch.oplog.manifest import read_manifest
from anabranch.server.disk import Directory
from tests.support.inspection import mistakes, wait_until
from tests.support.servers import AnabranchServer, ServerFailed, regions_in, server_in


class Regions:
    """Three regions, each with a client."""

    def __init__(self, directory: Path) -> None:
        self.servers = regions_in(directory, "eu", "us", "ap")
        for at in range(3):
            wait_until(self.sees(at, "in_sync", 2), "all are in sync")

    def client(self, at: int) -> Any:
        return redis.Redis(port=self.servers[at].port, decode_responses=True, protocol=3)

    def sees(self, at: int, state: str, count: int) -> Callable[[], bool]:
        """Whether a region sees so many others in a state."""

        def looks() -> bool:
            with self.client(at) as client:
                rows = client.execute_command("AB.PEERS")
            return [row["state"] for row in rows].count(state) == count

        return looks

    def has(self, at: int, key: str, count: int) -> Callable[[], bool]:
        def looks() -> bool:
            with self.client(at) as client:
                return bool(client.xlen(key) == count)

        return looks

    def again(self, at: int, *words: str) -> AnabranchServer:
        """A server with the number and the gossip port of one, in its directory, as it is now.

        It takes writes: it has got what another one had.
        """
        old = self.servers[at]
        self.servers[at] = server_in(old.directory, *_identity(old), *words).start()
        self.servers[at].wait_for_writes()
        return self.servers[at]


def _identity(server: AnabranchServer) -> list[str]:
    """`--region-id n --region-name s --gossip-port p` of a server, and its `--join`."""
    at = server.extra.index("--region-id")
    return server.extra[at : at + 8]


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[Regions]:
    made = Regions(tmp_path)
    yield made
    for server in made.servers:
        assert not mistakes(server)


def test_regions_start_and_converge_though_one_is_never_there(regions: Regions) -> None:
    for server in regions.servers:
        server.kill()
    for server in regions.servers[:2]:
        server.start()
    wait_until(regions.sees(0, "in_sync", 1), "those that are there find each other")
    for at in (0, 1):
        with regions.client(at) as client:
            client.xadd("s", {"by": at})
    for at in (0, 1):
        wait_until(regions.has(at, "s", 2), "both have both")


def test_a_region_that_was_removed_joins_again_under_its_number(regions: Regions) -> None:
    with regions.client(0) as eu, regions.client(2) as ap:
        for n in range(50):
            (eu, ap)[n % 2].xadd(f"s{n % 5}", {"n": n})
        ap.xgroup_create("s1", "g", "0")
        ap.wait(2, 60_000)
        eu.execute_command("AB.REGION", "REMOVE", "ap")
        wait_until(regions.sees(1, "removed", 1), "the others know")
        regions.servers[2].kill()
        shutil.rmtree(regions.servers[2].directory / "data")
        regions.again(2)
        wait_until(regions.sees(2, "in_sync", 2), "it is a member again")
        keys = sorted(eu.keys("*"))
        assert len(keys) == 5
        digests = eu.execute_command("AB.DIGEST", *keys)
        with regions.client(2) as back:
            wait_until(
                lambda: back.execute_command("AB.DIGEST", *keys) == digests, "it has everything"
            )
            entry_id = back.xadd("s0", {"f": "v"})
        assert int(entry_id.partition("-")[2]) % 256 == 3
        assert int(entry_id.partition("-")[2]) > 1 << 32, "it lives in another epoch"
        wait_until(regions.has(0, "s0", 11), "it writes as others do")


@pytest.mark.parametrize("harm", ["flipped", "truncated"])
def test_a_damaged_log_stops_one_region_which_gets_all_back(regions: Regions, harm: str) -> None:
    with regions.client(2) as ap:
        for n in range(200):
            ap.xadd("s", {"n": n, "filler": "x" * 100})
        ap.wait(2, 60_000)
        position = int(ap.info("persistence")["oplog_position"])
    data = regions.servers[2].directory / "data"
    storage = Directory(data / "appendonlydir")
    wait_until(lambda: read_manifest(storage)[0].written >= position, "the end is noted")
    if harm == "flipped":
        regions.servers[2].stop()  # or it could be what had not been written to its end
    else:
        regions.servers[2].kill()
    (log,) = data.glob("appendonlydir/log-*")
    damaged = bytearray(log.read_bytes())
    if harm == "flipped":
        damaged[len(damaged) // 2] ^= 4
        log.write_bytes(damaged)
        with pytest.raises(ServerFailed, match=log.name):
            regions.servers[2].start()
        shutil.rmtree(data)
    else:
        log.write_bytes(damaged[: len(damaged) // 2])
        with pytest.raises(ServerFailed, match=log.name):
            regions.servers[2].start()
        done = CliRunner().invoke(command, ["restore", str(log.parent)])
        assert "begins a new epoch" in done.output
    with regions.client(0) as eu:
        eu.xadd("s", {"n": 200})
    regions.again(2)
    wait_until(regions.has(2, "s", 201), "what it had told others comes back", 40.0)
    with regions.client(2) as back:
        back.xadd("s", {"n": 201})
    for at in (0, 1):
        wait_until(regions.has(at, "s", 202), "and it writes on")
    keys = ("AB.DIGEST", "s")
    with regions.client(0) as eu, regions.client(2) as back:
        assert eu.execute_command(*keys) == back.execute_command(*keys)
