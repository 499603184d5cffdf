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

    def live_below(self, _stream: str, _region: str, _position: int) -> tuple[int, str]:
        return 0, "0-0"


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


@pytest.mark.parametrize("region", ["", "1"])
@pytest.mark.parametrize(
    ("position", "log", "text"),
    [
        # deleted, with 8 entries unread; all read
        (12, {"incarnation": 20, "is_former": True}, "8 entries after 9-0 (positions 12..19) were "
         "deleted with the key before they were read; none is kept"),
        (20, {"incarnation": 20, "is_former": True}, None),
        # made again, with 30 entries since, of which 4 were trimmed
        (19, {"incarnation": 20}, "1 entry after 9-0 (positions 19..19) was deleted with the key "
         "before it was read; first kept is 20-0"),
        (20, {"incarnation": 20}, None),
        (20, {"incarnation": 20, "trimmed": 24}, "4 entries after 9-0 (positions 20..23) were "
         "trimmed before they were read; first kept is 24-0"),
        (18, {"incarnation": 20, "trimmed": 24}, "6 entries after 9-0 (positions 18..23) were "
         "deleted with the key, or trimmed, before they were read; first kept is 24-0"),
        # the server has forgotten what was before 16
        (12, {"incarnation": 20, "is_former": True, "known_from": 16}, "it was deleted; what was "
         "left unread of the old one, from position 12 on, is lost"),
        (12, {"incarnation": 20, "known_from": 16}, "it was deleted and made again; what was left "
         "unread of the old one, from position 12 on, is lost"),
        (17, {"incarnation": 20, "known_from": 16}, "3 entries after 9-0 (positions 17..19) were "
         "deleted with the key before they were read; first kept is 20-0"),
    ],
)  # fmt: skip
def test_what_a_deletion_has_lost_is_counted(
    region: str, position: int, log: dict[str, int], text: str | None
) -> None:
    first = log.get("trimmed", log["incarnation"])
    stop = log["incarnation"] if "is_former" in log else 50
    bounds = LogBounds(first=first, next=stop, last_id="99-0", **{"trimmed": first, **log})
    start = Vector({"s": {region: LogCursor(3, position, "9-0")}})
    found = assess(start, {"s": {region: bounds}}, cast("ServerLogs", Known()))
    place = f"stream s, region {region}" if region else "stream s"
    told = [] if text is None else [f"{place}: {text}".replace("..", "\N{EN DASH}")]
    assert found.lost == told
    assert (found.absent, found.behind, found.set_back) == ([], [], [])
    begin = BatchStart(first, "0-0", first)  # 9-0 was an ID of the former stream
    assert found.begins == ({} if text is None else {"s": {region: begin}})


@pytest.mark.parametrize("region", ["", "1"])
def test_what_is_forgotten_of_a_stream_that_was_read_is_no_loss(region: str) -> None:
    """The offset says that nothing was left: position and incarnation are the same."""
    ended = Vector({"s": {region: LogCursor(20, 20, "0-0")}})
    survey = cast("ServerLogs", Known())
    assert assess(ended, {}, survey).losses == []
    assert assess(ended, {"s": {}}, survey).losses == []
    again = LogBounds(30, 30, 40, "9-0", trimmed=30, known_from=30)
    assert assess(ended, {"s": {region: again}}, survey).losses == []
    (lost,) = assess(
        ended, {"s": {region: LogBounds(33, 33, 40, "9-0", trimmed=33, known_from=30)}}, survey
    ).losses
    assert "3 entries after 0-0 (positions 30\N{EN DASH}32) were deleted with the key" in lost
    reading = Vector({"s": {region: LogCursor(20, 21, "9-0")}})
    assert len(assess(reading, {}, survey).losses) == 1


def test_a_server_of_its_own_begins_at_0_and_may_have_lost_entries_from_there_on() -> None:
    start = Vector({"s": {"": LogCursor(0, 0)}})
    made_again = {"s": {"": LogBounds(5, 5, 7, "6-0", trimmed=5, known_from=5)}}
    (text,) = assess(start, made_again, cast("ServerLogs", Known())).lost
    assert "deleted and made again" in text
    assert assess(start, {}, cast("ServerLogs", Known())).lost == ["stream s is gone"]
