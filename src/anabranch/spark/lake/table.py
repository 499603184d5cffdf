"""Streams as a Delta table: any reader of Delta sees exactly the committed entries.

The table is partitioned by stream and day. Tasks write Parquet files that are not visible; the
driver commits them with an application transaction, which contains the query and the number of its
batch, so that a repeated batch is committed once. The library ``deltalake`` reads the log, makes
its checkpoints and removes files and older versions; it needs no Java. The directory must be one
that all workers and the driver share.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.spark.decoding.columns import CHANGE
from anabranch.spark.lake import files as lake_files
from anabranch.spark.lake.files import (
    SCHEMA,
    LakeError,
    LakeFile,
    Run,
    publish,
    runs_of,
)
from anabranch.spark.reading.holes import DELETE, INSERT
from anabranch.spark.runtime.rounds import in_rounds

if TYPE_CHECKING:
    from deltalake import DeltaTable

PARTITIONS: Final = ["stream", "date"]
_OF_FILES: Final = ("path", "partition.stream", "partition.date", "num_records", "size_bytes")
_BOUNDS: Final = ("min", "max", "null_count")
_ATTEMPTS: Final = 100  # of a commit that conflicts with others
_CHECKPOINT_EACH: Final = 100  # commits
_PLAIN: Final = "/=:"  # in the paths of the log
_OPENINGS: Final = 3  # of a table whose log changes meanwhile

_FILE_BYTES: Final = 256 << 20  # of Arrow data, before a file is begun anew

Merge = tuple[Sequence[LakeFile], LakeFile | None]
"""Files of one stream and day, and the file with their entries; None if none are left.

Without files of before it is a new one.
"""

PlacePart = tuple[str, str, int, int, int]
"""Stream, region, entries, first and last position."""

Places = dict[tuple[str, str], tuple[int, int, int]]
"""Stream and region to entries, first and last position."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Positions of a stream and region that no entry of the lake has: deleted, or trimmed."""

    stream: str
    region: str
    after: int
    before: int

    def __str__(self) -> str:
        """For people."""
        place = f"{self.stream}/{self.region}" if self.region else self.stream
        return f"gap: {place}: nothing between positions {self.after} and {self.before}"


def neighbours(runs: Iterable[tuple[str, Run]]) -> Iterator[tuple[str, str, int, int, int]]:
    """Each run that has an earlier one of its stream and region.

    ``(stream, region, last position of all earlier runs, first position, last position)``.
    """
    place, furthest = ("", ""), -1
    for stream, (region, first, last) in sorted(runs):
        if place == (stream, region):
            yield stream, region, furthest, first, last
            furthest = max(furthest, last)
        else:
            place, furthest = (stream, region), last


def gaps(runs: Iterable[tuple[str, Run]]) -> list[Gap]:
    """What is missing between runs of positions of streams."""
    return [
        Gap(stream, region, furthest, first)
        for stream, region, furthest, first, _ in neighbours(runs)
        if first > furthest + 1
    ]


class Lake:
    """A directory with a Delta table of entries."""

    def __init__(self, root: str | Path) -> None:
        """Opens nothing yet; raises `LakeError` for a path that the library cannot take."""
        self.root = Path(root)
        if unquote(str(root)) != str(root) or {"#", "?"}.intersection(str(root)):
            raise LakeError(
                f"{root} cannot be a lake, because deltalake takes # ? and %xx in a path for parts "
                "of a URL: choose a directory without them"
            )

    def table(self) -> DeltaTable:
        """The table as it is now; raises `LakeError` if there is none."""
        found = self._table()
        if found is None:
            raise LakeError(f"{self.root} holds no Delta table: is this a lake?")
        return found

    def has_other_columns(self) -> bool:
        """Whether the log names other columns than those of a lake, or other types."""
        return not pa.schema(self.table().schema().to_arrow()).equals(SCHEMA)

    def files(self, streams: Sequence[str] | None = None) -> list[LakeFile]:
        """Those of the newest version, in the order of streams and days; none without a table."""
        table = self._table()
        if table is None:
            return []
        chosen = (each for each in _listed(table) if not streams or each.stream in streams)
        return sorted(chosen, key=lambda each: (each.stream, each.date or "", each.path))

    def gaps(self, streams: Sequence[str] | None = None) -> list[Gap]:
        """Positions that no entry has, and none was erased from. Reads two columns of all files."""
        return gaps([*self.runs(streams), *self.erased()])

    def runs(self, streams: Sequence[str] | None = None) -> Iterator[tuple[str, Run]]:
        """The positions that entries have, with their streams. Reads two columns of all files."""

        def runs(file: LakeFile) -> list[tuple[str, Run]]:
            parquet = pq.ParquetFile(self.root / file.path)
            some = parquet.read(columns=["region", "position"])
            return [
                (file.stream, run)
                for run in runs_of(some.column("region"), some.column("position"))
            ]

        return (run for some in in_rounds(None, self.files(streams), runs) for run in some)

    def write(self, table: pa.Table) -> list[LakeFile]:
        """Write files with these entries, durably; they are visible after `commit`."""
        return lake_files.write(self.root, table)

    def commit(
        self, query: str, batch: int, drafts: Iterable[LakeFile], about: Sequence[PlacePart] = ()
    ) -> bool:
        """Make files visible, as a batch of a query; False if the batch was committed before.

        Files of a repeated batch stay invisible, and a later `compact` removes them. `about` goes
        into the history. Raises `LakeError`, also for an older batch, and for one that was
        committed with fewer entries: both would be lost.
        """
        put: list[Merge] = [((), draft) for draft in drafts]
        for _ in range(_ATTEMPTS):
            table = self._table() or self._made()
            known = table.transaction_version(query)
            if known is not None and known >= batch:
                self._require_same(table, query, batch, known, about)
                return False
            done = {"operation": "WRITE", "query": query, "batch": batch, "parts": list(about)}
            transaction = {"appId": query, "version": batch, "lastUpdated": _now_ms()}
            if not put or self._put(table, {}, put, done, {"txn": transaction}):
                return True
        raise LakeError(f"{self.root}: a commit conflicted with those of others {_ATTEMPTS} times")

    def replace(self, merges: Sequence[Merge]) -> list[Merge]:
        """Put files in the places of several others, in one commit; returns those that were put.

        The others have a file that is not in the newest version any more. The library has no such
        commit: its merges give files without digests, and its transactions do not check that the
        files to be removed are there.
        """
        for _ in range(_ATTEMPTS):
            table = self.table()
            listed = _listed(table)
            put = [each for each in merges if all(file in listed for file in each[0])]
            if not put or self._put(table, listed, put, {"operation": "OPTIMIZE"}):
                return put
        raise LakeError(f"{self.root}: a merge conflicted with commits of others {_ATTEMPTS} times")

    def erase(self, query: str, runs: Sequence[tuple[str, Run]]) -> int:
        """Write files again without some entries, in one commit; returns how many those were.

        The old files stay on disk for readers of older versions, until `compact` removes them. To
        erase entries twice has no effect. Raises `LakeError`.
        """
        done: dict[LakeFile, tuple[LakeFile | None, int] | None] = {}
        for _ in range(_ATTEMPTS):
            found = self._table() if runs else None
            if found is None:
                return 0
            listed = _listed(found)
            for file in listed:
                own = [
                    run for stream, run in runs if stream == file.stream and _may_have(file, run)
                ]
                if own and file not in done:
                    done[file] = lake_files.without(self.root, file, own)
            changed = {file: some for file in listed if (some := done.get(file)) is not None}
            if not changed:
                return 0
            count = sum(rows for _, rows in changed.values())
            about = {"operation": "DELETE", "query": query, "erasedEntries": count}
            about["erased"] = [[stream, *run] for stream, run in runs]
            put: list[Merge] = [([file], draft) for file, (draft, _) in changed.items()]
            if self._put(found, listed, put, about):
                return count
        raise LakeError(f"{self.root}: a commit conflicted with those of others {_ATTEMPTS} times")

    def _put(
        self,
        table: DeltaTable,
        listed: Mapping[LakeFile, str],
        merges: Sequence[Merge],
        about: Mapping[str, Any],
        *more: Any,
    ) -> bool:
        """Commit files in the places of others, and `more` actions; False if others came first."""
        log = self.root / "_delta_log"
        version = table.version() + 1
        changes_data = about["operation"] != "OPTIMIZE"
        actions = [_about_merges(table.version(), merges, about), *more]
        for files, draft in merges:
            actions += [_removed(listed[file], file, changes_data) for file in files]
            if draft is not None:
                actions.append(_added(draft, changes_data))
        lines = "".join(f"{json.dumps(each)}\n" for each in actions)
        if not publish(log / f"{version:020}.json", lines.encode()):
            return False
        if not version % _CHECKPOINT_EACH:  # readers begin there, and older commits may go
            newest = self.table()
            newest.create_checkpoint()
            newest.cleanup_metadata()
        return True

    def _require_same(
        self, table: DeltaTable, query: str, batch: int, known: int, parts: Sequence[PlacePart]
    ) -> None:
        """Raise `LakeError` if a batch is no repetition of the newest one of its query.

        A repetition has the same entries, less those that were deleted since.
        """
        if known == batch:
            committed = (
                each["parts"]
                for each in table.history()
                if (each.get("query"), each.get("batch")) == (query, batch)
            )
            # After 30 days the commit may be missing in the log, and there is no comparison.
            known_parts = places_of(next(committed, parts))
            if all(
                place in known_parts and last <= known_parts[place][2]
                for place, (_, _, last) in places_of(parts).items()
            ):
                return
        raise LakeError(
            f"{self.root} has batch {known} of query {query}, and the checkpoint repeats batch "
            f"{batch} with other entries: the checkpoint was set back, or another run is at work. "
            "Nothing was added. Archive with the newest checkpoint, or with a new one into another "
            "lake"
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process, and no other thread, of this block is in it.

        Otherwise two may merge the same files, and the work of one is for nothing. The lock is
        released when the process ends. The file system must support locks.
        """
        with (self.root / "_compact.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def history(self, after: int) -> list[dict[str, Any]]:
        """What was committed after a version, newest first."""
        table = self._table()
        commits = 0 if table is None else table.version() - after
        return table.history(commits) if table is not None and commits > 0 else []

    def promised(self) -> Places:
        """What commits have added.

        As far as they are in the log: after 30 days commits are removed from it. Raises `LakeError`
        if they cannot be read.
        """
        with _damage_told(self.root):
            return places_of(part for each in self.history(-1) for part in each.get("parts", ()))

    def erased(self) -> list[tuple[str, Run]]:
        """The positions that commits have erased, as far as they are in the log."""
        with _damage_told(self.root):
            return [
                (stream, (region, first, last))
                for each in self.history(-1)
                for stream, region, first, last in each.get("erased", ())
            ]

    def version(self) -> int:
        """Of the table; -1 if there is none."""
        table = self._table()
        return -1 if table is None else int(table.version())

    def _table(self) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable  # noqa: PLC0415 - an extra
            from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415 - an extra
        except ImportError:
            raise LakeError(
                'lakes are kept by deltalake, which is an extra: pip install "anabranch[lake]"'
            ) from None
        for left in reversed(range(_OPENINGS)):
            try:
                with _damage_told(self.root):
                    return DeltaTable(str(self.root))
            except TableNotFoundError:
                break
            except LakeError:
                # A writer removes commits that are 30 days old and in a checkpoint. Who has listed
                # them before does not find them.
                if not left:
                    raise
        return None

    def _made(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 - an extra
        from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

        self.root.mkdir(parents=True, exist_ok=True)
        try:
            return DeltaTable.create(
                str(self.root),
                Schema.from_arrow(SCHEMA),
                mode="ignore",
                name="anabranch",
                partition_by=PARTITIONS,
            )
        except DeltaError as problem:
            # Another writer has made the table meanwhile.
            if (found := self._table()) is not None:
                return found
            raise LakeError(f"{self.root}: {problem}") from None


def places_of(parts: Iterable[PlacePart]) -> Places:
    """The parts of each stream and region as one."""
    found: Places = {}
    for stream, region, entries, first, last in parts:
        count, low, high = found.get((stream, region), (0, first, last))
        found[stream, region] = (count + entries, min(low, first), max(high, last))
    return found


def drafts_of(
    lake: Lake, batches: Iterable[pa.RecordBatch]
) -> tuple[list[LakeFile], list[PlacePart]]:
    """Write the entries that a task reads, and describe them."""
    drafts: list[LakeFile] = []
    parts: list[PlacePart] = []
    sums = [("position", "count"), ("position", "min"), ("position", "max")]
    names = ("stream", "region", *("_".join(each) for each in sums))
    for table in _tables(batches):
        drafts += lake.write(table)
        found = table.group_by(["stream", "region"], use_threads=False).aggregate(sums)
        parts += [tuple(row[name] for name in names) for row in found.to_pylist()]
    return drafts, parts


def entries_of(
    batches: Iterable[pa.RecordBatch], erased: list[tuple[str, Run]]
) -> Iterator[pa.RecordBatch]:
    """The entries of a read; the deletions of one with changes are added to `erased`.

    What was trimmed is left out: a lake is there to keep it.
    """
    for each in batches:
        if CHANGE not in each.schema.names:
            yield each
            continue
        kinds = each.column(CHANGE)
        yield each.filter(pc.equal(kinds, INSERT)).drop_columns([CHANGE])
        gone = pa.Table.from_batches([each.filter(pc.equal(kinds, DELETE))])
        for stream in pc.unique(gone.column("stream")).to_pylist():
            some = gone.filter(pc.equal(gone.column("stream"), stream))
            runs = runs_of(some.column("region"), some.column("position"))
            erased += [(stream, run) for run in runs]


def _tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The entries of a file each."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for each in batches:
        if each.num_rows:
            waiting.append(each)
            size += each.nbytes
        if size >= _FILE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


@contextmanager
def _damage_told(root: Path) -> Iterator[None]:
    """Raise `LakeError` if the library cannot read the log; if there is none, its own error."""
    from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415 - an extra

    try:
        yield
    except TableNotFoundError:
        raise
    except BaseException as problem:
        # Some damage makes the library panic, which is none of Python's ordinary exceptions.
        panics = type(problem).__name__ == "PanicException"
        if not panics and not isinstance(problem, Exception):
            raise
        raise LakeError(f"{root}: the log of the table is damaged: {problem}") from None


def _listed(table: DeltaTable) -> dict[LakeFile, str]:
    """The files of a version, with their paths as the log has them."""
    with _damage_told(Path(table.table_uri)):
        stream_of = table.get_add_actions(flatten=True)
    actions = pa.RecordBatchReader.from_stream(stream_of).read_all()
    columns = (actions[name].to_pylist() for name in _OF_FILES)
    bounds = [name for name in actions.schema.names if name.partition(".")[0] in _BOUNDS]
    values = zip(*(_plain(actions[name]) for name in bounds), strict=True)
    found: dict[LakeFile, str] = {}
    for (path, stream, day, rows, nbytes), some in zip(
        zip(*columns, strict=True), values, strict=True
    ):
        date = None if day is None else str(day)
        known = tuple(
            (name, value) for name, value in zip(bounds, some, strict=True) if value is not None
        )
        # Statistics that cannot be read are missing here, and no file has 0 entries.
        found[LakeFile(unquote(path), stream or "", date, rows or 0, nbytes, "", known)] = path
    return found


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values of times would make Arrow import pandas, for half a second."""
    times = pa.types.is_timestamp(column.type)
    plain: list[Any] = (column.cast(pa.int64()) if times else column).to_pylist()
    return plain


def _may_have(file: LakeFile, run: Run) -> bool:
    """Whether a file may have entries at these positions, by what the log says of it."""
    region, first, last = run
    known = dict(file.bounds)
    regions = str(known.get("min.region", region)), str(known.get("max.region", region))
    positions = int(known.get("min.position", first)), int(known.get("max.position", last))
    return regions[0] <= region <= regions[1] and positions[0] <= last and first <= positions[1]


def _about_merges(version: int, merges: Sequence[Merge], about: Mapping[str, Any]) -> Any:
    """The action that tells what a commit has done."""
    numbers = {
        "numFilesAdded": sum(draft is not None for _, draft in merges),
        "numFilesRemoved": sum(len(files) for files, _ in merges),
    }
    return {
        "commitInfo": {
            "timestamp": _now_ms(),
            **about,
            "operationParameters": {},
            "operationMetrics": numbers,
            "readVersion": version,
            "engineInfo": "anabranch",
        }
    }


def _places(file: LakeFile) -> dict[str, str | None]:
    return {"stream": file.stream or None, "date": file.date}


def _removed(path: str, file: LakeFile, changes_data: bool) -> Any:
    """The action that removes a file whose entries another one has, if not `changes_data`."""
    about = {"path": path, "dataChange": changes_data, "deletionTimestamp": _now_ms()}
    more = {"extendedFileMetadata": True, "partitionValues": _places(file), "size": file.nbytes}
    return {"remove": {**about, **more}}


def _added(file: LakeFile, changes_data: bool) -> Any:
    """The action that adds a file; not `changes_data`: with the entries of others."""
    about = {"path": quote(file.path, safe=_PLAIN), "partitionValues": _places(file)}
    more = {"modificationTime": _now_ms(), "dataChange": changes_data, "stats": file.statistics}
    return {"add": {**about, "size": file.nbytes, **more}}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
