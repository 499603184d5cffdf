"""Look-ups of the small values beside streams: strings, lists and sets.

Clients, frameworks and test suites use them beside streams: locks, counters, small queues.
"""

from __future__ import annotations

from typing import TypeVar

from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value

Small = TypeVar("Small", StringValue, ListValue, SetValue)


def peek_as(value: Value | None, kind: type[Small]) -> Small | None:
    """A value that was looked up already, None without a value; an error if of another type."""
    if value is None:
        return None
    if not isinstance(value, kind):
        raise CommandError(texts.WRONGTYPE)
    return value


def read_as(ctx: Context, key: bytes, kind: type[Small]) -> Small | None:
    """The value of a key for a reading command, None if missing; an error if of another type."""
    return peek_as(ctx.read(key), kind)


def write_as(ctx: Context, key: bytes, kind: type[Small]) -> Small | None:
    """The value of a key for a writing command, None if missing; an error if of another type."""
    return peek_as(ctx.use(key), kind)
