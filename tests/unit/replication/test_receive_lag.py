"""For how long effects of a peer have been known of and not applied."""

from __future__ import annotations

from anabranch.replication.lag import ReceiveLag


def test_nothing_is_known_of_that_is_not_here() -> None:
    lag = ReceiveLag()
    assert lag.seconds(0, 5000) == 0
    lag.reported(2, theirs=7, ours=7, now_ms=1000)
    assert lag.seconds(7, 5000) == 0


def test_it_grows_until_what_was_told_of_has_been_applied() -> None:
    lag = ReceiveLag()
    lag.reported(2, theirs=7, ours=5, now_ms=1000)
    assert lag.seconds(5, 1500) == 0.5
    lag.reported(2, theirs=9, ours=6, now_ms=2000)  # the peer goes on, the old debt stays
    assert lag.seconds(6, 3000) == 2
    assert lag.seconds(7, 3000) == 0


def test_then_the_next_debt_is_watched() -> None:
    lag = ReceiveLag()
    lag.reported(2, theirs=7, ours=5, now_ms=1000)
    lag.reported(2, theirs=9, ours=7, now_ms=4000)
    assert lag.seconds(8, 4250) == 0.25


def test_another_epoch_of_the_peer_begins_anew() -> None:
    lag = ReceiveLag()
    lag.reported(2, theirs=700, ours=5, now_ms=1000)
    lag.reported(258, theirs=1, ours=0, now_ms=4000)
    assert lag.seconds(0, 4500) == 0.5
    assert lag.seconds(1, 4500) == 0
