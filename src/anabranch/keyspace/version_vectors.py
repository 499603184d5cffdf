"""Operations on version vectors.

A version vector maps a replica ID to the number of the last effect that it covers. The effects of a
replica ID have no gaps, so the vector covers all of them up to that number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def covers(vector: Mapping[int, int], other: Mapping[int, int]) -> bool:
    """Whether a version vector covers everything that another one covers."""
    for replica_id, number in other.items():  # noqa: SIM110 - a generator takes twice as long
        if vector.get(replica_id, 0) < number:
            return False
    return True


def covers_dot(vector: Mapping[int, int], dot: tuple[int, int]) -> bool:
    """Whether a version vector covers one effect, ``(replica ID, number)``."""
    return vector.get(dot[0], 0) >= dot[1]


def row_of(vector: Mapping[int, int]) -> list[int]:
    """A version vector in little memory: replica ID, number, replica ID, number ..."""
    row: list[int] = []
    for item in vector.items():
        row += item
    return row


def vector_of(row: Sequence[int]) -> dict[int, int]:
    """The version vector that a row has. Raises :class:`ValueError` if it has no pairs."""
    return dict(zip(row[::2], row[1::2], strict=True))


def maximum(*vectors: Mapping[int, int]) -> dict[int, int]:
    """The least version vector that covers all of the given ones."""
    result = dict(vectors[0])
    for vector in vectors[1:]:
        raise_to(result, vector)
    return result


def raise_to(vector: dict[int, int], other: Mapping[int, int]) -> None:
    """Change a version vector so that it covers another one, too."""
    for replica_id, number in other.items():
        if number > vector.get(replica_id, 0):
            vector[replica_id] = number
