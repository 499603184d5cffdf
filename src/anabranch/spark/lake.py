"""Streams as Parquet files, published by manifests: nothing half written is ever seen.

    stream=orders/region=eu/date=2024-02-29/<first position>-<last position>.parquet
    _log/<n>.json

A file's name follows from what it holds, so a repeated task writes the same file again. Readers
believe the manifests alone; one appears in one step when a whole batch is on disk, and says which
batch of which query it is, so that a repeated batch is not published twice. The directory must be
one that all workers and the driver share.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.errors import AnabranchError

__all__ = ["Gap", "Lake", "LakeError", "LakeFile", "LakeSink"]

_FORMAT: Final = 1
_COLUMNS: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")
_FILE_BYTES: Final = 256 << 20  # of Arrow data, before a file is begun anew


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


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions between two files of a stream and region that no file holds."""

    stream: str
    region: str
    after: int
    before: int


class Lake:
    """A directory with files and manifests."""

    def __init__(self, root: str | Path) -> None:
        """Nothing is touched yet."""
        self.root = Path(root)

    def files(self) -> list[LakeFile]:
        """All published files in the order of streams, regions and positions."""
        found = [LakeFile(**each) for manifest in self._manifests() for each in manifest["files"]]
        return sorted(found, key=lambda each: (each.stream, each.region, each.first))

    def gaps(self) -> list[Gap]:
        """Where positions are missing between files. Deleted entries leave none within a file.

        Raises `LakeError` if two files overlap.
        """
        gaps = []
        previous: LakeFile | None = None
        for each in self.files():
            same = previous is not None and (previous.stream, previous.region) == (
                each.stream,
                each.region,
            )
            if previous is not None and same:
                if each.first <= previous.last:
                    raise LakeError(f"{each.path} and {previous.path} hold the same positions")
                if each.first > previous.last + 1:
                    gaps.append(Gap(each.stream, each.region, previous.last, each.first))
            previous = each
        return gaps

    def publish(self, query: str, batch: int, files: Iterable[LakeFile]) -> bool:
        """Make the files of a batch visible; False if they were already."""
        number = -1
        for manifest in self._manifests():
            number = manifest["number"]
            if (manifest["query"], manifest["batch"]) == (query, batch):
                return False
        listed = [asdict(each) for each in files]
        if not listed:
            return True
        log = self.root / "_log"
        log.mkdir(parents=True, exist_ok=True)
        manifest = {
            "format": _FORMAT, "number": number + 1, "query": query, "batch": batch,
            "files": listed,
        }  # fmt: skip
        draft = log / f".{uuid.uuid4().hex}.tmp"
        with draft.open("w", encoding="utf-8") as out:
            json.dump(manifest, out, sort_keys=True)
            out.flush()
            os.fsync(out.fileno())
        try:
            # unlike a rename, a link never replaces what another query published meanwhile
            (log / f"{number + 1:010d}.json").hardlink_to(draft)
        except FileExistsError:
            return self.publish(query, batch, [LakeFile(**each) for each in listed])
        finally:
            draft.unlink()
        return True

    def _manifests(self) -> Iterator[dict[str, Any]]:
        for path in sorted((self.root / "_log").glob("[0-9]*.json")):
            manifest = json.loads(path.read_text("utf-8"))
            if manifest.get("format") != _FORMAT:
                raise LakeError(f"{path} is of a format that this version does not know")
            yield manifest

    def write(self, table: pa.Table, stream: str, region: str, date: str) -> LakeFile:
        """Write one file, durably; nobody sees it before `publish`."""
        positions = table.column("position")
        first, last = pc.min(positions).as_py(), pc.max(positions).as_py()
        directory = Path(
            f"stream={quote(stream, safe='')}", f"region={quote(region, safe='')}", f"date={date}"
        )
        path = directory / f"{first:020d}-{last:020d}.parquet"
        (self.root / directory).mkdir(parents=True, exist_ok=True)
        draft = self.root / directory / f".{uuid.uuid4().hex}.tmp"
        pq.write_table(table, draft, compression="zstd")
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        size = draft.stat().st_size
        draft.rename(self.root / path)
        return LakeFile(str(path), stream, region, table.num_rows, first, last, size)


# ------------------------------------------------------------------------------------- the sink


@dataclass(frozen=True)
class _Wrote(WriterCommitMessage):
    query: str
    batch: int
    files: tuple[LakeFile, ...]


class LakeSink(DataSource):
    """``format("anabranch-lake")``: the sink that `archive` writes with."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch-lake"

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """A streaming write of what a read of streams gives."""
        if tuple(schema.names) != _COLUMNS:
            raise LakeError(f"a lake takes the columns {', '.join(_COLUMNS)}, in this order")
        if overwrite:
            raise LakeError('a lake only grows: use outputMode("append")')
        return _LakeWriter(self.options)


class _LakeWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._root = options["path"]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Wrote:
        """One partition: a file for each stream, region and day in it."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise LakeError("this Spark does not tell its tasks which query and batch they are of")
        files: list[LakeFile] = []
        waiting: list[pa.RecordBatch] = []
        size = 0
        for each in iterator:
            waiting.append(each)
            size += each.nbytes
            if size >= _FILE_BYTES:
                files += self._files(waiting)
                waiting, size = [], 0
        files += self._files(waiting)
        return _Wrote(query, int(batch), tuple(files))

    def _files(self, batches: list[pa.RecordBatch]) -> Iterator[LakeFile]:
        lake = Lake(self._root)
        for key, table in _by_place(batches):
            yield lake.write(table, *key)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch."""
        wrote = [each for each in messages if each is not None]
        if wrote:
            files = [file for each in wrote for file in each.files]
            Lake(self._root).publish(wrote[0].query, wrote[0].batch, files)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Files without a manifest are not seen, and are written again."""


def _by_place(batches: list[pa.RecordBatch]) -> Iterator[tuple[tuple[str, str, str], pa.Table]]:
    """The rows of each stream, region and day (UTC, by ID), in the order of positions."""
    filled = [each for each in batches if each.num_rows]
    if not filled:
        return
    table = pa.Table.from_batches(filled)
    days = pc.strftime(table.column("ts"), "%Y-%m-%d").fill_null("unknown")
    places = pa.table([table.column("stream"), table.column("region"), days], ["s", "r", "d"])
    keys = places.group_by(["s", "r", "d"], use_threads=False).aggregate([]).to_pylist()
    for key in keys:
        mask = np.logical_and.reduce(
            [pc.equal(places.column(name), key[name]).to_numpy() for name in ("s", "r", "d")]
        )
        some = table.filter(pa.array(mask)).sort_by("position")
        yield (key["s"], key["r"], key["d"]), some
