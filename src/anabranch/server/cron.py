"""Cron lines: at which times something happens again and again, as the library cronsim reads them.

They mean what they mean to Debian's cron, also where the clock of a zone jumps (docs/policies.md).
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from anabranch.engine import texts
from anabranch.errors import CommandError

_LENGTH_MAX: Final = 512
_MINUTE_MS: Final = 60_000

_TIMES_MAX: Final = 256
"""So many times are remembered: thousands of entries often share a few lines, and fall due
together.
"""


def next_by_cron(line: bytes, zone: bytes, after_ms: int) -> int | None:
    """The first time of a line after a time, both in ms since 1970; None if there is none.

    CommandError for what is no line, or no zone that this machine knows.
    """
    found = _next_minute(line, zone, after_ms // _MINUTE_MS)
    return None if found is None else found * _MINUTE_MS


@lru_cache(_TIMES_MAX)
def _next_minute(line: bytes, zone: bytes, after: int) -> int | None:
    """The same in minutes since 1970."""
    if len(line) > _LENGTH_MAX:
        raise CommandError(f"ERR invalid cron line: it has more than {_LENGTH_MAX} bytes")
    try:
        after_local = datetime.fromtimestamp(after * 60, _zone(zone))
        for at in CronSim(line.decode("utf-8", "replace"), after_local):
            minute = int(at.timestamp()) // 60
            if minute > after:  # of an hour that comes twice, the first one may be over
                return minute
    except CronSimError as objection:
        raise CommandError(_objection(str(objection))) from None
    except (OverflowError, ValueError):  # after the year 9999
        return None
    return None


def _zone(name: bytes) -> tzinfo:
    """A zone of the system, or of the package tzdata."""
    if name == b"UTC":
        return UTC
    try:
        return ZoneInfo(name.decode())
    except (KeyError, OSError, ValueError):
        raise CommandError(texts.unknown_zone(name)) from None


def _objection(why: str) -> str:
    """The error reply for what cronsim says of a line: "Bad hour", "Wrong number of fields"."""
    return (
        f"ERR invalid cron line: {why.lower()}. It has five fields: minute, hour, day of the "
        "month, month, day of the week. A field is *, n, n-m, or several with commas, each maybe "
        "with a step /n"
    )
