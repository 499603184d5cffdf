"""What the log could not hold is refused before anything is changed."""

from __future__ import annotations

import pytest

from anabranch.engine import dispatch
from tests.support.region_harness import Harness

LIMIT = 1000


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    monkeypatch.setattr(dispatch, "BODY_BYTES_MAX", LIMIT)
    made = Harness()
    made.session.is_long = True  # as for a connection that has sent a long request
    made.session.refresh()
    return made


@pytest.mark.parametrize("rest", [0, 1])
@pytest.mark.parametrize(
    "words", [["MSET", "a", "1", "b"], ["RPUSH", "a"], ["XADD", "a", "*", "f"]]
)
def test_the_sum_of_the_arguments_is_limited(harness: Harness, words: list[str], rest: int) -> None:
    size = LIMIT - sum(map(len, words)) - 48 * (len(words) + 1) + rest
    reply = harness.raw(*words, b"v" * size)
    assert reply.startswith(b"-ERR the arguments are too long: they take 1001 bytes") == bool(rest)
    assert harness.raw("EXISTS", "a") == b":%d\r\n" % (not rest)


def test_reading_is_not_limited(harness: Harness) -> None:
    assert harness.raw("EXISTS", b"x" * LIMIT) == b":0\r\n"


def test_names_are_not_limited_in_a_server_alone(harness: Harness) -> None:
    assert harness.region.dispatcher.name_bytes_max >= 1 << 60
