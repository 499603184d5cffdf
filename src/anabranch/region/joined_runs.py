"""Additions of several batches that follow one another, as one batch.

A region that wrote entries one by one sends a batch for each. Checking and applying an effect costs
about as much for one entry as for fifty, so neighbours are joined first. What is joined must be
what each batch alone would be: the log keeps the batches as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from anabranch.effects import kinds
from anabranch.oplog.batch import Batch

_TAG: Final = cast(int, kinds.AddRun.__struct_config__.tag)
_LENGTH: Final = 1 + len(kinds.AddRun.__struct_fields__)
_RUN: Final = 3
"""Length of the IDs of a run that ascend by one: milliseconds, sequence number, count."""


def joined_runs(batches: Sequence[Batch]) -> list[Batch]:
    """The batches of one replica ID, in their order, with neighbouring additions joined."""
    joined: list[Batch] = []
    stretch: list[Batch] = []
    for batch in batches:
        if stretch and not _follows(stretch[-1], batch):
            joined.append(_whole(stretch))
            stretch = []
        stretch.append(batch)
    joined.append(_whole(stretch))
    return joined


def _follows(before: Batch, batch: Batch) -> bool:
    """Whether two batches are one sound run of additions each, the second behind the first."""
    if not (_is_run(before) and _is_run(batch)):
        return False
    _, db, key, _, _, sizes, _, _, position = before.effects[0]
    array = batch.effects[0]
    return bool(
        array[1] == db
        and array[2] == key
        and array[8] == position + len(sizes)
        and batch.dependencies == before.dependencies
    )


def _is_run(batch: Batch) -> bool:
    """Whether a batch is one run of additions whose columns fit together."""
    if len(batch.effects) != 1 or len(batch.effects[0]) != _LENGTH:
        return False
    tag, db, key, ids, data, sizes, weights, opens, position = batch.effects[0]
    try:
        return bool(
            tag == _TAG
            and type(db) is type(position) is int
            and type(key) is type(data) is bytes
            and type(ids) is type(sizes) is type(weights) is type(opens) is list
            and len(ids) == _RUN
            and ids[2] == len(sizes) == len(weights) == batch.numbered
            and sum(sizes) == len(data)
            and all(type(each) is int and 0 <= each < len(sizes) for each in opens)
        )
    except TypeError:
        return False


def _whole(stretch: list[Batch]) -> Batch:
    """One batch with the additions of all."""
    first = stretch[0]
    if len(stretch) == 1:
        return first
    ids: list[Any] = []
    data: list[bytes] = []
    sizes: list[Any] = []
    weights: list[Any] = []
    opens: list[int] = []
    for batch in stretch:
        array = batch.effects[0]
        opens += [each + len(sizes) for each in array[7]]
        ids += array[3]
        data.append(array[4])
        sizes += array[5]
        weights += array[6]
    run = [*first.effects[0][:3], ids, b"".join(data), sizes, weights, opens, first.effects[0][8]]
    return first._replace(numbered=len(sizes), effects=[run])
