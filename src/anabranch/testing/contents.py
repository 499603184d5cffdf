r"""All data of a server as plain Python values, to be printed and compared.

A stream is ``{"entries": {ID: {field: value}}, "groups": {name: {...}}}``, a string is a string, a
list a list and a set a set; text that is not UTF-8 keeps its bytes as ``\xff``. Keys of databases
other than 0 are written ``3:key``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Ask = Callable[..., Any]


def contents(ask: Ask) -> dict[str, Any]:
    """All data, read with `ask`, which runs a command and returns its RESP3 reply."""
    found: dict[str, Any] = {}
    databases = [word for word in _text(ask("INFO", "keyspace")).split() if word.startswith("db")]
    for line in databases:
        number = int(line.partition(":")[0][2:])
        keys = _of_database(ask, number)
        found |= {(f"{number}:{key}" if number else key): value for key, value in keys.items()}
    return found


def _of_database(ask: Ask, number: int) -> dict[str, Any]:
    def here(*words: object) -> Any:
        return ask(*words, database=number)

    return {_text(key): _value(here, key) for key in sorted(here("KEYS", "*"))}


def _value(ask: Ask, key: bytes) -> Any:
    kind = _text(ask("TYPE", key))
    if kind == "string":
        return _text(ask("GET", key))
    if kind == "list":
        return [_text(item) for item in ask("LRANGE", key, 0, -1)]
    if kind == "set":
        return {_text(member) for member in ask("SMEMBERS", key)}
    return {
        "entries": {
            _text(entry_id): _fields(fields) for entry_id, fields in ask("XRANGE", key, "-", "+")
        },
        "groups": {
            _text(group[b"name"]): _group(ask, key, group) for group in ask("XINFO", "GROUPS", key)
        },
    }


def _fields(flat: list[bytes]) -> Any:
    """Fields by name; pairs where a name comes twice."""
    pairs = [(_text(n), _text(v)) for n, v in zip(flat[::2], flat[1::2], strict=True)]
    named = dict(pairs)
    return named if len(named) == len(pairs) else pairs


def _group(ask: Ask, key: bytes, facts: dict[bytes, Any]) -> dict[str, Any]:
    pending = ask("XPENDING", key, facts[b"name"], "-", "+", max(facts[b"pending"], 1))
    return {
        "last-delivered-id": _text(facts[b"last-delivered-id"]),
        "lag": facts[b"lag"],
        "pending": {
            _text(entry_id): {"consumer": _text(consumer), "deliveries": deliveries}
            for entry_id, consumer, _, deliveries in pending
        },
    }


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else str(raw)


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two dumps differ, a line for each place."""
    if one == other:
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for key in sorted({*one, *other}, key=str)
            for line in differences(one.get(key), other.get(key), f"{place}/{key}")
        ]
    return [f"{place}: {one!r} and {other!r}"]
