"""Lists: items are pushed, popped, read and changed; ``moves.py`` has what waits or moves."""

from __future__ import annotations

from itertools import islice

from anabranch.commands.generic.values import read_as, write_as
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import integer as integer_argument
from anabranch.engine.arguments import natural, options_of, symmetric
from anabranch.engine.context import Context, existing
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue
from anabranch.resp.encode import EMPTY_ARRAY, OK, ZERO, bulk, integer, null, null_array

_ZERO_RANK = (
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... "
    "or use negative to start from the end of the list"
)


def _push(*, tail: bool, makes: bool = True) -> CommandFunction:
    """LPUSH or RPUSH, LPUSHX or RPUSHX."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        key = args[1]
        value = write_as(ctx, key, ListValue)
        if value is None and not makes:
            return ZERO
        before = 0 if value is None else len(value.items)
        items = args[2:]
        ctx.emit(kinds.Push(ctx.db.index, key, items, tail=tail), len(items))
        return integer(before + len(items))

    return run


lpush = _push(tail=False)
rpush = _push(tail=True)
lpushx = _push(tail=False, makes=False)
rpushx = _push(tail=True, makes=False)


def _pop(name: str, *, tail: bool) -> CommandFunction:
    """LPOP or RPOP: one item, or an array of several."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        if len(args) > 3:
            raise texts.wrong_arity(name)
        count = None
        if len(args) == 3:
            count = natural(args[2])
        value = write_as(ctx, args[1], ListValue)
        if value is None:
            return null(ctx.resp3) if count is None else null_array(ctx.resp3)
        if count == 0:
            return EMPTY_ARRAY
        taken = pop_items(ctx, args[1], value, 1 if count is None else count, tail=tail)
        return bulk(taken[0]) if count is None else ctx.reply(taken)

    return run


lpop = _pop("lpop", tail=False)
rpop = _pop("rpop", tail=True)


def pop_items(ctx: Context, key: bytes, value: ListValue, count: int, *, tail: bool) -> list[bytes]:
    """Take items off one end of a list that a command has looked up."""
    taken = list(islice(reversed(value.items) if tail else value.items, count))
    ctx.emit(kinds.Pop(ctx.db.index, key, len(taken), tail), len(taken))
    return taken


def llen(ctx: Context, args: list[bytes]) -> bytes:
    """How many items a list has."""
    value = read_as(ctx, args[1], ListValue)
    return ZERO if value is None else integer(len(value.items))


def _span(raw_start: bytes, raw_stop: bytes) -> tuple[int, int]:
    return integer_argument(raw_start), integer_argument(raw_stop)


def _within(span: tuple[int, int], size: int) -> tuple[int, int]:
    """First and last index of a span, negative numbers counted from the end."""
    start, stop = span
    return max(0, start + size if start < 0 else start), min(
        size - 1, stop + size if stop < 0 else stop
    )


def lrange(ctx: Context, args: list[bytes]) -> bytes:
    """Items between two positions, negative ones counted from the end."""
    span = _span(args[2], args[3])
    value = read_as(ctx, args[1], ListValue)
    if value is None:
        return EMPTY_ARRAY
    first, last = _within(span, len(value.items))
    if first > last:
        return EMPTY_ARRAY
    return ctx.reply(value.part(first, last + 1))


def ltrim(ctx: Context, args: list[bytes]) -> bytes:
    """Keep the items between two positions only."""
    key = args[1]
    span = _span(args[2], args[3])
    value = write_as(ctx, key, ListValue)
    if value is None:
        return OK
    size = len(value.items)
    first, last = _within(span, size)
    if first > last:
        first, last = size, size - 1
    db = ctx.db.index
    if last < size - 1 and first:
        ctx.emit(kinds.Splice(db, key, last + 1, size - 1 - last, []))
    if first:
        ctx.emit(kinds.Splice(db, key, 0, first, [], "ltrim"))
    else:
        ctx.emit(kinds.Splice(db, key, last + 1, size - 1 - last, [], "ltrim"))
    ctx.changes += first + size - 1 - last
    return OK


def _index(raw: bytes, size: int) -> int | None:
    at = integer_argument(raw)
    at = at + size if at < 0 else at
    return at if 0 <= at < size else None


def lindex(ctx: Context, args: list[bytes]) -> bytes:
    """The item at a position, negative ones counted from the end."""
    value = read_as(ctx, args[1], ListValue)
    at = None if value is None else _index(args[2], len(value.items))
    return null(ctx.resp3) if value is None or at is None else bulk(value.items[at])


def lset(ctx: Context, args: list[bytes]) -> bytes:
    """Put an item in the place of another."""
    value = existing(write_as(ctx, args[1], ListValue))
    at = _index(args[2], len(value.items))
    if at is None:
        raise CommandError("ERR index out of range")
    ctx.emit(kinds.Splice(ctx.db.index, args[1], at, 1, [args[3]], "lset"), 1)
    return OK


def linsert(ctx: Context, args: list[bytes]) -> bytes:
    """Put an item before or after another; returns the length, -1 without that other."""
    where = args[2].upper()
    if where not in (b"BEFORE", b"AFTER"):
        raise CommandError(texts.SYNTAX)
    value = write_as(ctx, args[1], ListValue)
    if value is None:
        return ZERO
    try:
        at = value.items.index(args[3]) + (where == b"AFTER")
    except ValueError:
        return integer(-1)
    ctx.emit(kinds.Splice(ctx.db.index, args[1], at, 0, [args[4]], "linsert"), 1)
    return integer(len(value.items))


def lrem(ctx: Context, args: list[bytes]) -> bytes:
    """Take out equal items, from the tail if the count is negative, all if it is 0."""
    count = integer_argument(args[2])
    value = write_as(ctx, args[1], ListValue)
    found = 0 if value is None else value.items.count(args[3])
    if count:
        found = min(found, abs(count))
    if found:
        signed = -found if count < 0 else found
        ctx.emit(kinds.RemoveItems(ctx.db.index, args[1], args[3], signed), found)
    return integer(found)


class _PositionSearch:
    """The options of LPOS: which matches are wanted, and how far to look."""

    def __init__(self, words: list[bytes]) -> None:
        self.rank = 1
        self.count: int | None = None
        self.max_length = 0
        for name, values in options_of(words, {b"RANK": 1, b"COUNT": 1, b"MAXLEN": 1}):
            if name == b"RANK":
                self.rank = symmetric(values[0])
                if not self.rank:
                    raise CommandError(_ZERO_RANK)
            elif name == b"COUNT":
                self.count = natural(values[0], "ERR COUNT can't be negative")
            else:
                self.max_length = natural(values[0], "ERR MAXLEN can't be negative")


def lpos(ctx: Context, args: list[bytes]) -> bytes:
    """Positions of equal items; of the first one without a count."""
    asked = _PositionSearch(args[3:])
    value = read_as(ctx, args[1], ListValue)
    items = () if value is None else value.items
    size = len(items)
    backwards = asked.rank < 0
    looked_at = islice(reversed(items) if backwards else items, min(asked.max_length or size, size))
    places = (place for place, item in enumerate(looked_at) if item == args[2])
    wanted = 1 if asked.count is None else min(asked.count or size, size)
    first = min(abs(asked.rank) - 1, size)
    found = [
        size - 1 - place if backwards else place for place in islice(places, first, first + wanted)
    ]
    if asked.count is not None:
        return ctx.reply(found)
    return integer(found[0]) if found else null(ctx.resp3)
