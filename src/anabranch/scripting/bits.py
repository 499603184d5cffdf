"""The library ``bit`` of scripts: operations on 32-bit integers, with signed results."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import isfinite
from operator import and_, or_, xor
from typing import Final

__all__ = ["FUNCTIONS"]

_MASK: Final = 0xFFFFFFFF


def _signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value & 0x80000000 else value


def _integer(value: object) -> int:
    if isinstance(value, bytes):
        value = float(value)
    if not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("bad argument (number expected)")
    return round(value) & _MASK


def _folded(operation: Callable[[int, int], int]) -> Callable[..., int]:
    def fold(*values: object) -> int:
        return _signed(reduce(operation, map(_integer, values)))

    return fold


def _tohex(value: object, digits: object = 8) -> bytes:
    count = int(digits) if isinstance(digits, int | float) else 8
    text = b"%08x" % _integer(value)
    if count < 0:
        text, count = text.upper(), -count
    return text[-min(count, 8) :] if count else b""


def _arshift(value: object, count: object) -> int:
    return _signed(_signed(_integer(value)) >> (_integer(count) & 31))


def _rol(value: object, count: object) -> int:
    number, by = _integer(value), _integer(count) & 31
    return _signed(number << by | number >> (32 - by))


FUNCTIONS: Final[dict[bytes, Callable[..., object]]] = {
    b"tobit": lambda value: _signed(_integer(value)),
    b"tohex": _tohex,
    b"bnot": lambda value: _signed(~_integer(value)),
    b"band": _folded(and_),
    b"bor": _folded(or_),
    b"bxor": _folded(xor),
    b"lshift": lambda value, count: _signed(_integer(value) << (_integer(count) & 31)),
    b"rshift": lambda value, count: _signed(_integer(value) >> (_integer(count) & 31)),
    b"arshift": _arshift,
    b"rol": _rol,
    b"ror": lambda value, count: _rol(value, -_integer(count)),
    b"bswap": lambda value: _signed(int.from_bytes(_integer(value).to_bytes(4, "little"), "big")),
}
