"""The service against a real server: retries, dead workers, time, errors, crashes, regions."""

from __future__ import annotations

import orders
import pytest
import redis

from anabranch.testing import Cluster, Server


def test_an_order_that_is_retried_is_there_once(client: redis.Redis) -> None:
    first = orders.accept(client, "17", "book")
    assert orders.accept(client, "17", "book") == first
    assert client.xlen(orders.STREAM) == 1


def test_a_retry_after_the_promised_hour_is_a_new_order(
    client: redis.Redis, server: Server
) -> None:
    orders.accept(client, "17", "book")
    server.clock.advance(3600 + 1)
    orders.accept(client, "17", "book")
    assert client.xlen(orders.STREAM) == 2


def test_what_a_dead_worker_left_is_shipped_by_another(client: redis.Redis, server: Server) -> None:
    orders.accept(client, "17", "book")

    def die(order: dict[str, str]) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        orders.ship_some(client, "dead", die)
    shipped: list[dict[str, str]] = []
    assert orders.ship_some(client, "alive", shipped.append) == 0
    server.clock.advance(orders.PATIENCE_MS / 1000)
    assert orders.ship_some(client, "alive", shipped.append) == 1
    assert shipped == [{"number": "17", "item": "book"}]


def test_an_error_of_the_server_ships_nothing_twice(client: redis.Redis, server: Server) -> None:
    orders.accept(client, "17", "book")
    server.fail_next("XREADGROUP", "LOADING Redis is loading the dataset in memory")
    shipped: list[dict[str, str]] = []
    with pytest.raises(redis.BusyLoadingError):
        orders.ship_some(client, "w", shipped.append)
    assert orders.ship_some(client, "w", shipped.append) == 1


def test_accepted_orders_survive_a_crash(client: redis.Redis, server: Server) -> None:
    for number in range(50):
        orders.accept(client, str(number), "book")
    server.crash()
    server.restart()
    shipped: list[dict[str, str]] = []
    while orders.ship_some(client, "w", shipped.append):
        pass
    assert [order["number"] for order in shipped] == [str(number) for number in range(50)]


def test_two_regions_accept_the_same_order_while_they_are_cut_off(
    anabranch_cluster: Cluster,
) -> None:
    cluster = anabranch_cluster
    eu, us = (
        redis.Redis(port=each.port, decode_responses=True) for each in (cluster.eu, cluster.us)
    )
    with eu, us:
        orders.set_up(eu)
        cluster.settle()
        cluster.isolate("us")
        orders.accept(eu, "17", "book")
        orders.accept(us, "17", "book")
        cluster.heal()
        cluster.settle()
        cluster.assert_converged()
        assert eu.xlen(orders.STREAM) == 1
