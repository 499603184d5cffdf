"""The sums of what is held beside keys and values."""

from __future__ import annotations

from types import SimpleNamespace

from anabranch.engine.session import Session
from anabranch.metrics.holdings import Holdings


def test_what_does_not_report_changes_is_measured() -> None:
    holdings = Holdings()
    log = SimpleNamespace(size=5)
    holdings.measured = {"unwritten": lambda: log.size, "causal": lambda: 7}
    assert holdings.used_bytes == 0
    for size in (5, 1 << 30, 0):
        log.size = size
        holdings.measure()
        assert holdings.used_bytes == size + 7
    assert holdings.client_bytes == 0


def test_a_client_has_a_sum_of_its_own() -> None:
    holdings = Holdings()
    one, other = (Session(number, None, "", "", holdings) for number in (1, 2))
    one.hold("requests", 100)
    other.hold("names", 10)
    holdings.replies += 1
    assert (one.held_bytes, other.held_bytes) == (100, 10)
    assert holdings.used_bytes == holdings.client_bytes == 111
    one.hold("requests", -100)
    assert one.held_bytes == 0
    assert holdings.rows()["requests"] == 0
