"""Region logs beside a naive model: a dictionary of the live entries, and one more per entry added.

For tests that hold the engine against lists sorted by hand.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from anabranch.stream.entry_id import make, text
from anabranch.stream.frozen import copied
from anabranch.stream.groups.group import LOCAL_REPLICA_ID
from anabranch.stream.region_log import RegionLog, Span
from anabranch.stream.stream import Stream

__all__ = ["ModelledLog", "contents", "contents_reversed", "copy_of", "fragment", "id_steps"]


def fragment(entry_id: int, size: int = 1) -> bytes:
    """An entry as a block keeps it, with a value of so many bytes."""
    name = text(entry_id)
    return b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nf\r\n$%d\r\n%b\r\n" % (
        len(name),
        name,
        size,
        b"v" * size,
    )


def id_steps() -> st.SearchStrategy[int]:
    """By how much the next ID is above the last: mostly a little, sometimes enormously."""
    return st.one_of(
        st.integers(1, 3),
        st.integers(1, 3).map(lambda ms: make(ms, 0)),
        st.sampled_from([1 << 23, 1 << 24, 1 << 40, make(1 << 41, 5)]),
    )


def copy_of(log: RegionLog) -> RegionLog:
    """An independent copy of a log, as COPY makes it."""
    stream = Stream(100, 100)
    stream.local = stream.logs[LOCAL_REPLICA_ID] = log
    return copied(stream).local


class ModelledLog:
    """A region log and what it should hold: ID -> (position, fragment)."""

    def __init__(self) -> None:
        self.log = RegionLog()
        self.live: dict[int, tuple[int, bytes]] = {}
        self.added = 0
        self.last_id = 0

    def append(self, entry_id: int, *, size: int = 1, opens: bool = False) -> None:
        data = fragment(entry_id, size)
        self.log.append(entry_id, data, size, opens)
        self.live[entry_id] = (self.added, data)
        self.added += 1
        self.last_id = entry_id

    def remove(self, entry_id: int) -> None:
        found = self.log.find(entry_id)
        assert (found is not None) == (entry_id in self.live)
        if found is not None:
            self.log.remove_within(found[0], [found[1]])
            del self.live[entry_id]

    def between(self, start: int, end: int) -> list[int]:
        """Live IDs of an interval, ascending."""
        return sorted(entry_id for entry_id in self.live if start <= entry_id <= end)

    def check(self) -> None:
        self.log.check()
        ids = self.between(0, 1 << 128)
        assert self.log.length == len(ids)
        assert self.log.first_id == (ids[0] if ids else 0)
        assert self.log.last_id == (ids[-1] if ids else 0)
        assert self.log.next_position == self.added
        for entry_id, (position, data) in self.live.items():
            found = self.log.find(entry_id)
            assert found is not None
            block, index = found
            assert block.position(index) == position
            assert block.fragment(index) == data


def contents(spans: Iterable[Span]) -> list[tuple[int, bytes]]:
    """IDs and fragments of ascending spans; that slices and single fragments agree is asserted."""
    found: list[tuple[int, bytes]] = []
    for block, low, high in spans:
        assert low < high
        run = [(block.ids[index], bytes(block.fragment(index))) for index in range(low, high)]
        assert block.slice(low, high) == b"".join(data for _, data in run)
        assert [bytes(data) for data in block.fragments(low, high)] == [data for _, data in run]
        found += run
    return found


def contents_reversed(spans: Iterable[Span]) -> list[tuple[int, bytes]]:
    """The same for spans that come newest first, newest entry first."""
    found: list[tuple[int, bytes]] = []
    for span in spans:
        found += reversed(contents([span]))
    return found
