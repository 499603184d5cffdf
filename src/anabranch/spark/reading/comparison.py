"""Compares the same part of a log on several replicas, by positions.

A position means the same entry in all regions, and the server's bytes of an entry contain its ID
and its fields. So equal parts are equal bytes, and only where these differ is anything looked at
entry by entry. Executors do this, or threads of one process (`anabranch.spark.runtime.rounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from anabranch.spark.connection.client import ServerClient, connect, stream_key
from anabranch.spark.decoding.exports import parse_export
from anabranch.spark.options import ServerOptions

Entries = tuple[bytes | None, ...]
"""The bytes of the entry at one position, of each replica; None where there is none."""

Span = tuple[int, int]
"""First and last position."""

_EXPORT_BYTES: Final = 2 << 20
_NEAR: Final = 100  # positions between two differences that are looked at as one


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a region's log, the same on all replicas."""

    key: str
    replica_id: str
    """A region's number, with the epoch if that is not the first: ``1``, ``1.2``."""
    first: int
    stop: int
    """Positions ``[first, stop)``."""
    bases: tuple[int, ...]
    """Of each replica what its own positions are greater by."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What one replica has of a piece, from a position on."""

    positions: Any
    ends: Any
    """Where each entry ends in the data."""
    data: bytes
    next: int
    """Everything below this position is here."""

    def below(self, position: int) -> _Stretch:
        """The entries below a position."""
        count = int(np.searchsorted(self.positions, position))
        size = int(self.ends[count - 1]) if count else 0
        return _Stretch(self.positions[:count], self.ends[:count], self.data[:size], position)

    def by_position(self) -> dict[int, bytes]:
        """The bytes of each entry."""
        entries = (self.data[low:high] for low, high in pairwise([0, *self.ends.tolist()]))
        return dict(zip(self.positions.tolist(), entries, strict=True))


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


def compare(piece: Piece, servers: Sequence[ServerOptions]) -> tuple[list[int], list[Span]]:
    """How many entries each replica has, and where they may differ. Raises as `connect` does."""
    counts = [0] * len(servers)
    spans: list[Span] = []
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(each)) for each in servers]
        for some, differing in differences(piece, clients):
            counts = [count + more for count, more in zip(counts, some, strict=True)]
            for position in differing:
                if spans and position - spans[-1][1] <= _NEAR:
                    spans[-1] = (spans[-1][0], position)
                else:
                    spans.append((position, position))
    return counts, spans


def differences(
    piece: Piece, clients: Sequence[ServerClient]
) -> Iterator[tuple[list[int], dict[int, Entries]]]:
    """Read a piece from all replicas, part by part.

    Of each part: how many entries each replica has, and by position those that differ.
    """
    at = piece.first
    while at < piece.stop:
        parts = _parts(piece, at, clients)
        at = min(each.next for each in parts)
        some = [each.below(at) for each in parts]
        yield [len(each.ends) for each in some], _differing(some)


def _parts(piece: Piece, at: int, clients: Sequence[ServerClient]) -> list[_Stretch]:
    """The next entries of all replicas; the servers prepare them at the same time."""
    asked = []
    for client, base in zip(clients, piece.bases, strict=True):
        place = (stream_key(piece.key), piece.replica_id, at + base, piece.stop + base)
        asked.append(client.begin([("AB.EXPORT", *place, "MAXBYTES", _EXPORT_BYTES)]))
    parts = []
    for client, base, replies in zip(clients, piece.bases, asked, strict=True):
        (reply,) = client.checked(replies())
        export = parse_export(*filter(None, (reply,)))
        # A replica whose log ends before, or that has no such key, has nothing more.
        upto = at if reply is None else export.next_position - base
        following = upto if upto > at else piece.stop
        data = b"".join(export.data)
        parts.append(_Stretch(export.positions - base, export.ends, data, following))
    return parts


def _differing(parts: Sequence[_Stretch]) -> dict[int, Entries]:
    first, *others = parts
    if all(
        np.array_equal(each.positions, first.positions)
        and np.array_equal(each.ends, first.ends)
        and each.data == first.data
        for each in others
    ):
        return {}
    entries = [each.by_position() for each in parts]
    found = {}
    for position in sorted(set().union(*entries)):
        some = tuple(each.get(position) for each in entries)
        if len(set(some)) > 1:
            found[position] = some
    return found


def id_of(entry: bytes) -> str:
    """The ID of an entry, of which these are the server's bytes."""
    return entry.split(b"\r\n", 3)[2].decode()
