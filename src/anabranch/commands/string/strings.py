"""Strings: SET, GET and similar commands; ``numbers.py`` has numbers in strings."""

from __future__ import annotations

from typing import Final

from anabranch.commands.generic.expiry import absolute_ms
from anabranch.commands.generic.values import peek_as, read_as, write_as
from anabranch.effects import kinds
from anabranch.effects.codec import BODY_BYTES_MAX
from anabranch.engine import texts
from anabranch.engine.arguments import integer as integer_argument
from anabranch.engine.context import Context
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.values import StringValue
from anabranch.resp.encode import OK, ONE, ZERO, bulk, integer, null

_STRING_BYTES_MAX: Final = BODY_BYTES_MAX >> 1
"""Whatever the setting says: with its key, a string fits into a record of a snapshot."""

_TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
# time options: milliseconds per unit, and whether they count from now
_TIME_OPTIONS = {
    b"EX": (1000, True),
    b"PX": (1, True),
    b"EXAT": (1000, False),
    b"PXAT": (1, False),
}


class _Options:
    """The options after the value of a SET, or after the key of a GETEX."""

    def __init__(self, words: list[bytes], command: str) -> None:
        self.get = False
        self.keeps = False  # KEEPTTL, or PERSIST of GETEX
        self.if_exists: bool | None = None  # XX, NX, or neither
        self._command = command
        self._unit = b""
        self._amount = b""
        is_set = command == "set"
        index = 0
        while index < len(words):
            word = words[index].upper()
            index += 1
            if is_set and word in (b"NX", b"XX") and self.if_exists is not (word == b"NX"):
                self.if_exists = word == b"XX"
            elif is_set and word == b"GET":
                self.get = True
            elif word == (b"KEEPTTL" if is_set else b"PERSIST") and not self._unit:
                self.keeps = True
            elif (
                word in _TIME_OPTIONS
                and index < len(words)
                and not self.keeps
                and self._unit in (b"", word)
            ):
                self._unit = word
                self._amount = words[index]
                index += 1
            else:
                raise CommandError(texts.SYNTAX)

    def deadline(self, ctx: Context) -> int | None:
        """The given time as wall-clock milliseconds; None without one."""
        if not self._unit:
            return None
        per_unit, relative = _TIME_OPTIONS[self._unit]
        return _deadline(ctx, self._amount, per_unit, self._command, relative=relative)


_NO_OPTIONS: Final = _Options([], "set")


def _deadline(
    ctx: Context, raw: bytes, per_unit: int, command: str, *, relative: bool = True
) -> int:
    amount = integer_argument(raw)
    if amount <= 0:
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    base_ms = ctx.now_ms if relative else 0
    return absolute_ms(amount, per_unit=per_unit, base_ms=base_ms, command=command)


def _bind(
    ctx: Context, key: bytes, data: bytes, at_ms: int | None = None, *, keeps: bool = False
) -> None:
    db = ctx.db.index
    ctx.emit(kinds.SetString(db, key, data, keeps_deadline=keeps))
    if at_ms is not None:
        ctx.emit(kinds.Expire(db, key, at_ms))
    ctx.changes += 1


def _bind_all(ctx: Context, keys: list[bytes], data: list[bytes]) -> None:
    if len(keys) == 1:
        _bind(ctx, keys[0], data[0])
    else:
        ctx.emit(kinds.SetStrings(ctx.db.index, keys, data), len(keys))


def _shown(ctx: Context, value: StringValue | None) -> bytes:
    return null(ctx.resp3) if value is None else bulk(value.data)


def keys_of_set(args: list[bytes]) -> list[tuple[int, str]]:
    """The key of a SET, with the flags of its use: only GET reads it."""
    if len(args) < 2:  # a script may ask whether it may call it
        return []
    reads = b"GET" in map(bytes.upper, args[3:])
    return [(1, "RW access update" if reads else "OW update")]


def set_string(ctx: Context, args: list[bytes]) -> bytes:
    """SET: bind a key to a string, under the conditions of the options."""
    key = args[1]
    options = _NO_OPTIONS if len(args) == 3 else _Options(args[3:], "set")
    at_ms = options.deadline(ctx)
    refused = null(ctx.resp3)
    done = OK
    if options.get:
        done = refused = _shown(ctx, read_as(ctx, key, StringValue))
    exists = ctx.lookup(key) is not None
    if options.if_exists is not None and options.if_exists is not exists:
        return refused
    _bind(ctx, key, args[2], at_ms, keeps=options.keeps)
    return done


def setnx(ctx: Context, args: list[bytes]) -> bytes:
    """Bind a key that does not exist."""
    if ctx.lookup(args[1]) is not None:
        return ZERO
    _bind(ctx, args[1], args[2])
    return ONE


def _set_for(name: str, per_unit: int) -> CommandFunction:
    """The function of SETEX or PSETEX; a unit of time has ``per_unit`` milliseconds."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        at_ms = _deadline(ctx, args[2], per_unit, name)
        _bind(ctx, args[1], args[3], at_ms)
        return OK

    return run


setex = _set_for("setex", 1000)
psetex = _set_for("psetex", 1)


def get(ctx: Context, args: list[bytes]) -> bytes:
    """GET key: its string, null if the key is missing."""
    return _shown(ctx, read_as(ctx, args[1], StringValue))


def getset(ctx: Context, args: list[bytes]) -> bytes:
    """Bind a key to a string; returns the former one."""
    old = _shown(ctx, read_as(ctx, args[1], StringValue))
    _bind(ctx, args[1], args[2])
    return old


def getdel(ctx: Context, args: list[bytes]) -> bytes:
    """The string of a key, which is removed."""
    value = read_as(ctx, args[1], StringValue)
    if value is not None:
        ctx.emit(kinds.Delete(ctx.db.index, args[1], False), 1)
    return _shown(ctx, value)


def getex(ctx: Context, args: list[bytes]) -> bytes:
    """The string of a key, which gets another deadline or none."""
    key = args[1]
    options = _Options(args[2:], "getex")
    value = read_as(ctx, key, StringValue)
    if value is None:
        return null(ctx.resp3)
    at_ms = options.deadline(ctx)
    db = ctx.db.index
    if at_ms is not None:
        is_past = at_ms <= ctx.now_ms
        ctx.emit(kinds.Delete(db, key, False) if is_past else kinds.Expire(db, key, at_ms), 1)
    elif options.keeps and key in ctx.db.deadlines:
        ctx.emit(kinds.Expire(db, key, None), 1)
    return bulk(value.data)


def mget(ctx: Context, args: list[bytes]) -> bytes | None:
    """The strings of several keys, null for a key without a string."""
    found = ctx.read_all(args[1:])
    strings = [each.data if isinstance(each, StringValue) else None for each in found]
    return ctx.long_reply(args, strings)


def mset(ctx: Context, args: list[bytes]) -> bytes:
    """MSET key value [key value ...]: bind several keys to strings."""
    if len(args) % 2 == 0:
        raise texts.wrong_arity("mset")
    _bind_all(ctx, args[1::2], args[2::2])
    return OK


def msetnx(ctx: Context, args: list[bytes]) -> bytes:
    """Bind several keys if none of them exists."""
    if len(args) % 2 == 0:
        raise texts.wrong_arity("msetnx")
    keys = args[1::2]
    if any(value is not None for value in ctx.lookup_all(keys)):
        return ZERO
    _bind_all(ctx, keys, args[2::2])
    return ONE


def strlen(ctx: Context, args: list[bytes]) -> bytes:
    """How many bytes a string has."""
    value = read_as(ctx, args[1], StringValue)
    return ZERO if value is None else integer(value.size)


def _overwrite(ctx: Context, key: bytes, size: int, at: int, data: bytes, event: str) -> bytes:
    """Overwrite bytes of a string of this size; returns its new length."""
    end = at + len(data)
    if end > min(ctx.settings.proto_max_bulk_len, _STRING_BYTES_MAX):
        raise CommandError(_TOO_LONG)
    ctx.emit(kinds.Overwrite(ctx.db.index, key, at, data, event), 1)
    return integer(max(size, end))


def append(ctx: Context, args: list[bytes]) -> bytes:
    """Append bytes to a string; returns its length."""
    value = write_as(ctx, args[1], StringValue)
    size = 0 if value is None else value.size
    return _overwrite(ctx, args[1], size, size, args[2], "append")


def getrange(ctx: Context, args: list[bytes]) -> bytes:
    """Bytes between two positions, negative ones counted from the end."""
    start = integer_argument(args[2])
    stop = integer_argument(args[3])
    value = read_as(ctx, args[1], StringValue)
    data = b"" if value is None else value.data
    size = len(data)
    if start < 0 and stop < 0 and start > stop:
        return bulk(b"")
    first = max(0, start + size if start < 0 else start)
    last = max(0, stop + size if stop < 0 else stop)
    return bulk(data[first : last + 1] if first <= last else b"")  # machine code slices no less


def setrange(ctx: Context, args: list[bytes]) -> bytes:
    """Overwrite bytes of a string from a position on; returns its length."""
    at = integer_argument(args[2])
    if at < 0:
        raise CommandError("ERR offset is out of range")
    value = peek_as(ctx.lookup(args[1]), StringValue)
    size = 0 if value is None else value.size
    if not args[3]:
        return integer(size)
    return _overwrite(ctx, args[1], size, at, args[3], "setrange")
