"""``anabranch inspect``: the contents of the files of a log, also when the server is down.

Reading changes nothing and needs no lock, so a running server is not affected. Only ``inspect log
--write`` changes files, and takes the directory's lock first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from anabranch.cli.group import NearestGroup
from anabranch.cli.inspect_files import in_use, lines_of_failure, locate
from anabranch.cli.inspect_report import complaints, directory_object, file_object, report_lines
from anabranch.cli.inspect_values import as_json, effect_fields, in_pieces, record_fields, when
from anabranch.cli.inspect_write import write_log
from anabranch.cli.options import with_options
from anabranch.cli.progress import Progress
from anabranch.effects import kinds
from anabranch.effects.write_set import places_of
from anabranch.oplog.inspection import Fate, SeenBatch, SeenRecord, SegmentFacts, Survey, width_of
from anabranch.oplog.segment import first_position_of
from anabranch.oplog.snapshot import position_of
from anabranch.resp.inline import UnbalancedQuotes, split_words
from anabranch.server.disk import Directory

_PATH = click.Path(exists=True, path_type=Path)
_COUNT = click.IntRange(0)


@click.group(
    cls=NearestGroup,
    help="""Inspect the log and the snapshots of a server, also when it is down.

Checksums of everything are verified. Nothing is changed but by 'log --write', so a running server
may use the files meanwhile. Exit 0 if all is sound, 1 if something is damaged or torn, 2 for wrong
usage.""",
)
def command() -> None:
    """The group itself has nothing to do."""


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


_DUMP_OPTIONS = with_options(
    click.option("--dump", is_flag=True, help="Print what the files hold, one line each."),
    click.option("--from", "start", type=_COUNT, metavar="N", help="Dump from here on."),
    click.option("--to", "end", type=_COUNT, metavar="N", help="Dump up to here, exclusively."),
    click.option("--key", callback=_key, help='Dump what concerns this key; "\\xff" in quotes.'),
    click.option("--limit", type=_COUNT, metavar="N", help="Dump at most so many lines."),
    click.option("--json", "as_objects", is_flag=True, help="Print JSON, one object a line."),
    click.option("--full", is_flag=True, help="Shorten nothing (JSON never does)."),
)


@dataclass(frozen=True, slots=True)
class _Dump:
    """What a dump prints, in which form, and from where on."""

    start: int
    end: int | None
    key: bytes | None
    limit: int | None
    as_objects: bool
    full: bool

    @classmethod
    def of(
        cls,
        *,
        dump: bool,
        start: int | None,
        end: int | None,
        key: bytes | None,
        limit: int | None,
        **form: bool,
    ) -> _Dump | None:
        """None if nothing is to be dumped; :class:`click.UsageError` for the others without it."""
        if not dump:
            given = {"--from": start, "--to": end, "--key": key, "--limit": limit}
            for name, value in given.items():
                if value is not None:
                    raise click.UsageError(f"{name} says what to dump: it needs --dump")
            if form["full"]:
                raise click.UsageError("--full says how to dump: it needs --dump")
            return None
        return cls(start or 0, end, key, limit, **form)

    def takes(self, place: int) -> bool:
        """Whether a position or an offset is within the range."""
        return place >= self.start and (self.end is None or place < self.end)


# -- log and snapshot -------------------------------------------------------------------------


@command.command(
    help="""Verify a file of the log, or all files of a directory.

The report says what a start of the server would do. --dump prints every effect: position, byte,
time, batch in the file, number (local effects have none), kind and fields; --from and --to are
positions. In JSON, bytes are UTF-8; other bytes are \\xHH and a backslash is doubled.

--write makes a damaged log usable: it cuts the log after the last whole turn before the damage,
keeps the cut part beside the file, and moves later files aside. Copy the directory first.

\b
Examples:
  anabranch inspect log /var/lib/anabranch
  anabranch inspect log DIR --dump --key orders --limit 20
  anabranch inspect log DIR --write
""",
)
@click.argument("path", metavar="FILE|DIR", type=_PATH)
@_DUMP_OPTIONS
@click.option("--write", is_flag=True, help="Cut off what is torn or damaged; asks before.")
@click.option("--yes", is_flag=True, help="With --write: do not ask.")
@click.pass_context
def log(ctx: click.Context, /, path: Path, *, write: bool, yes: bool, **options: Any) -> None:
    """Report what the log holds, dump it, or repair it."""
    dump = _Dump.of(**options)
    if yes and not write:
        raise click.UsageError("--yes is an answer to --write")
    if write and dump is not None:
        raise click.UsageError("--write and --dump do not go together")
    with lines_of_failure():
        directory, only = locate(path)
        if write:
            write_log(ctx, directory, only, yes=yes, as_objects=options["as_objects"])
        else:
            _look(ctx, directory, only, dump, "log", as_objects=options["as_objects"])


@command.command(
    help="""Verify a snapshot, or all files of a directory.

The report says what a start of the server would do. --dump prints every record: byte, size, kind
and fields; --from and --to are bytes. Entries are printed with --full or --json. In JSON, bytes are
UTF-8; other bytes are \\xHH and a backslash is doubled.""",
)
@click.argument("path", metavar="FILE|DIR", type=_PATH)
@_DUMP_OPTIONS
@click.pass_context
def snapshot(ctx: click.Context, /, path: Path, **options: Any) -> None:
    """Report what a snapshot holds, or dump it."""
    dump = _Dump.of(**options)
    with lines_of_failure():
        directory, only = locate(path)
        _look(ctx, directory, only, dump, "snapshot", as_objects=options["as_objects"])


def _look(
    ctx: click.Context,
    directory: Directory,
    only: str | None,
    dump: _Dump | None,
    wanted: str,
    *,
    as_objects: bool,
) -> None:
    survey = Survey(directory, only)
    if only is not None:
        (facts,) = survey.read
        found = "log" if isinstance(facts, SegmentFacts) else "snapshot"
        if found != wanted:
            by_name = first_position_of(only) is not None or position_of(only) is not None
            hint = f": try 'anabranch inspect {found}'" if by_name else " by its first bytes"
            raise click.UsageError(f"{facts.shown} is no {wanted}{hint}")
    _survey(survey, dump, wanted)
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


def _survey(survey: Survey, dump: _Dump | None = None, wanted: str = "") -> None:
    """Walk through everything, and print what is to be dumped."""
    quiet = dump is not None and sys.stdout.isatty()
    printed = 0
    with Progress("reading", survey.bytes_total, quiet=quiet) as progress:
        for _, item in survey.walk():
            progress.update(survey.bytes_done)
            if dump is None or (dump.limit is not None and printed >= dump.limit):
                continue
            if isinstance(item, SeenBatch):
                lines = _effect_lines(item, dump) if wanted == "log" else iter(())
            else:
                lines = _record_lines(item, dump) if wanted == "snapshot" else iter(())
            for line in lines:
                print(line)
                printed += 1
                if printed == dump.limit:
                    break


def _effect_lines(seen: SeenBatch, dump: _Dump) -> Iterator[str]:
    if not dump.takes(seen.position):
        return
    batch = seen.batch
    number = batch.first
    time = when(batch.wall_ms)
    for effect in seen.effects:
        if _concerns(effect, dump.key):
            for index, (kind, fields) in enumerate(effect_fields(effect)):
                own = None if batch.is_local else number + index
                if dump.as_objects:
                    yield as_json(
                        {
                            "position": seen.position,
                            "offset": seen.offset,
                            "time": time,
                            "batch": seen.ordinal,
                            "number": own,
                            "kind": kind,
                            "fields": fields,
                        }
                    )
                else:
                    yield (
                        f"{seen.position} {seen.offset} {time} {seen.ordinal} "
                        f"{'local' if own is None else own} {kind} "
                        f"{in_pieces(fields, full=dump.full)}"
                    )
        number += width_of(effect)


def _concerns(effect: kinds.Effect, key: bytes | None) -> bool:
    """Whether an effect names the key, or concerns all keys."""
    if key is None or isinstance(effect, kinds.Flush | kinds.Swap):
        return True
    return any(name == key for _, name in places_of(effect))


def _record_lines(seen: SeenRecord, dump: _Dump) -> Iterator[str]:
    if not dump.takes(seen.offset) or (dump.key is not None and seen.key != dump.key):
        return
    kind, fields = record_fields(seen, full=dump.full or dump.as_objects)
    if dump.as_objects:
        yield as_json({"offset": seen.offset, "size": seen.size, "kind": kind, "fields": fields})
    else:
        yield f"{seen.offset} {seen.size} {kind} {in_pieces(fields, full=dump.full)}"
