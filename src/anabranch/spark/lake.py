"""Streams as Parquet files, published by manifests: nothing half written is ever seen.

    stream=orders/region=1/date=2024-02-29/<first position>-<last position>.parquet
    _log/<n>.json

A file's name follows from what it holds, so a repeated task writes the same file again. Readers
believe the manifests alone; one appears in one step when a whole batch is on disk, and says which
batch of which query it is, so that a repeated batch is not published twice. A manifest may also
replace files by one that holds the same entries; those replaced are read no more, and removed when
nobody can be reading them still. The directory must be one that all workers and the driver share.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.spark import lake_files
from anabranch.spark.lake_files import LakeError, LakeFile, sync_names
from anabranch.spark.task import Task

__all__ = [
    "Gap",
    "Lake",
    "LakeError",
    "LakeFile",
    "LakeSink",
    "Manifest",
    "gaps",
    "neighbours",
    "visible",
]

_FORMAT: Final = 2
_FORMATS: Final = (1, _FORMAT)  # 1 knew neither digests nor replacements
_COLUMNS: Final = ("stream", "region", "id", "ts", "seq", "position", "fields")
_FILE_BYTES: Final = 256 << 20  # of Arrow data, before a file is begun anew


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions between two files of a stream and region that no file holds."""

    stream: str
    region: str
    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One step in the life of a lake: files that appear, and those that they replace."""

    number: int
    query: str
    """Who published; empty where files were only replaced."""
    batch: int
    files: tuple[LakeFile, ...]
    supersedes: tuple[str, ...] = ()
    """Paths of files that this one's hold the entries of."""
    at_ms: int = 0
    """When it was written, in Unix time."""


def neighbours(files: Iterable[LakeFile]) -> Iterator[tuple[LakeFile, LakeFile]]:
    """Pairs of files of one stream and region: the one that reached furthest, and the next one."""
    furthest: LakeFile | None = None
    for each in files:
        if furthest is None or (furthest.stream, furthest.region) != (each.stream, each.region):
            furthest = each
            continue
        yield furthest, each
        if each.last > furthest.last:
            furthest = each


def gaps(files: Iterable[LakeFile]) -> list[Gap]:
    """Where positions are missing between files that are in order."""
    return [
        Gap(each.stream, each.region, before.last, each.first)
        for before, each in neighbours(files)
        if each.first > before.last + 1
    ]


class Lake:
    """A directory with files and manifests."""

    def __init__(self, root: str | Path) -> None:
        """Nothing is touched yet."""
        self.root = Path(root)

    def files(self) -> list[LakeFile]:
        """All published files in the order of streams, regions and positions."""
        return visible(self.manifests())

    def gaps(self) -> list[Gap]:
        """Where positions are missing between files. Deleted entries leave none within a file.

        Raises `LakeError` if two files overlap.
        """
        files = self.files()
        for before, each in neighbours(files):
            if each.first <= before.last:
                raise LakeError(f"{each.path} and {before.path} hold the same positions")
        return gaps(files)

    def manifests(self) -> list[Manifest]:
        """All manifests, oldest first; raises `LakeError` if one is missing or damaged."""
        found: list[Manifest] = []
        while True:
            try:
                found.append(self._manifest(len(found)))
            except FileNotFoundError:
                # Numbers have no holes, and a listing may miss what appears meanwhile: what is
                # there behind a hole has to be explained before anybody believes this is the end.
                names = (path.stem for path in self._log.glob("*.json"))
                later = max((int(name) for name in names if name.isdigit()), default=-1)
                if later < len(found):
                    return found
                if not self._path(len(found)).exists():
                    raise LakeError(
                        f"{self._path(len(found))} is missing, and {later:010d}.json is there"
                    ) from None

    def publish(self, query: str, batch: int, files: Iterable[LakeFile]) -> bool:
        """Make the files of a batch visible; False if they were already."""
        listed = tuple(files)
        fresh = True

        def next_one(before: list[Manifest]) -> Manifest | None:
            nonlocal fresh
            fresh = all((each.query, each.batch) != (query, batch) for each in before)
            if not fresh or not listed:
                return None
            return Manifest(len(before), query, batch, listed, at_ms=_now_ms())

        self._append(next_one)
        return fresh

    def replace(
        self, merged: Sequence[tuple[Sequence[LakeFile], LakeFile]]
    ) -> list[tuple[Sequence[LakeFile], LakeFile]]:
        """Let files take the place of those that they were merged from, all in one step.

        Returns the pairs for which this was done: files that somebody else has replaced meanwhile
        are not replaced again. Raises `LakeError`.
        """
        done: list[tuple[Sequence[LakeFile], LakeFile]] = []

        def next_one(before: list[Manifest]) -> Manifest | None:
            current = set(visible(before))
            done[:] = [(old, new) for old, new in merged if current.issuperset(old)]
            if not done:
                return None
            return Manifest(
                len(before),
                query="",
                batch=0,
                files=tuple(new for _, new in done),
                supersedes=tuple(each.path for old, _ in done for each in old),
                at_ms=_now_ms(),
            )

        self._append(next_one)
        return done

    def superseded(self, before_ms: int) -> list[Path]:
        """Files on disk that are read no more since `before_ms` (Unix time) or earlier.

        Those whose replacement is not on disk are kept: they are all that is left.
        """
        manifests = self.manifests()
        current = {each.path for each in visible(manifests)}
        paths = {
            path: None
            for each in manifests
            if each.at_ms <= before_ms
            and all(self._is_there(file) for file in each.files if file.path in current)
            for path in each.supersedes
            if path not in current
        }
        return [self.root / path for path in paths if (self.root / path).exists()]

    def _is_there(self, file: LakeFile) -> bool:
        try:
            return (self.root / file.path).stat().st_size == file.nbytes
        except FileNotFoundError:
            return False

    def drafts(self, before_ms: int) -> list[Path]:
        """Beginnings of files that nobody has gone on with since `before_ms` (Unix time)."""
        found = []
        for pattern in ("_log/.*.tmp", "stream=*/region=*/date=*/.*.tmp"):
            for path in sorted(self.root.glob(pattern)):
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns <= before_ms * 1_000_000:
                        found.append(path)
        return found

    def unlisted(self) -> list[Path]:
        """Files that no manifest has named: of batches under way, or of tasks that died."""
        named = {self.root / file.path for each in self.manifests() for file in each.files}
        return sorted(set(self.root.glob("stream=*/region=*/date=*/*.parquet")) - named)

    # -------------------------------------------------------------------------------- manifests

    @property
    def _log(self) -> Path:
        return self.root / "_log"

    def _path(self, number: int) -> Path:
        return self._log / f"{number:010d}.json"

    def _manifest(self, number: int) -> Manifest:
        path = self._path(number)
        try:
            told = json.loads(path.read_text("utf-8"))
            known = told.get("format") in _FORMATS
        except (ValueError, AttributeError):
            raise LakeError(f"{path} is damaged") from None
        if not known:
            raise LakeError(f"{path} is of a format that this version does not know")
        del told["format"]
        try:
            files = tuple(LakeFile(**each) for each in told.pop("files"))
            supersedes = tuple(told.pop("supersedes", ()))
            made = Manifest(**told, files=files, supersedes=supersedes)
        except (KeyError, TypeError):
            raise LakeError(f"{path} is damaged") from None
        if made.number != number:
            raise LakeError(f"{path} calls itself number {made.number}")
        return made

    def _append(self, next_one: Callable[[list[Manifest]], Manifest | None]) -> None:
        """Write the manifest that follows from those before it, whoever else does the same."""
        while (manifest := next_one(self.manifests())) is not None:
            self._log.mkdir(parents=True, exist_ok=True)
            draft = self._log / f".{uuid.uuid4().hex}.tmp"
            try:
                with draft.open("w", encoding="utf-8") as out:
                    json.dump({"format": _FORMAT, **asdict(manifest)}, out, sort_keys=True)
                    out.flush()
                    os.fsync(out.fileno())
                # unlike a rename, a link never replaces what another query published meanwhile
                self._path(manifest.number).hardlink_to(draft)
            except FileExistsError:
                continue
            finally:
                draft.unlink(missing_ok=True)
            sync_names(self._log)
            sync_names(self.root)
            return

    def write(self, table: pa.Table, stream: str, region: str, date: str) -> LakeFile:
        """Write one file, durably; nobody sees it before `publish`. Raises `LakeError`."""
        return lake_files.write(self.root, table, stream, region, date)


def visible(manifests: Iterable[Manifest]) -> list[LakeFile]:
    """What is published after these manifests, in the order of streams, regions and positions."""
    found: dict[str, LakeFile] = {}
    for manifest in manifests:
        for path in manifest.supersedes:
            found.pop(path, None)
        found.update((each.path, each) for each in manifest.files)
    return sorted(found.values(), key=lambda each: (each.stream, each.region, each.first))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


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
        task = Task.of_query()
        if task is None:
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
        query, batch, _ = task
        return _Wrote(query, batch, tuple(files))

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
