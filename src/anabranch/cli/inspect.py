"""``anabranch inspect``: the contents of the files of a log, also when the server is down.

Reading changes nothing and needs no lock, so a running server is not affected. Only ``--write``
changes files, and takes the directory's lock first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from anabranch.cli.inspect_files import in_use, lines_of_failure, locate
from anabranch.cli.inspect_report import complaints, directory_object, file_object, report_lines
from anabranch.cli.inspect_values import as_json, effect_fields, record_fields, when
from anabranch.cli.inspect_write import write_log
from anabranch.cli.options import json_option, taken
from anabranch.cli.progress import Progress
from anabranch.effects import kinds
from anabranch.effects.write_set import places_of
from anabranch.oplog.inspection import Fate, SeenBatch, SeenRecord, Survey, width_of
from anabranch.resp.inline import UnbalancedQuotes, split_words
from anabranch.server.disk import Directory

_COUNT = click.IntRange(0)


def _key(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    """A key as typed, or in double quotes with the escapes of redis-cli."""
    if value is None:
        return None
    raw = os.fsencode(value)
    if not raw.startswith(b'"'):
        return raw
    try:
        (word,) = split_words(raw)
    except (UnbalancedQuotes, ValueError):
        raise click.BadParameter("the quotes are not balanced") from None
    return word


@dataclass(frozen=True, slots=True)
class _Dump:
    """What a dump prints."""

    start: int | None
    end: int | None
    key: bytes | None
    limit: int | None

    def takes(self, place: int) -> bool:
        """Whether a position or an offset is within the range."""
        return place >= (self.start or 0) and (self.end is None or place < self.end)


@click.command(
    help="""Inspect the log and the snapshots of a server, also when it is down.

Checksums of everything are verified, and the report says what a start of the server would do.
Nothing is changed but by --write, so a running server may use the files meanwhile. Exit 0 if all is
sound, 1 if something is damaged or torn, 2 for wrong usage.

--dump prints a line of JSON for every effect of the log: position, byte, time, batch in the file,
number (local effects have none), kind and fields; --from and --to are positions. Of a snapshot that
is named it prints every record, with the fields of docs/formats.md and the entries of blocks;
--from and --to are bytes. Bytes are UTF-8; other bytes are \\xHH and a backslash is doubled.

--write makes a damaged log usable: it cuts the log after the last whole turn before the damage,
keeps the cut part beside the file, and moves later files aside. Copy the directory first.

\b
Examples:
  anabranch inspect /var/lib/anabranch
  anabranch inspect DIR --dump --key orders --limit 20
  anabranch inspect DIR --write
""",
)
@click.argument("path", metavar="FILE|DIR", type=click.Path(exists=True, path_type=Path))
@click.option("--dump", is_flag=True, help="Print what the files hold, one line of JSON each.")
@click.option("--from", "start", type=_COUNT, metavar="N", help="Dump from here on.")
@click.option("--to", "end", type=_COUNT, metavar="N", help="Dump up to here, exclusively.")
@click.option("--key", callback=_key, help='Dump what concerns this key; "\\xff" in quotes.')
@click.option("--limit", type=_COUNT, metavar="N", help="Dump at most so many lines.")
@json_option("Print JSON, one object a line.")
@click.option("--write", is_flag=True, help="Cut off what is torn or damaged; asks before.")
@click.option("--yes", is_flag=True, help="With --write: do not ask.")
@click.pass_context
def command(
    ctx: click.Context, /, path: Path, *, dump: bool, as_json: bool, write: bool, **options: Any
) -> None:
    """Report what the files hold, dump it, or repair a log."""
    yes = options.pop("yes")
    wanted = taken(_Dump, options)
    if not dump and wanted != _Dump(None, None, None, None):
        raise click.UsageError("--from, --to, --key and --limit say what to dump: give --dump")
    if yes and not write:
        raise click.UsageError("--yes is an answer to --write")
    if write and dump:
        raise click.UsageError("--write and --dump do not go together")
    with lines_of_failure():
        directory, only = locate(path)
        if write:
            write_log(ctx, directory, only, yes=yes, as_objects=as_json)
        else:
            _look(ctx, directory, only, wanted if dump else None, as_objects=as_json)


def _look(
    ctx: click.Context,
    directory: Directory,
    only: str | None,
    dump: _Dump | None,
    *,
    as_objects: bool,
) -> None:
    survey = Survey(directory, only)
    _walk(survey, dump)
    running = survey.torn is not None and in_use(directory)
    if dump is not None:
        for line in complaints(survey, running=running):
            print(f"anabranch: {line}", file=sys.stderr)
    elif as_objects:
        for facts in survey.read:
            print(as_json(file_object(facts)))
        if only is None:
            print(as_json(directory_object(survey, directory, running=running)))
    else:
        print("\n".join(report_lines(survey, directory, running=running)).rstrip())
    growing = {Fate.SOUND, Fate.CUT} if running else {Fate.SOUND}
    if survey.absence is not None or any(facts.fate not in growing for facts in survey.read):
        ctx.exit(1)


def _walk(survey: Survey, dump: _Dump | None) -> None:
    """Walk through everything, and print what is to be dumped."""
    quiet = dump is not None and sys.stdout.isatty()
    printed = 0
    with Progress("reading", survey.bytes_total, quiet=quiet) as progress:
        for item in survey.walk():
            progress.update(survey.bytes_done)
            if dump is None or (isinstance(item, SeenRecord) and survey.only is None):
                continue
            of_item = _effects(item, dump) if isinstance(item, SeenBatch) else _record(item, dump)
            for found in of_item:
                if printed == dump.limit:
                    break
                print(as_json(found))
                printed += 1


def _effects(seen: SeenBatch, dump: _Dump) -> Iterator[dict[str, Any]]:
    if not dump.takes(seen.position):
        return
    batch = seen.batch
    number = batch.first
    for effect in seen.effects:
        if _concerns(effect, dump.key):
            for index, (kind, fields) in enumerate(effect_fields(effect)):
                yield {
                    "position": seen.position,
                    "offset": seen.offset,
                    "time": when(batch.wall_ms),
                    "batch": seen.ordinal,
                    "number": None if batch.is_local else number + index,
                    "kind": kind,
                    "fields": fields,
                }
        number += width_of(effect)


def _concerns(effect: kinds.Effect, key: bytes | None) -> bool:
    """Whether an effect names the key, or concerns all keys."""
    if key is None or isinstance(effect, kinds.Flush | kinds.Swap):
        return True
    return any(name == key for _, name in places_of(effect))


def _record(seen: SeenRecord, dump: _Dump) -> Iterator[dict[str, Any]]:
    if dump.takes(seen.offset) and dump.key in (None, seen.key):
        kind, fields = record_fields(seen)
        yield {"offset": seen.offset, "size": seen.size, "kind": kind, "fields": fields}
