"""Finds and reports entries that a query should have read and that are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from anabranch.errors import AnabranchError
from anabranch.spark.reading.offsets import (
    BatchStart,
    LogBounds,
    LogCursor,
    Logs,
    Vector,
    known_log,
    next_id,
    parse_id,
    place_of,
)

if TYPE_CHECKING:
    from anabranch.spark.reading.server_logs import ServerLogs


class _Missing(AnabranchError):
    """Says what is missing, and what a user can do about it."""

    advice: ClassVar[str]

    def __str__(self) -> str:
        return f"{super().__str__()}. {self.advice}"


class ServerBehindError(_Missing):
    """A server has less than was read already: no option makes a query read it again."""

    advice = (
        "Start the query again when the server has caught up, or read from one that has them; if "
        "it never will (its disk was emptied, or it is another server), begin with a new "
        "checkpoint. Nothing is read twice; catchUpTimeout says how long to wait."
    )


class DataLossError(_Missing):
    """Entries were deleted before they were read."""

    advice = (
        "Set failOnDataLoss=false to go on without what is lost, and nothing is read twice; start "
        "again when the server has what it has yet to receive; raise retention where entries were "
        "trimmed."
    )


@dataclass(slots=True)
class Found:
    """The comparison of a vector with the streams."""

    lost: list[str] = field(default_factory=list)
    """Entries that were deleted unread, one sentence each."""
    absent: list[str] = field(default_factory=list)
    """Entries that are missing: deleted, or not yet arrived from another region."""
    behind: list[str] = field(default_factory=list)
    """Logs that end before the position that was read, one sentence each."""
    set_back: list[str] = field(default_factory=list)
    """The same of logs that are over: what was read may be in no region any more."""
    begins: dict[str, dict[str, BatchStart]] = field(default_factory=dict)
    """The positions behind the lost entries."""

    @property
    def losses(self) -> list[str]:
        """All that is lost, or absent and not behind."""
        return self.lost + self.absent

    def refuse(self, *, losses: bool) -> None:
        """Raise `ServerBehindError`, and `DataLossError` if `losses` are refused."""
        if self.behind:
            raise ServerBehindError("; ".join(self.behind))
        if losses and self.losses:
            raise DataLossError("; ".join(self.losses))


def unsubscribed(start: Vector, server: ServerLogs) -> list[str]:
    """Streams of a vector that the options do not include any more."""
    return sorted(each for each in start.cursors if not server.subscribes(each))


def assess(start: Vector, logs: Logs, server: ServerLogs, target: Logs | None = None) -> Found:
    """Compare a vector with the logs that there are.

    `target`: the ends up to which a run reads. What was trimmed behind them is left to a later run;
    otherwise a run would not end while a stream is trimmed all the time.
    """
    found = Found()
    for stream, regions in start.cursors.items():
        if not server.subscribes(stream):
            continue
        # Positions of regions begin above 0. A cursor at 0 is that of a region which had written
        # nothing: it has read nothing, and no server need have the log.
        read = {
            region: cursor
            for region, cursor in regions.items()
            if server.selects(stream, region) and (cursor.position or not region)
        }
        if stream not in logs:
            _miss(found, stream, read)
            continue
        for region, cursor in read.items():
            place = place_of(stream, region)
            log = known_log(logs[stream], region)
            if log is not None and cursor.at_begin and cursor.position < log.known_from:
                # The server had forgotten the stream, of which all was read, and knows the rest.
                cursor = replace(cursor, position=log.known_from)
            if log is None:
                if not cursor.at_begin:
                    found.absent.append(_absent(place))
            elif _is_another(region, cursor, log) and not (
                cursor.by_id and server.has_entry(stream, cursor.last_id)
            ):
                jump, lost = _of_another(stream, region, cursor, log, server)
                found.lost.append(f"{place}: {lost}")
                found.begins.setdefault(stream, {})[region] = jump
            elif log.end.behind(cursor) or log.incarnation < cursor.incarnation:
                if server.is_over(region):
                    found.set_back.append(_set_back(place, cursor, log))
                else:
                    found.behind.append(_behind(place, cursor, log))
            elif (horizon := _horizon(cursor, log)) and (
                log.is_former or not _is_at(target, stream, region, cursor)
            ):
                begin = log.begin
                is_same = log.incarnation == cursor.incarnation and not begin.by_id
                last_id = cursor.last_id if is_same else begin.last_id
                at = begin.position if begin.by_id else max(begin.position, cursor.position)
                # What is missing behind the first entry is found when it is read: more may be
                # trimmed until then.
                horizon = min(horizon, at)
                if horizon > cursor.position:
                    lost = _loss(horizon, cursor, log, stream, region, server)
                    found.lost.append(f"{place}: {lost}")
                    found.begins.setdefault(stream, {})[region] = BatchStart(at, last_id, horizon)
    return found


def _miss(found: Found, stream: str, read: Mapping[str, LogCursor]) -> None:
    """Report a stream that the server does not know: it has forgotten it, or never knew it."""
    begun = [region for region, cursor in read.items() if not cursor.at_begin]
    if any(begun):
        found.absent.append(_absent(f"stream {stream}"))
    elif begun:
        found.lost.append(f"stream {stream} is gone")


def _is_at(target: Logs | None, stream: str, region: str, cursor: LogCursor) -> bool:
    """Whether a cursor has reached the target of a run, which has no log that came later."""
    if target is None:
        return False
    log = target.get(stream, {}).get(region)
    return log is None or not cursor.behind(log.end)


def _behind(place: str, cursor: LogCursor, log: LogBounds) -> str:
    lacking = cursor.position - log.next
    what = f"{lacking} fewer entries than were read" if lacking > 0 else "less than was read"
    return (
        f"{place}: this server has {what} (it ends at {log.last_id}, position {log.next}; read "
        f"up to {cursor.last_id}, position {cursor.position}). It has yet to receive them from "
        "another region, was restored from an older state, or lost its newest entries"
    )


def _set_back(place: str, cursor: LogCursor, log: LogBounds) -> str:
    return (
        f"{place}: it ends at position {log.next}, and was read up to position {cursor.position}. "
        "The region was removed, or was set back and has begun a new epoch: rows that were read "
        "may be in no region any more. Nothing is read twice"
    )


def _absent(place: str) -> str:
    return f"{place} is not on this server: it was deleted, or has yet to come from another region"


def _is_another(region: str, cursor: LogCursor, log: LogBounds) -> bool:
    """Whether this cannot be the log that was read, or goes on otherwise than that did.

    Its server was restored, or has another disk, or another server is at its address. Nothing says
    so but the entries: in one log, IDs and positions grow together. Where a key was deleted, which
    this server may have yet to receive from another region, IDs may begin lower.
    """
    if cursor.last_id == "0-0":
        return False
    last_id = parse_id(cursor.last_id)
    if cursor.by_id:
        if parse_id(log.last_id) <= last_id:
            return False  # it ends below, or has nothing new
        # What is live behind the cursor was added behind it, so everything before is gone.
        is_behind_all = log.first_id is not None and parse_id(log.first_id) > last_id
        return log.next < cursor.position or (is_behind_all and log.first < cursor.position)
    if parse_id(log.before_id) > last_id and (not region or log.incarnation >= cursor.incarnation):
        return True
    if log.incarnation != cursor.incarnation:
        # No deletion of a key on a server of its own spares entries.
        return not region and cursor.incarnation < log.incarnation < cursor.position
    if log.is_former or cursor.at_begin or log.next < cursor.position:
        return False  # `at_begin`: the last ID is that of the former stream
    is_lower = log.left and parse_id(log.until.last_id) <= last_id
    return bool(is_lower) or parse_id(log.last_id) < last_id


def _of_another(
    stream: str, region: str, cursor: LogCursor, log: LogBounds, server: ServerLogs
) -> tuple[BatchStart, str]:
    """Where to go on in a log that is another one than was read, and what to say about it."""
    if cursor.by_id:
        return BatchStart(log.first, cursor.last_id, log.first), (
            f"it was deleted and made again, or its server was restored from an older state, or "
            f"another server is there: {log.next} entries were ever added, and {cursor.position} "
            f"were before {cursor.last_id}, up to which was read. What was left unread of the old "
            "one is lost; what has a greater ID is new. To read what has a lower one, begin with a "
            "new checkpoint"
        )
    if region or log.incarnation == cursor.incarnation:
        begin = server.locate(stream, region, log, next_id(cursor.last_id)).position
        begin = min(begin, cursor.position)
    else:
        begin = log.first  # no entry of it can have been read
    skipped, before_id = server.live_below(stream, region, begin)
    return BatchStart(begin, before_id, begin), (
        "its server was restored from an older state, lost its newest entries, or has another "
        f"disk, and has others since: it is at {log.last_id}, position {log.next}, and has other "
        f"entries than those that were read up to {cursor.last_id}, position {cursor.position}. "
        f"What it lost was read; what is from position {begin} on is new, and of the {skipped} "
        "entries below nobody knows. To read these as well, begin with a new checkpoint"
    )


def _loss(
    horizon: int, cursor: LogCursor, log: LogBounds, stream: str, region: str, server: ServerLogs
) -> str:
    deleted = cursor.position < log.incarnation
    if deleted and cursor.position < log.known_from:
        again = "" if log.is_former else " and made again"
        return (
            f"it was deleted{again}; what was left unread of the old one, from position "
            f"{cursor.position} on, is lost"
        )
    kept = None if log.is_former else server.first_id(stream, region, log)
    lost = horizon - cursor.position
    entries = "1 entry" if lost == 1 else f"{lost} entries"
    how = "deleted with the key" if deleted else "trimmed"
    if deleted and log.trimmed > log.incarnation:
        how += ", or trimmed,"
    was = f"was {how} before it was" if lost == 1 else f"were {how} before they were"
    return (
        f"{entries} after {cursor.last_id} (positions {cursor.position}"
        f"\N{EN DASH}{horizon - 1}) {was} read; "
        + (f"first kept is {kept}" if kept is not None else "none is kept")
    )


def _horizon(cursor: LogCursor, log: LogBounds) -> int:
    """Entries below this position are lost, 0 if none are."""
    if cursor.by_id:
        unread = parse_id(cursor.last_id) < parse_id(log.last_id)
        # Deletions count like trimming here, so the next possible entry must be gone as well.
        following = parse_id(next_id(cursor.last_id))
        gone = log.first_id is None or parse_id(log.first_id) > following
        return log.first if log.first > cursor.position and unread and gone else 0
    horizon = max(log.trimmed, log.incarnation)
    return horizon if horizon > cursor.position else 0
