"""Effects as plain arrays ``[tag, field, ...]``, ready for msgpack, and back.

Entry IDs have 128 bits and msgpack has integers of 64, so an ID becomes ``[ms, seq]`` and a list of
IDs becomes *runs* ``[ms, seq, count, ...]`` of IDs that follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec.structs import astuple

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from anabranch.errors import AnabranchError
from anabranch.stream.entry_id import MAX_ID, MAX_SEQ, MODULUS, SEQ_BITS
from anabranch.stream.packed_ids import PackedIds

STEP: Final = MODULUS
"""The distance between the sequence numbers that one region gives in a millisecond."""

BODY_BYTES_MAX = (1 << 32) - (1 << 12)  # not Final: tests of the compiled core lower it, too
"""The greatest uncompressed size of a batch, in a log and between regions: its header, and the
header of a frame, have 32 bits for a length that includes a little more."""

SENT_ARGUMENT_BYTES_MAX: Final = 32 << 20
"""The most bytes of a name or of the entries of one effect that a region writes.

Regions read anything up to :data:`BODY_BYTES_MAX`, but each of them must have several times the
memory of what arrives in one piece.
"""

SENT_IDS_MAX: Final = 1 << 20
"""The most IDs that an effect for other regions names without adding entries."""

IDS_MAX: Final = 1 << 32
"""The most IDs in one effect; an effect whose runs say more is refused."""


class EffectFormatError(AnabranchError):
    """The array is not an effect of a known kind."""


# -- IDs --------------------------------------------------------------------------------------


def split_id(entry_id: int | None) -> list[int] | None:
    """``[ms, seq]``; None stays None."""
    return None if entry_id is None else [entry_id >> SEQ_BITS, entry_id & MAX_SEQ]


def _joined(ms: int, seq: int) -> int:
    if ms < 0 or not 0 <= seq <= MAX_SEQ or ms > MAX_SEQ:
        raise ValueError("an ID out of range")
    return (ms << SEQ_BITS) | seq


def _join_id(pair: Sequence[int] | None) -> int | None:
    return None if pair is None else _joined(pair[0], pair[1])


def runs_of(ids: Sequence[int] | PackedIds, *, ascend: bool = False) -> list[int]:
    """``[ms, seq, count, ...]``: IDs as runs in which each is one more than the one before.

    ``ascend`` says that they ascend for sure, as the IDs of additions to one key.

    A run with another step is ``[ms, seq, -count, step]``: where several regions write, the IDs of
    one are a fixed step apart. Automatic IDs make a run a millisecond, whatever their number.
    """
    if isinstance(ids, PackedIds):
        ids = list(ids)
    count = len(ids)
    if count == 1:  # nearly always
        return [ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ, 1]
    if isinstance(ids, range) and (ids.step == 1 or count > 2):
        run = [ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ]
        return [*run, count] if ids.step == 1 else [*run, -count, ids.step]
    if not count:
        return []
    if ascend and ids[-1] - ids[0] == count - 1:
        return [ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ, count]
    runs: list[int] = []
    first = before = ids[0]
    length, step = 0, 1
    for entry_id in ids:
        gap = entry_id - before
        if length > 1 and gap == step:
            length += 1
        else:
            if length == 2 and step != 1:  # two of them say less as runs of their own
                _add_run(runs, first, 1, 1)
                first, length, step = before, 1, 1
            if length == 1 and gap in (1, STEP):
                step, length = gap, 2
            else:
                if length:
                    _add_run(runs, first, length, step)
                first, length, step = entry_id, 1, 1
        before = entry_id
    if length == 2 and step != 1:
        _add_run(runs, first, 1, 1)
        first, length, step = before, 1, 1
    _add_run(runs, first, length, step)
    return runs


def _add_run(runs: list[int], first: int, length: int, step: int) -> None:
    runs += (first >> SEQ_BITS, first & MAX_SEQ)
    if step == 1:
        runs.append(length)
    else:
        runs += (-length, step)


def join_ids(runs: Sequence[int], most: int = IDS_MAX) -> list[int]:
    """The IDs of :func:`runs_of`; ValueError if there are more than ``most``, or none can be."""
    ids: list[int] = []
    at = 0
    while at < len(runs):
        first = _joined(runs[at], runs[at + 1])
        count = runs[at + 2]
        at += 3
        step = 1
        if count < 0:
            count, step = -count, runs[at]
            at += 1
        if step < 1 or count > most - len(ids) or first + (count - 1) * step > MAX_ID:
            raise ValueError("runs of too many IDs, or of IDs that do not exist")
        ids += range(first, first + count * step, step)
    return ids


def _split_rows(rows: Iterable[Sequence[int]]) -> list[list[int]]:
    return [[row[0] >> SEQ_BITS, row[0] & MAX_SEQ, *row[1:]] for row in rows]


def _split_dotted(rows: Iterable[tuple[int, int, int]]) -> list[list[int]]:
    return [[*row[:2], row[2] >> SEQ_BITS, row[2] & MAX_SEQ] for row in rows]


def _join_dotted(rows: Iterable[Sequence[int]]) -> list[tuple[int, int, int]]:
    return [(row[0], row[1], _joined(row[2], row[3])) for row in rows]


def _join_rows(rows: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    return [(_joined(row[0], row[1]), *row[2:]) for row in rows]


# -- which fields of which kind ---------------------------------------------------------------

_Change = tuple[int, Callable[[Any], Any]]

_Form = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_FORMS: Final[dict[str, _Form]] = {
    "EntryId": (split_id, _join_id),
    "EntryId | None": (split_id, _join_id),
    "EntryIds": (runs_of, join_ids),
    "list[tuple[EntryId, int, int, int]]": (_split_rows, _join_rows),
    "list[tuple[EntryId, int, int, int, int, int]]": (_split_rows, _join_rows),
    "list[tuple[int, int, EntryId]]": (_split_dotted, _join_dotted),
}
"""By the declaration of a field, as it is written: the functions to the wire form and back."""


def _changes(kind: type[kinds.Effect], which: int) -> list[_Change]:
    """``(index, function)`` for each field that has another form on the wire."""
    declared: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        declared |= getattr(base, "__annotations__", {})
    found = []
    for index, name in enumerate(kind.__struct_fields__):
        form = _FORMS.get(declared[name])
        if form is not None:
            found.append((index + 1, form[which]))
        else:
            assert "EntryId" not in declared[name], f"{kind.__name__}.{name} has no wire form"
    return found


def _tag(kind: type[kinds.Effect]) -> int:
    return cast(int, kind.__struct_config__.tag)


_KINDS: Final = {_tag(kind): kind for kind in EFFECTS}
_TAGS: Final = {kind: tag for tag, kind in _KINDS.items()}
_SPLIT: Final = {kind: _changes(kind, 0) for kind in EFFECTS}
_JOIN: Final = {_tag(kind): _changes(kind, 1) for kind in EFFECTS}
_ADD_RUN: Final = kinds.AddRun
_RUN_TAG: Final = _tag(kinds.AddRun)
_SIZES_AT: Final = kinds.AddRun.__struct_fields__.index("sizes") + 1


# -- to arrays --------------------------------------------------------------------------------


def plain(effect: kinds.Effect) -> list[Any]:
    """One effect as an array."""
    kind = type(effect)
    array = [_TAGS[kind], *astuple(effect)]
    for index, split in _SPLIT[kind]:
        array[index] = split(array[index])
    return array


# -- from arrays ------------------------------------------------------------------------------


def id_fields(kind: type[kinds.Effect]) -> frozenset[int]:
    """The indexes of the fields of a kind that contain entry IDs: integers of 128 bits."""
    return frozenset(index - 1 for index, _ in _SPLIT[kind])


def effect_of(array: list[Any], ids_max: int = IDS_MAX) -> kinds.Effect:
    """The effect of an array; :class:`EffectFormatError` if it is none.

    No field has more than ``ids_max`` IDs, and none in an :class:`kinds.AddRun` more than entries.
    """
    try:
        tag = array[0]
        kind = _KINDS.get(tag)
        if kind is None:
            raise EffectFormatError(f"unknown kind of effect: {tag!r}")
        joins = _JOIN[tag]
        if joins:
            if tag == _RUN_TAG:
                ids_max = len(array[_SIZES_AT])
            array = list(array)
            for index, join in joins:
                if join is join_ids:
                    array[index] = join_ids(array[index], ids_max)
                else:
                    array[index] = join(array[index])
        return msgspec.convert(array, kind, builtin_types=(bytes,))  # text is not bytes
    except (LookupError, TypeError, ValueError, ArithmeticError) as problem:
        raise EffectFormatError(f"not an effect: {problem}") from None


# -- runs of additions -------------------------------------------------------------------------


def additions(run: kinds.AddRun) -> Iterator[kinds.Add]:
    """The effects that a run stands for: one for each entry."""
    opens = frozenset(run.opens)
    at = 0
    for index, (entry_id, size, weight) in enumerate(
        zip(run.ids, run.sizes, run.weights, strict=True)
    ):
        position = run.position + index if run.position >= 0 else -1
        fragment = run.data[at : at + size]
        at += size
        yield kinds.Add(run.db, run.key, entry_id, fragment, weight, index in opens, position)
