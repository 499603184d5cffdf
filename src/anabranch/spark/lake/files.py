"""The Parquet files of a lake: written once by tasks, merged by `compact`, examined by `verify`.

A file's name begins with the SHA-256 of its bytes, so that changed values are found, and ends with
a random part, so that attempts of a task do not overwrite files of each other.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.errors import AnabranchError

_FIELD: Final = pa.struct([pa.field("field", pa.binary()), pa.field("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("date", pa.date32()),
        ("region", pa.string()),
        ("id", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("seq", pa.int64()),
        ("position", pa.int64()),
        ("fields", pa.list_(_FIELD)),
    ]
)
"""Columns of a lake; the first two are its partitions, and in no file."""

_IN_FILES: Final = pa.schema(list(SCHEMA)[2:])
_BOUNDED: Final = ["region", "ts", "position"]
"""The columns whose bounds the log has."""

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_DIGESTED: Final = re.compile(r"([0-9a-f]{64})-[0-9a-f]{32}\.parquet")
_GROUP_ROWS: Final = 128 << 10
_SORTED_BYTES: Final = 256 << 20  # of Arrow data that a merge holds and sorts at once
_LAST_DAY: Final = pa.scalar(dt.date(9999, 12, 31), pa.date32())
_NAME_MAX: Final = 255 - len("stream=")  # of a directory, in bytes


class LakeError(AnabranchError):
    """The directory is no valid lake; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One file, as in the log of the table."""

    path: str
    """Relative to the lake."""
    stream: str
    date: str | None
    """The day (UTC) of its IDs; None for those beyond any calendar."""
    rows: int
    nbytes: int
    statistics: str = ""
    """Of a new file, as the log wants them."""
    bounds: tuple[tuple[str, str | int], ...] = ()
    """What the log says of its columns, as ``("min.position", 12)``; times in microseconds."""

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes; empty for files that another tool has written."""
        found = _DIGESTED.fullmatch(Path(self.path).name)
        return found[1] if found else ""


Run = tuple[str, int, int]
"""Region, first and last of positions without a hole."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The contents of a file."""

    problems: list[tuple[str, str]]
    """Kind and words."""
    runs: list[Run]
    table: pa.Table | None = None
    """The columns that were read; None if the file cannot be read."""


def write(root: Path, table: pa.Table) -> list[LakeFile]:
    """Write a file for each stream and day, durably, with its statistics.

    The files are visible after a commit. Rows are put in the order of region and ID.
    Raises `LakeError` if an entry has no position.
    """
    if table.column("position").null_count:
        raise LakeError("there are entries without positions: this server counts none")
    table = table.drop_columns([each for each in table.column_names if each == "date"])
    table = _in_order(table.append_column("date", _days(table.column("ts"))))
    names = ["stream", "date"]
    places = table.group_by(names, use_threads=False).aggregate([([], "count_all")])
    found: list[LakeFile] = []
    at = 0
    for place in places.sort_by([(name, "ascending") for name in names]).to_pylist():
        some = table.slice(at, place["count_all"]).select(_IN_FILES.names).cast(_IN_FILES)
        date = None if place["date"] is None else place["date"].isoformat()
        found.append(_write(root, [some], place["stream"] or "", date))
        at += len(some)
    _sync_above(root, found)
    return found


def merge(root: Path, files: Sequence[LakeFile]) -> tuple[LakeFile | None, list[str]]:
    """Write one file with the entries of several of one stream and day, durably.

    What is merged is what was checked: each file is read once. The entries are in the order of
    region and ID within each 256 MiB. Returns the problems of the files instead, if there are any.
    """
    problems: list[str] = []

    def pieces() -> Iterator[pa.Table]:
        waiting: list[pa.Table] = []
        for file in files:
            seen = _examine(root, file, _IN_FILES.names)
            problems.extend(f"{file.path}: {what}" for _, what in seen.problems)
            if problems or seen.table is None:
                continue
            waiting.append(seen.table.select(_IN_FILES.names).cast(_IN_FILES))
            if sum(each.nbytes for each in waiting) >= _SORTED_BYTES:
                yield _in_order(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            yield _in_order(pa.concat_tables(waiting))

    draft = _write(root, pieces(), files[0].stream, files[0].date)
    if problems:
        (root / draft.path).unlink()
        return None, problems
    _sync_above(root, [draft])
    return draft, []


def without(root: Path, file: LakeFile, runs: Sequence[Run]) -> tuple[LakeFile | None, int] | None:
    """Write a file again without some entries, durably, and tell how many they were.

    There is no new file if no entry is left; None if the file has none of these entries. Raises
    `LakeError` if the file is damaged.
    """
    seen = _examine(root, file, _IN_FILES.names)
    if seen.problems or seen.table is None:
        what = "; ".join(words for _, words in seen.problems)
        raise LakeError(f"{file.path} {what}: nothing was erased, see anabranch spark verify")
    table = seen.table.select(_IN_FILES.names).cast(_IN_FILES)
    kept = np.ones(len(table), np.bool_)
    positions = _numbers(table.column("position").combine_chunks(), np.int64)
    for name in {region for region, _, _ in runs}:
        own = sorted(run[1:] for run in runs if run[0] == name)
        firsts, lasts = (np.array(ends) for ends in zip(*own, strict=True))
        at = np.searchsorted(firsts, positions, "right") - 1
        inside = (at >= 0) & (positions <= lasts[at])
        kept &= ~(inside & np.asarray(pc.equal(table.column("region"), name)))
    count = int(kept.sum())
    if count == len(table):
        return None
    if not count:
        return None, len(table)
    draft = _write(root, [table.filter(pa.array(kept))], file.stream, file.date)
    _sync_above(root, [draft])
    return draft, len(table) - count


def _sync_above(root: Path, drafts: Sequence[LakeFile]) -> None:
    """Sync the directories of new files."""
    for directory in {above for file in drafts for above in Path(file.path).parents}:
        sync_names(root / directory)


def _days(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The days of times; null for those that have no date with a year of four digits."""
    days = pc.cast(times, pa.date32())
    return pc.if_else(pc.less_equal(days, _LAST_DAY), days, pa.scalar(None, pa.date32()))


def _digest(contents: Any) -> str:
    return hashlib.sha256(contents).hexdigest()


def _in_order(table: pa.Table) -> pa.Table:
    """By the columns stream and date, if there are any, then by region and ID."""
    halves = pc.split_pattern(table.column("id"), "-")
    keys = {name: table.column(name) for name in ("stream", "date") if name in table.column_names}
    keys |= {
        "region": table.column("region"),
        "ms": pc.cast(pc.list_element(halves, 0), pa.uint64()),
        "seq": pc.cast(pc.list_element(halves, 1), pa.uint64()),
        "position": table.column("position"),
    }
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return table.take(order)


def _directory(stream: str, date: str | None) -> Path:
    """Where files of a stream and a day are; for readers the log says of which they are."""
    quoted = quote(stream, safe="")
    name = quoted if len(quoted) <= _NAME_MAX else _digest(stream.encode())
    return Path(f"stream={name or _NULL}", f"date={_NULL if date is None else date}")


def _write(root: Path, pieces: Iterable[pa.Table], stream: str, date: str | None) -> LakeFile:
    directory = _directory(stream, date)
    sink = pa.BufferOutputStream()
    bounded = [_IN_FILES.empty_table().select(_BOUNDED)]
    with pq.ParquetWriter(sink, _IN_FILES, compression="zstd") as writer:
        for piece in pieces:
            writer.write_table(piece, row_group_size=_GROUP_ROWS)
            bounded.append(piece.select(_BOUNDED))
    contents = sink.getvalue()
    digest = _digest(contents)
    path = directory / f"{digest}-{uuid.uuid4().hex}.parquet"
    (root / directory).mkdir(parents=True, exist_ok=True)
    write_synced(root / path, contents)
    columns = pa.concat_tables(bounded)
    statistics = json.dumps(_statistics(columns, date))
    return LakeFile(str(path), stream, date, columns.num_rows, contents.size, statistics)


def _bounded(date: str | None) -> list[str]:
    """The columns with bounds in the log: it cannot tell times beyond any calendar."""
    return _BOUNDED if date is not None else [each for each in _BOUNDED if each != "ts"]


def _statistics(table: pa.Table, date: str | None) -> dict[str, Any]:
    bounded = _bounded(date)
    found: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": {}}
    least, most = found.setdefault("minValues", {}), found.setdefault("maxValues", {})
    for name in _BOUNDED:
        column = table.column(name)
        found["nullCount"][name] = column.null_count
        bounds = pc.min_max(column)
        if bounds["min"].is_valid and name in bounded:
            least[name], most[name] = (_in_json(bounds[each]).as_py() for each in ("min", "max"))
    return found


def _in_json(value: pa.Scalar) -> pa.Scalar:
    if not pa.types.is_timestamp(value.type):
        return value
    ms = value.cast(pa.timestamp("ms", "UTC"), safe=False)
    return pc.strftime(ms, "%Y-%m-%dT%H:%M:%SZ")


# ---------------------------------------------------------------------------------------- reading


def examine(root: Path, file: LakeFile) -> Examined:
    """Read all of a file, and check it against the log and its own digest."""
    # Without a digest damage shows only where values are decoded.
    return _examine(root, file, ["region", "position", "ts"] if file.digest else None)


def _examine(root: Path, file: LakeFile, columns: list[str] | None) -> Examined:
    path = root / file.path
    problems: list[tuple[str, str]] = []
    try:
        contents = path.read_bytes()
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        words = ("missing", "is not there") if missing else ("unreadable", str(problem))
        return Examined([words], [])
    if len(contents) != file.nbytes:
        what = f"has {len(contents)} bytes and was published with {file.nbytes}"
        return Examined([("altered", what)], [])
    if file.digest and (found := _digest(contents)) != file.digest:
        return Examined([("altered", f"has SHA-256 {found} and another one in its name")], [])
    try:
        # pq.read_table imports pandas, which takes longer than to read.
        table = pq.ParquetFile(pa.BufferReader(contents)).read(columns=columns)
        positions, regions = table.column("position"), table.column("region")
        if positions.null_count or regions.null_count:
            return Examined([("unreadable", "has entries without region or position")], [])
    except (pa.ArrowException, OSError, KeyError) as problem:
        lines = str(problem).splitlines() or [type(problem).__name__]
        return Examined([("unreadable", lines[0])], [])
    if table.num_rows != file.rows:
        problems.append(
            ("count", f"has {table.num_rows} entries and was published with {file.rows}")
        )
    if file.digest and Path(file.path).parent != _directory(file.stream, file.date):
        problems.append(("place", f"is listed as of stream {file.stream!r} and day {file.date}"))
    problems += [("log", what) for what in _false_bounds(table, file)]
    days = pc.unique(_days(table.column("ts"))).to_pylist()
    if any((None if day is None else day.isoformat()) != file.date for day in days):
        problems.append(("place", f"has entries of other days than {file.date}"))
    runs = runs_of(regions, positions)
    if sum(last - first + 1 for _, first, last in runs) != table.num_rows:
        problems.append(("overlap", "holds the same positions twice"))
    return Examined(problems, runs, table)


def _false_bounds(table: pa.Table, file: LakeFile) -> Iterator[str]:
    """What the log says of columns and is not so: readers leave files out by it."""
    true: dict[str, Any] = {}
    for name in _BOUNDED:
        column = table.column(name)
        if pa.types.is_timestamp(column.type):
            # The log has milliseconds.
            column = pc.floor_temporal(column, unit="millisecond").cast(pa.int64())
        bounds = pc.min_max(column)
        if name in _bounded(file.date):
            true |= {f"{each}.{name}": bounds[each].as_py() for each in ("min", "max")}
        true[f"null_count.{name}"] = column.null_count
    known = dict(file.bounds)
    names = [*true, *(each for each in known if each not in true)] if file.digest else [*known]
    for name in names:
        if (name in true or file.digest) and known.get(name) != true.get(name):
            yield f"the log says that {name} is {known.get(name)}, and it is {true.get(name)}"


def runs_of(regions: pa.ChunkedArray, positions: pa.ChunkedArray) -> list[Run]:
    """The positions of each region, as few runs as there can be; a repeated one counts once."""
    found: list[Run] = []
    if not len(positions):
        return found
    values = _numbers(positions.combine_chunks(), np.int64)
    coded = regions.combine_chunks().dictionary_encode()
    codes = _numbers(coded.indices, np.int32)
    for code, region in enumerate(coded.dictionary.to_pylist()):
        some = np.unique(values[codes == code])
        ends = np.flatnonzero(np.diff(some) != 1)
        firsts = some[np.concatenate(([0], ends + 1))].tolist()
        lasts = some[np.concatenate((ends, [len(some) - 1]))].tolist()
        found += [(region, *run) for run in zip(firsts, lasts, strict=True)]
    return found


def _numbers(column: pa.Array, kind: type) -> Any:
    """Values without NULLs. Arrow's `to_numpy` imports pandas, for half a second."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * size)


# ------------------------------------------------------------------------------ names that last


def publish(path: Path, contents: bytes) -> bool:
    """Write a file atomically and durably; False if it exists: who makes it first wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        write_synced(draft, contents)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    sync_names(path.parent)
    return True


def write_synced(path: Path, contents: Any) -> None:
    """Write a new file, and wait until its bytes are on the disk; see `sync_names` for its name."""
    with path.open("xb") as out:
        out.write(contents)
        out.flush()
        os.fsync(out.fileno())


def sync_names(directory: Path) -> None:
    """Sync a directory: otherwise a power failure may lose new names."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
