"""What a plan reports as lost, and what it leaves to those who read."""

from __future__ import annotations

from typing import cast

import pytest

from anabranch.spark.reading.losses import assess
from anabranch.spark.reading.offsets import BatchStart, LogBounds, LogCursor, Vector
from anabranch.spark.reading.server_logs import ServerLogs


class Known:
    """One stream, whose first entry is known, as a server shows it."""

    def subscribes(self, _stream: str) -> bool:
        return True

    def selects(self, _stream: str, _region: str) -> bool:
        return True

    def is_over(self, _region: str) -> bool:
        return False

    def first_id(self, _stream: str, _region: str, log: LogBounds) -> str:
        return f"{log.first}-0"

    def locate(self, _stream: str, _region: str, log: LogBounds, entry_id: str) -> LogCursor:
        return LogCursor(log.incarnation, log.first, entry_id)


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [
        (70, 60, 69),  # all below the position up to which entries were trimmed
        (80, 60, 69),  # what is missing above it was deleted one by one
        (25, 15, 24),  # the rest behind an entry that is there is counted when it is read
    ],
)
def test_a_plan_reports_what_is_missing_before_the_first_entry(
    first: int, count: int, last: int
) -> None:
    logs = {"s": {"1": LogBounds(0, first, 100, "99-0", trimmed=70)}}
    found = assess(Vector({"s": {"1": LogCursor(0, 10, "9-0")}}), logs, cast("ServerLogs", Known()))
    (text,) = found.lost
    assert text.startswith(
        f"stream s, region 1: {count} entries after 9-0 (positions 10\N{EN DASH}{last})"
    )
    assert found.begins == {"s": {"1": BatchStart(first, "9-0", last + 1)}}


def test_nothing_is_lost_before_an_entry_that_comes_next() -> None:
    logs = {"s": {"1": LogBounds(0, 10, 100, "99-0", trimmed=70)}}
    found = assess(Vector({"s": {"1": LogCursor(0, 10, "9-0")}}), logs, cast("ServerLogs", Known()))
    assert (found.lost, found.begins) == ([], {})


@pytest.mark.parametrize("last_read", [0, 1])
def test_a_region_that_had_written_nothing_has_lost_nothing(last_read: int) -> None:
    """The cursor of such a region is at 0, where no region has an entry."""
    start = Vector({"s": {"2": LogCursor(0, last_read)}})
    begun = {"s": {"2": LogBounds(5, 5, 7, "6-0", trimmed=5)}}
    for logs in (begun, {"s": {"1": LogBounds(1, 1, 2, "1-0")}}, {}):
        found = assess(start, logs, cast("ServerLogs", Known()))
        assert len(found.losses) == last_read
    (each,) = Vector.at_end(begun).ranges(start)
    assert (each.first, each.stop) == (5, 7)


def test_a_log_that_a_region_has_forgotten_is_absent_as_in_other_regions() -> None:
    """A server shows a log of its own region that ends at 0, where others show none."""
    start = Vector({"s": {"1": LogCursor(3, 12, "9-0")}})
    for logs in ({"1": LogBounds(0, 0, 0, "0-0")}, {}):
        found = assess(start, {"s": logs}, cast("ServerLogs", Known()))
        assert (len(found.absent), found.behind, found.lost) == (1, [], [])


@pytest.mark.parametrize(("incarnation", "lost"), [(11, 1), (1, 0)])
def test_a_greater_id_below_the_cursor_is_new_in_the_same_incarnation(
    incarnation: int, lost: int
) -> None:
    """After a deletion, which this server may have yet to receive, IDs may begin lower."""
    logs = {"s": {"1": LogBounds(incarnation, 1, 12, "110-0", before_id="110-0")}}
    found = assess(
        Vector({"s": {"1": LogCursor(11, 13, "6-0")}}), logs, cast("ServerLogs", Known())
    )
    assert (len(found.lost), len(found.behind)) == (lost, 1 - lost)


def test_a_server_of_its_own_begins_at_0_and_may_have_lost_entries_from_there_on() -> None:
    start = Vector({"s": {"": LogCursor(0, 0)}})
    made_again = {"s": {"": LogBounds(5, 5, 7, "6-0", trimmed=5)}}
    (text,) = assess(start, made_again, cast("ServerLogs", Known())).lost
    assert "deleted and made again" in text
    assert assess(start, {}, cast("ServerLogs", Known())).lost == ["stream s is gone"]
