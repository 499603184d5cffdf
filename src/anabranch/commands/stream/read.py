"""Reading entries without a group: XRANGE, XREVRANGE, XREAD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter

from anabranch.commands.stream.options import interval_end, interval_start
from anabranch.commands.stream.read_request import (
    ReadRequest,
    ReplyBudget,
    is_over,
    parse_read,
    read_head,
    read_reply,
)
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument, integer, keyword
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.replica import TOKEN_PREFIX, read_token
from anabranch.resp.encode import EMPTY_ARRAY, array_header, null_array
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.merge import limited
from anabranch.stream.numbering import spans_behind
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream

_ONLY_WITH_GROUP = (
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> "
    "<consumer> option."
)


def _count(args: list[bytes]) -> int:
    """COUNT of XRANGE and XREVRANGE: -1 without; 0 stands for every count below one."""
    count = -1
    index = 4
    while index < len(args):
        if index + 1 == len(args) or keyword(args[index]) != b"COUNT":
            raise CommandError(texts.SYNTAX)
        count = max(integer(args[index + 1]), 0)
        index += 2
    return count


def xrange_(ctx: Context, args: list[bytes]) -> bytes:
    """Entries between two IDs, ascending."""
    start = interval_start(args[2])
    end = interval_end(args[3])
    if len(args) == 6 and keyword(args[4]) == b"COUNT":  # the usual form, without a loop
        count = max(integer(args[5]), 0)
    else:
        count = _count(args)
    stream = ctx.read_stream(args[1])
    if stream is None:
        return EMPTY_ARRAY
    if count == 0:
        return null_array(ctx.resp3)
    return entries(stream, start, end, count)


def xrevrange(ctx: Context, args: list[bytes]) -> bytes:
    """Entries between two IDs, descending; the high end comes first."""
    start = interval_start(args[3])
    end = interval_end(args[2])
    count = _count(args) if len(args) > 4 else -1
    stream = ctx.read_stream(args[1])
    if stream is None:
        return EMPTY_ARRAY
    if count == 0:
        return null_array(ctx.resp3)
    return entries_descending(stream.spans_reversed(start, end, count))


def xread(ctx: Context, args: list[bytes]) -> bytes | None:
    """Entries of several streams behind an ID each; may wait for them."""
    if ctx.waiter is not None:
        request: ReadRequest = ctx.waiter.request
    else:
        if len(args) == 6 and (reply := _read_one(ctx, args)) is not None:
            return reply
        request = parse_read(args, grouped=False, now_ms=ctx.now_ms)
    budget = ReplyBudget(request) if request.is_limited else None
    served: list[tuple[bytes, list[bytes], int]] = []
    raw, beyond = b"", 0
    for at in (0,) if len(request.keys) == 1 else _with_news(ctx, request):
        key = request.keys[at]
        stream = ctx.read_stream(key)
        raw = request.ids[at]
        seen: Mapping[int, int] | None = None
        if len(raw) == 1:
            beyond = _special(stream, raw)
        elif ctx.waiter is not None and raw.startswith(TOKEN_PREFIX):
            seen = read_token(raw)
        else:
            beyond = id_argument(raw)
        if stream is None:
            ctx.miss(key)  # Redis looks twice, and counts both
            continue
        if budget is not None and budget.exhausted:
            continue  # later streams are not read, but their errors are reported
        ctx.stats.keyspace_hits += 1
        # "+" is the last live entry, whatever COUNT says
        limit = 1 if raw == b"+" else request.count
        if budget is None and seen is None:
            chunks: list[bytes] = []
            count = 0
            if stream.last_id > beyond:
                count = read_into(chunks, stream, beyond + 1, MAX_ID, limit)
        else:
            if seen is None:
                spans = stream.spans(beyond + 1, MAX_ID, limit)
            else:
                spans = _unseen(stream, seen, limit)
            chunks, count = (budget or ReplyBudget(request)).fitting(key, spans)
        if count:
            served.append((key, chunks, count))
    if served:
        return read_reply(ctx, served)
    if request.block_ms is None or ctx.in_exec or is_over(ctx, request.keys):
        return null_array(ctx.resp3)
    behind: list[int] = []
    if ctx.waiter is None:
        args = _resolved(ctx, args, request)
        behind = _awaited(request.ids, raw if len(raw) > 1 else b"", beyond)
    ctx.block(
        request.keys,
        args,
        request.block_ms,
        behind,
        null_array(ctx.resp3),
        request=request,
    )
    return None


def _with_news(ctx: Context, request: ReadRequest) -> Sequence[int]:
    """The places of those among many streams that must be looked at; counts the others.

    If the command runs again they are those that have changed. Otherwise a stream without an entry
    behind its ID need not be, if an earlier one has the same ID: so each ID is checked.
    """
    if ctx.waiter is not None:
        return ctx.waiter.places(request.keys)
    if ctx.server.events.flags:  # each missing key is an event
        return range(len(request.keys))
    places: list[int] = []
    behind: dict[bytes, int] = {}
    missing = 0
    touched = not ctx.session.no_touch
    values = ctx.lookup_all(request.keys)
    ids = request.ids
    for at in range(len(ids)):  # machine code needs no tuple for it
        value, raw = values[at], ids[at]
        if raw not in behind:
            behind[raw] = -1
            if len(raw) > 1:
                with suppress(CommandError):  # which is raised when the stream is read
                    behind[raw] = id_argument(raw)
        elif value is None:
            missing += 1
            continue
        elif type(value) is Stream and value.last_id <= behind[raw]:
            if touched:
                value.accessed_ms = ctx.now_ms
            continue
        places.append(at)
    # Redis looks twice, and counts both.
    ctx.stats.keyspace_misses += 2 * missing
    ctx.stats.keyspace_hits += 2 * (len(values) - missing - len(places))
    return places


def _read_one(ctx: Context, args: list[bytes]) -> bytes | None:
    """``XREAD COUNT count STREAMS key id``, if that finds entries; None: use the general path.

    This is the usual request; parsing options would take as long as answering it.
    """
    _, option, raw_count, word, key, raw = args
    if keyword(option) != b"COUNT":
        return None
    stream = ctx.db.values.get(key)
    if (
        type(stream) is not Stream
        or ctx.db.deadlines
        or len(raw) == 1  # not an ID
        or keyword(word) != b"STREAMS"
    ):
        return None
    try:
        count = integer(raw_count)
        start = id_argument(raw) + 1
    except CommandError:
        return None
    parts = [b""]
    found = read_into(parts, stream, start, MAX_ID, count if count > 0 else -1)
    if not found:
        return None
    ctx.stats.keyspace_hits += 2  # Redis looks twice, and counts both
    if not ctx.session.no_touch:
        stream.accessed_ms = ctx.now_ms
    parts[0] = read_head(ctx, key, found)
    return b"".join(parts)


def _special(stream: Stream | None, raw: bytes) -> int:
    """The ID to read behind: ``$`` is the newest ID ever, ``+`` that before the last entry."""
    if raw == b"$":
        return 0 if stream is None else stream.last_id
    if raw == b"+":
        return 0 if stream is None else stream.last_live_id - 1
    if raw == b">":
        raise CommandError(_ONLY_WITH_GROUP)
    return id_argument(raw)


def _resolved(ctx: Context, args: list[bytes], request: ReadRequest) -> list[bytes]:
    """The request in the form in which it runs again: ``$`` means the moment of blocking."""
    ids = request.ids
    if b"$" not in ids:
        return args
    values = ctx.lookup_all(request.keys)
    known_id = -1
    known = b""
    for at in range(len(ids)):
        if ids[at] == b"$":
            value = values[at]
            stream = value if type(value) is Stream else None
            last_id = 0 if stream is None else stream.last_id
            if last_id != known_id:  # as of empty streams, which are many
                known_id, known = last_id, ctx.ids.newest(stream)
            ids[at] = known
    return args[: len(args) - len(ids)] + ids


def _unseen(stream: Stream, seen: Mapping[int, int], limit: int) -> Iterator[Span]:
    """Entries that this region had not applied when the command blocked."""
    return limited(map(itemgetter(1), spans_behind(stream, seen)), limit)


def _awaited(ids: list[bytes], known: bytes, last_id: int) -> list[int]:
    """The ID behind which a blocked XREAD awaits an entry of each stream.

    It is below all IDs if that is not all it asks. The command keeps waiting while a key is missing
    or of another type. ``known`` is one of the texts, which stands for ``last_id``, or empty.
    """
    behind: list[int] = []
    for raw in ids:
        if raw is not known:
            known = raw
            asks_more = raw == b"+" or raw.startswith(TOKEN_PREFIX)
            last_id = -1 if asks_more else id_argument(raw)
        behind.append(last_id)
    return behind


# spans of entries as reply bytes: slices of blocks, mostly without a loop over entries


def read_into(parts: list[bytes], stream: Stream, start: int, end: int, limit: int) -> int:
    """Append the bytes of entries, ascending, to the parts of a reply; returns how many entries."""
    if len(stream.logs) == 1:
        return stream.local.read(start, end, limit, parts)
    count = 0
    for block, low, high in stream.spans(start, end, limit):
        parts.append(block.slice(low, high))
        count += high - low
    return count


def entries(stream: Stream, start: int, end: int, limit: int) -> bytes:
    """An array of entries between two IDs, ascending, at most ``limit``; -1: all."""
    parts = [b""]
    parts[0] = array_header(read_into(parts, stream, start, end, limit))
    return b"".join(parts)


def entries_descending(spans: Iterable[Span]) -> bytes:
    """An array of entries, newest first, from spans that come newest first."""
    count = 0
    parts: list[bytes] = [b""]
    for block, low, high in spans:
        count += high - low
        fragments = block.fragments(low, high)
        fragments.reverse()
        parts.append(
            b"".join(fragments)
        )  # reverse within a span, while the processor has it cached
    parts[0] = array_header(count)
    return b"".join(parts)
