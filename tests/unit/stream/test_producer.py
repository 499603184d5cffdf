"""Idempotent producers against a naive model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.stream.frozen import copied
from anabranch.stream.producer import Producers
from anabranch.stream.stream import Stream

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["remember"] * 4 + ["find", "sweep", "configure", "copy"]),
        st.sampled_from([b"p", b"q"]),
        st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
        st.integers(0, 6).map(lambda quarters: quarters * 250),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(duration=st.integers(1, 4), maxsize=st.integers(1, 4), steps=STEPS)
def test_producers_agree_with_lists(
    duration: int, maxsize: int, steps: list[tuple[str, bytes, bytes, int]]
) -> None:
    """``[(iid, entry, inserted at)]`` per producer, oldest first."""
    subject = Producers(duration, maxsize)
    model: dict[bytes, list[tuple[bytes, int, int]]] = {b"p": [], b"q": []}
    now = added = 0
    for number, (act, pid, iid, wait) in enumerate(steps):
        now += wait
        oldest = now - duration * 1000
        known = next((e for i, e, at in model[pid] if i == iid and at > oldest), None)
        assert subject.find(pid, iid, now) == known
        if act == "remember" and known is None:
            subject.remember(pid, iid, number, now)
            added += 1
            rows = [row for row in model[pid] if row[0] != iid]
            model[pid] = [*rows, (iid, number, now)][-maxsize:]
        elif act == "sweep":
            for producer in list(subject.tables):
                if count := subject.expired(producer, now):
                    subject.drop_oldest(producer, count)
            model = {p: [row for row in rows if row[2] > oldest] for p, rows in model.items()}
        elif act == "configure":
            changed = (duration, maxsize) != (1 + wait % 3, maxsize)
            duration = 1 + wait % 3
            subject.configure(duration, maxsize)
            if changed:
                model = {b"p": [], b"q": []}
        elif act == "copy":
            stream = Stream(100, 100)
            stream.producers = old = subject
            subject = copied(stream).producers
            old.configure(9999, 9999)
        subject.check()
        assert subject.tracked == sum(map(len, model.values()))
        assert set(subject.tables) == {p for p, rows in model.items() if rows}
        assert subject.iids_added == added
