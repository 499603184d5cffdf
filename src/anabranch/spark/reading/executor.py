"""Reads one partition on an executor: replies in, Arrow batches out.

Each is read over a connection of the worker process. If entries were trimmed after planning, that
is reported as a loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, islice, takewhile
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.spark.connection.client import (
    ServerClient,
    ServerRefused,
    ServerUnreachable,
    Word,
    connect,
    facts_of,
    stream_key,
)
from anabranch.spark.connection.region_names import is_over
from anabranch.spark.decoding.columns import ColumnError, Projection, outside
from anabranch.spark.decoding.exports import Ints, MalformedReply, parse_export
from anabranch.spark.decoding.pages import (
    FIRST_PAGE,
    Entries,
    ParsedEntries,
    begin_page,
    next_page,
)
from anabranch.spark.decoding.wire_entries import WireEntries
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.holes import Removal
from anabranch.spark.reading.losses import DataLossError, ServerBehindError
from anabranch.spark.reading.offsets import LogBounds, Range, known_log, next_id, parse_id
from anabranch.spark.reading.partitions import Frontier, Partition
from anabranch.spark.reading.server_logs import bounds_of

_EXPORT_BYTES: Final = 2 << 20  # of one reply: enough for good decoding, short for the server
_GROUP_MAX: Final = 256  # ranges asked for at once: all requests are sent before a reply is read
_LOOK_S: Final = 0.2  # between two looks at a log that may still grow
_log = logging.getLogger(__name__)


def read_partition(
    partition: Partition, options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """All rows of a partition, range by range; raises `DataLossError` if entries were trimmed."""
    if ranges := tuple(each for each in partition if isinstance(each, Range)):
        yield from _entries(ranges, options, projection)
    for each in partition:
        if isinstance(each, Removal):
            yield from projection.removed(each)
        elif isinstance(each, Frontier):
            yield projection.time_only(each.ms)


def _entries(
    ranges: Sequence[Range], options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Neighbouring small ranges are asked for at once and decoded as one.

    How they are grouped does not change the rows or their order, on which a sink may depend.
    """
    with connect(options.server) as client:
        size, at = FIRST_PAGE, 0
        while at < len(ranges):
            groups = [_small_ones(ranges, at, size)]
            at += len(groups[0])
            while groups:
                group = groups.pop()
                if len(group) == 1:
                    for entries, batches in _alone(group[0], options, projection, client):
                        size = _next_size(size, entries, options)
                        yield from batches
                elif (found := _joined(group, options, projection, client)) is not None:
                    size = _next_size(size, found[0], options)
                    yield from found[1]
                else:
                    middle = len(group) // 2
                    groups += [group[middle:], group[:middle]]


# -------------------------------------------------------------------------------- many small ranges


def _small_ones(ranges: Sequence[Range], at: int, size: int) -> Sequence[Range]:
    """The next range, and those after it while all together have at most `size` entries."""
    lengths = accumulate(map(len, islice(ranges, at, at + _GROUP_MAX)))
    count = sum(1 for _ in takewhile(lambda length: length <= size, lengths))
    return ranges[at : at + max(count, 1)]


def _next_size(size: int, entries: Entries, options: ReadOptions) -> int:
    """How many entries to ask for at once, as those that were read let expect."""
    bytes_max = min(options.max_batch_bytes, _EXPORT_BYTES)
    return next_page(len(entries), entries.nbytes, bytes_max) if len(entries) else size


def _joined(
    group: Sequence[Range], options: ReadOptions, projection: Projection, client: ServerClient
) -> tuple[Entries, list[pa.RecordBatch]] | None:
    """The entries of some ranges by one round trip; None if one of them must be read alone.

    So it is after any error: only the error of a range that is read alone names its place.
    """
    try:
        found = _pages(group, client) if group[0].by_id else _exports(group, options, client)
        if found is None:
            return None
        entries, counts = found
        if not len(entries):
            return entries, []
        range_of = pa.array(np.repeat(np.arange(len(group), dtype=np.int32), counts))
        stream = pa.array([each.stream for each in group]).take(range_of)
        region = pa.array([each.region for each in group]).take(range_of)
        batches = projection.batches(entries, stream, region, options.max_batch_bytes)
        return entries, list(batches)
    except (ColumnError, MalformedReply, ServerRefused):
        return None


def _exports(
    group: Sequence[Range], options: ReadOptions, client: ServerClient
) -> tuple[Entries, list[int]] | None:
    """The entries of ranges by position, and how many each has; None if one is incomplete."""
    size = max(min(options.max_batch_bytes, _EXPORT_BYTES) // len(group), 1)
    payloads = client.ask([_export_of(each, each.first, size, options) for each in group])
    if None in payloads:
        return None
    export = parse_export(*payloads)
    ends = list(accumulate(count for count, _ in export.parts))
    for each, (count, following), end in zip(group, export.parts, ends, strict=True):
        upto = parse_id(each.upto)
        is_newer = count and upto > (0, 0) and export.last_id(end) > upto
        if following < each.stop or is_newer:
            return None
        if each.removed and not outside(each.removed, export.positions[end - count : end]).all():
            return None
    for each, (count, following), end in zip(group, export.parts, ends, strict=True):
        if count != following - each.first:
            positions = export.positions[end - count : end]
            _look_for_loss(each, each.first, positions, following, options)
    return WireEntries(export), [count for count, _ in export.parts]


def _pages(group: Sequence[Range], client: ServerClient) -> tuple[Entries, list[int]] | None:
    """The entries of ranges by ID, and how many each has; None if one lacks any."""
    replies = client.ask(
        [
            ("XRANGE", stream_key(each.stream), f"({each.after}", each.upto, "COUNT", len(each) + 1)
            for each in group
        ]
    )
    counts = [len(rows or ()) for rows in replies]
    if counts != list(map(len, group)) or not any(counts):
        return None
    return ParsedEntries([entry for rows in replies for entry in rows]), counts


# ---------------------------------------------------------------------------------------- one range


def _alone(
    part: Range, options: ReadOptions, projection: Projection, client: ServerClient
) -> Iterator[tuple[Entries, list[pa.RecordBatch]]]:
    """The entries of one range, reply by reply."""
    read = _by_id if part.by_id else _by_position
    try:
        for entries in read(part, options, client):
            about = (part.stream, part.region, options.max_batch_bytes, part.removed)
            yield entries, list(projection.batches(entries, *about))
    except (ColumnError, ServerRefused, ServerUnreachable, MalformedReply) as error:
        raise type(error)(f"{part.place}: {error}") from None


def _export_of(part: Range, first: int, size: int, options: ReadOptions) -> tuple[Word, ...]:
    """The command for entries from a position on."""
    place = (stream_key(part.stream), part.region, first, part.stop)
    return ("AB.EXPORT", *place, "MAXBYTES", size, "CODEC", options.export_codec)


def _by_position(part: Range, options: ReadOptions, client: ServerClient) -> Iterator[WireEntries]:
    at = part.first
    size = min(options.max_batch_bytes, _EXPORT_BYTES)

    def export_from(first: int) -> Callable[[], list[Any]]:
        return client.begin([_export_of(part, first, size, options)])

    upto = parse_id(part.upto)
    reply = export_from(at)
    while at < part.stop:
        (payload,) = client.checked(reply())
        if payload is None:
            if not _comes(part, at, options):
                return
            reply = export_from(at)
            continue
        export = parse_export(payload)
        if len(export) and upto > (0, 0) and export.last_id(len(export)) > upto:
            ms, seq = export.ids
            older = int(((ms < upto[0]) | ((ms == upto[0]) & (seq <= upto[1]))).sum())
            _lose(
                f"{part.place} has {len(export) - older} entries or more at positions "
                f"below {part.stop} that came after {part.upto}, the last one when the "
                "batch was planned: the server was restored from an older state, or lost its "
                "newest entries. They are not of this batch, but of the next one",
                options,
            )
            if older:
                whole = replace(part, first=at, stop=int(export.positions[older]))
                yield from _by_position(whole, options, client)
            return
        # Deleted entries have positions, too; so the log itself ends here.
        if export.next_position <= at:
            if not _comes(part, at, options):
                return
            reply = export_from(at)
            continue
        if export.next_position < part.stop:
            # The server prepares and sends the next reply while this one is decoded.
            reply = export_from(export.next_position)
        if len(export) != export.next_position - at:
            _look_for_loss(part, at, export.positions, export.next_position, options)
        if len(export):
            yield WireEntries(export)
        at = export.next_position


def _look_for_loss(
    part: Range, at: int, positions: Ints, following: int, options: ReadOptions
) -> None:
    """Positions are missing: deleted one by one, which is no loss, or otherwise, which is one."""
    log, _ = _standing(part, options)
    if log is None:
        _lose_stream(part, options)
        return
    horizon = min(log.trimmed, following)
    low = max(at, part.reported)
    there = (positions >= low) & (positions < horizon)
    missing = horizon - low - int(there.sum())
    if missing > 0:
        how = "deleted with the key" if log.incarnation > low else "trimmed"
        _lose(
            f"{part.place}: {missing} entries between positions {low} and {horizon - 1} were "
            f"{how} before they were read",
            options,
        )


def _comes(part: Range, at: int, options: ReadOptions) -> bool:
    """The log ends before `at`, or is not there: whether entries come within ``catchUpTimeout``.

    A batch that was planned at one region may be repeated at another, which has yet to receive the
    entries. Nobody brings what a server of its own lacks, nor a log of which this read has found
    entries: that is a loss at once.
    """
    was_there = at > part.first
    deadline = time.monotonic() + options.catch_up_timeout_ms / 1000
    while True:
        log, regions = _standing(part, options)
        if log is not None and log.next >= part.stop:
            if log.incarnation < part.stop:
                return True
            lost = part.stop - at  # deleted, and maybe made again
            entries = "1 entry" if lost == 1 else f"{lost} entries"
            _lose(
                f"{part.place}: {entries} (positions {at}\N{EN DASH}{part.stop - 1}) "
                f"{'was' if lost == 1 else 'were'} deleted with the key before all was read",
                options,
            )
            return False
        waits = part.region and not (log is None and was_there)
        if not waits or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    with connect(options.server) as client:
        over = is_over(client, part.region, regions)
    if log is None and not (was_there or over) and _is_unknown(part.region, options):
        raise ServerBehindError(
            f"{part.place} is not on this server, which has yet to receive it from another region"
        )
    if log is None:
        _lose_stream(part, options)
        return False
    text = (
        f"{part.place} ends at position {log.next}, and should be read up to "
        f"{part.stop}: the server lost its newest entries, was restored from a backup, or has "
        "not received them yet from another region"
    )
    if part.region and not over:  # other regions will send them; reading on would skip them
        raise ServerBehindError(text)
    _lose(text, options)
    return False


def _standing(part: Range, options: ReadOptions) -> tuple[LogBounds | None, Iterable[str]]:
    """The log of a range as it is now, None if there is none, and the names of all logs."""
    with connect(options.server) as client:  # the other connection is receiving the next entries
        (logs,) = client.logs([part.stream])
    return known_log(logs or {}, part.region), logs or {}


def _is_unknown(region: str, options: ReadOptions) -> bool:
    """Whether the server has applied nothing that a region, or one epoch of it, has written.

    If it has, a log that is not there may have been deleted. A user who may not ask (AB.INFO) gets
    no answer, which counts as that.
    """
    if not region:
        return False
    number, _, epoch = region.partition(".")
    try:
        with connect(options.server) as client:
            vector = facts_of(client.command("AB.INFO", repeatable=True))["vector"]
    except ServerRefused:
        return False
    return not any(row[:2] == [int(number), int(epoch or 0)] for row in vector)


def _by_id(part: Range, options: ReadOptions, client: ServerClient) -> Iterator[Entries]:
    at, count = part.after, 0
    key = stream_key(part.stream)
    page = begin_page(client, key, at, part.upto, FIRST_PAGE)
    while True:
        info, entries = page()
        if info is None:
            _lose(f"stream {part.stream} was deleted while it was read", options)
            return
        log = bounds_of(info)
        unread = parse_id(at) < parse_id(part.upto)
        gone = log.first_id is None or parse_id(log.first_id) > parse_id(next_id(at))
        if unread and gone and log.first > part.first + count:
            _lose(
                f"stream {part.stream}: entries after {at} were trimmed before they were read",
                options,
            )
        if entries is None:
            return
        count += len(entries)
        at = "-".join(str(half[-1]) for half in entries.ids)
        # The server prepares and sends the next page while this one is decoded.
        size = next_page(len(entries), entries.nbytes, options.max_batch_bytes)
        page = begin_page(client, key, at, part.upto, size)
        yield entries


def _lose_stream(part: Range, options: ReadOptions) -> None:
    """The error for a log that is missing or was made again."""
    yet = ", or this server has yet to receive it from another region" if part.region else ""
    _lose(
        f"{part.place} was deleted before all of positions {part.first} to "
        f"{part.stop - 1} was read{yet}",
        options,
    )


def _lose(text: str, options: ReadOptions) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(text)
    _log.warning("%s; going on, because failOnDataLoss=false", text)
