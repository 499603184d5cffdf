"""Files of a data directory that are deleted, cut, exchanged or too old, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from anabranch.oplog.manifest import MANIFEST
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, batches_in, first_position_of

__all__ = ["Fault", "faults"]


class Fault(NamedTuple):
    """One misfortune."""

    what: str
    names: tuple[str, ...]
    """The files that it befell."""
    files: dict[str, bytes]
    """All files, afterwards."""


def faults(
    files: dict[str, bytes],
    *,
    older: dict[str, bytes],
    others: dict[str, bytes],
    everywhere: bool,
) -> Iterator[Fault]:
    """Everything that may befall a file, or two.

    ``older`` is the directory at an earlier time, ``others`` another directory; ``everywhere`` cuts
    files at every byte instead of where it matters.
    """
    for name, data in files.items():
        left = {each: kept for each, kept in files.items() if each != name}
        yield Fault("deleted", (name,), left)
        yield Fault("emptied and grown again", (name,), {**files, name: bytes(len(data))})
        sizes = range(len(data)) if everywhere else _sizes(name, data)
        for size in sizes:
            yield Fault(f"cut to {size} bytes", (name,), {**files, name: data[:size]})
        if older.get(name, data) != data:
            yield Fault("an older copy", (name,), {**files, name: older[name]})
        for other in _like(name, others):
            if others[other] != data:
                yield Fault(f"{other} of another", (name,), {**files, name: others[other]})
    for one, other in combinations(files, 2):
        exchanged = {**files, one: files[other], other: files[one]}
        yield Fault("exchanged", (one, other), exchanged)
        less = {name: data for name, data in files.items() if name not in (one, other)}
        yield Fault("both deleted", (one, other), less)


def _sizes(name: str, data: bytes) -> list[int]:
    """Where to cut: around the header, at and in batches, and the last bytes."""
    sizes = {0, 1, 8, 24, SEGMENT_HEADER_BYTES - 1, SEGMENT_HEADER_BYTES}
    sizes |= {SEGMENT_HEADER_BYTES + 1, len(data) // 2, len(data) - 1, len(data) - 8}
    if first_position_of(name) is not None:
        ends = [item[0] for item in batches_in(data) if isinstance(item[0], int)]
        for at in (*ends[:2], *ends[-4:], *ends[:: max(len(ends) // 4, 1)]):
            sizes |= {at, at + 20, at - 1}
    if name == MANIFEST:
        sizes |= {4095, 4096, 4120, 4200}
    return sorted(size for size in sizes if 0 <= size < len(data))


def _like(name: str, others: dict[str, bytes]) -> list[str]:
    """Files that could be taken for this one: of its name, else of its kind."""
    if name in others:
        return [name]
    kind = name.partition("-")[0]
    return [other for other in others if other.partition("-")[0] == kind][:2]
