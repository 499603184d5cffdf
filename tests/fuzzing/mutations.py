"""Changes to bytes and to plain values: some small, some at the edges of what there is."""

from __future__ import annotations

import random
from typing import Any, Final

__all__ = ["changed_bytes", "changed_tree"]

_EDGES: Final = [
    *(0, 1, 2, 3, 15, 16, 17, 127, 128, 255, 256, 65535, 65536, 1 << 20, (1 << 20) + 1, -1, -2),
    *(sign * (1 << bits) + step for bits in (31, 32, 40, 53, 62, 63) for step in (-1, 0, 1)
      for sign in (1, -1) if sign * (1 << bits) + step >= -(1 << 63)),
    (1 << 64) - 1,
]  # fmt: skip

_PIECES: Final = [
    *(b"", b"\0", b"\xff" * 8, b"*2\r\n", b"$3\r\n", b"\r\n", b"$-1\r\n", b"+OK\r\n"),
    *(b"*1000000000\r\n", b"a" * 300, b"-", b"9" * 40),
    *(b"$1\r\nf\r\n", b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"),
]  # fmt: skip

_VALUES: Final[list[Any]] = [
    None, True, False, 1.5, float("nan"), "", "text", "\ud7ff", [], {}, [[]], [None], {1: 2}, b"",
]  # fmt: skip


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes that differ in one place."""
    at = rng.randrange(len(data) + 1)
    match rng.randrange(8):
        case 0 | 1 if at < len(data):
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 2 if at < len(data):
            return data[:at] + rng.randbytes(1) + data[at + 1 :]
        case 3:
            return data[:at]
        case 4:
            return data[:at] + rng.choice(_PIECES) + data[at:]
        case 5:
            return data[:at] + data[at + rng.randrange(1, 9) :]
        case 6:
            return data[:at] + data[max(0, at - rng.randrange(1, 40)) :]
        case _:
            return data + rng.choice(_PIECES)


def changed_tree(rng: random.Random, tree: Any) -> Any:
    """A plain value that differs in one place, however deep."""
    if isinstance(tree, list) and tree and rng.random() < 0.85:
        at = rng.randrange(len(tree))
        return [*tree[:at], changed_tree(rng, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, list):
        return _changed_list(rng, tree)
    if rng.random() < 0.1:
        return rng.choice(_VALUES)
    if isinstance(tree, bool):
        return not tree
    if isinstance(tree, int):
        return _changed_int(rng, tree)
    if isinstance(tree, bytes):
        return changed_bytes(rng, tree)
    if isinstance(tree, str):
        return tree[: rng.randrange(len(tree) + 1)] + rng.choice(["", "\n", "x" * 300])
    return rng.choice([*_VALUES, *_EDGES])


def _changed_int(rng: random.Random, number: int) -> int:
    match rng.randrange(4):
        case 0:
            other = number + rng.choice([-256, -2, -1, 1, 2, 256])
            return max(-(1 << 63), min(other, (1 << 64) - 1))
        case 1:
            return number ^ 1 << rng.randrange(63)
        case _:
            return rng.choice(_EDGES)


def _changed_list(rng: random.Random, items: list[Any]) -> list[Any]:
    at = rng.randrange(len(items) + 1)
    match rng.randrange(7):
        case 0:
            return items[:at]
        case 1:
            return [*items[:at], *items[at + 1 :]]
        case 2:
            return [*items[:at], *items[max(0, at - 3) : at], *items[at:]]
        case 3:
            return rng.sample(items, len(items))
        case 4:
            return [*items[:at], rng.choice([*_VALUES, *_EDGES]), *items[at:]]
        case 5:
            return items * rng.choice([2, 50])
        case _:
            return [*items[:at], items, *items[at:]] if len(items) < 50 else []
