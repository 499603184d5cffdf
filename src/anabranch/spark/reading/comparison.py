"""Compares the same part of a log on several replicas, by positions.

A position means the same entry in all regions, and the server's bytes of an entry contain its ID
and its fields. So equal parts are equal bytes, and only where these differ is anything looked at
entry by entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from anabranch.spark.connection.client import ServerClient, stream_key
from anabranch.spark.decoding.exports import parse_export

Entries = tuple[bytes | None, ...]
"""The bytes of the entry at one position, of each replica; None where there is none."""

_EXPORT_BYTES: Final = 2 << 20


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
        parts.append(_Stretch(export.positions - base, export.ends, export.data, following))
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
