"""Copies files into streams: CSV, JSON lines and Parquet, each file once.

    python ingest.py orders.csv --stream orders --schema 'number int, city string'

Paths are files or directories. A second run adds nothing; a run that died is completed.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, MapType, StructType

from anabranch.spark import session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FORMATS: Final = {
    ".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet",
}  # fmt: skip
_CORRUPT: Final = "_corrupt_record"
_SETTINGS: Final = {
    # A file is one partition: its rows stay in order, however many cores there are.
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.minPartitionNum": "1",
    # Names of fields that differ in case are different.
    "spark.sql.caseSensitive": "true",
}


class IngestError(Exception):
    """Files that cannot be read; the text names them and the reason."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What was read. Rows that an earlier run had written are counted, and not written again."""

    files: int
    rows: int
    bad: int
    """Rows that did not fit the schema; they went to the side stream."""
    new: int | None
    """Of all of them, rows that an earlier run had not written; None where that is not known."""
    dry_run: bool


@dataclass(frozen=True)
class Target:
    """Where the rows go."""

    url: str
    stream: str
    key: str | None = None
    """A column: rows go to ``<stream>:<value of that column>``."""
    bad_stream: str | None = None
    """For lines that do not fit, as they are; by default ``<stream>:bad``."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the write."""

    @property
    def bad(self) -> str:
        """The stream for lines that do not fit."""
        return self.bad_stream or f"{self.stream}:bad"


def ingest(
    spark: SparkSession,
    paths: Sequence[str | Path],
    target: Target,
    schema: str | None = None,
    *,
    dry_run: bool = False,
) -> Ingested:
    """Append the rows of files, in their order, as entries with a field for each column.

    With a `schema` (``"n int, s string"``), values have to fit it; without one, values of CSV files
    are text. Lines that do not fit, and those of a CSV file with more or fewer values than its
    header, go to another stream. Nested values become JSON. A file is known by its path and time of
    change: a second run over the same files adds nothing, and a run that died is completed. Raises
    `IngestError` and what Spark raises.
    """
    rows = bad = 0
    new: int | None = 0
    for path in (found := list(files_of(paths))):
        counts = Observation()
        with _as_needed(spark):
            entries = _entries(_read(spark, path, schema), path, target)
            watched = entries.observe(
                counts,
                f.count(f.lit(1)).alias("all"),
                f.count_if(_is_corrupt(entries)).alias("bad"),
            )
            known = None
            if dry_run:
                watched.write.format("noop").mode("overwrite").save()
            else:
                known = _write(watched, path, target)
        seen = counts.get
        rows += seen["all"] - seen["bad"]
        bad += seen["bad"]
        new = None if new is None or known is None else new + seen["all"] - known
    return Ingested(len(found), rows, bad, None if dry_run else new, dry_run)


def files_of(paths: Sequence[str | Path]) -> Iterator[Path]:
    """The files that paths stand for; raises `IngestError`."""
    for each in paths:
        path = Path(each).absolute()
        if path.is_dir():
            inside = sorted(child for child in path.iterdir() if child.suffix in _FORMATS)
            if not inside:
                raise IngestError(f"{path} holds no file of {', '.join(_FORMATS)}")
        elif not path.exists():
            raise IngestError(f"{path}: no such file")
        elif path.suffix not in _FORMATS:
            raise IngestError(f"{path}: the name must end in one of {', '.join(_FORMATS)}")
        else:
            inside = [path]
        for file in inside:
            if file.name.startswith(("_", ".")):
                raise IngestError(
                    f"{file}: Spark reads no file whose name begins with _ or a point: rename it"
                )
        yield from inside


def _entries(table: DataFrame, path: Path, target: Target) -> DataFrame:
    """The rows of a file, with the stream of each; raises `IngestError`."""
    key = target.key
    names = [name for name in table.columns if name != _CORRUPT]
    if not names:
        raise IngestError(f"{path}: it is empty, so its columns are unknown")
    if key is not None and key not in names:
        raise IngestError(f"{path}: no column {key!r} among {', '.join(names)}")
    if "stream" in names:
        raise IngestError(f"{path}: a column called stream has to be renamed first")
    corrupt = _is_corrupt(table)
    to = f.lit(target.stream)
    if key is not None:
        to = f.concat(f.lit(f"{target.stream}:"), f.col(_quoted(key)))
    entries = table.select(
        f.when(corrupt, f.lit(target.bad)).otherwise(to).alias("stream"),
        *(f.when(~corrupt, _flat(table, name)).alias(name) for name in names),
        *([f.col(_CORRUPT)] if _CORRUPT in table.columns else []),
    )
    # A blank line is no entry: entries have fields.
    entries = entries.dropna("all", subset=[_quoted(name) for name in entries.columns[1:]])
    # All columns are read: a line may be found not to fit by any of them.
    wrong = entries.where((f.col("stream") == target.bad) & ~_is_corrupt(entries))
    if key is not None and _CORRUPT in table.columns and wrong.take(1):
        raise IngestError(
            f"{path}: a row has a value in column {key!r} by which it belongs to {target.bad}, "
            "where lines go that do not fit: name another stream for these (bad_stream)"
        )
    return entries


def _is_corrupt(table: DataFrame) -> Column:
    return f.col(_CORRUPT).isNotNull() if _CORRUPT in table.columns else f.lit(False)


def _flat(table: DataFrame, name: str) -> Column:
    """A column, or its values as JSON if they have parts."""
    column = f.col(_quoted(name))
    nested = isinstance(table.schema[name].dataType, ArrayType | MapType | StructType)
    return f.to_json(column) if nested else column


def _quoted(name: str) -> str:
    """The name of a column, as Spark wants it for a name with any signs."""
    return "`" + name.replace("`", "``") + "`"


def _write(entries: DataFrame, path: Path, target: Target) -> int | None:
    """How many rows were there already; None if that is not known."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "result"
        own = {
            # Every column is payload, whatever it is called.
            "fieldMapping": json.dumps({name: name for name in entries.columns[1:]}),
            "producerId": f"ingest:{path}@{path.stat().st_mtime_ns}",
            "batchId": "0",
            "resultFile": str(result),
        }
        writer = entries.write.format("anabranch").mode("append").options(**own)
        # Rows without a key go to the stream.
        writer.options(url=target.url, stream=target.stream, **target.options).save()
        # With Spark Connect the driver is elsewhere.
        return json.loads(result.read_text("utf-8"))["known"] if result.exists() else None


def _read(spark: SparkSession, path: Path, schema: str | None) -> DataFrame:
    kind = _FORMATS[path.suffix]
    # Spark takes the name of a file for a pattern.
    place = re.sub(r"([*?\[\]{}\\])", r"\\\1", str(path))
    reader = spark.read.format(kind)
    header: list[str] = []
    if kind == "csv":
        # As in RFC 4180: a value in quotes may have line breaks, and a quote in it is doubled.
        reader = reader.options(header="true", multiLine="true", escape='"')
        header = _header(path)
        if schema is None and header:
            schema = ", ".join(f"{_quoted(each)} string" for each in header)
    if schema is not None and kind != "parquet":
        reader = reader.schema(f"{schema}, {_CORRUPT} string")
        reader = reader.option("columnNameOfCorruptRecord", _CORRUPT)
    table = reader.load(place)
    if header and header != (names := [each for each in table.columns if each != _CORRUPT]):
        raise IngestError(
            f"{path}: its columns are {', '.join(header)}, and those of the schema "
            f"{', '.join(names)}: the schema needs all names, in their order"
        )
    return table


def _header(path: Path) -> list[str]:
    """The columns of a CSV file, with names as Spark makes them for those that lack one.

    If values may have line breaks, Spark cannot find the header of a file like ``m[1].csv``: it
    takes the name for a pattern.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        try:
            names = next(filter(None, csv.reader(file)), [])
        except csv.Error as problem:
            raise IngestError(f"{path}: the header cannot be read: {problem}") from None
    return [
        name if name and names.count(name) == 1 else f"{name or '_c'}{at}"
        for at, name in enumerate(names)
    ]


@contextmanager
def _as_needed(spark: SparkSession) -> Iterator[None]:
    """The session has the settings of this job meanwhile."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def main() -> None:
    """Copy the files of the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--stream", required=True, help="where to")
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--key", help="column; rows go to STREAM:VALUE")
    parser.add_argument("--schema", help="columns and their types, as in SQL")
    parser.add_argument("--bad-stream", help="for lines that do not fit (default: STREAM:bad)")
    parser.add_argument("--dry-run", action="store_true", help="read and count only")
    given = parser.parse_args()
    target = Target(given.url, given.stream, given.key, given.bad_stream)
    done = ingest(session("ingest"), given.paths, target, given.schema, dry_run=given.dry_run)
    print(f"{done.rows:,} rows and {done.bad:,} that do not fit, in {done.files:,} files")
    print("nothing was written" if done.dry_run else f"new: {done.new}")


if __name__ == "__main__":
    main()
