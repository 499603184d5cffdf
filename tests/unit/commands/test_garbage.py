"""Requests leave no cycles of references: the server hardly ever collects them."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.region_harness import Harness

REPEATED = 20


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "lines",
    [
        "MULTI; PING; SET k v; XADD s * f v; EXEC",
        "WATCH k; MULTI; GET k; EXEC",
        "MULTI; NOT-THERE; EXEC",
        "EVAL return{redis.call('SET','k','v'),redis.pcall('NO')} 0",
        "SUBSCRIBE a b; PSUBSCRIBE a*; UNSUBSCRIBE; PUNSUBSCRIBE",
        "MSET a 1 b 2 a 3; MGET a b; DEL a b",
        "SET k v EX 10; GETEX k PERSIST; APPEND k x; GETRANGE k 0 2; SET k v NX GET",
        "RPUSH l a b a; LREM l 1 a; DEL l; SADD t a; SREM t a",
        "XADD s * f v; COPY s u; RENAME u w; DUMP w; DEL w",
        "XGROUP CREATE s g 0 MKSTREAM; XADD s * f v; XREADGROUP GROUP g c STREAMS s >; XACK s g 1",
        "XREAD COUNT 2 STREAMS s 0; XRANGE s - +; XINFO STREAM s FULL",
    ],
)
@pytest.mark.parametrize("region", [0, 1], ids=["alone", "region"])
def test_a_request_leaves_no_cycles(lines: str, region: int) -> None:
    harness = Harness(region_id=region)
    requests = [line.split() for line in lines.split("; ")]
    for request in requests:  # what is made once may stay, or be dropped
        harness.raw(*request)
    gc.collect()
    for _ in range(REPEATED):
        for request in requests:
            harness.raw(*request)
    assert gc.collect() == 0
