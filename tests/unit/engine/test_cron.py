"""Cron lines: their times by a naive search, by croniter, and where clocks jump."""

from __future__ import annotations

import random
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from anabranch.engine.cron import CronError, CronLine

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
"""Its clock jumps by half an hour."""


def ms(text: str, zone: tzinfo = UTC, fold: int = 0) -> int:
    at = datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)
    return int(at.timestamp() * 1000)


def times(line: str, after: str, count: int, zone: tzinfo = UTC, fold: int = 0) -> list[str]:
    """The next times as the clock of the zone shows them."""
    cron, at = CronLine(line, zone), ms(after, zone, fold)
    found = []
    for _ in range(count):
        next_ms = cron.next_ms(at)
        assert next_ms is not None
        at = next_ms
        found.append(datetime.fromtimestamp(at / 1000, zone).strftime("%Y-%m-%d %H:%M %z"))
    return found


def random_field(rng: random.Random, low: int, high: int, stars: tuple[str, ...]) -> str:
    def part() -> str:
        one = rng.randint(low, high - 1)
        other = rng.randint(one + 1, high)
        return rng.choice([f"{one}", f"{one}-{other}", f"{one}-{other}/{rng.randint(1, 9)}"])

    return rng.choice([*stars, ",".join(part() for _ in range(rng.randint(1, 3)))])


@pytest.mark.parametrize("seed", range(60))
def test_times_are_those_of_croniter(seed: int) -> None:
    """But `*/2` of days is no restriction for crons, and `5-5` is a round for croniter."""
    rng = random.Random(seed)
    bounds = ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6))
    line = " ".join(
        random_field(rng, *each, ("*", "*") if at in (2, 4) else ("*", f"*/{rng.randint(2, 20)}"))
        for at, each in enumerate(bounds)
    )
    start = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) + rng.randrange(4 * 366 * 86_400)
    theirs = croniter(line, datetime.fromtimestamp(start, UTC))
    cron, at_ms = CronLine(line), start * 1000
    for _ in range(5):
        found = cron.next_ms(at_ms)
        assert found == theirs.get_next(datetime).timestamp() * 1000, line
        at_ms = found


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_a_line_that_follows_time_matches_each_minute_by_itself(seed: int, zone: ZoneInfo) -> None:
    """Around the days on which clocks jump, against a look at every minute."""
    rng = random.Random(f"{seed}/{zone}")
    line = rng.choice(
        ["*/7 * * * *", "13 * * * *", "* 1-3 * * *", "*/20 0-4 * * *", "30 */2 * * *"]
    )
    days = "2026-03-08", "2026-03-29", "2026-04-05", "2026-10-04", "2026-10-25", "2026-11-01"
    at = ms(f"{rng.choice(days)} 00:00") - 12 * 3_600_000
    cron = CronLine(line, zone)
    expected = []
    for minute in range(1, 36 * 60):
        local = datetime.fromtimestamp(at / 1000 + minute * 60, zone).replace(tzinfo=None)
        if croniter.match(line, local):
            expected.append(at + minute * 60_000)
    found, now = [], at
    while (now := cron.next_ms(now) or 0) < at + 36 * 3_600_000:
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
def test_a_day_that_never_comes_has_no_time(line: str) -> None:
    assert CronLine(line).next_ms(0) is None


def test_there_is_no_time_after_the_year_9999() -> None:
    assert CronLine("0 0 1 1 *").next_ms(ms("9999-12-30 00:00")) is None
    assert CronLine("* * * * *", BERLIN).next_ms(ms("9999-12-31 23:59")) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("* * * *", "five fields"),
        ("* * * * * *", "not 6"),
        ("60 * * * *", "'60' is no minute: it is from 0 to 59"),
        ("* 24 * * *", "'24' is no hour"),
        ("* * 0 * *", "'0' is no day of the month"),
        ("* * * 13 *", "'13' is no month"),
        ("* * * foo *", "'foo' is no month"),
        ("* * * * 8", "'8' is no day of the week"),
        ("5-1 * * * *", "backwards"),
        ("*/0 * * * *", "step 0"),
        ("-1 * * * *", "'-1' is no minute"),
        ("1,,2 * * * *", "'' is no minute"),
        ("1- * * * *", "'1-' is no minute"),
        ("@daily", "five fields"),
        ("mon * * * *", "'mon' is no minute"),
        ("٣ * * * *", "is no minute"),
    ],
)
def test_what_is_no_line_says_why(line: str, why: str) -> None:
    with pytest.raises(CronError, match=why):
        CronLine(line)
