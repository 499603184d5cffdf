"""Reads one partition of a stream on an executor: replies in, Arrow batches out.

Each is read over a connection of the worker process. If entries were trimmed after planning, that
is reported as a loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from anabranch.spark.blocks import Block
from anabranch.spark.client import (
    Client,
    ServerRefused,
    ServerUnreachable,
    connect,
    facts_of,
    stream_key,
)
from anabranch.spark.columns import ColumnError, Projection
from anabranch.spark.entries import Entries
from anabranch.spark.exports import Export, PayloadError, parse_export
from anabranch.spark.losses import DataLossError, LogTooShort, ServerBehindError
from anabranch.spark.offsets import LogBounds, Range, known_log, next_id, parse_id
from anabranch.spark.options import ReadOptions
from anabranch.spark.pages import FIRST_PAGE, begin_page, next_page
from anabranch.spark.region_names import is_over
from anabranch.spark.survey import bounds_of

_EXPORT_BYTES: Final = 2 << 20  # of one reply: enough for good decoding, short for the server
_LOOK_S: Final = 0.2  # between two looks at a log that may still grow
_log = logging.getLogger(__name__)


def read_partition(
    partition: Range, options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """All entries of a partition, in order; raises `DataLossError` if some were trimmed."""
    with connect(options.server) as client:
        read = _by_id if partition.by_id else _by_position
        try:
            for entries in read(partition, options, client):
                yield from projection.batches(
                    entries, partition.stream, partition.region, options.max_batch_bytes
                )
        except (ColumnError, ServerRefused, ServerUnreachable, PayloadError) as error:
            raise type(error)(f"{partition.place}: {error}") from None


def _by_position(partition: Range, options: ReadOptions, client: Client) -> Iterator[Block]:
    at = partition.first
    size = min(options.max_batch_bytes, _EXPORT_BYTES)
    codec = ("CODEC", options.export_codec)

    def export_from(first: int) -> Callable[[], list[Any]]:
        place = (stream_key(partition.stream), partition.region, first, partition.stop)
        return client.begin([("AB.EXPORT", *place, "MAXBYTES", size, *codec)])

    upto = parse_id(partition.upto)
    reply = export_from(at)
    while at < partition.stop:
        (payload,) = client.checked(reply())
        if payload is None:
            if not _comes(partition, at, options):
                return
            reply = export_from(at)
            continue
        export = parse_export(payload)
        if len(export) and (int(export.ms[-1]), int(export.seq[-1])) > upto > (0, 0):
            older = _up_to(export, upto)
            _lose(
                f"{partition.place} has {len(export) - len(older)} entries or more at positions "
                f"below {partition.stop} that came after {partition.upto}, the last one when the "
                "batch was planned: the server was restored from an older state, or lost its "
                "newest entries. They are not of this batch, but of the next one",
                options,
            )
            if len(older):
                yield Block.of_export(older)
            return
        # Deleted entries have positions, too; so the log itself ends here.
        if export.next_position <= at:
            if not _comes(partition, at, options):
                return
            reply = export_from(at)
            continue
        if export.next_position < partition.stop:
            # The server prepares and sends the next reply while this one is decoded.
            reply = export_from(export.next_position)
        if len(export) != export.next_position - at:
            _look_for_loss(partition, at, export, options)
        if len(export):
            yield Block.of_export(export)
        at = export.next_position


def _up_to(export: Export, upto: tuple[int, int]) -> Export:
    """The entries that do not lie behind an ID."""
    ms, seq = export.ms, export.seq
    count = int(((ms < upto[0]) | ((ms == upto[0]) & (seq <= upto[1]))).sum())
    return export.first(count)


def _look_for_loss(partition: Range, at: int, export: Export, options: ReadOptions) -> None:
    """Positions are missing: deleted one by one, which is no loss, or otherwise, which is one."""
    log, _ = _standing(partition, options)
    if log is None:
        _lose_stream(partition, options)
        return
    horizon = min(log.trimmed, export.next_position)
    low = max(at, partition.reported)
    there = (export.positions >= low) & (export.positions < horizon)
    missing = horizon - low - int(there.sum())
    if missing > 0:
        how = "deleted with the key" if log.incarnation > low else "trimmed"
        _lose(
            f"{partition.place}: {missing} entries between positions {low} and {horizon - 1} were "
            f"{how} before they were read",
            options,
        )


def _comes(partition: Range, at: int, options: ReadOptions) -> bool:
    """The log ends before `at`, or is not there: whether entries come within ``catchUpTimeout``.

    A batch that was planned at one region may be repeated at another, which has yet to receive the
    entries. Nobody brings what a server of its own lacks, nor a log of which this read has found
    entries: that is a loss at once.
    """
    was_there = at > partition.first
    deadline = time.monotonic() + options.catch_up_timeout_ms / 1000
    while True:
        log, regions = _standing(partition, options)
        if log is not None and log.next >= partition.stop:
            if log.incarnation < partition.stop:
                return True
            lost = partition.stop - at  # deleted, and maybe made again
            entries = "1 entry" if lost == 1 else f"{lost} entries"
            _lose(
                f"{partition.place}: {entries} (positions {at}\N{EN DASH}{partition.stop - 1}) "
                f"{'was' if lost == 1 else 'were'} deleted with the key before all was read",
                options,
                LogTooShort,
            )
            return False
        waits = partition.region and not (log is None and was_there)
        if not waits or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    with connect(options.server) as client:
        over = is_over(client, partition.region, regions)
    if log is None and not (was_there or over) and _is_unknown(partition.region, options):
        raise ServerBehindError(
            f"{partition.place} is not on this server, which has yet to receive it from another "
            "region"
        )
    if log is None:
        _lose_stream(partition, options)
        return False
    text = (
        f"{partition.place} ends at position {log.next}, and should be read up to "
        f"{partition.stop}: the server lost its newest entries, was restored from a backup, or has "
        "not received them yet from another region"
    )
    if partition.region and not over:  # other regions will send them; reading on would skip them
        raise ServerBehindError(text)
    _lose(text, options, LogTooShort)
    return False


def _standing(partition: Range, options: ReadOptions) -> tuple[LogBounds | None, Iterable[str]]:
    """The log of a partition as it is now, None if there is none, and the names of all logs."""
    key = stream_key(partition.stream)
    with connect(options.server) as client:  # the other connection is receiving the next entries
        (rows,) = client.command("AB.OFFSETS", "STREAMS", key, repeatable=True)
    logs = dict(map(LogBounds.of_row, rows or ()))
    return known_log(logs, partition.region), logs


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


def _by_id(partition: Range, options: ReadOptions, client: Client) -> Iterator[Entries]:
    at, count = partition.after, 0
    key = stream_key(partition.stream)
    page = begin_page(client, key, at, partition.upto, FIRST_PAGE)
    while True:
        info, entries = page()
        if info is None:
            _lose(f"stream {partition.stream} was deleted while it was read", options)
            return
        log = bounds_of(info)
        unread = parse_id(at) < parse_id(partition.upto)
        gone = log.first_id is None or parse_id(log.first_id) > parse_id(next_id(at))
        if unread and gone and log.first > partition.first + count:
            _lose(
                f"stream {partition.stream}: entries after {at} were trimmed before they were read",
                options,
            )
        if entries is None:
            return
        count += len(entries)
        at = f"{entries.ms[-1]}-{entries.seq[-1]}"
        # The server prepares and sends the next page while this one is decoded.
        size = next_page(len(entries), entries.nbytes, options.max_batch_bytes)
        page = begin_page(client, key, at, partition.upto, size)
        yield entries


def _lose_stream(partition: Range, options: ReadOptions) -> None:
    """The error for a log that is missing or was made again."""
    yet = ", or this server has yet to receive it from another region" if partition.region else ""
    _lose(
        f"{partition.place} was deleted before all of positions {partition.first} to "
        f"{partition.stop - 1} was read{yet}",
        options,
        LogTooShort,
    )


def _lose(text: str, options: ReadOptions, error: type[DataLossError] = DataLossError) -> None:
    if options.fail_on_data_loss:
        raise error(text)
    _log.warning("%s; going on, because failOnDataLoss=false", text)
