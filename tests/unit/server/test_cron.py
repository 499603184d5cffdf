"""Cron lines: their times, also where clocks jump, and what is no line."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from anabranch.errors import CommandError
from anabranch.server.cron import next_by_cron

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
"""Its clock jumps by half an hour."""


def ms(text: str, zone: tzinfo = UTC, fold: int = 0) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)
    return int(at.timestamp() * 1000)


def next_ms(line: str, after_ms: int, zone: tzinfo = UTC) -> int | None:
    return next_by_cron(line.encode(), str(zone).encode(), after_ms)


def times(line: str, after: str, count: int, zone: tzinfo = UTC, fold: int = 0) -> list[str]:
    """The next times as the clock of the zone shows them."""
    at = ms(after, zone, fold)
    found = []
    for _ in range(count):
        following = next_ms(line, at, zone)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1000, zone).strftime("%Y-%m-%d %H:%M %z"))
    return found


FOLLOW_TIME: dict[str, Callable[[datetime], bool]] = {
    "*/7 * * * *": lambda at: at.minute % 7 == 0,
    "13 * * * *": lambda at: at.minute == 13,
    "* 1-3 * * *": lambda at: 1 <= at.hour <= 3,
    "*/20 0-4 * * *": lambda at: at.minute % 20 == 0 and at.hour <= 4,
    "30 */2 * * *": lambda at: at.minute == 30 and at.hour % 2 == 0,
}


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_a_line_that_follows_time_matches_each_minute_by_itself(seed: int, zone: ZoneInfo) -> None:
    """Around the days on which clocks jump, against a look at every minute."""
    rng = random.Random(f"{seed}/{zone}")
    line, matches = rng.choice(list(FOLLOW_TIME.items()))
    days = "2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"
    begin = ms(f"{rng.choice(days)} 00:00") - 12 * 3_600_000
    minutes = range(begin + 60_000, begin + 36 * 3_600_000, 60_000)
    expected = [at for at in minutes if matches(datetime.fromtimestamp(at / 1000, zone))]
    found, now = [], begin
    while (now := next_ms(line, now, zone) or 0) < begin + 36 * 3_600_000:
        found.append(now)
    assert found == expected


def test_a_time_that_the_clock_jumps_over_comes_when_it_has_jumped() -> None:
    assert times("30 2 * * *", "2026-03-28 12:00", 2, BERLIN) == [
        "2026-03-29 03:00 +0200",
        "2026-03-30 02:30 +0200",
    ]
    assert times("15,45 2 * * *", "2026-03-28 12:00", 2, BERLIN)[1] == "2026-03-30 02:15 +0200"
    assert times("10 2 * * *", "2026-10-03 12:00", 1, LORD_HOWE) == ["2026-10-04 02:30 +1100"]


def test_a_time_that_comes_twice_counts_once() -> None:
    assert times("30 2 * * *", "2026-10-24 12:00", 2, BERLIN) == [
        "2026-10-25 02:30 +0200",
        "2026-10-26 02:30 +0100",
    ]
    assert times("30 2 * * *", "2026-10-25 02:10", 1, BERLIN, fold=1) == ["2026-10-26 02:30 +0100"]


def test_each_hour_counts_as_often_as_it_comes() -> None:
    assert times("30 * * * *", "2026-10-25 01:00", 4, BERLIN) == [
        "2026-10-25 01:30 +0200",
        "2026-10-25 02:30 +0200",
        "2026-10-25 02:30 +0100",
        "2026-10-25 03:30 +0100",
    ]
    assert times("0 * * * *", "2026-03-29 01:10", 2, BERLIN) == [
        "2026-03-29 03:00 +0200",
        "2026-03-29 04:00 +0200",
    ]


def test_either_day_is_enough_if_both_are_restricted() -> None:
    assert times("0 0 13 * fri", "2026-02-01 00:00", 3) == [
        "2026-02-06 00:00 +0000",
        "2026-02-13 00:00 +0000",
        "2026-02-20 00:00 +0000",
    ]
    assert times("0 0 * * 7", "2026-02-02 00:00", 1) == ["2026-02-08 00:00 +0000"]
    assert times("0 0 1 JAN-mar/2 *", "2026-01-01 00:00", 1) == ["2026-03-01 00:00 +0000"]
    assert times("5/20 * * * *", "2026-01-01 00:06", 2)[0] == "2026-01-01 00:25 +0000"


def test_a_leap_day_is_found_eight_years_ahead() -> None:
    assert times("0 12 29 2 *", "2096-03-01 00:00", 1) == ["2104-02-29 12:00 +0000"]


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_a_day_of_the_month_that_never_comes_is_refused(line: str) -> None:
    with pytest.raises(CommandError, match="bad day-of-month"):
        next_ms(line, 0)


def test_a_day_that_never_comes_has_no_time() -> None:
    assert next_ms("0 0 */31 2 mon#5", 0) is None


def test_there_is_no_time_after_the_year_9999() -> None:
    assert next_ms("0 0 1 1 *", ms("9999-12-30 00:00")) is None
    assert next_ms("* * * * *", ms("9999-12-31 23:59"), BERLIN) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("* * * *", "wrong number of fields"),
        ("* * * * * *", "wrong number of fields"),
        ("@daily", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("* * 0 * *", "bad day-of-month"),
        ("* * * 13 *", "bad month"),
        ("* * * foo *", "bad month"),
        ("* * * * 8", "bad day-of-week"),
        ("5-1 * * * *", "bad minute"),
        ("*/0 * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("1- * * * *", "bad minute"),
        ("٣ * * * *", "bad minute"),
        ("1" * 5000 + " * * * *", "more than 512 bytes"),
    ],
)
def test_what_is_no_line_says_why(line: str, why: str) -> None:
    with pytest.raises(CommandError, match=f"ERR invalid cron line: .*{why}"):
        next_ms(line, 0)


@pytest.mark.parametrize("zone", [b"Mars/Olympus", b"../etc/passwd", b"Europe", b"\xff", b""])
def test_a_zone_that_nobody_knows_is_named(zone: bytes) -> None:
    with pytest.raises(CommandError, match="knows no time zone"):
        next_by_cron(b"* * * * *", zone, 0)
