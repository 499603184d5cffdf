"""Log lines of sources and sinks, in the processes that Spark starts for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.offsets import LogCursor, Vector, next_id

_log = logging.getLogger(__name__)
_PLACES_MAX: Final = 8


def audible() -> None:
    """Send log records to stderr, if logging is not configured in this process.

    Users cannot configure logging in processes of Spark; their stderr is that of the driver.
    """
    ours = logging.getLogger("anabranch")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("anabranch: %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)


def log_start(
    options: ReadOptions,
    begin: Vector,
    *,
    resumed: bool,
    selects: Callable[[str, str], bool] | None = None,
) -> None:
    """Log where a query starts; `resumed`: from a checkpoint.

    `selects`: which regions of which streams are read; all by default.
    """
    audible()
    places = [
        _place(stream, region, cursor)
        for stream, region, cursor in begin.items()
        if selects is None or selects(stream, region)
    ]
    more = len(places) - _PLACES_MAX
    where = ", ".join(places[:_PLACES_MAX]) or "the first entries of streams that are not there yet"
    if more > 0:
        where += f" and {more} more places"
    if resumed:
        ignored = "startingOffsets" if options.starting_timestamp is None else "startingTimestamp"
        _log.info("resuming from checkpoint at %s; %s ignored", where, ignored)
    else:
        _log.info("no checkpoint yet: starting at %s (%s)", where, _wish(options))


def _place(stream: str, region: str, cursor: LogCursor) -> str:
    name = f"{stream}/{region}" if region else stream
    if cursor.position == cursor.incarnation or (cursor.by_id and cursor.last_id == "0-0"):
        return f"{name} from its first entry"
    if cursor.by_id:
        first = next_id(cursor.last_id)  # the ID of an entry, or a time
        return f"{name} from {first}" if first.endswith("-0") else f"{name} behind {cursor.last_id}"
    behind = "" if cursor.last_id == "0-0" else f" behind {cursor.last_id}"
    return f"{name}{behind} (position {cursor.position})"


def _wish(options: ReadOptions) -> str:
    """The requested streams and regions, in short."""
    if options.starting_timestamp is not None:
        return f"startingTimestamp={options.starting_timestamp}"
    wanted = options.starting_offsets or "latest"
    is_json = wanted.lstrip().startswith("{")
    return "startingOffsets as given" if is_json else f"startingOffsets={wanted}"
