"""XADD: adds an entry to a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.commands.stream.options import (
    POLICIES,
    check_trim,
    limit_argument,
    trim_stream,
    trim_threshold,
)
from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.effects.apply_stream import append_entry, log_at
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import bulk, null
from anabranch.stream.content_id import content_id
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS
from anabranch.stream.references import Policy
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream
from anabranch.stream.trimming import TrimRule
from anabranch.version import IS_COMPILED

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

ENTRY_BYTES_MAX: Final = 1 << 30
"""Redis's limit on the payload of one entry."""

_ADD: Final = kinds.Add  # a name of an interpreted module is looked up each time

_LONG_BYTES: Final = 2048
"""A stream with a longer new entry is measured soon, and not only when its block is full."""

_ZERO_ID = "ERR The ID specified in XADD must be greater than 0-0"
_TOO_LARGE = "ERR Elements are too large to be stored"
_IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times"
_IDMP_NOT_AUTO = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"


_LINES: Final = 256
_LENGTH_LINES: Final = [b"\r\n$%d\r\n" % length for length in range(_LINES)]
"""The bytes between an argument and the next one, by its length."""

_SEQUENCE_TEXT_MAX: Final = 24  # twenty digits, the line end, and one because lengths begin at 0


_MAXLEN: Final = 1
_MINID: Final = 2
_LIMIT: Final = 3
_NOMKSTREAM: Final = 4
_IDMP: Final = 5
_IDMPAUTO: Final = 6
_POLICY: Final = 7
_OPTIONS: Final = {
    b"MAXLEN": _MAXLEN,
    b"MINID": _MINID,
    b"LIMIT": _LIMIT,
    b"NOMKSTREAM": _NOMKSTREAM,
    b"IDMP": _IDMP,
    b"IDMPAUTO": _IDMPAUTO,
    **dict.fromkeys(POLICIES, _POLICY),
}
_OPTION: Final = {**_OPTIONS, **{word.lower(): option for word, option in _OPTIONS.items()}}
"""The options in the two spellings of nearly all clients."""


@mypyc_attr(acyclic=True)
class _AddOptions:
    """The options between the key and the fields of an XADD.

    The defaults are attributes of the class: most requests set two attributes, and this is a hot
    path.
    """

    nomkstream = False
    policy: Policy | None = None
    trim: TrimRule | None = None
    pid = b""
    iid = b""  # empty with a pid: computed from the contents
    names_id = False  # not automatic: one of the next two is set
    given_id: int | None = None
    ms: int | None = None  # ms-*
    fields_at = 0


class _Latest:
    """The options that were read last and depend on their words alone: producers repeat them."""

    def __init__(self) -> None:
        self.options = _AddOptions()
        self.words: list[bytes] = []  # up to the ID
        self.node_entries_max = -1  # as it was when the options were read


_LATEST: Final = _Latest()


def _options_of(ctx: Context, args: list[bytes]) -> _AddOptions:
    """The options of a request; those of the last one, if the words are the same."""
    latest = _LATEST
    if latest.node_entries_max == ctx.node_entries_max and len(args) > latest.options.fields_at:
        at: i64 = 2
        for word in latest.words:
            if args[at] != word:
                break
            at += 1
        else:
            return latest.options
    options = _add_options(ctx, args)
    if not options.pid and not options.names_id and options.fields_at < len(args):
        latest.options = options
        latest.words = args[2 : options.fields_at]
        latest.node_entries_max = ctx.node_entries_max
    return options


def _add_options(ctx: Context, args: list[bytes]) -> _AddOptions:
    """Read options up to the ID: the first token that is no option is the ID."""
    options = _AddOptions()
    rule: TrimRule | None = None
    limit: int | None = None
    index = 2
    last = len(args) - 1
    while index <= last:
        raw = args[index]
        if raw == b"*":
            break
        option = _OPTION.get(raw)
        if option is None:
            option = _OPTION.get(raw.upper(), 0)
        more = last - index
        if option in (_MAXLEN, _MINID) and more:
            if rule is None:
                rule = TrimRule()
            index = trim_threshold(rule, option == _MAXLEN, args, index)
        elif option == _LIMIT and more:
            limit = limit_argument(args[index + 1])
            index += 2
        elif option == _NOMKSTREAM:
            options.nomkstream = True
            index += 1
        elif (option == _IDMP and more >= 2) or (option == _IDMPAUTO and more):
            index = _idmp_option(options, option == _IDMPAUTO, args, index)
        elif option == _POLICY and options.policy is None:
            options.policy = POLICIES[raw.upper()]
            index += 1
        else:
            options.names_id = True
            if raw.endswith(b"-*"):
                options.ms = id_argument(raw[:-2]) >> SEQ_BITS
                if b"-" in raw[:-2]:
                    raise CommandError(texts.INVALID_ID)
            else:
                options.given_id, options.ms = ctx.ids.given(raw)
            break
    if options.pid and options.names_id:
        raise CommandError(_IDMP_NOT_AUTO)
    if limit is not None and rule is None:
        rule = TrimRule()
    if rule is not None:
        check_trim(rule, limit, ctx.node_entries_max, required=False)
        if options.policy is not None:
            rule.policy = options.policy
        options.trim = rule
    options.fields_at = index + 1
    return options


def _idmp_option(options: _AddOptions, computed: bool, args: list[bytes], index: int) -> int:
    if options.pid:
        raise CommandError(_IDMP_TWICE)
    options.pid = args[index + 1]
    if not options.pid:
        name = "IDMPAUTO" if computed else "IDMP"
        raise CommandError(f"ERR syntax error, {name} requires a non-empty producer ID")
    if computed:
        return index + 2
    options.iid = args[index + 2]
    if not options.iid:
        raise CommandError("ERR syntax error, IDMP requires a non-empty idempotent ID")
    return index + 3


def _id_head(ms: int, seq_digits: int) -> bytes:
    """``$length``, millisecond and dash of an ID: equal for many IDs of one millisecond."""
    prefix = b"%d-" % ms
    return b"$%d\r\n%b" % (len(prefix) + seq_digits, prefix)


# Entries of few fields are written without a loop. Compiled, formatting takes a third of the time
# of joining, and interpreted twice as long. An argument too long for the table of lengths raises
# IndexError.
# fmt: off
def _two_fields(head: bytes, args: list[bytes], at: int) -> bytes:
    a, b, c, d = args[at], args[at + 1], args[at + 2], args[at + 3]
    line = _LENGTH_LINES
    if IS_COMPILED:
        return b"*2\r\n%b*4%b%b%b%b%b%b%b%b\r\n" % (
            head,
            line[len(a)], a, line[len(b)], b,
            line[len(c)], c, line[len(d)], d,
        )
    return b"".join((
        b"*2\r\n", head, b"*4",
        line[len(a)], a, line[len(b)], b,
        line[len(c)], c, line[len(d)], d, b"\r\n",
    ))


def _three_fields(head: bytes, args: list[bytes], at: int) -> bytes:
    a, b, c = args[at], args[at + 1], args[at + 2]
    d, e, f = args[at + 3], args[at + 4], args[at + 5]
    line = _LENGTH_LINES
    if IS_COMPILED:
        return b"*2\r\n%b*6%b%b%b%b%b%b%b%b%b%b%b%b\r\n" % (
            head,
            line[len(a)], a, line[len(b)], b,
            line[len(c)], c, line[len(d)], d,
            line[len(e)], e, line[len(f)], f,
        )
    return b"".join((
        b"*2\r\n", head, b"*6",
        line[len(a)], a, line[len(b)], b,
        line[len(c)], c, line[len(d)], d,
        line[len(e)], e, line[len(f)], f, b"\r\n",
    ))
# fmt: on


def _many_fields(head: bytes, args: list[bytes], at: int) -> bytes:
    """An entry of many fields, or of long ones; each byte is copied once."""
    line = _LENGTH_LINES
    parts = [b"*2\r\n", head, b"*%d" % (len(args) - at)]
    for arg in args[at:]:
        size = len(arg)
        parts.append(line[size] if size < _LINES else b"\r\n$%d\r\n" % size)
        parts.append(arg)
    parts.append(b"\r\n")
    return b"".join(parts)


def xadd(ctx: Context, args: list[bytes]) -> bytes | None:
    """Append an entry; docs/compatibility.md has the order of checks.

    This is the most frequent command, so it is one function: look-ups and node limits are inlined,
    and ``XADD key * field value ...`` does not reach the code for options.
    """
    key = args[1]
    now_ms = ctx.now_ms
    ids = ctx.ids
    effects = ctx.effects
    database = ctx.db
    stream = database.values.get(key)
    options = None
    at = 3  # where the fields begin
    if args[2] == b"*":
        if not len(args) & 1:
            raise texts.wrong_arity("xadd")
        if database.deadlines or type(stream) is not Stream:
            stream = ctx.stream(key)
    else:
        options = _options_of(ctx, args)
        at = options.fields_at
        count = len(args) - at
        if count < 2 or count & 1:
            raise texts.wrong_arity("xadd")
        if options.given_id == 0:
            raise CommandError(_ZERO_ID)
        if database.deadlines or type(stream) is not Stream:
            stream = ctx.stream(key)
        if stream is None or options.pid:
            answer = _answered(ctx, key, stream, options, args)
            if answer is not None:
                return answer
    last = 0 if stream is None else stream.last_id
    if options is not None and options.names_id:
        entry_id = ids.next(options.given_id, options.ms, last)
        seq = entry_id - ids.first
    else:
        if last is ids.last:  # as it is in a pipeline: no arithmetic on long integers
            entry_id = last + ids.step
            seq = ids.seq + ids.step
        else:
            if last < ids.any_below:
                entry_id = ids.first
                if entry_id <= last:
                    entry_id = last + 1
            else:
                entry_id = ids.automatic(last)
            seq = entry_id - ids.first
        if seq < ids.seq_end:
            ids.last, ids.seq = entry_id, seq
    if ids.texts_from <= seq < ids.texts_end and not seq - ids.texts_from & ids.texts_mask:
        ms = now_ms  # the usual case, without arithmetic on long integers
        end = ids.texts[seq - ids.texts_from >> ids.texts_shift]
    elif 0 <= seq <= MAX_SEQ:
        ms = now_ms
        end = b"%d\r\n" % seq
    else:
        ms = entry_id >> SEQ_BITS
        seq = entry_id & MAX_SEQ
        end = b"%d\r\n" % seq
        ctx.stats.ids_ahead_ms = max(ctx.stats.ids_ahead_ms, ms - now_ms)
    if ms != ids.heads_ms:
        ids.heads_ms = ms
        ids.heads = [None] * _SEQUENCE_TEXT_MAX
    head = ids.heads[len(end)]
    if head is None:
        head = ids.heads[len(end)] = _id_head(ms, len(end) - 2)
    reply = head + end
    count = len(args) - at
    try:
        if count == 2:
            # Not in a function like the others: interpreted, the call costs 3 % of an XADD.
            a, b = args[at], args[at + 1]
            line = _LENGTH_LINES
            if IS_COMPILED:
                fragment = b"*2\r\n%b*2%b%b%b%b\r\n" % (reply, line[len(a)], a, line[len(b)], b)
            else:
                fragment = b"".join(
                    (b"*2\r\n", reply, b"*2", line[len(a)], a, line[len(b)], b, b"\r\n")
                )
        elif count == 6:
            fragment = _three_fields(reply, args, at)
        elif count == 4:
            fragment = _two_fields(reply, args, at)
        else:
            fragment = _many_fields(reply, args, at)
    except IndexError:
        fragment = _many_fields(reply, args, at)
    if len(fragment) > _LONG_BYTES:
        if len(fragment) > ctx.effects.added_bytes_max:
            raise CommandError(_TOO_LARGE)
        if stream is not None and not stream.is_due:  # a long entry is counted at once
            ctx.keyspace.account.changed(stream)
    size = len(fragment) - len(reply)
    if size > ENTRY_BYTES_MAX and sum(map(len, args[at:])) > ENTRY_BYTES_MAX:
        raise CommandError(_TOO_LARGE)
    if stream is None:
        stream = ctx.create_stream(key)
    stream.accessed_ms = now_ms
    # entry_weight() without the call; size counts the four bytes of "*2" before the ID too.
    weight = size - 8 if count == 2 else (size - 4 * count) >> 1
    log = stream.local
    tail = log.tail
    opens = (
        tail is None
        or tail.parts is None
        or len(tail.parts) + tail.gaps >= ctx.node_entries_max > 0
        or tail.weight + weight >= ctx.node_bytes_max > 0
    )
    is_short = effects.before is None and not effects.publisher.flags
    if not is_short:
        ctx.emit(kinds.Add(database.index, key, entry_id, fragment, weight, opens))
    else:
        shift, position = 1, -1
        if effects.replica.is_regional:
            shift, position, log = _numbered(ctx, key, stream)
            is_short = False  # a tag gets its number, and more, on the usual way
        append_entry(
            ctx.keyspace, database, key, stream, log, entry_id, fragment, weight, opens, shift
        )
        stream.last_id = entry_id
        if effects.record is not None:
            effects.record(_ADD(database.index, key, entry_id, fragment, weight, opens, position))
    ctx.changes += 1
    if options is not None:
        if options.pid:
            _remember(ctx, key, stream, options, entry_id, is_short)
        if options.trim is not None:
            trim_stream(ctx, key, stream if is_short else ctx.stream(key), options.trim)
    return reply


def _numbered(ctx: Context, key: bytes, stream: Stream) -> tuple[int, int, RegionLog]:
    """The shift of an addition where other regions know it, its position, and its log."""
    replica = ctx.effects.replica
    number = replica.number_own(ctx.db.index, key)
    ctx.session.wrote(replica.own, number)
    log = stream.local
    if position := log.next_position:
        return number - position, position, log
    return 0, number, log_at(stream, replica, number)[0]


def _remember(
    ctx: Context, key: bytes, stream: Stream, options: _AddOptions, entry_id: int, is_short: bool
) -> None:
    """Store the tag of a new entry; the short way is that of the entry."""
    pid, iid, now_ms = options.pid, options.iid, ctx.now_ms
    if not is_short:
        ctx.emit(kinds.Remember(ctx.db.index, key, pid, iid, entry_id, now_ms))
        return
    if not stream.is_due:
        ctx.keyspace.account.changed(stream)
    stream.producers.remember(pid, iid, entry_id, now_ms)
    record = ctx.effects.record
    if record is not None:
        record(kinds.Remember(ctx.db.index, key, pid, iid, entry_id, now_ms))


def _answered(
    ctx: Context,
    key: bytes,
    stream: Stream | None,
    options: _AddOptions,
    args: list[bytes],
) -> bytes | None:
    """The reply of an XADD that adds nothing: NOMKSTREAM without a key, or a known producer's ID.

    Completes ``options.iid``: for IDMPAUTO the ID is computed from the contents.
    """
    if stream is None and options.nomkstream:
        return null(ctx.resp3)
    if not options.pid:
        return None
    if not options.iid:
        options.iid = content_id(args, options.fields_at)
    if stream is None:
        return None
    known = stream.producers.find(options.pid, options.iid, ctx.now_ms)
    if known is None:
        return None
    ctx.emit(kinds.CountDuplicate(ctx.db.index, key))
    ctx.changes += 1
    return bulk(b"%d-%d" % (known >> SEQ_BITS, known & MAX_SEQ))
