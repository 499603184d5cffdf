"""The small values beside streams: strings (SET, GET, INCR) and sets (SADD, SMEMBERS).

Test-suites and tools use them to see keys change their type; they are no reason to run this
server. Lists stand in ``lists.py``.
"""

from __future__ import annotations

from typing import TypeVar

from anabranch.commands import texts
from anabranch.commands.arguments import integer as integer_argument
from anabranch.commands.context import Context
from anabranch.commands.expiry import absolute_ms
from anabranch.commands.spec import Command, KeySpec
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, SetValue, StringValue, Value
from anabranch.resp.encode import OK, bulk, integer, null
from anabranch.resp.values import SetReply

__all__ = ["COMMANDS", "read_as", "write_as"]

_NUMBER_MAX = (1 << 63) - 1
# SET's time options: milliseconds per unit, and whether they count from now
_TIME_OPTIONS = {
    b"EX": (1000, True),
    b"PX": (1, True),
    b"EXAT": (1000, False),
    b"PXAT": (1, False),
}

Small = TypeVar("Small", StringValue, ListValue, SetValue)


def _as(value: Value | None, kind: type[Small]) -> Small | None:
    if value is None:
        return None
    if not isinstance(value, kind):
        raise CommandError(texts.WRONGTYPE)
    return value


def read_as(ctx: Context, key: bytes, kind: type[Small]) -> Small | None:
    """The value of a key for a reading command, None when missing; of this type or an error."""
    return _as(ctx.read(key), kind)


def write_as(ctx: Context, key: bytes, kind: type[Small]) -> Small | None:
    """The same for a writing command."""
    value = _as(ctx.lookup(key), kind)
    if value is not None and not ctx.session.no_touch:
        value.accessed_ms = ctx.now_ms
    return value


# -- strings ----------------------------------------------------------------------------------


class _SetOptions:
    """What stands behind the value of a SET."""

    __slots__ = ("at_ms", "get", "if_exists", "keep_ttl")

    def __init__(self, ctx: Context, words: list[bytes]) -> None:
        self.get = False
        self.keep_ttl = False
        self.if_exists: bool | None = None  # XX, NX, or neither
        self.at_ms: int | None = None
        time_option = b""
        amount = b""
        index = 0
        while index < len(words):
            word = words[index].upper()
            index += 1
            if word in (b"NX", b"XX") and self.if_exists is not (word == b"NX"):
                self.if_exists = word == b"XX"
            elif word == b"GET":
                self.get = True
            elif word == b"KEEPTTL" and not time_option:
                self.keep_ttl = True
            elif (
                word in _TIME_OPTIONS
                and index < len(words)
                and not self.keep_ttl
                and time_option in (b"", word)
            ):
                time_option = word
                amount = words[index]
                index += 1
            else:
                raise CommandError(texts.SYNTAX)
        if time_option:
            self.at_ms = self._deadline(ctx, time_option, integer_argument(amount))

    @staticmethod
    def _deadline(ctx: Context, option: bytes, amount: int) -> int:
        if amount <= 0:
            raise CommandError("ERR invalid expire time in 'set' command")
        per_unit, relative = _TIME_OPTIONS[option]
        base_ms = ctx.now_ms if relative else 0
        return absolute_ms(amount, per_unit=per_unit, base_ms=base_ms, command="set")


def set_string(ctx: Context, args: list[bytes]) -> bytes:
    """Bind a key to a string."""
    key = args[1]
    options = _SetOptions(ctx, args[3:])
    refused = null(ctx.resp3)
    done = OK
    if options.get:
        old = read_as(ctx, key, StringValue)
        done = refused = null(ctx.resp3) if old is None else bulk(old.data)
    exists = ctx.lookup(key) is not None
    if options.if_exists is not None and options.if_exists is not exists:
        return refused
    db = ctx.db.index
    ctx.emit(kinds.SetString(db, key, args[2], keeps_deadline=options.keep_ttl))
    if options.at_ms is not None:
        ctx.emit(kinds.Expire(db, key, options.at_ms))
    ctx.changes += 1
    return done


def get(ctx: Context, args: list[bytes]) -> bytes:
    """The string of a key."""
    value = read_as(ctx, args[1], StringValue)
    return null(ctx.resp3) if value is None else bulk(value.data)


def incr(ctx: Context, args: list[bytes]) -> bytes:
    """Add one to the number a key holds as text; a missing key counts from 0."""
    key = args[1]
    value = write_as(ctx, key, StringValue)
    number = 0 if value is None else integer_argument(value.data)
    if number == _NUMBER_MAX:
        raise CommandError("ERR increment or decrement would overflow")
    data = b"%d" % (number + 1)
    ctx.emit(kinds.SetString(ctx.db.index, key, data, keeps_deadline=True, counted=True))
    ctx.changes += 1
    return integer(number + 1)


# -- sets -------------------------------------------------------------------------------------


def sadd(ctx: Context, args: list[bytes]) -> bytes:
    """Add members to a set; returns how many were new."""
    key = args[1]
    value = write_as(ctx, key, SetValue)
    known = set() if value is None else value.members
    fresh = [member for member in dict.fromkeys(args[2:]) if member not in known]
    if fresh:
        ctx.emit(kinds.AddMembers(ctx.db.index, key, fresh))
        ctx.changes += len(fresh)
    return integer(len(fresh))


def smembers(ctx: Context, args: list[bytes]) -> bytes:
    """All members of a set."""
    value = read_as(ctx, args[1], SetValue)
    return ctx.reply(SetReply(() if value is None else sorted(value.members)))


COMMANDS: list[Command] = [
    Command(
        "set",
        set_string,
        arity=-3,
        flags="write denyoom",
        categories="write string slow",
        keys=(KeySpec("RW access update variable_flags"),),
        group="string",
        summary="Binds a key to a string, whatever it held.",
        complexity="O(1)",
        syntax="key value [NX | XX] [GET] [EX seconds | PX milliseconds | "
        "EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
    ),
    Command(
        "get",
        get,
        arity=2,
        flags="readonly fast",
        categories="read string fast",
        keys=(KeySpec("RO access"),),
        group="string",
        summary="Gives the string of a key.",
        complexity="O(1)",
        syntax="key",
    ),
    Command(
        "incr",
        incr,
        arity=2,
        flags="write denyoom fast",
        categories="write string fast",
        keys=(KeySpec("RW access update"),),
        group="string",
        summary="Adds one to the number in a string.",
        complexity="O(1)",
        syntax="key",
    ),
    Command(
        "sadd",
        sadd,
        arity=-3,
        flags="write denyoom fast",
        categories="write set fast",
        keys=(KeySpec("RW insert"),),
        group="set",
        summary="Adds members to a set and counts the new ones.",
        complexity="O(N), N being the members given.",
        syntax="key member [member ...]",
    ),
    Command(
        "smembers",
        smembers,
        arity=2,
        flags="readonly",
        categories="read set slow",
        keys=(KeySpec("RO access"),),
        group="set",
        summary="Lists the members of a set.",
        complexity="O(N log N), N being the members.",
        syntax="key",
        tips=("nondeterministic_output_order",),
    ),
]
