"""Cron lines: at which times something happens again and again.

A line has five fields: minute, hour, day of the month, month, day of the week (0 and 7 are Sunday).
A field is ``*``, a number, a range ``1-5``, several of these with commas, each maybe with a step
``*/15``; months and days of the week also have names. If both days are restricted, one of them is
enough, as in every cron since System V.

The clock of a zone jumps. A line with ``*`` (or ``*/n``) as minute or hour follows time as it
passes: hours that come twice count twice, hours that are missing do not count. Any other line means
times of the clock: what is missing happens when the clock has jumped, what comes twice happens the
first time (so does cron of Debian).

The zone is handed in: nothing here knows where zones are kept, nor what time it is.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

_BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_WHAT: Final = ("minute", "hour", "day of the month", "month", "day of the week")
_NAMES: Final = {
    3: dict(
        zip("jan feb mar apr may jun jul aug sep oct nov dec".split(), range(1, 13), strict=True)
    ),
    4: dict(zip("sun mon tue wed thu fri sat".split(), range(7), strict=True)),
}
_PART: Final = re.compile(r"(?:(\*)|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:/([0-9]{1,4}))?")
_LENGTH_MAX: Final = 512

_DAYS_MAX: Final = 366 * 8 + 31
"""The 29th of February comes again within eight years."""

_MINUTE: Final = timedelta(minutes=1)
_MINUTE_MS: Final = 60_000
_DAY_MINUTES: Final = 24 * 60


class CronError(ValueError):
    """The text is no cron line; the message says why."""


class CronLine:
    """The times of one line in one zone."""

    def __init__(self, text: str, zone: tzinfo = UTC) -> None:
        """CronError for a text that is no line."""
        if len(text) > _LENGTH_MAX:
            raise CronError(f"a cron line has at most {_LENGTH_MAX} letters")
        fields = text.split()
        if len(fields) != len(_BOUNDS):
            raise CronError(
                f"a cron line has five fields (minute, hour, day, month, day of the week), "
                f"and not {len(fields)}"
            )
        sets = [_numbers(at, field.lower()) for at, field in enumerate(fields)]
        self._minutes, self._hours = sorted(sets[0]), sorted(sets[1])
        self._days, self._months = sets[2], sets[3]
        self._weekdays = {day % 7 for day in sets[4]}
        self._either_day = not (fields[2].startswith("*") or fields[4].startswith("*"))
        self._follows_time = fields[0].startswith("*") or fields[1].startswith("*")
        self._zone = zone

    def next_ms(self, after_ms: int) -> int | None:
        """The first time after another one, both in ms since 1970; None if there is none."""
        find = self._next_passing if self._follows_time else self._next_on_clock
        try:
            found = find(after_ms // _MINUTE_MS)
        except (OverflowError, ValueError):  # after the year 9999
            return None
        return None if found is None else found * _MINUTE_MS

    # Times are minutes since 1970; local times are those of the zone's clock, without a zone.

    def _next_on_clock(self, after: int) -> int | None:
        """The next time for a line that means times of the clock."""
        local: datetime | None = self._local(after)
        while local is not None and (local := self._next_local(local)) is not None:
            offset = local.replace(tzinfo=self._zone).utcoffset() or timedelta()
            time = _minutes_of(local - offset)
            if self._local(time) != local:  # the clock jumps over it
                time = self._change(time - _DAY_MINUTES - 60, time)
            if time > after:
                return time
        return None

    def _next_passing(self, after: int) -> int | None:
        """The next time for a line that follows time."""
        while True:
            offset = self._offset(after)
            local = self._next_local(self._local(after))
            if local is None:
                return None
            time = _minutes_of(local - offset)
            if self._offset(time) == offset:
                return time
            after = self._change(after, time)  # the clock is set before that
            if self._matches(self._local(after)):
                return after

    def _offset(self, time: int) -> timedelta:
        at = datetime.fromtimestamp(time * 60, self._zone)
        return at.utcoffset() or timedelta()

    def _local(self, time: int) -> datetime:
        local = datetime.fromtimestamp(time * 60, self._zone).replace(tzinfo=None, fold=0)
        return local.replace(second=0)  # offsets of the nineteenth century have seconds

    def _change(self, low: int, high: int) -> int:
        """The first minute of the offset that there is at the end, if it changes once between."""
        offset = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(middle) == offset:
                low = middle
            else:
                high = middle
        return high

    def _has_day(self, day: date) -> bool:
        of_month = day.day in self._days
        of_week = day.isoweekday() % 7 in self._weekdays
        return of_month or of_week if self._either_day else of_month and of_week

    def _matches(self, local: datetime) -> bool:
        return (
            local.minute in self._minutes
            and local.hour in self._hours
            and local.month in self._months
            and self._has_day(local)
        )

    def _next_local(self, after: datetime) -> datetime | None:
        """The next time of the clock behind this one; None within eight years."""
        first = after + _MINUTE
        day = first.replace(hour=0, minute=0)
        last = day + timedelta(days=_DAYS_MAX)
        while day < last:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=31)).replace(day=1)
                continue
            if self._has_day(day):
                found = self._time_on(day, first)
                if found is not None:
                    return found
            day += timedelta(days=1)
        return None

    def _time_on(self, day: datetime, first: datetime) -> datetime | None:
        """The earliest time of a day, not before ``first`` if that is on this day."""
        is_later = day > first
        for hour in self._hours:
            if is_later or hour >= first.hour:
                least = 0 if is_later or hour > first.hour else first.minute
                for minute in self._minutes:
                    if minute >= least:
                        return day.replace(hour=hour, minute=minute)
        return None


def _minutes_of(time: datetime) -> int:
    """Minutes since 1970 of a time of UTC."""
    return (time - datetime(1970, 1, 1)) // _MINUTE  # noqa: DTZ001 - all are without a zone


def _numbers(at: int, field: str) -> set[int]:
    """The numbers of a field."""
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise CronError(
                f"'{part[:32]}' is no {_WHAT[at]}: it is *, n, n-m, or one of these/step"
            )
        star, first, last, step = match.groups()
        low, high = _BOUNDS[at]
        if star is None:
            low = _number(at, first)
            if last is not None:
                high = _number(at, last)
            elif step is None:
                high = low
        if low > high:
            raise CronError(
                f"'{part[:32]}' goes backwards: the first number must be the smaller one"
            )
        if step is not None and int(step) == 0:
            raise CronError(f"'{part[:32]}' has the step 0: a step is 1 or more")
        found.update(range(low, high + 1, int(step or 1)))
    return found


def _number(at: int, word: str) -> int:
    low, high = _BOUNDS[at]
    number = _NAMES.get(at, {}).get(word, -1)
    if word.isdigit() and len(word) <= 4:
        number = int(word)
    if not low <= number <= high:
        raise CronError(f"'{word[:32]}' is no {_WHAT[at]}: it is from {low} to {high}")
    return number
