r"""Casts the texts of fields as Spark's `try_cast` does: what cannot be read becomes null.

First all values are cast at once by Arrow. Where that fails, one pass with a regular expression
finds the values of the usual form; Arrow casts those, and the others are taken apart by a second
expression. No exception is raised for a single value. A text has the same value on each way.

Rules: Spark 4 `UTF8StringUtils`, `SparkDateTimeUtils`, `StringUtils`, and Java's `ZoneId.of` with
`SHORT_IDS`; the table in `docs/spark.md` states them, with the differences.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TRIMMED: Final = r"[\x00-\x20\x7f]*"
_TRIMMED_NUMBER: Final = r"[\x00-\x20]*"  # around a floating-point number or a decimal


def _lack(values: pa.Array, letters: bytes) -> bool:
    """Whether none of these bytes is in any value: one look at the buffer of all is quick."""
    data = values.buffers()[2]
    whole = b"" if data is None else data.to_pybytes()
    return not any(each in whole for each in letters)


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(pa.string()).cast(kind)


@dataclass(frozen=True)
class _Caster:
    """How values of one type are read; `odd` gets what does not match `shape`."""

    shape: Callable[[pa.Array, pa.DataType], str]
    odd: Callable[[pa.Array, pa.DataType], pa.Array]
    plain: Callable[[pa.Array, pa.DataType], pa.Array] = _plain
    direct: Callable[[pa.Array, pa.DataType], bool] | None = None  # whether `plain` is for all


def can_cast(kind: pa.DataType) -> bool:
    """Whether a field can be read as this type."""
    return _caster(kind) is not None


def cast(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Any]:
    """The cast values (binary before), and which could not be cast (None: all could)."""
    caster = _caster(kind)
    assert caster is not None
    try:
        if caster.direct is None or caster.direct(values, kind):
            return caster.plain(values, kind), None
    except pa.ArrowInvalid:
        pass
    usual = pc.match_substring_regex(values, caster.shape(values, kind)).fill_null(False)
    odd = pc.and_(pc.invert(usual), values.is_valid())
    parts = [
        caster.plain(values.filter(usual), kind),
        caster.odd(values.filter(odd), kind),
        pa.nulls(1, kind),
    ]
    places = np.full(len(values), len(parts[0]) + len(parts[1]))
    places[np.asarray(usual)] = np.arange(len(parts[0]))
    places[np.asarray(odd)] = np.arange(len(parts[0]), len(parts[0]) + len(parts[1]))
    result = pa.concat_arrays(parts).take(pa.array(places))
    wrong = np.asarray(result.is_null()) & ~np.asarray(values.is_null())
    return result, wrong if wrong.any() else None


# ---------------------------------------------------------------------------------- text and truth

_UTF8: Final = (
    r"^(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}"
    r"|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*$"
)


def _odd_truths(values: pa.Array, _kind: pa.DataType) -> pa.Array:
    yes = pc.match_substring_regex(values, f"(?i)^{_TRIMMED}(?:t|true|y|yes|1){_TRIMMED}$")
    no = pc.match_substring_regex(values, f"(?i)^{_TRIMMED}(?:f|false|n|no|0){_TRIMMED}$")
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


# ----------------------------------------------------------------------------------------- numbers

_POWER: Final = "[eE][+-]?[0-9]+"
_UNSIGNED: Final = rf"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:{_POWER})?"
_HEXADECIMAL: Final = r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_DIGITS_MAX: Final = 38  # of a decimal


def _taken(values: pa.Array, pattern: str) -> pa.Array:
    """The group `it` of the values, as text; null where the pattern does not match."""
    return pc.struct_field(pc.extract_regex(values, pattern), "it").cast(pa.string())


def _where(kept: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(kept, values, pa.scalar(None, values.type))


def _odd_integers(values: pa.Array, kind: pa.DataType) -> pa.Array:
    text = _taken(values, rf"^{_TRIMMED}(?P<it>[+-]?[0-9]+){_TRIMMED}$")
    text = pc.replace_substring_regex(text, r"^(-?)\+?0*([0-9])", r"\1\2")
    short = pc.less_equal(pc.binary_length(text), 20)
    wide = _where(short, text).cast(pa.decimal128(_DIGITS_MAX, 0))
    most = 2 ** (kind.bit_width - 1)
    fits = pc.and_(pc.greater_equal(wide, Decimal(-most)), pc.less(wide, Decimal(most)))
    return _where(fits, wide).cast(kind)


def _odd_floats(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # With a sign Java takes NaN in this spelling only.
    pattern = rf"[+-]?(?:{_UNSIGNED}[dDfF]?|(?i:inf|infinity)|NaN)|(?i:nan)"
    text = _taken(values, rf"^{_TRIMMED_NUMBER}(?P<it>{pattern}){_TRIMMED_NUMBER}$")
    text = pc.replace_substring_regex(text, "([0-9.])[dDfF]$", r"\1")
    hexadecimal = _taken(
        values, rf"^{_TRIMMED_NUMBER}(?P<it>{_HEXADECIMAL})[dDfF]?{_TRIMMED_NUMBER}$"
    ).to_pylist()
    if not any(hexadecimal):
        return text.cast(kind)
    read = pa.array([each and _of_hexadecimal(each) for each in hexadecimal], pa.float64())
    return pc.coalesce(text.cast(kind), read.cast(kind, safe=False))


def _of_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _decimal_shape(_values: pa.Array, kind: pa.DataType) -> str:
    whole = kind.precision - kind.scale
    broken = rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else ""
    return rf"^-?[0-9]{{1,{whole}}}{broken}$" if whole else rf"^-?0?\.[0-9]{{1,{kind.scale}}}$"


def _is_small(values: pa.Array, kind: pa.DataType) -> bool:
    """Arrow returns wrong numbers for some values that are too large, and reads powers its way."""
    small = (pc.max(pc.binary_length(values)).as_py() or 0) + kind.scale < _DIGITS_MAX
    return small and _lack(values, b"eE")


def _odd_decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Digits beyond the scale are rounded, halves away from zero, as Spark does."""
    text = _taken(values, rf"^{_TRIMMED_NUMBER}(?P<it>[+-]?{_UNSIGNED}){_TRIMMED_NUMBER}$")
    powers = pc.match_substring_regex(text, "[eE]").fill_null(False)
    if pc.any(powers).as_py():
        plain = [_without_power(each) for each in text.filter(powers).to_pylist()]
        text = pc.replace_with_mask(text, powers, pa.array(plain, pa.string()))
    text = pc.replace_substring_regex(text, "^([+-]?)0+([0-9])", r"\1\2")
    whole = kind.precision - kind.scale
    large = pc.match_substring_regex(text, rf"^[+-]?[0-9]{{{max(whole, 1) + 1}}}")
    # The first digit beyond the scale decides; further digits do not matter.
    cut = rf"^([+-]?[0-9]*\.[0-9]{{{kind.scale + 1}}})[0-9]+$"
    text = pc.replace_substring_regex(_where(pc.invert(large), text), cut, r"\1")
    wide = text.cast(pa.decimal256(76, kind.scale + 1))
    wide = pc.round(wide, kind.scale, "half_towards_infinity")
    bound = pa.scalar(Decimal(10**whole), pa.decimal256(76, kind.scale + 1))
    return _where(pc.less(pc.abs(wide), bound), wide).cast(kind)


def _without_power(text: str) -> str | None:
    """The number without exponent; None if it has more digits than any column."""
    power = re.split("[eE]", text)[1]
    if len(power) > 20 or abs(int(power)) >= 2**31:
        return None
    number = Decimal(text)
    if number.is_zero() or number.adjusted() < -_DIGITS_MAX - 1:
        return "0"
    return None if number.adjusted() > _DIGITS_MAX else format(number, "f")


# ------------------------------------------------------------------------------------------- times

_USUAL_DATE: Final = (
    "^(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_USUAL_TIME: Final = rf"{_USUAL_DATE}[ T](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]"
_NANO_CENTURIES: Final = "(?:1[789]|2[01])"  # 64 bits of nanoseconds reach 1677 to 2262
_USUAL_ZONE: Final = "(?:Z|[+-](?:0[0-9]|1[0-7])(?::?[0-5][0-9])?)"
_FAR_ZONE: Final = "[+-](?:1[89]|2[0-9])(?::?[0-9]{2})?$"
_ANY_DATE: Final = (
    rf"^{_TRIMMED}(?P<sign>[+-]?)(?P<year>[0-9]{{4,%d}})"
    r"(?:-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2})"
)  # with the most digits of a year
_DATE_END: Final = rf"(?:[ T](?s:.*))?)?)?{_TRIMMED}$"
_TIME_END: Final = (
    r"(?:[ T](?P<hour>[0-9]{1,2})(?::(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})"
    r"(?:\.(?P<fraction>[0-9]{0,6})[0-9]*)?"
    rf"(?:[\x00-\x20]*(?P<zone>[A-Za-z+-][A-Za-z0-9~/._:+-]*))?)?)?)?)?)?{_TRIMMED}$"
)
_OFFSET: Final = re.compile(
    r"(?:UTC|UT|GMT)?([+-])(?:([0-9]{1,2})(?::([0-9]{1,2})|:([0-9]{2}):([0-9]{2}))?"
    r"|([0-9]{2})([0-9]{2})([0-9]{2})?)"
)
_SHORT_IDS: Final = dict(
    pair.split("=")
    for pair in (
        "ACT=Australia/Darwin AET=Australia/Sydney AGT=America/Argentina/Buenos_Aires "
        "ART=Africa/Cairo AST=America/Anchorage BET=America/Sao_Paulo BST=Asia/Dhaka "
        "CAT=Africa/Harare CNT=America/St_Johns CST=America/Chicago CTT=Asia/Shanghai "
        "EAT=Africa/Addis_Ababa ECT=Europe/Paris IET=America/Indiana/Indianapolis "
        "IST=Asia/Kolkata JST=Asia/Tokyo MIT=Pacific/Apia NET=Asia/Yerevan NST=Pacific/Auckland "
        "PLT=Asia/Karachi PNT=America/Phoenix PRT=America/Puerto_Rico PST=America/Los_Angeles "
        "SST=Pacific/Guadalcanal VST=Asia/Ho_Chi_Minh EST=-05:00 MST=-07:00 HST=-10:00"
    ).split()
)
_NOT_IN_JAVA: Final = {"Factory", "localtime", "ROC", "US/Pacific-New"}
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a local time
_YEAR_1: Final = -62_135_596_800
_YEAR_10000: Final = 253_402_300_800
_CYCLE: Final = 146_097 * 86_400  # the seconds of 400 years; then the calendar repeats
_FIRST: Final = (-9_223_372_036_855, 224_192)  # the bounds of 64 bits of microseconds
_LAST: Final = (9_223_372_036_854, 775_807)


def _form(values: pa.Array) -> tuple[bool, bool]:
    """Whether values have a zone, by the first usual one, and more than six digits of a second."""
    some = values[:100]
    some = some.filter(pc.match_substring_regex(some, rf"{_USUAL_TIME}{{1,9}})?{_USUAL_ZONE}?$"))
    zoned = len(some) > 0 and re.search(rb":.*[Z+-]", some[0].as_py()) is not None
    return zoned, bool(pc.any(pc.match_substring_regex(some, r"\.[0-9]{7}")).as_py())


def _time_shape(values: pa.Array, _kind: pa.DataType) -> str:
    zoned, nano = _form(values)
    usual = f"{_USUAL_TIME}{{1,{9 if nano else 6}}})?{_USUAL_ZONE if zoned else ''}$"
    return usual.replace("[0-9]{4}-", f"{_NANO_CENTURIES}[0-9]{{2}}-", 1) if nano else usual


def _has_usual_zones(values: pa.Array, _kind: pa.DataType) -> bool:
    """Arrow reads a zone after a minute, and offsets up to 24 hours; Spark does not."""
    if not _form(values)[0]:
        return True
    seconds = pc.all(pc.equal(pc.binary_slice(values, 16, 17), b":")).as_py()
    if seconds and pc.all(pc.ends_with(values, "Z")).as_py():
        return True
    return seconds and not pc.any(pc.match_substring_regex(values, _FAR_ZONE)).as_py()


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO 8601, all with a zone or all without; without one it is UTC."""
    text = values.cast(pa.string())
    zoned, nano = _form(values)
    if zoned and kind.tz is None:
        text = pc.replace_substring_regex(text, f"{_USUAL_ZONE}$", "")
    zone = "UTC" if zoned and kind.tz else None
    read = text.cast(pa.timestamp("ns" if nano else "us", zone)).cast(pa.int64())
    if nano:  # digits after the sixth are cut
        micros = np.asarray(read.fill_null(0)) // 1000
        read = pa.array(micros, pa.int64(), mask=np.asarray(read.is_null()))
    return read.cast(kind)


def _number(parts: pa.Array, name: str, default: str) -> Any:
    text = pc.struct_field(parts, name).cast(pa.string()).fill_null(default)
    return np.asarray(pc.if_else(pc.equal(text, ""), default, text).cast(pa.int64()))


def _days(parts: pa.Array) -> tuple[Any, Any]:
    """The days since 1970 of parts of a text, and which are days of the calendar."""
    negative = np.asarray(pc.equal(pc.struct_field(parts, "sign"), b"-").fill_null(False))
    year, month, day = (
        _number(parts, *each) for each in (("year", "1970"), ("month", "1"), ("day", "1"))
    )
    months = (np.where(negative, -year, year) - 1970) * 12 + month - 1
    days = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    exists = (month >= 1) & (month <= 12) & (day >= 1)
    exists &= days.astype("M8[D]").astype("M8[M]").astype(np.int64) == months
    return days, exists & np.asarray(parts.is_valid())


def _is_short(values: pa.Array, _kind: pa.DataType) -> bool:
    return (pc.max(pc.binary_length(values)).as_py() or 0) <= 10


def _dates(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The first ten letters; a time may follow them."""
    return _plain(values if _is_short(values, kind) else pc.binary_slice(values, 0, 10), kind)


def _odd_dates(values: pa.Array, kind: pa.DataType) -> pa.Array:
    days, exists = _days(pc.extract_regex(values, _ANY_DATE % 7 + _DATE_END))
    exists &= np.abs(days + 0.5) < 2**31
    return pa.array(days.astype(np.int32), pa.int32(), mask=~exists).cast(kind)


def _odd_times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    parts = pc.extract_regex(values, _ANY_DATE % 6 + _TIME_END)
    days, exists = _days(parts)
    hour, minute, second = (_number(parts, name, "0") for name in ("hour", "minute", "second"))
    exists &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second
    fraction = pc.struct_field(parts, "fraction").cast(pa.string()).fill_null("")
    part = np.asarray(pc.ascii_rpad(fraction, 6, "0").cast(pa.int64()))
    offsets, known = _offsets(pc.struct_field(parts, "zone").cast(pa.string()), seconds)
    if kind.tz is not None:
        seconds = seconds - offsets
    exists &= known & (abs(seconds) <= -_FIRST[0])
    exists &= (seconds > _FIRST[0]) | (part >= _FIRST[1])
    exists &= (seconds < _LAST[0]) | ((seconds == _LAST[0]) & (part <= _LAST[1]))
    micros = np.where(exists, seconds, 0) * 1_000_000 + part  # wraps back at the first second
    return pa.array(micros, pa.int64(), mask=~exists).cast(kind)


def _offsets(zones: pa.Array, seconds: Any) -> tuple[Any, Any]:
    """The offsets from UTC of local times, in seconds, and which zones are known."""
    offsets = np.zeros(len(zones), np.int64)
    known = np.ones(len(zones), np.bool_)
    coded = zones.fill_null("").dictionary_encode()
    codes = np.asarray(coded.indices)
    for code, name in enumerate(coded.dictionary.to_pylist()):
        here = codes == code
        zone = _zone(name)
        if isinstance(zone, zoneinfo.ZoneInfo):
            times, places = np.unique(seconds[here], return_inverse=True)
            found = [_offset(zone, each) for each in times.tolist()]
            offsets[here] = np.array(found, np.int64)[places]
        elif zone is None:
            known[here] = False
        else:
            offsets[here] = zone
    return offsets, known


def _zone(name: str) -> zoneinfo.ZoneInfo | int | None:
    name = _SHORT_IDS.get(name, name)
    if name in {"", "Z", "UTC", "UT", "GMT"}:
        return 0
    if found := _OFFSET.fullmatch(name):
        sign, hour, *others = found.groups()
        hours, minutes, seconds = (
            (hour, others[0] or others[1], others[2]) if hour else tuple(others[3:])
        )
        parts = int(hours), int(minutes or 0), int(seconds or 0)
        offset = parts[0] * 3600 + parts[1] * 60 + parts[2]
        valid = max(parts[1:]) < 60 and offset <= 18 * 3600
        return (-offset if sign == "-" else offset) if valid else None
    return zoneinfo.ZoneInfo(name) if name in _region_ids() else None


@cache
def _region_ids() -> set[str]:
    return zoneinfo.available_timezones() - _NOT_IN_JAVA


def _offset(zone: zoneinfo.ZoneInfo, seconds: int) -> int:
    """Of a local time; one that does not exist has the offset before the gap."""
    if seconds < _YEAR_1:
        seconds = _YEAR_1 + (seconds - _YEAR_1) % _CYCLE
    elif seconds >= _YEAR_10000:
        seconds = _YEAR_10000 - _CYCLE + (seconds - _YEAR_10000) % _CYCLE
    offset = zone.utcoffset(_EPOCH + dt.timedelta(seconds=seconds))
    assert offset is not None
    return round(offset.total_seconds())


_INTEGER_DIGITS: Final = {8: 2, 16: 4, 32: 9, 64: 18}
_TEXTS: Final = _Caster(
    lambda _values, _kind: _UTF8,
    lambda values, kind: pa.nulls(len(values), kind),
    lambda values, kind: values.cast(kind),
)
_TRUTHS: Final = _Caster(lambda _values, _kind: "(?i)^(?:true|false|0|1)$", _odd_truths)
_INTEGERS: Final = _Caster(
    lambda _values, kind: f"^-?[0-9]{{1,{_INTEGER_DIGITS[kind.bit_width]}}}$",
    _odd_integers,
    direct=lambda values, _kind: _lack(values, b"xX"),  # Arrow takes 0x10 for a number
)
_FLOATS: Final = _Caster(
    lambda _values, _kind: f"^-?{_UNSIGNED}$",
    _odd_floats,
    direct=lambda values, _kind: _lack(values, b"aA"),  # Arrow reads -nan and nan(1)
)
_DECIMALS: Final = _Caster(_decimal_shape, _odd_decimals, direct=_is_small)
_DATES: Final = _Caster(
    lambda _values, _kind: f"{_USUAL_DATE}(?:[ T](?s:.*))?$", _odd_dates, _dates, _is_short
)
_TIMES: Final = _Caster(_time_shape, _odd_times, _times, _has_usual_zones)
_CASTERS: Final[list[tuple[Callable[[pa.DataType], bool], _Caster]]] = [
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_string(kind), _TEXTS),
    (pa.types.is_boolean, _TRUTHS),
    (pa.types.is_integer, _INTEGERS),
    (pa.types.is_floating, _FLOATS),
    (pa.types.is_decimal, _DECIMALS),
    (pa.types.is_date32, _DATES),
    (pa.types.is_timestamp, _TIMES),
]


def _caster(kind: pa.DataType) -> _Caster | None:
    return next((caster for fits, caster in _CASTERS if fits(kind)), None)
