"""AB.READ with FROM: many streams, or all streams of a pattern, with one cursor.

A call looks at numbers to see which streams have something behind the cursor, opens these alone,
and shares COUNT among them in rounds: what one of them does not need goes to the others. Streams
are served in the order of their names, from behind the one at which the last reply was full, so a
busy stream keeps nobody else waiting. A command that waits looks again only at streams that have
changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import itemgetter

from anabranch.commands.extensions.reading import (
    CallLimits,
    EntryRequest,
    Taking,
    applied,
    check_origin,
    is_stream,
    notes_of,
)
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.keyspace.database import Database
from anabranch.keyspace.joint_cursor import STREAMS_MAX, JointCursor, read_joint_cursor
from anabranch.keyspace.version_vectors import covers, maximum, row_of, vector_of
from anabranch.keyspace.waiter import Waiter
from anabranch.resp.encode import array_header, bulk
from anabranch.scheduling import Steps
from anabranch.stream.numbering import Gaps, places_of
from anabranch.stream.stream import Stream

_NO_CURSOR = (
    "ERR Invalid cursor: behind FROM it is 0, $, or what an earlier reply of this form gave"
)
_TOO_MANY = (
    f"ERR a cursor holds at most {STREAMS_MAX} streams, and the reader stands in more: use several "
    "narrower patterns, each with its cursor"
)


class JointRequest:
    """A parsed request, and where its reader stands."""

    def __init__(self, options: EntryRequest, cursor: JointCursor, text: bytes | None) -> None:
        """``text`` is that of the cursor, as far as it is known."""
        self.options = options
        self.cursor = cursor
        self._listed = dict.fromkeys(options.keys)
        self._text = text

    def followed(self, ctx: Context) -> dict[bytes, None]:
        """The names of the streams that the reader follows. It may change them if it finds none."""
        glob = self.options.glob
        return self._listed if glob is None else ctx.db.following.of(glob, ctx.db.order).keys

    def moved(self) -> None:
        """The cursor has changed."""
        self._text = None

    @property
    def text(self) -> bytes:
        """The cursor as a client gets it."""
        if self._text is None:
            self._text = self.cursor.text()
        return self._text

    def reply(self, takings: Sequence[Taking] = ()) -> bytes:
        """``[cursor, [[key, [entries]], ...]]``; with NOTES a row has a list of them, too."""
        out = [array_header(2), bulk(self.text), array_header(len(takings))]
        return b"".join(out + self.rows(takings))

    def rows(self, takings: Sequence[Taking]) -> list[bytes]:
        """The pieces of the rows: key, entries, with NOTES a list of notes."""
        out: list[bytes] = []
        notes = self.options.notes
        for each in takings:
            out += (array_header(2 + notes), bulk(each.key), array_header(each.count), *each.chunks)
            if notes:
                out.append(notes_of(each.gaps, has_ended=each.has_ended))
        return out


def begin(ctx: Context, args: list[bytes], options: EntryRequest) -> JointRequest | None:
    """Where the reader of a request stands; None if names are looked up: then it runs again."""
    raw = options.joint
    assert raw is not None
    try:
        cursor = read_joint_cursor(b"0" if raw == b"$" else raw)
    except ValueError:
        raise CommandError(_NO_CURSOR) from None
    check_origin(ctx, cursor.base)
    for row in islice(cursor.rows.values(), 1):  # the others are like this one
        check_origin(ctx, vector_of(row))
    following, glob = ctx.db.following, options.glob
    if glob is not None and following.of(glob, ctx.db.order).grow():
        reply = ctx.in_slices(args, _growing(ctx.db, glob))
        if reply is None:
            return None
    request = JointRequest(options, cursor, None if raw == b"$" else raw)
    if raw == b"$":
        _stand_at_end(ctx, request)
    return request


def read(ctx: Context, args: list[bytes], options: EntryRequest) -> bytes | None:
    """Entries of the streams that one cursor does not cover; may wait for them."""
    request = begin(ctx, args, options)
    if request is None:
        return None
    takings = look(ctx, request, list(request.followed(ctx)), is_whole=True)
    block_ms = options.request.block_ms
    if takings is not None or block_ms is None or ctx.in_exec:
        return request.reply(takings or ())
    ctx.block(list(request.followed(ctx)), args, block_ms, is_stream, b"", request=request)
    waiter = ctx.session.waiter
    assert waiter is not None
    waiter.late_reply = request.reply
    be_told(ctx, waiter, request)
    return None


def be_told(ctx: Context, waiter: Waiter, request: JointRequest) -> None:
    """Let one who waits be told of new streams of the pattern."""
    ctx.keyspace.waiters.hold(waiter, request.cursor.used_bytes)
    glob = request.options.glob
    if glob is not None:
        waiter.wait_for(ctx.db.following.of(glob, ctx.db.order).waiters, None)


def read_again(ctx: Context, request: JointRequest) -> bytes | None:
    """Look at the streams that have changed since the command began to wait."""
    assert ctx.waiter is not None
    followed = request.followed(ctx)
    changed = followed if ctx.waiter.changed is None else ctx.waiter.changed
    takings = look(ctx, request, [key for key in changed if key in followed], is_whole=False)
    return None if takings is None else request.reply(takings)


def _growing(db: Database, glob: bytes) -> Steps[list[bytes]]:
    """Find the names that match; then the request runs again."""
    while db.following.of(glob, db.order).grow():
        yield
    return []


def _stand_at_end(ctx: Context, request: JointRequest) -> None:
    """The reader has read everything that this region has now."""
    request.cursor.raise_base(ctx.replica.vector)
    if request.options.notes and ctx.replica.vector:
        request.cursor.places = {}
    places = request.cursor.places
    may_read = _may_read(ctx, request)
    for key in request.followed(ctx):
        value = ctx.lookup(key)
        if type(value) is Stream and may_read(key):  # a cursor shows the names that it has
            request.cursor.stand(key, applied(ctx, value))
            if places is not None:
                places[key] = row_of(places_of(value, ctx.replica.vector))


def _streams(ctx: Context, request: JointRequest, names: list[bytes]) -> list[tuple[bytes, Stream]]:
    """Those of the names that are streams. A listed key with another value is an error."""
    if request.options.glob is None:
        found = []
        for key, value in zip(names, ctx.read_all(names), strict=True):
            if type(value) is Stream:
                found.append((key, value))
            elif value is not None:
                raise CommandError(texts.WRONGTYPE)
        return found
    followed = request.followed(ctx)
    found = []
    for key, value in zip(names, ctx.lookup_all(names), strict=True):
        if type(value) is Stream:
            found.append((key, value))
        else:
            followed.pop(key, None)
    return found


def _may_read(ctx: Context, request: JointRequest) -> Callable[[bytes], bool]:
    """Whether the user may read a key whose name was not in the request."""
    user = ctx.session.user
    if request.options.glob is None or user is None or user.is_unrestricted:
        return lambda _key: True
    command = ctx.server.dispatcher.entries[b"ab.read"].command
    words = [b"AB.READ", b"FROM", b"0", b"STREAMS"]
    return lambda key: user.judge(command, [*words, key]) is None


def look(
    ctx: Context, request: JointRequest, names: list[bytes], *, is_whole: bool
) -> list[Taking] | None:
    """Read on, and move the cursor; None if there is nothing to tell, and nothing left to look at.

    ``is_whole``: the names are all streams that the reader follows.
    """
    cursor, options = request.cursor, request.options
    streams = _streams(ctx, request, names)
    if is_whole:
        _forget_others(ctx, request, streams)
    may_read = _may_read(ctx, request)
    if options.notes and ctx.replica.vector and cursor.places is None:
        cursor.places = {
            key: row_of(places_of(stream, seen))
            for key, stream in streams
            if (seen := cursor.seen(key)) and may_read(key)
        }
    told = cursor.ended
    news: list[_News] = []
    for key, stream in streams:
        is_end_new = options.notes and stream.is_sealed and key not in told
        if (is_end_new or cursor.has_news(key, stream)) and may_read(key):
            news.append((key, stream, cursor.seen(key)))
    limits = CallLimits(options)
    takings = _in_rounds(ctx, request, _rotated(news, cursor.after), limits)
    vector = ctx.replica.vector
    if news or vector or cursor.after:
        request.moved()
    if is_whole and vector:  # otherwise entries may be here of streams that are not looked at now
        cursor.raise_base(vector)
        for key, row in list(cursor.rows.items()):
            cursor.stand(key, maximum(vector_of(row), vector))
    is_cut = len(takings) < len(news)
    for key, _, seen in news:
        taking = takings.get(key)
        cursor.stand(key, seen if taking is None else taking.reached)
        if taking is not None and taking.has_ended:
            told.add(key)
        if taking is not None and cursor.places is not None:
            cursor.places[key] = row_of(taking.places)
        is_cut = is_cut or (taking is not None and not taking.is_done)
    cursor.after = next(reversed(takings)) if is_cut and takings else b""
    if max(len(cursor.rows), len(cursor.places or ())) > STREAMS_MAX:
        raise CommandError(_TOO_MANY)
    shown = [
        each
        for each in takings.values()
        if each.count or (options.notes and (each.gaps or each.has_ended))
    ]
    return shown if shown or limits.effort <= 0 else None


def _forget_others(
    ctx: Context, request: JointRequest, streams: list[tuple[bytes, Stream]]
) -> None:
    """Forget where the reader stood in keys that it does not follow now.

    A stream of a pattern that this region does not have may be one that it has not received yet.
    """
    cursor = request.cursor
    is_pattern = request.options.glob is not None
    kept = dict(streams).keys() if is_pattern else request.followed(ctx).keys()
    is_of_regions = bool(cursor.base or ctx.replica.vector)
    if not (is_pattern and is_of_regions) and not cursor.rows.keys() <= kept:
        cursor.rows = {key: seen for key, seen in cursor.rows.items() if key in kept}
        request.moved()
    if cursor.places and (not is_pattern or covers(ctx.replica.vector, cursor.base)):
        cursor.places = {key: each for key, each in cursor.places.items() if key in kept}
    if cursor.ended:
        cursor.ended &= {key for key, stream in streams if stream.is_sealed}
        request.moved()


_News = tuple[bytes, Stream, Mapping[int, int]]
"""A stream with entries that the reader does not know: its key, and what the reader has seen."""


def _rotated(news: list[_News], after: bytes) -> list[_News]:
    """These streams by their names, beginning behind one of them."""
    news.sort(key=itemgetter(0))
    first = bisect_right(news, after, key=itemgetter(0)) if after else 0
    return news[first:] + news[:first]


def _gaps(cursor: JointCursor, key: bytes, stream: Stream, seen: Mapping[int, int]) -> Gaps:
    """What collects the gaps of a stream. One without a place has come since the last call."""
    if cursor.places is None:
        return Gaps(stream, seen, seen)
    row = cursor.places.get(key)
    return Gaps(stream, {}, {}) if row is None else Gaps(stream, seen, vector_of(row))


def _in_rounds(
    ctx: Context, request: JointRequest, news: list[_News], limits: CallLimits
) -> dict[bytes, Taking]:
    """What is taken of these streams, as far as COUNT and the limits go.

    In each round every stream may take an equal share of what is left of COUNT.
    """
    takings: dict[bytes, Taking] = {}
    left = request.options.request.count
    share = max(left // max(len(news), 1), 1) if left > 0 else -1
    for key, stream, seen in news:
        if not left or limits.is_reached:
            break
        gaps = _gaps(request.cursor, key, stream, seen) if request.options.notes else None
        taking = takings[key] = Taking(ctx, key, stream, seen, gaps)
        count = taking.take(limits, share)
        left -= count if left > 0 else 0
    while left > 0 and not limits.is_reached:
        active = [each for each in takings.values() if not each.is_done]
        if not active:
            break
        share = max(left // len(active), 1)
        for taking in active:
            left -= taking.take(limits, min(share, left))
    return takings
