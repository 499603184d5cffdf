"""Arithmetic of INCRBYFLOAT: C's ``long double`` of x86-64, in which Redis counts.

Numbers are exact fractions that are rounded to 64 significant bits after each step, so that replies
are those of Redis, digit by digit.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final

_BITS: Final = 64
_EXPONENT_MAX: Final = 16384  # the greatest number lies below 2 to that power
_EXPONENT_MIN: Final = -16445  # of the smallest number above 0
_INFINITE: Final = Fraction(2) ** _EXPONENT_MAX
_DIGITS: Final = 17  # after the point, in replies
_LENGTH_MAX: Final = 5119  # bytes that Redis reads as a number
_TEN_POWER_MAX: Final = 12_000  # more is infinite, or nothing, with so few digits before it
_DECIMAL: Final = re.compile(rb"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?")
_INFINITE_TEXT: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)


def parse(text: bytes) -> Fraction | None:
    """The number of a decimal text; None for what is none."""
    if _INFINITE_TEXT.fullmatch(text):
        return -_INFINITE if text.startswith(b"-") else _INFINITE
    found = _DECIMAL.fullmatch(text)
    if found is None or len(text) > _LENGTH_MAX:
        return None
    sign, digits, power = found.groups()
    number = Fraction(Decimal(digits.decode()))
    if number and power is not None:
        exponent = int(power) if len(power) < len(str(_TEN_POWER_MAX)) + 2 else 0
        if (not exponent and power.strip(b"+-0")) or abs(exponent) > _TEN_POWER_MAX:
            return None  # too large or too small: strtold says ERANGE
        number *= Fraction(10) ** exponent
    try:
        rounded = _rounded(number)
    except OverflowError:
        return None
    if number and not rounded:
        return None
    return -rounded if sign == b"-" else rounded


def total(first: Fraction, second: Fraction) -> Fraction:
    """The sum of two; raises `OverflowError` if it is infinite, or one of them is."""
    if max(abs(first), abs(second)) >= _INFINITE:
        raise OverflowError
    return _rounded(first + second)


def shown(number: Fraction) -> bytes:
    """Up to 17 digits after the point, without zeros at the end."""
    scaled = round(abs(number) * 10**_DIGITS)
    digits = str(Decimal(scaled)).zfill(_DIGITS + 1)  # str(int) refuses more than 4,300 of them
    text = f"{digits[:-_DIGITS]}.{digits[-_DIGITS:]}".rstrip("0").rstrip(".")
    return f"-{text}".encode() if number < 0 and scaled else text.encode()


def _rounded(number: Fraction) -> Fraction:
    if not number:
        return number
    exponent = abs(number).numerator.bit_length() - number.denominator.bit_length() - _BITS
    if abs(number) >= Fraction(2) ** (exponent + _BITS):
        exponent += 1
    unit = Fraction(2) ** max(exponent, _EXPONENT_MIN)
    rounded = round(number / unit) * unit
    if abs(rounded) >= _INFINITE:
        raise OverflowError
    return rounded
