"""AB.READ, AB.COUNT, AB.TOKEN, AB.WAITFOR: reading while entries of other regions arrive late.

A reader that remembers one ID misses entries that arrive later with a lower ID. The cursor of
AB.READ is a version vector: how far the reader has read *each* replica ID. It is valid in every
region. A token (AB.TOKEN) is the version vector of a region; a client can present it to another
region and wait there until that region has applied the same effects (AB.WAITFOR).

On a server without regions positions replace the numbers of effects (see ``stream/numbering.py``);
a cursor is then valid for its key only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from anabranch.commands.stream.options import interval_end, interval_start
from anabranch.commands.stream.read_request import (
    ReadRequest,
    ReplyBudget,
    parse_read,
    timeout_argument,
)
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.replica import ALONE, read_token, region_of, write_token
from anabranch.keyspace.values import Value
from anabranch.keyspace.version_vectors import covers
from anabranch.resp.encode import OK, array_header, bulk, integer, map_header, null
from anabranch.stream.groups.group import LOCAL_REPLICA_ID
from anabranch.stream.numbering import Gaps, newest_position_number, number_of, spans_behind
from anabranch.stream.stream import Stream

_NO_CURSOR = "ERR Invalid cursor: it is 0, $, or what an earlier reply gave"
_NO_TOKEN = "ERR Invalid token: it is what AB.TOKEN or AB.READ gave"  # noqa: S105
_ENDED: Final = array_header(1) + bulk(b"end")
_GAP: Final = bulk(b"gap")
_ALIEN = "ERR This cursor or token is from a server {} regions, and means nothing here"


def _vector(ctx: Context, raw: bytes, refusal: str) -> dict[int, int]:
    """The version vector of a token, checked."""
    try:
        vector = read_token(raw)
    except ValueError:
        raise CommandError(refusal) from None
    ours = ctx.replica.is_regional
    if any((region_of(replica_id) != ALONE) != ours for replica_id in vector):
        raise CommandError(_ALIEN.format("without" if ours else "with"))
    return vector


def _applied(ctx: Context, stream: Stream | None) -> Mapping[int, int]:
    """The version vector that covers what this region has applied of a stream."""
    if stream is None or ctx.replica.vector:
        return ctx.replica.vector
    return {LOCAL_REPLICA_ID: newest_position_number(stream)}


# -- reading ----------------------------------------------------------------------------------


class _KeyReply(NamedTuple):
    """The reply about one key."""

    key: bytes
    cursor: bytes
    chunks: Sequence[bytes] = ()
    found: int = 0
    has_ended: bool = False
    """The stream is sealed, and no entry follows."""
    gaps: Sequence[tuple[int, int]] = ()
    """The first and last numbers of removed entries that the cursor had not reached."""


def read(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.READ: entries that the cursors of their streams do not cover; may wait for them.

    With NOTES each stream has a list of notes behind its entries, and a reader does not wait for a
    stream that has ended.
    """
    notes = args[1].upper() == b"NOTES"
    words = [args[0], *args[2:]] if notes else args
    request = parse_read(words, grouped=False, now_ms=ctx.now_ms)
    request.notes = notes
    budget = ReplyBudget(request) if request.is_limited else None
    parts = []
    for key, raw in zip(request.keys, request.ids, strict=True):
        stream = ctx.read_stream(key)
        seen = _applied(ctx, stream) if raw == b"$" else _vector(ctx, raw, _NO_CURSOR)
        part = _KeyReply(key, write_token(seen))
        if stream is not None and (budget is None or not budget.exhausted):
            part = _read_part(ctx, stream, part, seen, request, budget)
        parts.append(part)
    reply = _reply(ctx, parts, notes=notes)
    is_served = any(part.found or (notes and (part.has_ended or part.gaps)) for part in parts)
    if request.block_ms is None or ctx.in_exec or is_served:
        return reply
    again = args[: len(args) - len(parts)] + [part.cursor for part in parts]
    ctx.block(request.keys, again, request.deadline_ms(ctx.now_ms), _is_stream, reply)
    return None


def _read_part(
    ctx: Context,
    stream: Stream,
    part: _KeyReply,
    seen: Mapping[int, int],
    request: ReadRequest,
    budget: ReplyBudget | None,
) -> _KeyReply:
    """Entries that a cursor does not cover, within the limits, and the cursor after them."""
    chunks = []
    count = 0
    reached = dict(seen)
    has_ended = False
    gaps = Gaps(stream, seen) if request.notes and not ctx.replica.vector else None
    limit = request.count
    if budget is not None:
        budget.begin_stream(part.key)
    for replica_id, (block, low, high) in spans_behind(stream, seen):
        stop = high if limit < 0 else min(high, low + limit - count)
        if budget is not None:
            stop = budget.cut(block, low, stop)
        if stop > low:
            chunks.append(block.slice(low, stop))
            count += stop - low
            reached[replica_id] = number_of(stream, block, stop - 1)
            if gaps is not None:
                gaps.reach(block, low, stop)
        if stop < high:
            break
    else:  # these are all entries: others that were applied here are deleted
        for replica_id, number in _applied(ctx, stream).items():
            reached[replica_id] = max(number, reached.get(replica_id, 0))
        has_ended = stream.is_sealed
        if gaps is not None:
            gaps.end()
    if not count and (gaps is None or not gaps.found):
        return part._replace(has_ended=has_ended)
    removed = () if gaps is None else gaps.found
    return _KeyReply(part.key, write_token(reached), chunks, count, has_ended, removed)


def _reply(ctx: Context, parts: Sequence[_KeyReply], *, notes: bool) -> bytes:
    """``[[key, cursor, [entries]], ...]``, or a map of ``[cursor, entries]`` in RESP3.

    With ``notes`` a list of them follows the entries; each is a list that begins with its name.
    """
    out = [map_header(len(parts), resp3=True) if ctx.resp3 else array_header(len(parts))]
    for key, cursor, chunks, found, has_ended, gaps in parts:
        size = 2 + notes
        out += (
            bulk(key) + array_header(size) if ctx.resp3 else array_header(size + 1) + bulk(key),
            bulk(cursor),
            array_header(found),
            *chunks,
        )
        if notes:
            out.append(array_header(len(gaps) + has_ended))
            out += [array_header(3) + _GAP + integer(low) + integer(high) for low, high in gaps]
            out.append(_ENDED if has_ended else b"")
    return b"".join(out)


def _is_stream(value: Value | None) -> bool:
    """A blocked reader keeps waiting while its key is missing or of another type."""
    return type(value) is Stream


def count_(ctx: Context, args: list[bytes]) -> bytes:
    """AB.COUNT key start end: how many live entries have IDs in an interval."""
    start, end = interval_start(args[2]), interval_end(args[3])
    stream = ctx.read_stream(args[1])
    return integer(0 if stream is None else stream.count(start, end))


# -- what was applied -------------------------------------------------------------------------


def token(ctx: Context, _args: list[bytes]) -> bytes:
    """AB.TOKEN: the version vector of this region."""
    return bulk(write_token(ctx.replica.vector))


def waitfor(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.WAITFOR token milliseconds."""
    wanted = _vector(ctx, args[1], _NO_TOKEN)
    timeout_ms = timeout_argument(args[2], ctx.now_ms)
    # A region alone has applied everything that it has shown.
    wanted = {
        replica_id: last for replica_id, last in wanted.items() if region_of(replica_id) != ALONE
    }
    if covers(ctx.replica.vector, wanted):
        return OK
    nothing = null(ctx.resp3)
    if ctx.in_exec:
        return nothing
    ctx.block([], args, ctx.now_ms + timeout_ms if timeout_ms else 0, _is_stream, nothing)
    if ctx.session.waiter is not None:
        ctx.session.waiter.wait_for(ctx.waits.vectors, wanted)
    return None
