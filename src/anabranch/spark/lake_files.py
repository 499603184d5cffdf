"""The Parquet files of a lake: written once, merged, examined.

A file gets its name when all of it is on disk, and nothing that has a name is ever replaced: what
a repeated task brings is either the same file or gets another name. So whoever reads a published
file reads what its manifest promises, whatever else goes on.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.errors import AnabranchError

__all__ = ["LakeError", "LakeFile", "draft_in", "examine", "keep", "merge", "sync_names", "write"]

_GROUP_BYTES: Final = 32 << 20  # of Arrow data, in one row group of a merged file


class LakeError(AnabranchError):
    """The directory does not hold what a lake holds; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One published file."""

    path: str
    """Relative to the lake."""
    stream: str
    region: str
    rows: int
    first: int
    """Position of the first entry."""
    last: int
    nbytes: int
    digest: str = ""
    """SHA-256 of its bytes, in hexadecimal; empty in manifests of format 1, which had none."""


def write(root: Path, table: pa.Table, stream: str, region: str, date: str) -> LakeFile:
    """Write one file, durably. Rows are in the order of positions. Raises `LakeError`."""
    positions = table.column("position")
    if positions.null_count:
        raise LakeError(f"entries of stream {stream} have no positions: this server counts none")
    directory = Path(
        f"stream={quote(stream, safe='')}", f"region={quote(region, safe='')}", f"date={date}"
    )
    with draft_in(root / directory) as draft:
        pq.write_table(table, draft, compression="zstd")
        first, last = positions[0].as_py(), positions[-1].as_py()
        return keep(root, draft, directory, (stream, region, table.num_rows, first, last))


def merge(root: Path, files: Sequence[LakeFile]) -> LakeFile:
    """Write one file with the rows of several that follow each other, durably.

    Raises `LakeError` if one of them is not what it was when it was published.
    """
    start = files[0]
    directory = Path(start.path).parent
    rows = 0
    with draft_in(root / directory) as draft:
        schema = pq.read_schema(root / start.path).remove_metadata()
        with pq.ParquetWriter(draft, schema, compression="zstd") as out:
            for group in _groups(root, files, schema):
                out.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
        about = (start.stream, start.region, rows, start.first, files[-1].last)
        return keep(root, draft, directory, about)


def _groups(root: Path, files: Sequence[LakeFile], schema: pa.Schema) -> Iterator[pa.Table]:
    """All rows, checked, in row groups that are worth the name however small the files were."""
    waiting: list[pa.Table] = []
    size = 0
    for each in files:
        wrong = next(examine(root, each), None)
        if wrong is not None:
            raise LakeError(f"{each.path}: {wrong[1]}")
        with pq.ParquetFile(root / each.path) as source:
            if not source.schema_arrow.equals(schema):
                raise LakeError(f"{each.path} and {files[0].path} have different columns")
            for batch in source.iter_batches():
                waiting.append(pa.Table.from_batches([batch]).replace_schema_metadata())
                size += batch.nbytes
                if size >= _GROUP_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def examine(root: Path, file: LakeFile) -> Iterator[tuple[str, str]]:
    """What is not as the file's manifest promises: kind and words. Nothing if all is well."""
    path = root / file.path
    try:
        size = path.stat().st_size
        found = _digest(path)
    except OSError as problem:
        missing = isinstance(problem, FileNotFoundError)
        yield ("missing", "is not there") if missing else ("unreadable", str(problem))
        return
    if size != file.nbytes:
        yield "altered", f"has {size} bytes and was published with {file.nbytes}"
        return
    if file.digest and found != file.digest:
        yield "altered", f"has SHA-256 {found} and was published with {file.digest}"
        return
    # Without a digest damage shows only where data are decoded.
    columns = ["stream", "region", "position"] if file.digest else None
    try:
        yield from _examine_rows(path, file, columns)
    except (pa.ArrowException, OSError, KeyError) as problem:
        lines = str(problem).splitlines() or [type(problem).__name__]
        yield "unreadable", lines[0]


def _examine_rows(
    path: Path, file: LakeFile, columns: list[str] | None
) -> Iterator[tuple[str, str]]:
    rows = 0
    first = previous = None
    ordered = same_place = True
    with pq.ParquetFile(path) as source:
        for batch in source.iter_batches(columns=columns):
            positions = batch.column("position").to_numpy(zero_copy_only=False)
            if not len(positions):
                continue
            rows += len(positions)
            ordered &= bool((np.diff(positions) > 0).all())
            ordered &= previous is None or bool(positions[0] > previous)
            first = positions[0] if first is None else first
            previous = positions[-1]
            for name, wanted in (("stream", file.stream), ("region", file.region)):
                same = pc.all(pc.equal(batch.column(name), wanted), skip_nulls=False).as_py()
                same_place &= bool(same)
    if rows != file.rows:
        yield "count", f"has {rows} entries and was published with {file.rows}"
    if not ordered:
        yield "order", "has entries that are not in the order of their positions"
    elif (first, previous) != (file.first, file.last):
        yield (
            "order",
            f"has positions {first} to {previous} and was published with {file.first} to "
            f"{file.last}",
        )
    if not same_place:
        yield "place", "has entries of another stream or region"


# ------------------------------------------------------------------------------ names that last


def keep(
    root: Path, draft: Path, directory: Path, about: tuple[str, str, int, int, int]
) -> LakeFile:
    """Give a complete draft its name, durably.

    `about`: stream, region, rows, first and last position. Raises `LakeError`.
    """
    stream, region, rows, first, last = about
    with draft.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
        size = os.fstat(written.fileno()).st_size
        os.fsync(written.fileno())
    name = directory / f"{first:020d}-{last:020d}"
    plain, special = (name.with_suffix(each) for each in (".parquet", f".{digest[:16]}.parquet"))
    for path in (plain, special):
        try:
            (root / path).hardlink_to(draft)
        except FileExistsError:
            # An earlier attempt made it: the same, or one of a stream that had more entries then.
            if _digest(root / path) != digest:
                continue
        break
    else:
        raise LakeError(f"{special} is damaged, and in the way of the file that it should be")
    for above in (directory, *directory.parents):
        sync_names(root / above)
    with suppress(PermissionError):  # of a directory that is not ours
        sync_names(root.parent)
    return LakeFile(str(path), stream, region, rows, first, last, size, digest)


@contextmanager
def draft_in(directory: Path) -> Iterator[Path]:
    """A name for a file that is being written; what is left of it at the end goes."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".{uuid.uuid4().hex}.tmp"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def sync_names(directory: Path) -> None:
    """Put on disk which names a directory has: a power failure takes new ones otherwise."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
