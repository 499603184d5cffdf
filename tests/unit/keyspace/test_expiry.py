"""Deadlines: due keys in order, leftovers of changed deadlines skipped and swept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.keyspace.expiry import Deadlines

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])


def take_due(deadlines: Deadlines, now_ms: int) -> list[bytes]:
    taken = []
    while (key := deadlines.first_due(now_ms)) is not None:
        taken.append(key)
        deadlines.pop(key)
    return taken


def test_due_keys_come_in_the_order_of_their_deadlines() -> None:
    deadlines = Deadlines()
    deadlines[b"late"] = 30
    deadlines[b"early"] = 10
    deadlines[b"middle"] = 20
    assert take_due(deadlines, 9) == []
    assert take_due(deadlines, 20) == [b"early", b"middle"]
    assert take_due(deadlines, 1000) == [b"late"]


def test_the_first_due_key_stays_first_until_it_is_withdrawn() -> None:
    deadlines = Deadlines()
    deadlines[b"k"] = 10
    assert deadlines.first_due(10) == b"k"
    assert deadlines.first_due(10) == b"k"


def test_changed_and_withdrawn_deadlines_do_not_come_up() -> None:
    deadlines = Deadlines()
    deadlines[b"moved"] = 10
    deadlines[b"moved"] = 50
    deadlines[b"gone"] = 10
    deadlines.pop(b"gone")
    assert take_due(deadlines, 20) == []
    assert take_due(deadlines, 50) == [b"moved"]


def test_leftovers_are_swept() -> None:
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines[b"k"] = at_ms
        deadlines.check()
    assert len(deadlines._heap) < 100


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), KEYS, st.integers(0, 20)),
            st.tuples(st.just("pop"), KEYS, st.just(0)),
            st.tuples(st.just("due"), KEYS, st.integers(0, 20)),
            st.tuples(st.just("clear"), KEYS, st.just(0)),
        )
    )
)
def test_like_a_scan_of_all_deadlines(steps: list[tuple[str, bytes, int]]) -> None:
    deadlines = Deadlines()
    plain: dict[bytes, int] = {}
    for step, key, at_ms in steps:
        if step == "set":
            deadlines[key] = plain[key] = at_ms
        elif step == "pop":
            assert deadlines.pop(key, None) == plain.pop(key, None)
        elif step == "clear":
            deadlines.clear()
            plain.clear()
        else:
            due = {other for other, deadline in plain.items() if deadline <= at_ms}
            assert set(take_due(deadlines, at_ms)) == due
            for other in due:
                del plain[other]
        assert deadlines == plain
        deadlines.check()
