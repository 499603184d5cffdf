"""Moves each key from source to target; the end of every transfer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click

from anabranch.cli.failures import Failed
from anabranch.cli.options import json_option, with_options
from anabranch.cli.progress import Progress
from anabranch.cli.terminal import shown
from anabranch.cli.transfer.file_source import FileSource
from anabranch.cli.transfer.file_target import FileTarget
from anabranch.cli.transfer.live_target import LiveTarget
from anabranch.cli.transfer.record import Item, KeyRecord, Selection
from anabranch.cli.transfer.scan import ScanSource
from anabranch.cli.transfer.summary import Summary
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob
from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.kinds import SUPPORTED
from anabranch.rdb.older import losses, without_losses
from anabranch.rdb.payload import (
    RDB_VERSION,
    RDB_VERSION_MIN,
    decode_body,
    encode_body,
    stream_type_of,
)
from anabranch.rdb.values import Value
from anabranch.stream.image import StreamImage

Source = FileSource | ScanSource
Target = FileTarget | LiveTarget

_FRAME_BYTES = 10

WAYS_OUT: Final = f"""\
ways out:
  a file of --rdb-version {RDB_VERSION}, which 'anabranch import' and Redis 8.8 read, keeps all this
  --lossy leaves it out
  a copy of the server's directory keeps everything ('Backup and restore' in docs/persistence.md)"""
"""What to do about streams that the target cannot store whole."""


def carry(
    source: Source, target: Target, selection: Selection, summary: Summary, *, lossy: bool
) -> None:
    """Move all selected keys; raises :class:`Failed`."""
    label = summary.verb.removesuffix("ed") + "ing"
    with Progress(label, source.total, unit=source.unit) as progress:
        for record in source.records(target.value_bytes_max):
            progress.update(source.done)
            if selection.takes(record.db, record.key):
                _carry_one(record, target, summary, lossy=lossy)
    summary.passed_over = source.passed_over()
    target.finish(complete=summary.succeeded)


def _carry_one(record: KeyRecord, target: Target, summary: Summary, *, lossy: bool) -> None:
    db, key = record.db, record.key
    if record.problem is not None:
        summary.refused(record.problem, db, key)
        return
    if record.kind not in SUPPORTED:
        summary.unsupported(record.kind, db, key)
        return
    if record.expire_at_ms is not None and record.expire_at_ms <= time.time_ns() // 1_000_000:
        summary.expired += 1
        return
    body = record.body
    if body is None:
        _refuse_large(record.size, record, target, summary)
        return
    try:
        value = decode_body(body)
    except PayloadFormatError as problem:
        summary.refused(f"its value is damaged: {problem}", db, key)
        return
    stream_type = stream_type_of(target.rdb_version)
    if isinstance(value, StreamImage) and (lost := losses(value, stream_type)):
        summary.loses(db, key, lost, lossy=lossy)
        if not lossy:
            return
    if record.rdb_version > target.rdb_version:
        fitting = without_losses(value, stream_type) if isinstance(value, StreamImage) else value
        body = encode_body(fitting, rdb_version=target.rdb_version)
    if len(body) + _FRAME_BYTES > target.value_bytes_max:
        _refuse_large(len(body), record, target, summary)
        return
    target.put(Item(db, key, record.kind, record.expire_at_ms, body, _counts(value)))
    if record.renumbered:
        summary.note("renumbered", db, key, entries=record.renumbered)
    if record.ledger:
        summary.note("ledgers_left", db, key, records=record.ledger)
    for group in value.groups if isinstance(value, StreamImage) else ():
        if group.late:
            name = group.name.decode("utf-8", "backslashreplace")
            summary.note("late", db, key, group=name, entries=group.late)


def _refuse_large(size: int, record: KeyRecord, target: Target, summary: Summary) -> None:
    reason = (
        f"larger than the {target.value_bytes_max:,} bytes that the target takes at once "
        "(its proto-max-bulk-len)"
    )
    summary.refused(reason, record.db, record.key, f"{size + _FRAME_BYTES:,} bytes")


def _counts(value: Value) -> dict[str, int]:
    if not isinstance(value, StreamImage):
        return {"keys": 1}
    pending = sum(len(group.pending) for group in value.groups)
    groups = len(value.groups)
    return {"keys": 1, "entries": value.length, "groups": groups, "pending": pending}


def conclude(
    ctx: click.Context, summary: Summary, transfer: Callable[[], None], *, as_json: bool
) -> None:
    """Run ``transfer``, print its result, end with 0 or 1."""
    started = time.monotonic()
    try:
        transfer()
    except Failed as problem:
        summary.error = shown(str(problem))
        if summary.keys and not summary.dry_run:
            summary.error += f" ({summary.keys:,} keys had arrived before, and stay)"
    summary.seconds = time.monotonic() - started
    if as_json:
        print(json.dumps(summary.as_json()))
    elif summary.error is None or summary.anything:
        print(summary.as_text())
        if summary.would_lose:
            print(WAYS_OUT)
    if summary.error is not None:
        print(f"anabranch: {summary.error}", file=sys.stderr)
    ctx.exit(0 if summary.succeeded else 1)


def select(databases: tuple[int, ...], pattern: str | None, of_url: int | None) -> Selection:
    """The keys that the options, and the database in the source's URL, select."""
    wanted = frozenset(databases)
    if of_url is not None:
        if wanted:
            raise click.UsageError("a database in the URL and --db exclude each other")
        wanted = frozenset((of_url,))
    raw = None if pattern is None else pattern.encode("utf-8", "surrogateescape")
    try:
        matcher = None if raw is None else compile_glob(raw)
    except CommandError as problem:
        raise click.UsageError(str(problem).removeprefix("ERR ")) from None
    return Selection(wanted, raw, matcher)


def transfer_options(command: Any) -> Any:
    """The options that both directions have."""
    return with_options(
        click.option(
            "--db",
            "databases",
            type=click.IntRange(0),
            multiple=True,
            metavar="N",
            help="Only this database; may be repeated.",
        ),
        click.option("--match", "pattern", help="Only keys that match, as in KEYS."),
        click.option("--replace", is_flag=True, help="Overwrite what exists."),
        click.option("--dry-run", is_flag=True, help="Write nothing, only report."),
        click.option(
            "--lossy", is_flag=True, help="Go on without what an older target cannot hold."
        ),
        click.option(
            "--rdb-version",
            type=click.IntRange(RDB_VERSION_MIN, RDB_VERSION),
            help=f"Version to write. [default: what the target reads; {RDB_VERSION} for files]",
        ),
        json_option(),
    )(command)
