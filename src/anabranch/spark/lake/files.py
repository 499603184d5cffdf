"""The Parquet files of a lake: written once by tasks, examined by `verify`.

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
from collections.abc import Iterator
from contextlib import contextmanager
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
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_DIGESTED: Final = re.compile(r"([0-9a-f]{64})-[0-9a-f]{32}\.parquet")
_GROUP_ROWS: Final = 128 << 10
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

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes; empty for files that the library has merged."""
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


def write(root: Path, table: pa.Table) -> list[tuple[LakeFile, str]]:
    """Write a file for each stream and day, durably, with its statistics as the log wants them.

    The files are visible after a commit. Rows are put in the order of region and ID.
    Raises `LakeError` if an entry has no position.
    """
    if table.column("position").null_count:
        raise LakeError("there are entries without positions: this server counts none")
    table = table.drop_columns([each for each in table.column_names if each == "date"])
    table = _in_order(table.append_column("date", _days(table.column("ts"))))
    names = ["stream", "date"]
    places = table.group_by(names, use_threads=False).aggregate([([], "count_all")])
    found: list[tuple[LakeFile, str]] = []
    at = 0
    for place in places.sort_by([(name, "ascending") for name in names]).to_pylist():
        some = table.slice(at, place["count_all"]).select(_IN_FILES.names).cast(_IN_FILES)
        found.append(_write(root, some, place["stream"] or "", place["date"]))
        at += len(some)
    for directory in {above for file, _ in found for above in Path(file.path).parents}:
        sync_names(root / directory)
    return found


def _days(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The days of times; null for those that have no date with a year of four digits."""
    days = pc.cast(times, pa.date32())
    return pc.if_else(pc.less_equal(days, _LAST_DAY), days, pa.scalar(None, pa.date32()))


def has_own_name(stream: str) -> bool:
    """Whether the directory of a stream has its name; otherwise the name is too long for one."""
    return len(quote(stream, safe="")) <= _NAME_MAX


def _digest(contents: Any) -> str:
    return hashlib.sha256(contents).hexdigest()


def _in_order(table: pa.Table) -> pa.Table:
    halves = pc.split_pattern(table.column("id"), "-")
    keys = pa.table(
        {
            "stream": table.column("stream"),
            "date": table.column("date"),
            "region": table.column("region"),
            "ms": pc.cast(pc.list_element(halves, 0), pa.uint64()),
            "seq": pc.cast(pc.list_element(halves, 1), pa.uint64()),
            "position": table.column("position"),
        }
    )
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return table.take(order)


def _write(root: Path, table: pa.Table, stream: str, day: Any) -> tuple[LakeFile, str]:
    date = None if day is None else day.isoformat()
    # The log says of which stream a file is; its path does not matter.
    name = quote(stream, safe="") if has_own_name(stream) else _digest(stream.encode())
    directory = Path(f"stream={name or _NULL}", f"date={_NULL if date is None else date}")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_GROUP_ROWS)
    contents = sink.getvalue()
    digest = _digest(contents)
    path = directory / f"{digest}-{uuid.uuid4().hex}.parquet"
    (root / directory).mkdir(parents=True, exist_ok=True)
    write_synced(root / path, contents)
    file = LakeFile(str(path), stream, date, table.num_rows, contents.size)
    # The log cannot tell times beyond any calendar.
    bounded = ("region", "position") if date is None else ("region", "ts", "position")
    return file, json.dumps(_statistics(table, bounded))


def _statistics(table: pa.Table, bounded: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"numRecords": table.num_rows, "nullCount": {}}
    least, most = found.setdefault("minValues", {}), found.setdefault("maxValues", {})
    for name in ("region", "ts", "position"):
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
    # Without a digest damage shows only where values are decoded.
    columns = ["region", "position", "ts"] if file.digest else None
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
    days = pc.unique(_days(table.column("ts"))).to_pylist()
    if any((None if day is None else day.isoformat()) != file.date for day in days):
        problems.append(("place", f"has entries of other days than {file.date}"))
    runs = runs_of(regions, positions)
    if sum(last - first + 1 for _, first, last in runs) != table.num_rows:
        problems.append(("overlap", "holds the same positions twice"))
    return Examined(problems, runs)


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


@contextmanager
def draft_in(directory: Path) -> Iterator[Path]:
    """A name for a file that is being written; the file is removed if it is left at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".{uuid.uuid4().hex}.tmp"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


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
