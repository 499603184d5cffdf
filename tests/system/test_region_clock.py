"""A region whose clock is off, as processes: it is told, and makes no IDs if that is set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, free_port, server_in

AHEAD_S = 30
LAUNCH = f"""
import sys
from anabranch.server.clock import RealClock
true_us = RealClock.now_us
RealClock.now_us = lambda self: true_us(self) + {AHEAD_S}_000_000
from anabranch.cli.main import main
main()
"""


class Fast(AnabranchServer):
    """A server whose clock is ahead."""

    def command(self) -> Sequence[str]:
        python, _, _, *words = super().command()
        return [python, "-c", LAUNCH, *words]


def refusal(client: Any) -> str:
    try:
        client.xadd("s", {"f": "v"})
    except redis.ResponseError as problem:
        return str(problem)
    return ""


def test_only_the_region_whose_clock_is_off_makes_no_ids(tmp_path: Path) -> None:
    gossip = free_port()
    always = ("--enable-debug-command", "yes", "--clock-skew-action", "refuse")
    words = [
        *("--region-id", "1", "--region-name", "eu", "--gossip-port", str(gossip)),
        *("--cluster-create", "yes", *always),
    ]
    eu = server_in(tmp_path / "eu", *words).start()
    join = ("--join", f"127.0.0.1:{gossip}", *always)
    number_of_us = ("--region-id", "2", "--gossip-port", str(free_port()))
    us = server_in(tmp_path / "us", *number_of_us, *join).start()
    us.wait_for_writes()
    number_of_ap = ("--region-id", "3", "--gossip-port", str(free_port()))
    with Fast(tmp_path / "ap", [*number_of_ap, *join]) as ap:
        clients: list[Any] = [
            redis.Redis(port=each.port, decode_responses=True) for each in (eu, us, ap)
        ]
        wait_until(lambda: refusal(clients[2]).startswith("CLOCKSKEW "), "ap refuses")
        wait_until(lambda: len(clients[0].execute_command("AB.PEERS")) == 2, "all are there")
        assert [refusal(client) for client in clients[:2]] == ["", ""]
        assert '"region.clock_refused"' in ap.log_text()
        assert clients[2].xadd("t", {"f": "v"}, id="7-*") == "7-3", "it needs no clock"
        with pytest.raises(redis.ResponseError, match="CLOCKSKEW"):
            clients[2].execute_command("XADD", "s", "MAXLEN", "5", "*", "f", "v")
        with clients[2].pipeline() as both, pytest.raises(redis.ResponseError, match="CLOCKSKEW"):
            both.xadd("s", {"f": "v"}).execute()
        clients[2].config_set("max-clock-skew-ms", (AHEAD_S + 30) * 1000)
        wait_until(lambda: refusal(clients[2]) == "", "so much is allowed")
        clients[2].config_set("max-clock-skew-ms", 500)
        wait_until(lambda: refusal(clients[2]) != "", "and so much is not")
        clients[2].config_set("clock-skew-action", "warn")
        wait_until(lambda: refusal(clients[2]) == "", "it is only told")
        for client in clients:
            client.close()
