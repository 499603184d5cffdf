"""When a difference between regions is one: not while entries or deletions may be under way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark.jobs.audit import _EntryComparison, _horizon, _plan
from anabranch.spark.jobs.signatures import AuditJob
from anabranch.spark.reading.comparison import Entries, Piece
from anabranch.spark.reading.offsets import LogBounds, LogCursor

BOTH = [[True, True], [True, True]]
PARTED = [[True, False], [False, True]]
A = b"*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\nn\r\n$1\r\na\r\n"
B = A.replace(b"\na", b"\nb")
OTHER = A.replace(b"5-1", b"6-1")


def judged(
    first: Entries,
    second: Entries,
    heard: list[list[bool]] = BOTH,
    replica_id: str = "1",
) -> tuple[set[tuple[str, str, tuple[str, ...]]], int]:
    """Findings and how many are undecided, of two regions with numbers 1 and 2."""
    regions: Any = [
        SimpleNamespace(name=name, number=number, client=None)
        for number, name in enumerate(("eu", "us"), 1)
    ]
    comparison = _EntryComparison(regions, AuditJob())
    comparison._judge(Piece("s", replica_id, 7, 8, (0, 0)), first, second, heard)
    found = {(each.kind, each.what, each.regions) for each in comparison.findings}
    return found, comparison.undecided


def test_missing_is_what_stays_missing_when_all_is_heard() -> None:
    assert judged((A, None), (A, None)) == ({("missing", "5-1", ("us",))}, 0)
    assert judged((A, None), (A, None), replica_id="2") == ({("extra", "5-1", ("eu",))}, 0)
    assert judged((A, None), (None, None)) == (set(), 0), "a deletion was under way, or a trim"
    assert judged((A, None), (A, A)) == (set(), 0), "it came late"
    assert judged((A, A), (A, None)) == (set(), 0), "it was deleted just now"
    assert judged((A, None), (A, None), PARTED) == (set(), 1)


def test_another_id_at_a_position_is_another_entry() -> None:
    found, undecided = judged((A, OTHER), (A, OTHER))
    assert found == {("missing", "5-1", ("us",)), ("extra", "6-1", ("us",))}
    assert undecided == 0


def test_only_who_has_it_must_have_heard() -> None:
    knows = [[True, True], [False, True]]  # eu has heard of us, and not the other way round
    assert judged((A, None), (A, None), knows)[0] == {("missing", "5-1", ("us",))}
    assert judged((None, A), (None, A), knows) == (set(), 1)


def test_content_is_compared_with_that_of_who_wrote_it() -> None:
    assert judged((A, B), (A, B))[0] == {("content", "5-1", ("us",))}
    assert judged((A, B), (A, B), replica_id="2")[0] == {("content", "5-1", ("eu",))}
    assert judged((A, B), (A, B), PARTED) == (set(), 1)


def log(first: int, stop: int, trimmed: int = 0, incarnation: int = 0) -> LogBounds:
    ids = f"{10 * (stop - 1)}-0", f"{10 * first}-0"
    return LogBounds(
        incarnation, first, stop, ids[0], trimmed, until=LogCursor(incarnation, first + 1, ids[1])
    )


def test_where_all_trimmed_alike_everything_counts() -> None:
    def horizon(*logs: LogBounds) -> int:
        return _horizon([{"1": each} for each in logs] + [{}], "1", [0] * (len(logs) + 1))

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
    pieces, positions = _plan(["s", "new"], before, now, heard)
    assert pieces == [Piece("s", "1", 2, cut, (0, 0))]  # from where us has entries
    assert positions == 2 * (cut - 2)


def test_a_stream_that_was_made_anew_meanwhile_is_not_compared() -> None:
    before = [[{"1": log(0, 900)}], [{"1": log(0, 900)}]]
    anew = log(1000, 1003, 1000, incarnation=1000)
    for now in ([[{"1": anew}], [{"1": log(0, 900)}]], [[{"1": anew}], [{"1": anew}]]):
        assert _plan(["s"], before, now, BOTH) == ([], 0)


def test_servers_without_regions_have_positions_of_their_own() -> None:
    logs = [[{"": log(0, 9)}], [{"": log(100, 109, 100, incarnation=100)}]]
    assert _plan(["s"], logs, logs, BOTH) == ([Piece("s", "", 0, 9, (0, 100))], 18)
