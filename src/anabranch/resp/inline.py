"""Inline requests: the human form, words separated by blanks, with quotes and escapes."""

from __future__ import annotations

_BLANKS = b" \t\n\v\f\r"
_ENDS = b" \t\n\r\0"  # of a word without quotes: fewer than what may stand between words
_ESCAPES = {ord("n"): 10, ord("r"): 13, ord("t"): 9, ord("b"): 8, ord("a"): 7}


class UnbalancedQuotes(ValueError):
    """A quote was not closed, or was followed by something other than a blank."""


def split_words(line: bytes) -> list[bytes]:
    r"""Split a line as redis-cli and Redis do.

    ``"..."`` knows ``\n \r \t \b \a \xHH`` and ``\c`` for any other character; ``'...'`` knows
    ``\'`` only. A NUL byte ends the line.
    """
    words: list[bytes] = []
    index, size = 0, len(line)
    while True:
        while index < size and line[index] in _BLANKS:
            index += 1
        if index == size or not line[index]:
            return words
        word = bytearray()
        while index < size and line[index] not in _ENDS:
            char = line[index]
            index += 1
            if char == 0x22:
                index = _double_quoted(line, index, word)
            elif char == 0x27:
                index = _single_quoted(line, index, word)
            else:
                word.append(char)
                continue
            if index < size and line[index] and line[index] not in _BLANKS:
                raise UnbalancedQuotes
            break
        words.append(bytes(word))


def _double_quoted(line: bytes, index: int, word: bytearray) -> int:
    size = len(line)
    while index < size:
        char = line[index]
        if char == 0x22:
            return index + 1
        if not char:
            break
        if char == 0x5C and index + 1 < size:
            follower = line[index + 1]
            digits = line[index + 2 : index + 4]
            if follower == 0x78 and len(digits) == 2 and _is_hex(digits):
                word.append(int(digits, 16))
                index += 4
            else:
                word.append(_ESCAPES.get(follower, follower))
                index += 2
        else:
            word.append(char)
            index += 1
    raise UnbalancedQuotes


def _single_quoted(line: bytes, index: int, word: bytearray) -> int:
    size = len(line)
    while index < size:
        char = line[index]
        if char == 0x27:
            return index + 1
        if not char:
            break
        if char == 0x5C and line[index + 1 : index + 2] == b"'":
            word.append(0x27)
            index += 2
        else:
            word.append(char)
            index += 1
    raise UnbalancedQuotes


def _is_hex(digits: bytes) -> bool:
    return all(digit in b"0123456789abcdefABCDEF" for digit in digits)
