"""Digests of runs of a region's log, to find the spans of time that differ between replicas.

A bucket is a span of time of the IDs. Its digest is how many entries it has and the sum of their
128-bit hashes: equal contents give equal digests in whatever pieces and order they were read.
Entries are exported in the form of the server (AB.EXPORT); the bytes of an entry contain its ID and
its fields, and are hashed.

Executors do this, or threads of one process (`anabranch.spark.runtime.rounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_128_digest

from anabranch.spark.connection.client import ServerClient, connect, stream_key
from anabranch.spark.decoding.exports import Export, parse_export
from anabranch.spark.options import ServerOptions
from anabranch.spark.runtime.rounds import in_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Id = tuple[int, int]
"""Milliseconds and sequence number."""

Place = tuple[int, str]
"""The number of a stream, and a replica ID as text; see `Piece`."""

_EXPORT_BYTES: Final = 2 << 20
_MASK: Final = (1 << 64) - 1
_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of a region log on one replica."""

    replica: int
    stream: int
    key: str
    replica_id: str
    """A region's number, with the epoch if that is not the first: ``1``, ``1.2``."""
    first: int
    stop: int
    """Positions ``[first, stop)``."""
    width: int
    """Milliseconds of a bucket."""

    @property
    def place(self) -> tuple[int, int, str]:
        """Numbers of replica and stream, with the replica ID."""
        return self.replica, self.stream, self.replica_id


@dataclass(slots=True)
class Bucket:
    """The entries of one replica in a span of time of one log."""

    entries: int = 0
    high: int = 0
    low: int = 0
    """Halves of the sum of hashes, each modulo 2**64."""
    first: int = -1
    last: int = -1
    """Positions of its first and last entry on that replica."""

    def add(self, entries: int, high: int, low: int, first: int, last: int) -> None:
        """Add the part of another piece."""
        self.entries += entries
        self.high = (self.high + high) & _MASK
        self.low = (self.low + low) & _MASK
        self.first = first if self.first < 0 else min(first, self.first)
        self.last = max(last, self.last)

    @property
    def digest(self) -> tuple[int, int, int]:
        """Equal for equal contents."""
        return self.entries, self.high, self.low


def tasks_of(pieces: Sequence[Piece], tasks: int) -> list[list[Piece]]:
    """Distribute pieces among tasks, with equal counts of positions; long pieces are cut."""
    total = sum(each.stop - each.first for each in pieces)
    share = max(-(-total // max(tasks, 1)), 1)
    shared: list[list[Piece]] = [[]]
    room = share
    for piece in pieces:
        at = piece.first
        while at < piece.stop:
            if not room:
                shared.append([])
                room = share
            stop = min(at + room, piece.stop)
            shared[-1].append(replace(piece, first=at, stop=stop))
            room -= stop - at
            at = stop
    return [each for each in shared if each]


def digests(
    spark: SparkSession | None, servers: Sequence[ServerOptions], tasks: Sequence[Sequence[Piece]]
) -> list[dict[tuple[Place, int], Bucket]]:
    """For each replica its buckets, by place and number.

    Bucket n of a place begins at millisecond n times the width. Raises what Spark raises.
    """

    def work(task: Sequence[Piece]) -> list[tuple[int, int, str, int, tuple[int, ...]]]:
        found = []
        for piece in task:
            with connect(servers[piece.replica]) as client:
                for number, bucket in summary(piece, client).items():
                    found.append((*piece.place, number, astuple(bucket)))
        return found

    found: list[dict[tuple[Place, int], Bucket]] = [{} for _ in servers]
    for rows in in_rounds(spark, tasks, work, max(len(tasks), 1)):
        for replica, stream, replica_id, number, values in rows:
            found[replica].setdefault(((stream, replica_id), number), Bucket()).add(*values)
    return found


def summary(piece: Piece, client: ServerClient) -> dict[int, Bucket]:
    """The buckets of one piece."""
    found: dict[int, Bucket] = {}
    for export in _exports(client, piece.key, piece.replica_id, piece.first, piece.stop):
        numbers = export.ids[0] // piece.width
        starts = np.concatenate(([0], np.flatnonzero(np.diff(numbers)) + 1))
        stops = np.append(starts[1:], len(export))
        sums = np.add.reduceat(_hashes(export), starts)  # modulo 2**64, on purpose
        for row, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            found.setdefault(int(numbers[start]), Bucket()).add(
                stop - start,
                int(sums[row, 0]),
                int(sums[row, 1]),
                int(export.positions[start]),
                int(export.positions[stop - 1]),
            )
    return found


def entries_between(
    client: ServerClient, key: str, replica_id: str, first: int, last: int
) -> dict[Id, bytes]:
    """ID and hash of the entries at positions `first` to `last`; empty without the key."""
    found: dict[Id, bytes] = {}
    for export in _exports(client, key, replica_id, first, last + 1):
        raw = _hashes(export).tobytes()
        ids = zip(*map(np.ndarray.tolist, export.ids), strict=True)
        found.update((each, raw[16 * row : 16 * row + 16]) for row, each in enumerate(ids))
    return found


def _exports(
    client: ServerClient, key: str, replica_id: str, first: int, stop: int
) -> Iterator[Export]:
    at = first
    while at < stop:
        (reply,) = client.ask(
            [("AB.EXPORT", stream_key(key), replica_id, at, stop, "MAXBYTES", _EXPORT_BYTES)]
        )
        if reply is None:
            return  # deleted meanwhile: examined later
        export = parse_export(reply)
        if len(export):
            yield export
        if export.next_position <= at:
            return
        at = export.next_position


def _hashes(export: Export) -> _Words:
    """Both halves of each entry's hash."""
    data = export.data[0].tobytes() if len(export.data) == 1 else b"".join(export.data)
    ends = export.ends.tolist()
    raw = b"".join([xxh3_128_digest(data[low:high]) for low, high in pairwise([0, *ends])])
    return np.frombuffer(raw, ">u8").astype(np.uint64).reshape(-1, 2)
