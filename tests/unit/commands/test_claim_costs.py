"""CLAIM, and redelivery, take as long with many pending entries as with few.

The interpreter counts the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from anabranch.version import IS_COMPILED
from tests.support.calls import calls_of
from tests.support.streams import Streams

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be seen")

_FEW: Final = 300  # so many that some are in full nodes, too
_MANY: Final = 2000
_CLAIM: Final = "XREADGROUP GROUP g d COUNT 1 CLAIM {} STREAMS s >"
_WAIT: Final = "XREADGROUP GROUP g d COUNT 1 BLOCK 0 CLAIM {} STREAMS s >"


def _pending(count: int) -> Streams:
    """Entries that consumer c has, since ten milliseconds; somebody has claimed before."""
    s = Streams()
    s.count_to("s", count)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >", _CLAIM.format(1000))
    s.advance(10)
    return s


def _begin_to_wait(s: Streams) -> int:
    return calls_of(lambda: s.waits(_WAIT.format(1000)))


def _wake_many(s: Streams) -> int:
    for _ in range(5):
        s.waits(_WAIT.format(1000))
    return calls_of(lambda: s.run("XADD s 9999-0 f v"))


def _claim_one_of_many(s: Streams) -> int:
    return calls_of(lambda: s.run(_CLAIM.format(0)))


def _claim_only_ghosts(s: Streams) -> int:
    s.run("XTRIM s MAXLEN 0", _CLAIM.format(0))
    return calls_of(lambda: s.run(_CLAIM.format(0)))


def _claim_behind_ghosts(s: Streams) -> int:
    s.run("XTRIM s MAXLEN 2", _CLAIM.format(0))
    return calls_of(lambda: s.run(_CLAIM.format(0)))


def _wait_with_ghosts(s: Streams) -> int:
    s.run("XTRIM s MAXLEN 0")
    s.waits(_WAIT.format(1000))
    return calls_of(lambda: s.waits(_WAIT.format(1000)))


def _claim_released_ghosts(s: Streams) -> int:
    ids = s.ids("s")
    s.run(f"XNACK s g FAIL IDS {len(ids)} {' '.join(ids)}", "XTRIM s MAXLEN 1")
    s.run(_CLAIM.format(0))
    return calls_of(lambda: s.run(_CLAIM.format(0)))


def _redeliver_after_a_delay(s: Streams) -> int:
    ids = s.ids("s")
    s.run("AB.POLICY SET s backoff 1ms", f"XNACK s g FAIL IDS {len(ids)} {' '.join(ids)}")
    s.advance(10)
    read = "XREADGROUP GROUP g d COUNT 1 STREAMS s >"
    s.run(read)
    return calls_of(lambda: s.run(read))


@pytest.mark.parametrize(
    "cost",
    [
        _begin_to_wait,
        _wake_many,
        _claim_one_of_many,
        _claim_only_ghosts,
        _claim_behind_ghosts,
        _claim_released_ghosts,
        _wait_with_ghosts,
        _redeliver_after_a_delay,
    ],
)
def test_no_read_looks_at_all_pending_entries(cost: Callable[[Streams], int]) -> None:
    assert cost(_pending(_MANY)) < cost(_pending(_FEW)) + _MANY // 10


def test_a_ghost_whose_id_is_used_again_can_be_claimed() -> None:
    s = _pending(2)
    s.run("XTRIM s MAXLEN 0")
    assert s.run(_CLAIM.format(0)) is None
    s.run("XSETID s 0-1", "XADD s 1-0 again v")
    assert s.run("XREADGROUP GROUP g d CLAIM 0 STREAMS s >") == [
        ["s", [["1-0", ["again", "v"], 10, 1]]]
    ]


def test_a_released_ghost_whose_id_is_used_again_can_be_claimed() -> None:
    s = _pending(2)
    s.run("XNACK s g FAIL IDS 2 1-0 2-0", "XTRIM s MAXLEN 0")
    assert s.run(_CLAIM.format(0)) is None
    s.run("XSETID s 0-1", "XADD s 1-0 again v")
    ((_, ((entry_id, fields, *_),)),) = s.run(_CLAIM.format(0))
    assert (entry_id, fields) == ("1-0", ["again", "v"])


@pytest.mark.parametrize(("clock_ms", "then"), [(0, "XCLAIM s g c 0 3-0 IDLE 500"), (-500, "PING")])
def test_an_entry_with_an_older_delivery_than_known_ghosts_can_be_claimed(
    clock_ms: int, then: str
) -> None:
    """XCLAIM sets an older time, or somebody sets the clock back."""
    s = _pending(2)
    s.run("XTRIM s MAXLEN 0", _CLAIM.format(0))
    s.advance(clock_ms)
    s.run("XADD s 3-0 f v", "XREADGROUP GROUP g c STREAMS s >", then)
    s.advance(-clock_ms)
    assert len(s.run(_CLAIM.format(500))[0][1]) == 1
