"""AB.READ, AB.COUNT, AB.TOKEN, AB.WAITFOR: reading while entries of other regions arrive late.

A reader that remembers one ID misses entries that arrive later with a lower ID. The cursor of
AB.READ is a version vector: how far the reader has read *each* replica ID. It is valid in every
region. A token (AB.TOKEN) is the version vector of a region; a client can present it to another
region and wait there until that region has applied the same effects (AB.WAITFOR).

On a server without regions positions replace the numbers of effects (see ``stream/numbering.py``);
a cursor is then valid for its key only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.commands.extensions import joint_read
from anabranch.commands.extensions.reading import (
    CallLimits,
    EntryRequest,
    Taking,
    applied,
    check_origin,
    is_stream,
    notes_of,
)
from anabranch.commands.stream.options import interval_end, interval_start
from anabranch.engine.arguments import timeout_argument
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.replica import (
    ALONE,
    PLACED_PREFIX,
    read_placed_token,
    read_token,
    region_of,
    write_placed_token,
    write_token,
)
from anabranch.keyspace.version_vectors import covers
from anabranch.resp.encode import OK, array_header, bulk, integer, map_header, null
from anabranch.stream.numbering import Gaps, places_of
from anabranch.stream.stream import Stream

_NO_CURSOR: Final = "ERR Invalid cursor: it is 0, $, or what an earlier reply gave"
_NO_TOKEN: Final = "ERR Invalid token: it is what AB.TOKEN or AB.READ gave"  # noqa: S105


def _vector(ctx: Context, raw: bytes, refusal: str) -> dict[int, int]:
    """The version vector of a token, checked."""
    try:
        vector = read_token(raw)
    except ValueError:
        raise CommandError(refusal) from None
    check_origin(ctx, vector)
    return vector


# -- reading ----------------------------------------------------------------------------------


def read(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.READ: entries that the cursors of their streams do not cover; may wait for them.

    With NOTES each stream has a list of notes behind its entries, and a reader does not wait for a
    stream that has ended. With FROM one cursor is for all streams.
    """
    if ctx.waiter is not None and ctx.waiter.request is not None:
        return joint_read.read_again(ctx, ctx.waiter.request)
    options = EntryRequest(args, ctx.now_ms)
    if options.joint is not None:
        return joint_read.read(ctx, args, options)
    request, keys, notes = options.request, options.keys, options.notes
    limits = CallLimits(options)
    cursors: list[bytes] = []
    parts: list[Taking | None] = []
    for key, raw in zip(keys, request.ids, strict=True):
        stream = ctx.read_stream(key)
        seen = applied(ctx, stream) if raw == b"$" else _vector(ctx, raw, _NO_CURSOR)
        taking = gaps = None
        if stream is not None and not limits.is_reached:
            gaps = _gaps(ctx, stream, raw, seen) if notes else None
            taking = Taking(ctx, key, stream, seen, gaps)
            taking.take(limits, request.count)
            if taking.count or taking.gaps or options.where is not None:
                seen = taking.reached
        parts.append(taking)
        if gaps is not None and ctx.replica.vector:
            cursors.append(write_placed_token(seen, gaps.reached))
        else:
            cursors.append(write_token(seen) if raw == b"$" or taking is not None else raw)
    reply = _reply(ctx, keys, cursors, parts, notes=notes)
    is_served = limits.effort <= 0 or any(
        part is not None and (part.count or (notes and (part.has_ended or part.gaps)))
        for part in parts
    )
    if request.block_ms is None or ctx.in_exec or is_served:
        return reply
    again = args[: len(args) - len(cursors)] + cursors
    if ctx.waiter is not None:  # entries that do not match need no second look
        ctx.waiter.args, ctx.waiter.timeout_reply = again, reply
    ctx.block(keys, again, request.block_ms, is_stream, reply)
    return None


def _gaps(ctx: Context, stream: Stream, raw: bytes, seen: Mapping[int, int]) -> Gaps:
    """What collects the gaps for a reader: it begins where the cursor says."""
    if not ctx.replica.vector:
        return Gaps(stream, seen, seen)
    if raw.startswith(PLACED_PREFIX):
        return Gaps(stream, seen, read_placed_token(raw)[1])
    return Gaps(stream, seen, places_of(stream, seen) if seen else {})


def _reply(
    ctx: Context,
    keys: list[bytes],
    cursors: list[bytes],
    parts: list[Taking | None],
    *,
    notes: bool,
) -> bytes:
    """``[[key, cursor, [entries]], ...]``, or a map of ``[cursor, entries]`` in RESP3.

    With ``notes`` a list of them follows the entries.
    """
    out = [map_header(len(parts), resp3=True) if ctx.resp3 else array_header(len(parts))]
    size = 2 + notes
    for key, cursor, part in zip(keys, cursors, parts, strict=True):
        out += (
            bulk(key) + array_header(size) if ctx.resp3 else array_header(size + 1) + bulk(key),
            bulk(cursor),
            array_header(0 if part is None else part.count),
        )
        if part is not None:
            out += part.chunks
        if notes:
            out.append(
                notes_of(part.gaps, has_ended=part.has_ended)
                if part is not None
                else array_header(0)
            )
    return b"".join(out)


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
    ctx.wait_for(ctx.waits.vectors, wanted, args, timeout_ms, nothing)
    return None
