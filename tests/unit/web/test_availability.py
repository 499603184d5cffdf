"""When a region tells clients to go elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.metrics.counters import Counters
from anabranch.metrics.peers import PeerFigures
from anabranch.web.availability import why_not_available

READY: dict[str, int | float | str] = {"cluster_id": "c", "joining_from": 0, "caught_up": 1}


def peer(state: str = "in_sync", **known: Any) -> PeerFigures:
    facts: dict[str, Any] = dict.fromkeys(PeerFigures.__struct_fields__)
    facts |= {"region": 2, "name": "us", "state": state, "counters": Counters()}
    return PeerFigures(**(facts | {"lag_seconds": 0.0, "receive_lag_seconds": 0.0} | known))


@pytest.mark.parametrize(
    ("facts", "peers", "refusal", "tolerance_ms", "why"),
    [
        ({}, [peer()], None, None, None),
        ({}, [peer()], None, 100, None),
        ({}, [peer()], "MISCONF full", None, "MISCONF full"),
        ({"cluster_id": ""}, [], None, None, "not joined"),
        ({"joining_from": 2}, [peer()], None, None, "state of region 2"),
        # lag counts if it is asked for, both ways, and up to the tolerance
        ({}, [peer(lag_seconds=9.0, receive_lag_seconds=9.0)], None, None, None),
        ({}, [peer(lag_seconds=0.1)], None, 100, None),
        ({}, [peer(lag_seconds=0.101)], None, 100, "101 ms behind"),
        ({}, [peer(receive_lag_seconds=0.101)], None, 100, "101 ms ahead"),
        ({}, [peer(), peer("catching_up", lag_seconds=1.0)], None, 100, "behind"),
        ({}, [peer("alive_via", lag_seconds=1.0)], None, 100, "behind"),
        ({}, [peer(lag_seconds=None)], None, 100, "not reported"),
        ({"caught_up": 0}, [peer()], None, 100, "catching up"),
        # who is gone says nothing about this region
        ({}, [peer("unreachable", lag_seconds=9.0)], None, 100, None),
        ({}, [peer("removed", lag_seconds=9.0)], None, 100, None),
        ({"caught_up": 0}, [peer("unreachable")], None, 100, None),
        ({}, [], None, 100, None),
    ],
)
def test_reasons(
    facts: dict[str, int | float | str],
    peers: list[PeerFigures],
    refusal: str | None,
    tolerance_ms: int | None,
    why: str | None,
) -> None:
    answer = why_not_available(READY | facts, peers, refusal, tolerance_ms)
    assert (answer is None) == (why is None)
    assert why is None or why in str(answer)
