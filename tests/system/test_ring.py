"""Five regions in a ring: each is linked with two neighbours only, and everything goes around."""

from __future__ import annotations

from itertools import combinations

import redis

from anabranch.testing import Cluster
from tests.support.inspection import wait_until

NAMES = ["a", "b", "c", "d", "e"]


def test_a_ring_converges_and_goes_on_when_it_is_cut_into_a_line() -> None:
    with Cluster(*NAMES) as ring:
        for one, other in combinations(range(len(NAMES)), 2):
            if (other - one) % len(NAMES) not in (1, len(NAMES) - 1):
                ring.cut(NAMES[one], NAMES[other])
        clients = [
            redis.Redis(port=ring[name].port, decode_responses=True, protocol=3) for name in NAMES
        ]
        clients[0].execute_command("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for number, client in enumerate(clients):
            client.xadd("s", {"from": number})
        ring.settle(60)
        for client in clients:
            assert client.xlen("s") == len(NAMES)
        ring.cut("a", "e")  # a line now
        for number, client in enumerate(clients):
            client.xadd("s", {"from": number})
            client.execute_command("XADD", "s", "IDMP", "p", "the same", "*", "from", number)
        for client in clients:  # of the messages that all have accepted one stays
            wait_until(lambda: client.xlen("s") == 2 * len(NAMES) + 1, "it has everything")  # noqa: B023
        ring.settle(60)
        ring.assert_converged()
        for client in clients:
            assert client.xinfo_groups("s")[0]["lag"] == 2 * len(NAMES) + 1
            client.close()
