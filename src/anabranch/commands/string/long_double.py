"""Arithmetic of INCRBYFLOAT and of timeouts: C's ``long double`` of x86-64, in which Redis counts.

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
_POWER_MAX: Final = {10: 12_000, 2: 40_000}
"""More is infinite, or nothing, with so few digits before it."""

# What was matched is never given back: otherwise bad numbers take the square of their length.
_DECIMAL: Final = re.compile(rb"[+-]?(\d++\.?+\d*+|\.\d++)(?:[eE]([+-]?)(\d++))?")
_HEXADECIMAL: Final = re.compile(
    rb"[+-]?0[xX](?=\.?[\da-fA-F])([\da-fA-F]*+)\.?+([\da-fA-F]*+)(?:[pP]([+-]?)(\d++))?"
)
_INFINITE_TEXT: Final = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE)


def parse(text: bytes) -> Fraction | None:
    """The number of a text as C writes it, decimal or hexadecimal; None for what is none."""
    if _INFINITE_TEXT.fullmatch(text):
        return -_INFINITE if text.startswith(b"-") else _INFINITE
    number = None if len(text) > _LENGTH_MAX else _exact(text)
    if number is None:
        return None
    try:
        rounded = rounded_of(number)
    except OverflowError:
        return None
    if number and not rounded:
        return None
    return -rounded if text.startswith(b"-") else rounded


def _exact(text: bytes) -> Fraction | None:
    """The number behind the sign; None for what is none, or lies far outside of the range."""
    if found := _HEXADECIMAL.fullmatch(text):
        whole, rest, sign, power = found.groups()
        base, number = 2, Fraction(int(whole + rest, 16), 16 ** len(rest))
    elif found := _DECIMAL.fullmatch(text):
        digits, sign, power = found.groups()
        base, number = 10, Fraction(Decimal(digits.decode()))
    else:
        return None
    if not number or power is None:
        return number
    power = power.lstrip(b"0") or b"0"
    if len(power) > len(str(_POWER_MAX[base])) or int(power) > _POWER_MAX[base]:
        return None  # too large or too small: strtold says ERANGE
    return number * Fraction(base) ** (-int(power) if sign == b"-" else int(power))


def total(first: Fraction, second: Fraction) -> Fraction:
    """The sum of two; raises `OverflowError` if it is infinite, or one of them is."""
    if max(abs(first), abs(second)) >= _INFINITE:
        raise OverflowError
    return rounded_of(first + second)


def shown(number: Fraction) -> bytes:
    """Up to 17 digits after the point, without zeros at the end."""
    scaled = round(abs(number) * 10**_DIGITS)
    digits = str(Decimal(scaled)).zfill(_DIGITS + 1)  # str(int) refuses more than 4,300 of them
    text = f"{digits[:-_DIGITS]}.{digits[-_DIGITS:]}".rstrip("0").rstrip(".")
    return f"-{text}".encode() if number < 0 and scaled else text.encode()


def rounded_of(number: Fraction) -> Fraction:
    """The nearest number with 64 bits; raises `OverflowError` if that is infinite."""
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
