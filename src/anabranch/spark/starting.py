"""The log line at the start of a streaming read: where it begins, or continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from anabranch.spark.audible import audible
from anabranch.spark.offsets import Cursor, Vector, next_id
from anabranch.spark.options import ReadOptions

__all__ = ["tell_start"]

_log = logging.getLogger(__name__)
_PLACES_MAX: Final = 8


def tell_start(
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
        for stream, regions in sorted(begin.cursors.items())
        for region, cursor in sorted(regions.items())
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


def _place(stream: str, region: str, cursor: Cursor) -> str:
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
    return (
        "startingOffsets as given"
        if wanted.lstrip().startswith("{")
        else f"startingOffsets={wanted}"
    )
