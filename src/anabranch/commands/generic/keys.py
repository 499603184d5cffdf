"""Single keys of any type: DEL, EXISTS, TOUCH, TYPE, RENAME, COPY, MOVE, OBJECT.

``databases.py`` has the commands on whole databases, ``expiry.py`` deadlines, ``dump.py`` payloads.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.effects import kinds
from anabranch.effects.prepare import rewriting
from anabranch.engine import texts
from anabranch.engine.arguments import int32, integer_or_none, options_of
from anabranch.engine.context import Context, existing
from anabranch.errors import CommandError
from anabranch.keyspace.values import PLAIN, RAW, ListValue, SetValue, StringValue, Value
from anabranch.resp.encode import OK, ONE, ZERO, bulk, integer, null
from anabranch.scheduling import Steps

_SAME_OBJECTS = "ERR source and destination objects are the same"
_NO_LFU = (
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. "
    "Please note that when switching between policies at runtime LRU and LFU data "
    "will take some time to adjust."
)
_EMBEDDED_MAX = 44  # Redis stores strings up to this length beside their header
_PACKED_LIST_BYTES_MAX = 8192
_PACKED_SET_MAX = 128
_INTEGER_SET_MAX = 512
_PACKED_MEMBER_MAX = 64


def peek(ctx: Context, key: bytes) -> Value | None:
    """A look-up that counts as reading but not as using (TYPE, EXISTS, TTL)."""
    value = ctx.lookup(key)
    if value is None:
        ctx.miss(key)
    else:
        ctx.stats.keyspace_hits += 1
    return value


def database_index(ctx: Context, raw: bytes) -> int:
    """The number of an existing database."""
    index = int32(raw)
    if not 0 <= index < len(ctx.keyspace.databases):
        raise CommandError(texts.DB_RANGE)
    return index


def delete(ctx: Context, args: list[bytes]) -> bytes:
    """DEL and UNLINK: remove keys; returns how many existed."""
    db = ctx.db
    if len(args) == 2:
        if ctx.lookup(args[1]) is None:
            return ZERO
        ctx.emit(kinds.Delete(db.index, args[1], False), 1)
        return ONE
    keys = args[1:]
    if db.deadlines:
        ctx.lookup_all(keys)  # a key past its deadline is removed, and does not count
    if db.values.keys().isdisjoint(keys):
        return ZERO
    before = len(db.values)
    ctx.emit(kinds.DeleteKeys(db.index, keys))
    removed = before - len(db.values)
    ctx.changes += removed
    return integer(removed)


def exists(ctx: Context, args: list[bytes]) -> bytes:
    """How many of the keys exist, repetitions counted."""
    values = ctx.read_all(args[1:], as_use=False)
    return integer(len(values) - values.count(None))


def touch(ctx: Context, args: list[bytes]) -> bytes:
    """Set the access time of keys; returns how many exist."""
    values = ctx.read_all(args[1:])
    return integer(len(values) - values.count(None))


def type_of(ctx: Context, args: list[bytes]) -> bytes:
    """TYPE key: the name of the type of its value, ``none`` if it is missing."""
    value = peek(ctx, args[1])
    return b"+%b\r\n" % (b"none" if value is None else value.type_name)


def rename(ctx: Context, args: list[bytes]) -> bytes | None:
    """Move value and deadline to another key, which may exist."""

    def early_reply() -> bytes | None:
        existing(ctx.use(args[1]))
        return OK if args[1] == args[2] else None

    return _move(ctx, args, ctx.db.index, args[2], early_reply, OK)


def renamenx(ctx: Context, args: list[bytes]) -> bytes | None:
    """Move value and deadline to another key that does not exist."""

    def early_reply() -> bytes | None:
        existing(ctx.use(args[1]))
        return None if ctx.lookup(args[2]) is None else ZERO

    return _move(ctx, args, ctx.db.index, args[2], early_reply, ONE)


def _move(
    ctx: Context,
    args: list[bytes],
    target_db: int,
    target: bytes,
    early_reply: Callable[[], bytes | None],
    done: bytes,
) -> bytes | None:
    """Move a value; ``early_reply`` gives the reply if there is nothing to do."""

    def act() -> bytes:
        # A target past its deadline is removed first, with its own event.
        database = ctx.keyspace.databases[target_db]
        ctx.lookup_in(database, target)
        incarnation = database.incarnation_for(target, ctx.db.values[args[1]])
        ctx.emit(kinds.Rename(ctx.db.index, args[1], target_db, target, incarnation), 1)
        return done

    return _written(ctx, args, target_db, target, early_reply, act)


def _written(
    ctx: Context,
    args: list[bytes],
    target_db: int,
    target: bytes,
    early_reply: Callable[[], bytes | None],
    act: Callable[[], bytes],
) -> bytes | None:
    """Prepare the value of the first key and act on it, unless there is nothing to do."""
    reply = early_reply()
    if reply is not None:
        return reply

    def steps() -> Steps[list[bytes]]:
        with rewriting(ctx.effects, ctx.db.values[args[1]], target_db, target) as prepare:
            yield from prepare
            reply = early_reply()  # again: time may have passed
            return [act() if reply is None else reply]

    return ctx.in_slices(args, steps())


def copy(ctx: Context, args: list[bytes]) -> bytes | None:
    """Bind another key to an independent copy of a value."""
    index = ctx.db.index
    replace = False
    for name, values in options_of(args[3:], {b"REPLACE": 0, b"DB": 1}):
        if name == b"REPLACE":
            replace = True
        else:
            index = database_index(ctx, values[0])
    key, target = args[1], args[2]
    if key == target and index == ctx.db.index:
        raise CommandError(_SAME_OBJECTS)
    if ctx.read(key) is None:
        return ZERO

    def early_reply() -> bytes | None:
        if ctx.lookup(key) is None:
            return ZERO
        replaced = ctx.lookup_in(ctx.keyspace.databases[index], target)
        return ZERO if replaced is not None and not replace else None

    def act() -> bytes:
        database = ctx.keyspace.databases[index]
        incarnation = database.incarnation_for(target, ctx.db.values[key])
        ctx.emit(kinds.Copy(ctx.db.index, key, index, target, incarnation), 1)
        return ONE

    return _written(ctx, args, index, target, early_reply, act)


def move(ctx: Context, args: list[bytes]) -> bytes | None:
    """Move a key to another database that has no such key."""
    key = args[1]
    index = database_index(ctx, args[2])
    if index == ctx.db.index:
        raise CommandError(_SAME_OBJECTS)

    def early_reply() -> bytes | None:
        if ctx.use(key) is None:
            return ZERO
        return None if ctx.lookup_in(ctx.keyspace.databases[index], key) is None else ZERO

    return _move(ctx, args, index, key, early_reply, ONE)


# -- OBJECT -----------------------------------------------------------------------------------


def _inspected(ctx: Context, key: bytes) -> Value | None:
    """A look-up that counts, without changing idle time or publishing a miss event."""
    value = ctx.lookup(key)
    if value is None:
        ctx.stats.keyspace_misses += 1
    else:
        ctx.stats.keyspace_hits += 1
    return value


def encoding_of(value: Value) -> bytes:
    """The name of the encoding that Redis would use for such a value."""
    if isinstance(value, StringValue):
        if value.form == RAW or value.size > _EMBEDDED_MAX:
            return b"raw"
        is_integer = value.form == PLAIN and integer_or_none(value.data) is not None
        return b"int" if is_integer else b"embstr"
    if isinstance(value, ListValue):
        size = sum(map(len, value.items))
        return b"listpack" if size < _PACKED_LIST_BYTES_MAX else b"quicklist"
    if isinstance(value, SetValue):
        members = value.members
        if len(members) <= _INTEGER_SET_MAX and all(
            integer_or_none(member) is not None for member in members
        ):
            return b"intset"
        if len(members) <= _PACKED_SET_MAX and max(map(len, members)) <= _PACKED_MEMBER_MAX:
            return b"listpack"
        return b"hashtable"
    return value.type_name


def object_encoding(ctx: Context, args: list[bytes]) -> bytes:
    """The name of the internal representation."""
    value = _inspected(ctx, args[2])
    return null(ctx.resp3) if value is None else bulk(encoding_of(value))


def object_refcount(ctx: Context, args: list[bytes]) -> bytes:
    """Always 1: values are not shared."""
    return null(ctx.resp3) if _inspected(ctx, args[2]) is None else ONE


def object_idletime(ctx: Context, args: list[bytes]) -> bytes:
    """Seconds since the key was last used."""
    value = _inspected(ctx, args[2])
    if value is None:
        return null(ctx.resp3)
    if not value.accessed_ms:  # made, copied or loaded, and not used since: time runs from now
        value.accessed_ms = ctx.now_ms
    return integer(max(0, ctx.now_ms - value.accessed_ms) // 1000)


def object_freq(ctx: Context, args: list[bytes]) -> bytes:
    """Refused: there is no eviction, so the use of keys is not counted."""
    if _inspected(ctx, args[2]) is None:
        return null(ctx.resp3)
    raise CommandError(_NO_LFU)
