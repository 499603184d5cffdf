"""The test kit's cluster: links are cut and healed, regions crash, and all converge."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import pytest
import redis

from anabranch.config.settings import GOSSIP_PORT_ABOVE
from anabranch.errors import ConfigError
from anabranch.server.listener import bind_all
from anabranch.testing import Cluster, NotConvergedError, Server, living


def client_of(region: Server) -> redis.Redis:
    return redis.Redis(port=region.port, decode_responses=True)


def test_a_port_of_regions_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] - GOSSIP_PORT_ABOVE
        choose = living.bind_free_port
        choices = iter([port])

        def chosen(bind: str, backlog: int) -> list[socket.socket]:
            first = next(choices, None)
            return choose(bind, backlog) if first is None else bind_all(bind, first)

        monkeypatch.setattr(living, "bind_free_port", chosen)
        with Cluster("eu", "us") as cluster:
            assert port not in [region.port for region in cluster]
        assert next(choices, None) is None


def test_a_start_that_fails_leaves_no_socket_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        region = Server(persist=True, region_id=1, cluster_create=True, gossip_port=port)
        with pytest.raises(ConfigError, match="already in use"):
            region.start()
        region.close()
    gc.collect()  # a socket that is left open is an error of the test


def test_regions_that_were_cut_off_converge() -> None:
    with Cluster() as cluster, client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        eu.xadd("s", {"from": "eu"})
        cluster.settle()
        assert us.xlen("s") == 1
        cluster.isolate("eu")
        eu.xadd("s", {"from": "eu"})
        us.xadd("s", {"from": "us"})
        with pytest.raises(NotConvergedError, match="us lacks 1 effects of eu"):
            cluster.assert_converged()
        with pytest.raises(NotConvergedError, match="eu and us differ at /s/"):
            cluster.settle(seconds=0.05)
        cluster.heal()
        cluster.settle()
        cluster.assert_converged()
        assert eu.xrange("s") == us.xrange("s")
        assert len(eu.xrange("s")) == 3


def test_a_third_region_relays_what_a_cut_link_does_not_carry() -> None:
    with Cluster() as cluster, client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        cluster.cut("eu", "us")
        eu.xadd("s", {"f": "v"})
        cluster.settle()
        assert us.xlen("s") == 1


def test_a_link_that_is_delayed_delivers_later() -> None:
    with Cluster("eu", "us") as cluster:
        cluster.delay("eu", "us", 60_000)
        cluster.eu.execute("XADD", "s", "*", "f", "v")
        with pytest.raises(NotConvergedError, match="us lacks 1 effects of eu"):
            cluster.settle(seconds=0.2)
        cluster.heal()
        cluster.settle()
        assert cluster.us.execute("XLEN", "s") == 1


def test_a_message_that_two_regions_accepted_is_there_once() -> None:
    with Cluster("eu", "us") as cluster:
        words = ("XADD", "s", "IDMP", "producer", "message", "*", "f", "v")
        cluster.isolate("eu")
        for region in cluster:
            region.execute(*words)
        cluster.heal()
        cluster.settle()
        cluster.assert_converged()
        assert [region.execute("XLEN", "s") for region in cluster] == [1, 1]


def test_a_region_that_crashed_catches_up() -> None:
    with Cluster("eu", "us") as cluster, client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        us.xadd("s", {"n": 1})
        cluster.settle()
        cluster.us.crash()
        eu.xadd("s", {"n": 2})
        cluster.us.restart()
        cluster.settle()
        assert [fields["n"] for _, fields in us.xrange("s")] == ["1", "2"]


def test_a_cluster_starts_again_with_its_data(tmp_path: Path) -> None:
    for expected in (2, 4):
        with Cluster("eu", "us", persist=tmp_path) as cluster:
            for region in cluster:
                region.execute("XADD", "s", "*", "f", "v")
            cluster.settle()
            cluster.assert_converged()
            assert cluster.us.execute("XLEN", "s") == expected


def test_a_cluster_may_say_that_its_data_is_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Cluster("eu", "us", persist=True):
        assert not list(tmp_path.iterdir())


def test_regions_share_a_clock() -> None:
    with Cluster("eu", "us") as cluster:
        cluster.clock.freeze()
        cluster.clock.advance(3600)
        ids = [region.execute("XADD", "s", "*", "f", "v") for region in cluster]
        assert {int(each.split(b"-")[0]) for each in ids} == {cluster.clock.now_ms}


def test_regions_are_found_by_name() -> None:
    with Cluster("one", "two") as cluster:
        assert cluster["one"] is cluster.one
        assert [region.is_running for region in cluster] == [True, True]
        with pytest.raises(AttributeError, match="no region 'eu': one, two"):
            _ = cluster.eu
        with pytest.raises(ValueError, match="no region 'eu'"):
            cluster.cut("one", "eu")
    with pytest.raises(ValueError, match="two regions or more"):
        Cluster("one")
