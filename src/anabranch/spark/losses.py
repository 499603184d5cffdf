"""What is gone of what a query was to read: found out, and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.spark.offsets import Cursor, Head, Heads, Vector, next_id, parse_id

if TYPE_CHECKING:
    from anabranch.spark.heads import Survey

__all__ = [
    "ADVICE",
    "ADVICE_SHORT",
    "DataLossError",
    "ends_missing",
    "losses",
    "place_of",
]

ADVICE: Final = "Raise retention, or set failOnDataLoss=false to go on without what is lost."
"""What a user can do about a loss."""

ADVICE_SHORT: Final = (
    "If it has yet to receive them, start again when it has; if they are lost, set "
    "failOnDataLoss=false to go on without them."
)
"""The same where a log ends too early."""


class DataLossError(AnabranchError):
    """Entries are gone that were never read; the text says which and what to do."""


def place_of(stream: str, region: str) -> str:
    """What messages call a region of a stream."""
    return f"stream {stream}" + (f", region {region}" if region else "")


def ends_missing(end: Vector, heads: Heads, survey: Survey) -> list[str]:
    """What there is not of a read up to `end`, one sentence each; for reads by position."""
    found = []
    for stream in survey.streams():
        for region, cursor in end.cursors.get(stream, {}).items():
            if cursor.by_id or not survey.selects(stream, region):
                continue
            head = heads.get(stream, {}).get(region)
            place = place_of(stream, region)
            if head is None:
                found.append(f"{place}: its log is gone")
            elif head.incarnation != cursor.incarnation:
                found.append(f"{place}: it was deleted and made again after endingOffsets")
            elif head.end.behind(cursor):
                found.append(
                    f"{place}: it ends at position {head.next}, before {cursor.position} which "
                    "endingOffsets name: the server lost its newest entries, was restored from "
                    "a backup, or has not received them yet from another region"
                )
    return found


def losses(start: Vector, heads: Heads, survey: Survey) -> list[str]:
    """What is gone that `start` had not read, one sentence each; empty if nothing is."""
    found = []
    for stream, regions in start.cursors.items():
        if stream not in heads:
            if any(survey.selects(stream, region) for region in regions):
                found.append(f"stream {stream} is gone")
            continue
        for region, cursor in regions.items():
            if not survey.selects(stream, region):
                continue
            place = place_of(stream, region)
            head = heads[stream].get(region)
            if head is None:
                found.append(f"{place}: its log is gone")
            else:
                lost = _lost(cursor, head)
                if lost is not None:
                    found.append(f"{place}: {_told(lost, cursor, head, stream, region, survey)}")
    return found


def _told(
    lost: str | int, cursor: Cursor, head: Head, stream: str, region: str, survey: Survey
) -> str:
    if isinstance(lost, str):
        return lost
    kept = survey.id_at(stream, region, head)
    entries = "1 entry" if lost == 1 else f"{lost} entries"
    was = "was trimmed before it was" if lost == 1 else "were trimmed before they were"
    return (
        f"{entries} after {cursor.last_id} (positions {cursor.position}"
        f"\N{EN DASH}{cursor.position + lost - 1}) {was} read; "
        + (f"first kept is {kept}" if kept is not None else "none is kept")
    )


def _lost(cursor: Cursor, head: Head) -> str | int | None:
    """What happened, or how many entries are lost, or None."""
    if cursor.incarnation != head.incarnation:
        return "it was deleted and made again; what the old one had left is lost"
    if head.end.behind(cursor):
        return (
            f"it ends at {head.last_id}, before {cursor.last_id} which was read already: it was "
            "made again, or the server lost its newest entries"
        )
    if cursor.by_id:
        missing = head.first - cursor.position
        unread = parse_id(cursor.last_id) < parse_id(head.last_id)
        # Deletions count like trimming here, so the next possible entry must be gone as well.
        following = parse_id(next_id(cursor.last_id))
        gone = head.first_id is None or parse_id(head.first_id) > following
        return missing if missing > 0 and unread and gone else None
    return head.trimmed - cursor.position if head.trimmed > cursor.position else None
