"""Strings that several regions write: amounts, rows, and joins in any order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.stream import register
from anabranch.stream.frozen import SHARED
from anabranch.stream.joining import join_streams
from anabranch.stream.register import Count, Write, amount_of, amount_text
from anabranch.stream.shared import NO_GROUP, Shared
from anabranch.stream.stream import Stream

REPLICA_IDS = (0x101, 0x102, 0x103)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (b"0", b"0"), (b"-7", b"-7"), (b"12.50", b"12.5"), (b"-0.00000000000000001", None),
        (b"9223372036854775808", None), (b"007", b"7"), (b"1" * 400, None),
    ],
)  # fmt: skip
def test_a_plain_number_is_an_amount(text: bytes, again: bytes | None) -> None:
    amount = amount_of(text)
    assert amount is not None
    assert amount_text(amount) == (text if again is None else again)


@pytest.mark.parametrize(
    "text", [b"", b"+1", b"1e3", b" 1", b"1.", b".5", b"0.000000000000000001", b"inf", b"1" * 401]
)
def test_other_texts_are_none(text: bytes) -> None:
    assert amount_of(text) is None


amounts = st.integers(-(10**40), 10**40)
rows = st.builds(
    Count, st.integers(1, 99), st.integers(1, 9), amounts, st.none() | st.integers(0, 99),
    st.integers(0, 99), amounts,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(REPLICA_IDS), rows))
def test_rows_come_back_as_they_were(counts: dict[int, Count]) -> None:
    assert register.read_counts(register.pack_counts(counts)) == counts


@dataclass
class Site:
    """What one region has of a key."""

    replica_id: int
    shared: Shared = field(default_factory=Shared)
    vector: dict[int, int] = field(default_factory=dict)

    def act(self, what: str, stamp_ms: int) -> None:
        """A change that is decided here."""
        dot = self.replica_id, self.vector.get(self.replica_id, 0) + 1
        seen = dict(self.vector)

        def knows(other: tuple[int, int]) -> bool:
            return other[1] <= seen.get(other[0], 0)

        shared = self.shared
        counts = register.read_counts(shared.counts)
        if what == "increase":
            own = counts.get(self.replica_id)
            since, total = (own.since, own.total) if own and own.is_alive else (0, 0)
            shared.increase(dot, since, total + 10**17, None)
        elif what == "expire":
            shared.set_deadline(dot, stamp_ms, knows)
        else:
            cuts = register.cuts_of(counts)
            if what == "write":
                write = Write(stamp_ms, b"%d" % dot[1], {dot: stamp_ms})
                shared.write(dot, write, knows)
            else:
                shared.clear(knows)
            shared.cut(cuts)
            if cuts:
                shared.bury(dot, NO_GROUP, set().add)
        self.vector[self.replica_id] = dot[1]

    def copy(self) -> Site:
        shared = Shared()
        SHARED.restore(shared, SHARED.write(self.shared))
        return Site(self.replica_id, shared, dict(self.vector))

    def joined(self, other: Site) -> Site:
        """Both, in another one."""
        mine, theirs = self.copy(), other.copy()
        ours, source = _stream(mine), _stream(theirs)
        join_streams(ours, source, mine.vector, theirs.vector, ({}, {}))
        for replica_id, number in theirs.vector.items():
            mine.vector[replica_id] = max(number, mine.vector.get(replica_id, 0))
        return mine

    def state(self) -> list[Any]:
        """All of it, in one order."""
        shared = self.shared
        writes = {dot: (*row[:2], dict(row.deadlines)) for dot, row in shared.writes.items()}
        counts = register.read_counts(shared.counts)
        return [writes, counts, dict(shared.deadlines), set(shared.tombstones), self.vector]


def _stream(site: Site) -> Stream:
    stream = Stream.of_regions(site.replica_id, 100, 100)
    stream.shared = site.shared
    return stream


steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["increase", "increase", "write", "expire", "delete", "join", "join"]),
        st.integers(0, 2),
    ),
    max_size=24,
)


@given(steps)
def test_joins_are_commutative_associative_and_idempotent(
    steps: list[tuple[int, str, int]],
) -> None:
    sites = [Site(replica_id) for replica_id in REPLICA_IDS]
    for stamp_ms, (at, what, other) in enumerate(steps):
        if what == "join":
            sites[at] = sites[at].joined(sites[other])
        else:
            sites[at].act(what, stamp_ms)
    one, two, three = sites
    assert one.joined(one).state() == one.state()
    assert one.joined(two).state() == two.joined(one).state()
    assert one.joined(two).joined(three).state() == one.joined(two.joined(three)).state()
    whole = one.joined(two).joined(three)
    assert whole.joined(two).state() == whole.state()


def test_a_late_increment_of_a_cut_total_counts_once() -> None:
    eu, us = Site(REPLICA_IDS[0]), Site(REPLICA_IDS[1])
    eu.act("increase", 1)
    us = us.joined(eu)
    us.act("write", 2)
    eu.act("increase", 3)
    assert us.joined(eu).shared.string == b"2"  # "1" was written, and one increment unseen
    assert eu.joined(us).shared.string == b"2"


def test_an_increment_of_what_is_no_number_does_not_count() -> None:
    shared = Shared()
    shared.write((0x101, 1), Write(1, b"word", {}), lambda _: True)
    shared.increase((0x102, 1), 0, amount_of(b"3") or 0, None)
    assert shared.string == b"word"
