"""The library ``bit`` of scripts: operations on 32-bit integers, with signed results."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, xor
from struct import Struct
from typing import Final

from anabranch.scripting.failures import number_of

_MASK: Final = 0xFFFFFFFF
_INTEGERS: Final = float(2**52 + 2**51)
"""Added to a number this leaves its nearest integer in the low bits, as in LuaBitOp."""
_DOUBLE, _BITS = Struct("<d"), Struct("<Q")


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value & 0x80000000 else value


def _integer(args: tuple[object, ...], index: int) -> int:
    bits: int = _BITS.unpack(_DOUBLE.pack(number_of(args, index) + _INTEGERS))[0]
    return bits & _MASK


def _folded(operation: Callable[[int, int], int]) -> Callable[..., int]:
    def fold(*args: object) -> int:
        # In this order, of which an error in several arguments tells.
        values = [_integer(args, index) for index in (1, *range(len(args), 1, -1))]
        return _signed(reduce(operation, values))

    return fold


def _of_one(operation: Callable[[int], int]) -> Callable[..., int]:
    return lambda *args: _signed(operation(_integer(args, 1)))


def _shifted(operation: Callable[[int, int], int]) -> Callable[..., int]:
    return lambda *args: _signed(operation(_integer(args, 1), _integer(args, 2) & 31))


def _tohex(*args: object) -> bytes:
    text = b"%08x" % _integer(args, 1)
    count = _signed(_integer(args, 2)) if len(args) > 1 else 8
    if count < 0:
        text, count = text.upper(), -count
    return text[-min(count, 8) :] if count else b""


def _rotated(number: int, by: int) -> int:
    return number << by | number >> (32 - by)


FUNCTIONS: Final[dict[bytes, Callable[..., object]]] = {
    b"tobit": _of_one(lambda number: number),
    b"tohex": _tohex,
    b"bnot": _of_one(lambda number: ~number),
    b"band": _folded(and_),
    b"bor": _folded(or_),
    b"bxor": _folded(xor),
    b"lshift": _shifted(lambda number, by: number << by),
    b"rshift": _shifted(lambda number, by: number >> by),
    b"arshift": _shifted(lambda number, by: _signed(number) >> by),
    b"rol": _shifted(_rotated),
    b"ror": _shifted(lambda number, by: _rotated(number, -by & 31)),
    b"bswap": _of_one(lambda number: int.from_bytes(number.to_bytes(4, "little"), "big")),
}
