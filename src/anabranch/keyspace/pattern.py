r"""Glob patterns as Redis matches them: ``* ? [abc] [a-z] [^x] \``, over bytes."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["compile_glob"]

_CACHED_BYTES_MAX = 256
"""Patterns people write are shorter; a thousand of these stay below a few megabytes."""


def _class(pattern: bytes, index: int) -> tuple[str, int]:
    """Translate ``[...]`` starting behind the bracket; returns regex text and next index."""
    negate = pattern[index : index + 1] == b"^"
    if negate:
        index += 1
    items = []
    size = len(pattern)
    while index < size and pattern[index] != 0x5D:
        if pattern[index] == 0x5C and index + 1 < size:
            index += 1
            items.append((pattern[index], pattern[index]))
            index += 1
        elif index + 2 < size and pattern[index + 1] == 0x2D:
            low, high = sorted((pattern[index], pattern[index + 2]))
            items.append((low, high))
            index += 3
        else:
            items.append((pattern[index], pattern[index]))
            index += 1
    if not items:
        return ("." if negate else "(?!)"), index + 1
    body = "".join(f"\\x{low:02x}-\\x{high:02x}" for low, high in items)
    return f"[{'^' if negate else ''}{body}]", index + 1


def compile_glob(pattern: bytes, *, ignore_case: bool = False) -> re.Pattern[bytes]:
    """A compiled matcher; use its ``fullmatch``.

    Each piece between stars commits to its earliest match (an atomic group), which is always a
    best choice for globs: a hostile pattern with many stars stays linear instead of exponential.
    Short patterns are kept compiled; long ones are not, because the cache counts patterns and not
    bytes. Compile once and match often.
    """
    if len(pattern) > _CACHED_BYTES_MAX:
        return _compile(pattern, ignore_case)
    return _compile_cached(pattern, ignore_case)


def _compile(pattern: bytes, ignore_case: bool) -> re.Pattern[bytes]:
    pieces: list[list[str]] = [[]]
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == 0x2A:
            pieces.append([])
        elif char == 0x3F:
            pieces[-1].append(".")
        elif char == 0x5B:
            text, index = _class(pattern, index)
            pieces[-1].append(text)
        else:
            if char == 0x5C and index < len(pattern):
                char = pattern[index]
                index += 1
            pieces[-1].append(f"\\x{char:02x}")
    first, *rest = ["".join(piece) for piece in pieces]
    regex = first
    if rest:
        regex += "".join(f"(?>.*?{piece})" for piece in rest[:-1] if piece) + ".*" + rest[-1]
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return re.compile(regex.encode("ascii"), flags)


_compile_cached = lru_cache(maxsize=1024)(_compile)
