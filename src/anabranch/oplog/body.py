"""The body of a batch: msgpack of ``[dependencies, effects]``.

msgspec writes the arrays of :mod:`anabranch.effects.codec`. The most frequent effect by far is a
run of additions, which is written here from its columns: no array and no object is made of it. So
are the headers of what is not copied into the body, but is a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from librt.strings import BytesWriter, read_i64_be, write_i32_be, write_i64_be

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.effects.codec import plain, runs_of
from anabranch.effects.recorded import Additions, Recordable

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

LONG_FIELD_BYTES: Final = 1 << 20
"""A longer field of an effect is not copied into the body, but is a part of it."""

_FEW: Final = 15
"""Among more effects than this, long fields are looked for in additions only."""

_RUN_TAG: Final = cast(int, kinds.AddRun.__struct_config__.tag)
_RUN_FIELDS: Final = 1 + len(kinds.AddRun.__struct_fields__)
_BYTES_8: Final = 1 << 8
_BYTES_16: Final = 1 << 16
_BYTES_32: Final = 1 << 32
_HIGHEST_OF_32: Final = 1 << 31
_NO_POSITION: Final = 0xFF  # -1

_encode: Final = msgspec.msgpack.Encoder().encode


def body_parts(effects: Sequence[Recordable], dependencies: Sequence[int]) -> list[bytes]:
    """The body of a batch, before it is compressed, in parts: a long field is one, not copied."""
    body: _Body | None = None
    arrays: list[list[Any]] = []  # those that are not written yet
    are_few = len(effects) <= _FEW
    for effect in effects:
        array = [] if isinstance(effect, Additions) else plain(effect)
        if array and not (are_few and _is_long(array)):
            arrays.append(array)
            continue
        if body is None:
            body = _Body(len(effects), dependencies)
        body.write_arrays(arrays)
        arrays.clear()
        if isinstance(effect, Additions):
            body.write_additions(effect)
        else:
            body.write_long(array)
    if body is None:
        return [_encode((dependencies, arrays))]
    body.write_arrays(arrays)
    return body.finish()


def _is_long(array: list[Any]) -> bool:
    return any(type(field) is bytes and len(field) > LONG_FIELD_BYTES for field in array)


@mypyc_attr(acyclic=True)
class _Body:
    """A body that is written effect by effect."""

    def __init__(self, count: int, dependencies: Sequence[int]) -> None:
        """``count`` effects follow."""
        self._parts: list[bytes] = []
        self._writer = BytesWriter()
        self._array(2)
        if dependencies:
            self._writer.write(_encode(dependencies))
        else:
            self._array(0)
        self._array(count)

    def finish(self) -> list[bytes]:
        """The parts; nothing more is written."""
        if len(self._writer):  # it does not end with a long field
            self._parts.append(self._writer.getvalue())
        return self._parts

    def write_arrays(self, arrays: list[list[Any]]) -> None:
        """Write effects in the form of the codec."""
        count = len(arrays)
        if count:
            data = _encode(arrays)
            self._writer.write(data[1 if count <= _FEW else 3 if count < _BYTES_16 else 5 :])

    def write_long(self, array: list[Any]) -> None:
        """Write one effect with long fields."""
        self._array(len(array))
        for field in array:
            if type(field) is bytes:
                self._size(len(field))
                self._bytes(field)
            else:
                self._writer.write(_encode(field))

    def write_additions(self, run: Additions) -> None:
        """Write what the codec and msgspec would write of the :class:`kinds.AddRun`."""
        self._array(_RUN_FIELDS)
        self._number(_RUN_TAG)
        self._number(run.db)
        self._size(len(run.key))
        self._bytes(run.key)
        self._ids(run.ids)
        fragments, weights = run.fragments, run.weights
        size = 0
        for fragment in fragments:
            size += len(fragment)
        self._size(size)
        for fragment in fragments:
            self._bytes(fragment)
        self._array(len(fragments))
        for fragment in fragments:
            self._number(len(fragment))
        self._array(len(weights))
        for weight in weights:
            self._number(weight)
        self._array(len(run.opens))
        for index in run.opens:
            self._number(index)
        if run.position < 0:
            self._writer.append(_NO_POSITION)
        else:
            self._number(run.position)

    def _ids(self, ids: list[int]) -> None:
        """IDs that ascend, as runs; those of a pipeline follow one another, as a rule."""
        count: i64 = len(ids)
        raw = ids[0].to_bytes(16, "big")
        ms, seq = read_i64_be(raw, 0), read_i64_be(raw, 8)
        if count > 1:
            raw = ids[-1].to_bytes(16, "big")
            if read_i64_be(raw, 0) != ms or read_i64_be(raw, 8) - seq != count - 1:
                self._writer.write(_encode(runs_of(ids, ascend=True)))
                return
        self._array(3)
        self._number(ms)
        self._number(seq)
        self._number(count)

    # -- msgpack ------------------------------------------------------------------------------

    def _array(self, count: int) -> None:
        """The header of an array."""
        if count <= _FEW:
            self._writer.append(0x90 | count)
        else:
            self._long_header(0xDC, count)

    def _size(self, count: int) -> None:
        """The header of bytes."""
        if count < _BYTES_8:
            self._writer.append(0xC4)
            self._writer.append(count)
        else:
            self._long_header(0xC5, count)

    def _long_header(self, kind: int, count: int) -> None:
        """A header with a length of 16 bits, or of 32 bits, whose ``kind`` is one more."""
        if count < _BYTES_16:
            self._writer.append(kind)
            self._short(count)
        else:
            self._writer.append(kind + 1)
            write_i32_be(self._writer, count - ((count & _HIGHEST_OF_32) << 1))

    def _short(self, number: int) -> None:
        self._writer.append(number >> 8)
        self._writer.append(number & 0xFF)

    def _number(self, number: i64) -> None:
        """An integer of 64 bits without a sign: the greater half comes as negative numbers."""
        writer = self._writer
        short: int = number
        if 0 <= number < 0x80:
            writer.append(short)
        elif 0 <= number < _BYTES_8:
            writer.append(0xCC)
            writer.append(short)
        elif 0 <= number < _BYTES_16:
            writer.append(0xCD)
            self._short(short)
        elif 0 <= number < _BYTES_32:
            writer.append(0xCE)
            write_i32_be(writer, short - ((short & _HIGHEST_OF_32) << 1))
        else:
            writer.append(0xCF)
            write_i64_be(writer, number)

    def _bytes(self, data: bytes) -> None:
        """Bytes behind their header; long ones are not copied."""
        if len(data) > LONG_FIELD_BYTES:
            self._parts.append(self._writer.getvalue())
            self._parts.append(data)
            self._writer = BytesWriter()
        else:
            self._writer.write(data)
