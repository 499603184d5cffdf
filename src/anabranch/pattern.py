r"""Glob patterns as Redis matches them: ``* ? [abc] [a-z] [^x] \``, over bytes.

A pattern is a sequence of *pieces* between stars; every piece matches a fixed number of bytes. So
each piece can use its first match, and the matcher never backtracks: the time is proportional to
the data for every pattern. A short pattern becomes a regular expression with atomic groups. A long
pattern, which would take long to compile, is matched piece by piece:
literal bytes by ``bytes.find``, the rest by an automaton whose states are the bits of one integer.

Peculiarities of Redis's ``stringmatchlen`` that are kept: nothing but the empty pattern matches
the empty string; bytes in ranges are compared as signed characters; a class may end with the
pattern instead of ``]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from sys import getsizeof
from typing import Any, Final

from anabranch.errors import CommandError

PATTERN_BYTES_MAX: Final = 4096
"""Longer patterns are refused: a key's name may be longer, a pattern that people mean is not."""

_SHORT_BYTES_MAX: Final = 128
"""Only patterns up to this length are cached; a thousand of them take a few megabytes."""

_TOO_LONG: Final = f"ERR pattern is too long: {PATTERN_BYTES_MAX} bytes are allowed"

Matcher = Callable[[bytes], bool]
"""Whether the pattern matches the whole of some bytes."""

_WILD: Final = frozenset(b"*?[\\")
"""The bytes of a pattern that do not stand for themselves."""

_ANY: Final = (1 << 256) - 1
_ONLY: Final = [1 << byte for byte in range(256)]  # the set of one byte
_BYTE_OF: Final = {only: byte for byte, only in enumerate(_ONLY)}
_SIGNED: Final = [byte - 256 if byte > 127 else byte for byte in range(256)]
_LOWER: Final = bytes(range(256)).lower()


def compile_glob(pattern: bytes, *, ignore_case: bool = False) -> Matcher:
    """A matcher; compile once and match often. CommandError if the pattern is too long.

    Short patterns are kept compiled; long ones are not, because the cache counts patterns and not
    bytes.
    """
    if len(pattern) <= _SHORT_BYTES_MAX:
        return _compile_short(pattern, ignore_case)
    check_length(pattern)
    return _Pieces(_pieces(pattern, ignore_case)).matches


def check_length(pattern: bytes) -> None:
    """CommandError if a pattern is too long to be compiled."""
    if len(pattern) > PATTERN_BYTES_MAX:
        raise CommandError(_TOO_LONG)


def covers(pattern: bytes, other: bytes) -> bool:
    """Whether a pattern matches all that another one matches, as far as is seen at once.

    It does if both are the same, or if it is some plain bytes and a star, and the other one begins
    with these bytes.
    """
    start, star = pattern[:-1], pattern[-1:]
    if star != b"*" or not _WILD.isdisjoint(start):
        return pattern == other
    return other.startswith(start) and other != b""  # a star does not match the empty string


# -- reading a pattern ----------------------------------------------------------------------------


def _pieces(pattern: bytes, ignore_case: bool) -> list[list[int]]:
    """The pieces between the stars: for each position the set of matching bytes, as bits."""
    pieces: list[list[int]] = [[]]
    index = 0
    size = len(pattern)
    while index < size:
        char = pattern[index]
        index += 1
        if char == 0x2A:
            pieces.append([])
        elif char == 0x3F:
            pieces[-1].append(_ANY)
        elif char == 0x5B:
            members, index = _class(pattern, index, ignore_case)
            pieces[-1].append(members)
        else:
            if char == 0x5C and index < size:
                char = pattern[index]
                index += 1
            pieces[-1].append(_either_case(char) if ignore_case else _ONLY[char])
    # Empty pieces between two stars match nothing that the stars do not.
    return [piece for number, piece in enumerate(pieces) if piece or number in (0, len(pieces) - 1)]


def _either_case(char: int) -> int:
    return _ONLY[bytes((char,)).lower()[0]] | _ONLY[bytes((char,)).upper()[0]]


def _class(pattern: bytes, index: int, ignore_case: bool) -> tuple[int, int]:
    """The set of ``[...]``, from the index after the bracket, and the index after its end."""
    negate = pattern[index : index + 1] == b"^"
    if negate:
        index += 1
    members = 0
    size = len(pattern)
    while index < size and pattern[index] != 0x5D:
        if pattern[index] == 0x5C and index + 1 < size:
            members |= _ONLY[pattern[index + 1]]  # as it is, even where case is ignored
            index += 2
        elif index + 2 < size and pattern[index + 1] == 0x2D:
            members |= _range(pattern[index], pattern[index + 2], ignore_case)
            index += 3
        else:
            members |= _either_case(pattern[index]) if ignore_case else _ONLY[pattern[index]]
            index += 1
    return (_ANY ^ members if negate else members), index + 1


@lru_cache(maxsize=256)
def _range(first: int, last: int, ignore_case: bool) -> int:
    low, high = sorted((_SIGNED[first], _SIGNED[last]))
    if ignore_case:
        low, high = (_SIGNED[_LOWER[bound & 0xFF]] for bound in (low, high))
        return sum(only for only, char in zip(_ONLY, _LOWER, strict=True)
                   if low <= _SIGNED[char] <= high)  # fmt: skip
    return sum(only for only, char in zip(_ONLY, _SIGNED, strict=True) if low <= char <= high)


# -- short patterns -------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _compile_short(pattern: bytes, ignore_case: bool) -> Matcher:
    if not pattern:
        return _is_empty
    if _WILD.isdisjoint(pattern[:-1]) and not (ignore_case and pattern.lower() != pattern.upper()):
        # A name, or the beginning of names: nearly all rules and subscriptions.
        if pattern[-1] not in _WILD:
            return pattern.__eq__
        if pattern[-1] == 0x2A and len(pattern) > 1:
            return _Beginning(pattern[:-1]).matches
    pieces = _pieces(pattern, ignore_case)
    if not any(pieces):
        return bool  # nothing but stars
    first, *rest = [b"".join(map(_regex, piece)) for piece in pieces]
    regex = first
    if rest:
        # Atomic groups: each piece stays where it was found first.
        regex += b"".join(b"(?>.*?%b)" % piece for piece in rest[:-1]) + b".*" + rest[-1]
    fullmatch = re.compile(regex, re.DOTALL).fullmatch
    return lambda data: fullmatch(data) is not None


def matcher_bytes(matcher: Matcher) -> int:
    """The memory that a matcher takes, in bytes."""
    parts: list[Any] = [matcher, getattr(matcher, "__self__", None)]
    for cell in getattr(matcher, "__closure__", None) or ():
        fullmatch = cell.cell_contents
        parts += (cell, fullmatch, fullmatch.__self__, fullmatch.__self__.pattern)
    size = 0
    while parts:
        part = parts.pop()
        if isinstance(part, bytes) and len(part) < 2:  # there is one object for each byte
            continue
        size += getsizeof(part)
        if isinstance(part, list):  # numbers in a list are those of a table
            parts += [each for each in part if not isinstance(each, int)]
        elif isinstance(part, dict):
            parts += part.values()
        else:
            parts += [getattr(part, name) for name in getattr(part, "__slots__", ())]
    return size


def _is_empty(data: bytes) -> bool:
    return not data


class _Beginning:
    """The pattern of everything that begins with a text."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def matches(self, data: bytes) -> bool:
        """Whether the text begins with these bytes."""
        return data.startswith(self._text)


def _regex(members: int) -> bytes:
    only = _BYTE_OF.get(members)
    if only is not None:
        return re.escape(bytes((only,)))
    if members == _ANY:
        return b"."
    if not members:
        return b"(?!)"
    negate = members.bit_count() > 128
    listed = _ANY ^ members if negate else members
    named = b"".join(b"\\x%02x" % byte for byte in range(256) if listed >> byte & 1)
    return b"[^%b]" % named if negate else b"[%b]" % named


# -- long patterns --------------------------------------------------------------------------------


class _Pieces:
    """A long pattern: the pieces between its stars are looked for one after the other."""

    __slots__ = ("_first", "_last", "_middle", "_size")

    def __init__(self, pieces: list[list[int]]) -> None:
        first, *rest = map(_piece, pieces)
        self._first = first
        self._last = rest.pop() if rest else None
        self._middle = rest
        self._size = sum(map(len, pieces))

    def matches(self, data: bytes) -> bool:
        """Whether the text has the pieces in this order."""
        if self._last is None:
            return len(data) == self._size and self._first.stands_at(data, 0)
        at = self._first.size
        end = len(data) - self._last.size
        if not data or len(data) < self._size:
            return False
        if not self._first.stands_at(data, 0) or not self._last.stands_at(data, end):
            return False
        for piece in self._middle:
            at = piece.find(data, at, end)
            if at < 0:
                return False
            at += piece.size
        return at <= end


class _Literal:
    """A piece without wildcards."""

    __slots__ = ("_text", "size")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.size = len(text)

    def stands_at(self, data: bytes, at: int) -> bool:
        return data.startswith(self._text, at)

    def find(self, data: bytes, at: int, end: int) -> int:
        return data.find(self._text, at, end)


class _Wild:
    """A piece with sets of bytes.

    ``_table`` contains, for a byte, the indexes of the piece that it matches, as bits; bytes that
    are not in the table match the indexes in ``_others``.
    """

    __slots__ = ("_members", "_others", "_table", "size")

    def __init__(self, members: list[int]) -> None:
        self._members = members
        self.size = len(members)
        self._table: dict[int, int] = {}
        self._others = 0
        for index, each in enumerate(members):
            if each.bit_count() > 128:
                self._others |= 1 << index
        table = self._table
        for index, each in enumerate(members):
            is_usual = each.bit_count() > 128
            unusual = _ANY ^ each if is_usual else each
            bit = 1 << index
            while unusual:
                lowest = unusual & -unusual
                byte = lowest.bit_length() - 1
                table[byte] = table.get(byte, self._others) ^ bit
                unusual ^= lowest

    def stands_at(self, data: bytes, at: int) -> bool:
        return all(
            each >> byte & 1
            for each, byte in zip(self._members, data[at : at + self.size], strict=True)
        )

    def find(self, data: bytes, at: int, end: int) -> int:
        table, others = self._table, self._others
        last = self.size - 1
        state = 0  # bit i: the bytes so far end with the piece's first i + 1
        for index in range(at, end):
            state = (state << 1 | 1) & table.get(data[index], others)
            if state >> last:
                return index - last
        return -1


def _piece(members: list[int]) -> _Literal | _Wild:
    literal = [_BYTE_OF.get(each, -1) for each in members]
    return _Wild(members) if -1 in literal else _Literal(bytes(literal))
