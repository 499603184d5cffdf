"""When a difference between regions is one: not while entries or deletions may be under way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark.jobs.audit import _EntryComparison, _horizon, _plan
from anabranch.spark.reading.digests import Id
from anabranch.spark.reading.offsets import LogBounds, LogCursor

BOTH = [[True, True], [True, True]]
PARTED = [[True, False], [False, True]]
A, B = b"a" * 16, b"b" * 16


def judged(
    first: list[dict[Id, bytes]],
    second: list[dict[Id, bytes]],
    heard: list[list[bool]] = BOTH,
    replica_id: str = "1",
) -> tuple[set[tuple[str, str, tuple[str, ...]]], int]:
    """Findings and how many are undecided, of two regions with numbers 1 and 2."""
    some = [SimpleNamespace(number=number) for number in (1, 2)]
    replicas: Any = SimpleNamespace(all=some, names=("eu", "us"))
    comparison = _EntryComparison(replicas, ["s"], 1.0, 10)
    comparison._judge((0, replica_id), first, second, heard)
    found = {(each.kind, each.what, each.regions) for each in comparison.findings}
    return found, comparison.undecided


def test_missing_is_what_stays_missing_when_all_is_heard() -> None:
    here = {(5, 1): A}
    assert judged([here, {}], [here, {}]) == ({("missing", "5-1", ("us",))}, 0)
    assert judged([here, {}], [here, {}], replica_id="2") == ({("extra", "5-1", ("eu",))}, 0)
    assert judged([here, {}], [{}, {}]) == (set(), 0), "a deletion was under way"
    assert judged([here, {}], [here, here]) == (set(), 0), "it came late"
    assert judged([here, here], [here, {}]) == (set(), 0), "it was deleted just now"
    assert judged([here, {}], [here, {}], PARTED) == (set(), 1)
    assert judged([here, {}], [{}, {}]) == (set(), 0), "it was trimmed"


def test_only_who_has_it_must_have_heard() -> None:
    here = {(5, 1): A}
    knows = [[True, True], [False, True]]  # eu has heard of us, and not the other way round
    assert judged([here, {}], [here, {}], knows)[0] == {("missing", "5-1", ("us",))}
    assert judged([{}, here], [{}, here], knows) == (set(), 1)


def test_content_is_compared_with_that_of_who_wrote_it() -> None:
    one, two = {(5, 1): A}, {(5, 1): B}
    assert judged([one, two], [one, two])[0] == {("content", "5-1", ("us",))}
    assert judged([one, two], [one, two], replica_id="2")[0] == {("content", "5-1", ("eu",))}
    assert judged([one, two], [one, two], PARTED) == (set(), 1)


def log(first: int, stop: int, trimmed: int = 0, incarnation: int = 0) -> LogBounds:
    ids = f"{10 * (stop - 1)}-0", f"{10 * first}-0"
    return LogBounds(
        incarnation, first, stop, ids[0], trimmed, until=LogCursor(incarnation, first + 1, ids[1])
    )


def test_where_all_trimmed_alike_everything_counts() -> None:
    def horizon(*logs: LogBounds) -> int:
        return _horizon([{"1": each} for each in logs] + [{}], "1")

    assert horizon(log(5, 9, 5), log(6, 9, 5)) == 0
    assert horizon(log(0, 9), log(5, 9, 5)) == 5
    assert horizon(log(0, 9), log(9, 9, 9)) == 9, "nothing at all is left"


@pytest.mark.parametrize(
    ("heard", "cut"),
    [
        (BOTH, 9),  # who has less has caught up
        (PARTED, 5),
        ([[True, False], [True, True]], 9),  # us has heard of all that eu had
        ([[True, True], [False, True]], 5),
    ],
)
def test_the_cut_is_what_everybody_has_heard_of(heard: list[list[bool]], cut: int) -> None:
    before = [[{"1": log(0, 9)}, {}], [{"1": log(0, 5)}, {}]]
    now = [[{"1": log(0, 12)}, {}], [{"1": log(2, 9, 2)}, {"2": log(0, 3)}]]
    pieces = _plan(["s", "new"], before, now, heard, None)
    assert [
        (each.replica, each.key, each.replica_id, each.first, each.stop) for each in pieces
    ] == [
        (0, "s", "1", 2, cut),  # from where us has entries
        (1, "s", "1", 2, cut),
    ]
    assert len({each.width for each in pieces}) == 1


def test_a_stream_that_was_made_anew_meanwhile_is_not_compared() -> None:
    before = [[{"1": log(0, 900)}], [{"1": log(0, 900)}]]
    anew = log(1000, 1003, 1000, incarnation=1000)
    for now in ([[{"1": anew}], [{"1": log(0, 900)}]], [[{"1": anew}], [{"1": anew}]]):
        assert _plan(["s"], before, now, BOTH, None) == []


def test_servers_without_regions_have_positions_of_their_own() -> None:
    logs = [[{"": log(0, 9)}], [{"": log(100, 109, 100, incarnation=100)}]]
    pieces = _plan(["s"], logs, logs, BOTH, None)
    assert [(each.replica, each.first, each.stop) for each in pieces] == [(0, 0, 9), (1, 100, 109)]


def test_a_bucket_is_no_wider_than_the_times_of_ids() -> None:
    logs = [[{"1": LogBounds(1, 1, 3, f"{2**64 - 1}-0", until=LogCursor(1, 2, "1-0"))}]] * 2
    assert {each.width for each in _plan(["s"], logs, logs, BOTH, None)} == {2**64 - 1}
