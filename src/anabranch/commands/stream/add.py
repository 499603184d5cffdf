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
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument
from anabranch.engine.context import Context
from anabranch.engine.id_rules import ExhaustedError
from anabranch.errors import CommandError
from anabranch.resp.encode import bulk, null
from anabranch.stream.content_id import content_id
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS
from anabranch.stream.references import Policy
from anabranch.stream.region_log import entry_weight
from anabranch.stream.stream import LONG_BYTES, Stream
from anabranch.stream.trimming import TrimRule

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

ENTRY_BYTES_MAX: Final = 1 << 30
"""Redis's limit on the payload of one entry."""

_ENTRY_LINE_BYTES: Final = len(b"*2\r\n")  # before the ID

_ZERO_ID = "ERR The ID specified in XADD must be greater than 0-0"
_TOO_LARGE = "ERR Elements are too large to be stored"
_IDMP_TWICE = "ERR syntax error, IDMP/IDMPAUTO specified multiple times"
_IDMP_NOT_AUTO = "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"


_LINES: Final = 256
_LENGTH_LINES: Final = [b"\r\n$%d\r\n" % length for length in range(_LINES)]
"""The bytes between an argument and the next one, by its length."""


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
        if 0 < option <= _MINID and more:
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


# fmt: off
def _fragment(head: bytes, args: list[bytes], at: int, count: int) -> bytes:
    """The entry on the wire: its ID, which is ``head``, and ``count`` words from ``at`` on.

    Few fields are written without a loop, in half the time of ``pack_command``. A word too long for
    the table of lengths raises IndexError.
    """
    line = _LENGTH_LINES
    try:
        if count == 6:
            a, b, c = args[at], args[at + 1], args[at + 2]
            d, e, f = args[at + 3], args[at + 4], args[at + 5]
            return b"*2\r\n%b*6%b%b%b%b%b%b%b%b%b%b%b%b\r\n" % (
                head,
                line[len(a)], a, line[len(b)], b, line[len(c)], c,
                line[len(d)], d, line[len(e)], e, line[len(f)], f,
            )
        if count == 2:
            a, b = args[at], args[at + 1]
            return b"*2\r\n%b*2%b%b%b%b\r\n" % (head, line[len(a)], a, line[len(b)], b)
        if count == 4:
            a, b, c, d = args[at], args[at + 1], args[at + 2], args[at + 3]
            return b"*2\r\n%b*4%b%b%b%b%b%b%b%b\r\n" % (
                head,
                line[len(a)], a, line[len(b)], b, line[len(c)], c, line[len(d)], d,
            )
    except IndexError:
        pass
    return _many_fields(head, args, at)
# fmt: on


def _check_size(ctx: Context, args: list[bytes], at: int, size: int) -> None:
    """Refuse an entry that is too large: ``size`` bytes, with the words from ``at`` on."""
    if size > ctx.effects.added_bytes_max or (
        size > ENTRY_BYTES_MAX and sum(map(len, args[at:])) > ENTRY_BYTES_MAX
    ):
        raise CommandError(_TOO_LARGE)


def xadd(ctx: Context, args: list[bytes]) -> bytes | None:
    """Append an entry; docs/compatibility.md has the order of checks.

    ``XADD key * field value ...`` does not reach the code for options.
    """
    key = args[1]
    options: _AddOptions | None = None
    at = 3  # where the fields begin
    if args[2] != b"*":
        options = _options_of(ctx, args)
        at = options.fields_at
    count = len(args) - at
    if count < 2 or count & 1:
        raise texts.wrong_arity("xadd")
    if options is not None and options.given_id == 0:
        raise CommandError(_ZERO_ID)
    stream = ctx.stream(key)
    if options is not None and (stream is None or options.pid):
        answer = _answered(ctx, key, stream, options, args)
        if answer is not None:
            return answer
    ids = ctx.ids
    last = 0 if stream is None else stream.last_id
    try:
        if options is not None and options.names_id:
            entry_id = ids.next(options.given_id, options.ms, last)
        else:
            entry_id = ids.following(last)
    except ExhaustedError:
        given, ms = (None, None) if options is None else (options.given_id, options.ms)
        entry_id = ids.at_end(given, ms, stream)
    reply = ids.reply(entry_id)
    fragment = _fragment(reply, args, at, count)
    size = len(fragment)
    if size > LONG_BYTES:
        _check_size(ctx, args, at, size)
    if stream is None:
        stream = ctx.create_stream(key)
        stream.accessed_ms = ctx.now_ms
    weight = entry_weight(size - len(reply) - _ENTRY_LINE_BYTES, count)
    opens = stream.local.is_full(weight, ctx.node_entries_max, ctx.node_bytes_max)
    ctx.effects.add(ctx.db, key, stream, entry_id, fragment, weight, opens)
    ctx.changes += 1
    if options is not None:
        if options.pid:
            ctx.effects.remember(ctx.db, key, stream, options.pid, options.iid, entry_id)
        if options.trim is not None:
            trim_stream(ctx, key, ctx.stream(key), options.trim)
    return reply


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
    ctx.emit(kinds.CountDuplicate(ctx.db.index, key), 1)
    return bulk(b"%d-%d" % (known >> SEQ_BITS, known & MAX_SEQ))
