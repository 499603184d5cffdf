"""AB.READ with FROM: many streams, or all streams of a pattern, with one cursor.

A call looks at numbers to see which streams have something behind the cursor, opens these alone,
and shares COUNT among them in rounds: what one of them does not need goes to the others. Streams
are served in the order of their names, from behind the one at which the last reply was full, so a
busy stream keeps nobody else waiting. A command that waits looks again only at streams that have
changed.

A look at many streams is work in steps, between which others are served. Each stream is read at one
moment, and what it gets later is behind the cursor. A command with BLOCK waits for its streams from
the step on in which it looks at them, so it knows which have changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final

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
from anabranch.keyspace.joint_cursor import STREAMS_MAX, JointCursor, cursor_steps
from anabranch.keyspace.version_vectors import covers, maximum, row_of, vector_of
from anabranch.keyspace.waiter import Waiter
from anabranch.resp.encode import array_header, bulk
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.numbering import Gaps, places_of
from anabranch.stream.stream import Stream

STREAMS_AT_ONCE = 500
"""Streams that are compared with the cursor in one step: half a millisecond. A look at no more
streams is one step. Tests change it."""

TAKEN_AT_ONCE = 50
"""Streams whose entries are read in one step: about as long. Tests change it."""

_TEXT_BYTES_AT_ONCE: Final = 1 << 16

_NO_CURSOR = (
    "ERR Invalid cursor: behind FROM it is 0, $, or what an earlier reply of this form gave"
)
_TOO_MANY = (
    f"ERR a cursor holds at most {STREAMS_MAX} streams, and the reader stands in more: use several "
    "narrower patterns, each with its cursor"
)


class JointRequest:
    """A parsed request, and where its reader stands."""

    def __init__(self, options: EntryRequest, raw: bytes) -> None:
        """``raw`` is the text of the cursor. Until it is read nobody uses the cursor."""
        self.options = options
        self.cursor = JointCursor({}, {}, set(), b"")
        self.steps: Steps[bytes | None] | None = None
        """A look at streams that is under way: its reply, or None if there is nothing to tell."""
        self.changed: dict[bytes, None] = {}
        """Streams that have changed meanwhile."""
        self.deadline_ms = 0
        """When a wait ends, 0 for never."""
        self._listed = dict.fromkeys(options.keys)
        self._text = raw  # of the cursor as it was before a look that is under way
        self._has_moved = False

    def followed(self, ctx: Context) -> dict[bytes, None]:
        """The names of the streams that the reader follows. It may change them if it finds none."""
        glob = self.options.glob
        return self._listed if glob is None else ctx.db.following.of(glob, ctx.db.order).keys

    def names(self, ctx: Context) -> Steps[list[bytes]]:
        """The names that :meth:`followed` has, looked up again if they are not kept any more."""
        glob = self.options.glob
        if glob is not None:
            while ctx.db.following.of(glob, ctx.db.order).grow():
                yield
        return list(self.followed(ctx))

    def moved(self) -> None:
        """The cursor has changed."""
        self._has_moved = True

    @property
    def text(self) -> bytes:
        """The cursor as a client gets it."""
        return in_one_go(self.text_steps())

    def text_steps(self) -> Steps[bytes]:
        """The same, made in steps."""
        if self._has_moved:
            self._text = yield from self.cursor.text_steps()
            self._has_moved = False
        return self._text

    def reply(self) -> bytes:
        """``[cursor, []]``: there is nothing to tell, or the wait ends during a look."""
        text = self.text if self.steps is None else self._text
        return array_header(2) + bulk(text) + array_header(0)

    def reply_steps(self, takings: list[Taking]) -> Steps[bytes]:
        """``[cursor, [[key, [entries]], ...]]``; with NOTES a row has a list of them, too.

        The request ends with it: the takings and the rows of its cursor are freed in steps, too.
        """
        text = self._text
        if self._has_moved:
            text = yield from self.cursor.text_steps()
        out = [array_header(2), bulk(text), array_header(len(takings))]
        while takings:
            out.append(b"".join(self.rows(takings[:STREAMS_AT_ONCE])))
            del takings[:STREAMS_AT_ONCE]
            yield
        rows = self.cursor.rows
        while rows:
            for _ in range(min(len(rows), STREAMS_AT_ONCE)):
                rows.popitem()
            yield
        return b"".join(out)

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
    """A request whose cursor is not read yet; None if names are looked up: then it runs again."""
    assert options.joint is not None
    following, glob = ctx.db.following, options.glob
    request = JointRequest(options, options.joint)
    has_names = glob is None or not following.of(glob, ctx.db.order).grow()
    if not has_names and ctx.in_slices(args, _growing(ctx, request)) is None:
        return None
    return request


def stand(ctx: Context, request: JointRequest) -> Steps[None]:
    """Read the cursor of a new request: where its reader stands. Raises what is wrong with it."""
    raw = request.text
    try:
        request.cursor = yield from cursor_steps(b"0" if raw == b"$" else raw)
    except ValueError:
        raise CommandError(_NO_CURSOR) from None
    check_origin(ctx, request.cursor.base)
    for row in islice(request.cursor.rows.values(), 1):  # the others are like this one
        check_origin(ctx, vector_of(row))
    if raw == b"$":
        yield from _stand_at_end(ctx, request)


def read(ctx: Context, args: list[bytes], options: EntryRequest) -> bytes | None:
    """Entries of the streams that one cursor does not cover; may wait for them."""
    request = begin(ctx, args, options)
    if request is None:
        return None
    names = list(request.followed(ctx))
    block_ms = options.request.block_ms
    if block_ms is not None:
        request.deadline_ms = ctx.deadline_ms(block_ms)
    is_short = len(names) <= STREAMS_AT_ONCE and len(request.text) <= _TEXT_BYTES_AT_ONCE
    if is_short or options.glob is None or ctx.in_exec:
        reply = in_one_go(first_look(ctx, request))
        if reply is not None or block_ms is None or ctx.in_exec:
            return request.reply() if reply is None else reply
        ctx.block(names, args, block_ms, is_stream, b"", request=request)
        _wait(ctx, request)
        return None
    if block_ms is None:
        return ctx.in_slices(args, _whole_reply(ctx, request))
    ctx.block([], args, 0, is_stream, b"", request=request)
    waiter = _wait(ctx, request)
    request.steps = first_look(ctx, request, waiter)
    try:
        reply = _go_on(ctx, request, waiter)
    except CommandError:
        _end_wait(ctx, waiter)
        raise
    if reply is not None:
        _end_wait(ctx, waiter)
    return reply


def _end_wait(ctx: Context, waiter: Waiter) -> None:
    """The command has ended in its first slice."""
    ctx.keyspace.waiters.remove(waiter)
    ctx.session.waiter = None


def _wait(ctx: Context, request: JointRequest) -> Waiter:
    """A command has begun to wait."""
    waiter = ctx.session.waiter
    assert waiter is not None
    waiter.late_reply = request.reply
    be_told(ctx, waiter, request)
    return waiter


def _whole_reply(ctx: Context, request: JointRequest) -> Steps[list[bytes]]:
    """The reply to a command that does not wait."""
    reply = yield from first_look(ctx, request)
    return [request.reply() if reply is None else reply]


def be_told(ctx: Context, waiter: Waiter, request: JointRequest) -> None:
    """Let one who waits be told of new streams of the pattern."""
    ctx.keyspace.waiters.hold(waiter, request.cursor.used_bytes)
    glob = request.options.glob
    if glob is not None:
        waiter.wait_for(ctx.db.following.of(glob, ctx.db.order).waiters, None)


def read_again(ctx: Context, request: JointRequest) -> bytes | None:
    """Go on with a look, or look at the streams that have changed since the last one."""
    waiter = ctx.waiter
    assert waiter is not None
    followed = request.followed(ctx)
    if waiter.changed is not None:
        request.changed.update([(key, None) for key in waiter.changed if key in followed])
        if request.steps is not None:
            return None  # later steps look at them
    elif request.steps is None:
        request.changed = dict.fromkeys(followed)
    if request.steps is None:
        _look_at_changed(ctx, request)
    return _go_on(ctx, request, waiter)


def _go_on(ctx: Context, request: JointRequest, waiter: Waiter) -> bytes | None:
    """Look on until the slice is over; the reply, or None if the command waits."""
    is_over = ctx.server.runner.is_over
    while True:
        assert request.steps is not None
        try:
            next(request.steps)
        except StopIteration as end:
            request.steps = None
            reply: bytes | None = end.value
            if reply is not None:
                return reply
            if not request.changed:
                if request.deadline_ms and not waiter.deadline_ms:
                    ctx.keyspace.waiters.expire_at(waiter, request.deadline_ms)
                return None
            _look_at_changed(ctx, request)
        if is_over():
            ctx.server.blocked.look_again(waiter)
            return None


def _look_at_changed(ctx: Context, request: JointRequest) -> None:
    names, request.changed = list(request.changed), {}
    request.steps = _look_and_reply(ctx, request, names, is_whole=False)


def first_look(
    ctx: Context, request: JointRequest, waiter: Waiter | None = None
) -> Steps[bytes | None]:
    """Read the cursor of a new request, then look at all of its streams."""
    yield from stand(ctx, request)
    if waiter is not None:
        ctx.keyspace.waiters.hold(waiter, request.cursor.used_bytes)
    names = yield from request.names(ctx)  # also of streams that were made since it began
    reply = yield from _look_and_reply(ctx, request, names, is_whole=True, waiter=waiter)
    return reply


def _look_and_reply(
    ctx: Context,
    request: JointRequest,
    names: list[bytes],
    *,
    is_whole: bool,
    waiter: Waiter | None = None,
) -> Steps[bytes | None]:
    takings = yield from look(ctx, request, names, is_whole=is_whole, waiter=waiter)
    if takings is None:
        yield from request.text_steps()  # a reply at the end of the wait is one step
        return None
    reply = yield from request.reply_steps(takings)
    return reply


def _growing(ctx: Context, request: JointRequest) -> Steps[list[bytes]]:
    """Look the names up; then the request runs again."""
    yield from request.names(ctx)
    return []


def _stand_at_end(ctx: Context, request: JointRequest) -> Steps[None]:
    """The reader has read everything that this region has now."""
    vector = dict(ctx.replica.vector)
    request.cursor.raise_base(vector)
    if request.options.notes and vector:
        request.cursor.places = {}
    places = request.cursor.places
    may_read = _may_read(ctx, request)
    for number, key in enumerate(list(request.followed(ctx)), 1):
        value = ctx.lookup(key)
        if type(value) is Stream and may_read(key):  # a cursor shows the names that it has
            request.cursor.stand(key, vector or applied(ctx, value))
            if places is not None:
                places[key] = row_of(places_of(value, vector))
        if not number % STREAMS_AT_ONCE:
            yield
    request.moved()


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
    ctx: Context,
    request: JointRequest,
    names: list[bytes],
    *,
    is_whole: bool,
    waiter: Waiter | None = None,
) -> Steps[list[Taking] | None]:
    """Read on, and move the cursor; None if there is nothing to tell, and nothing left to look at.

    ``is_whole``: the names are all streams that the reader follows. ``waiter`` waits for each of
    them from now on.
    """
    cursor, options = request.cursor, request.options
    vector = dict(ctx.replica.vector)
    pages = yield from _search(ctx, request, names, waiter, is_whole=is_whole)
    before: dict[bytes, Mapping[int, int]] = {}
    if is_whole and vector:
        for page_of_news in pages:
            before.update([(key, cursor.seen(key)) for key, _ in page_of_news])
            yield
    limits = CallLimits(options)
    count = sum(map(len, pages))
    takings = yield from _in_rounds(ctx, request, _rotated(pages, cursor.after), count, limits)
    if count or vector or cursor.after:
        request.moved()
    if is_whole and vector:  # otherwise entries may be here of streams that are not looked at now
        yield from _raise_all(cursor, vector, before)
    is_cut = len(takings) < count
    for number, (key, taking) in enumerate(takings.items(), 1):
        cursor.stand(key, taking.reached)
        if taking.has_ended:
            cursor.ended.add(key)
        if cursor.places is not None:
            cursor.places[key] = row_of(taking.places)
        is_cut = is_cut or not taking.is_done
        if not number % STREAMS_AT_ONCE:
            yield
    cursor.after = next(reversed(takings)) if is_cut and takings else b""
    if max(len(cursor.rows), len(cursor.places or ())) > STREAMS_MAX:
        raise CommandError(_TOO_MANY)
    shown = [
        each
        for each in takings.values()
        if each.count or (options.notes and (each.gaps or each.has_ended))
    ]
    return shown if shown or limits.effort <= 0 else None


def _search(
    ctx: Context,
    request: JointRequest,
    names: list[bytes],
    waiter: Waiter | None,
    *,
    is_whole: bool,
) -> Steps[list[list[_News]]]:
    """Those of the streams that have something behind the cursor; each page of them is sorted."""
    cursor, options = request.cursor, request.options
    may_read = _may_read(ctx, request)
    places: dict[bytes, list[int]] | None = None
    if options.notes and ctx.replica.vector and cursor.places is None:
        places = {}
    kept: dict[bytes, Stream] = {}
    known = 0  # streams with a row
    pages: list[list[_News]] = []
    for at in range(0, len(names), STREAMS_AT_ONCE):
        if at:
            yield
        page = names[at : at + STREAMS_AT_ONCE]
        if waiter is not None:
            ctx.keyspace.waiters.extend(waiter, page)
        streams = _streams(ctx, request, page)
        kept.update(streams)
        news: list[_News] = []
        for key, stream in streams:
            if places is not None and (seen := cursor.seen(key)) and may_read(key):
                places[key] = row_of(places_of(stream, seen))
            known += key in cursor.rows
            is_end_new = options.notes and stream.is_sealed and key not in cursor.ended
            if (is_end_new or cursor.has_news(key, stream)) and may_read(key):
                news.append((key, stream))
        if news:
            pages.append(sorted(news, key=_name))
    cursor.places = cursor.places if places is None else places
    if is_whole:
        _forget_others(ctx, request, kept, known)
    return pages


def _raise_all(
    cursor: JointCursor, vector: dict[int, int], before: Mapping[bytes, Mapping[int, int]]
) -> Steps[None]:
    """The reader has read all that these effects have added, except for some streams."""
    cursor.raise_base(vector)
    for number, (key, row) in enumerate(list(cursor.rows.items()), 1):
        cursor.stand(key, maximum(vector_of(row), vector))
        if not number % STREAMS_AT_ONCE:
            yield
    for number, (key, seen) in enumerate(before.items(), 1):
        cursor.stand(key, seen)
        if not number % STREAMS_AT_ONCE:
            yield


def _forget_others(
    ctx: Context, request: JointRequest, streams: dict[bytes, Stream], known: int
) -> None:
    """Forget where the reader stood in keys that it does not follow now; ``known`` have a row.

    A stream of a pattern that this region does not have may be one that it has not received yet.
    """
    cursor = request.cursor
    is_pattern = request.options.glob is not None
    kept = streams.keys() if is_pattern else request.followed(ctx).keys()
    is_of_regions = bool(cursor.base or ctx.replica.vector)
    has_others = known < len(cursor.rows) if is_pattern else not cursor.rows.keys() <= kept
    if has_others and not (is_pattern and is_of_regions):
        cursor.rows = {key: seen for key, seen in cursor.rows.items() if key in kept}
        request.moved()
    if cursor.places and (not is_pattern or covers(ctx.replica.vector, cursor.base)):
        cursor.places = {key: each for key, each in cursor.places.items() if key in kept}
    if cursor.ended:
        cursor.ended = {key for key in cursor.ended if key in streams and streams[key].is_sealed}
        request.moved()


_News = tuple[bytes, Stream]
"""A stream with entries that the reader does not know, and its key."""


_name: Final = itemgetter(0)


def _rotated(pages: list[list[_News]], after: bytes) -> Iterator[_News]:
    """These streams, of which each page is sorted, by their names, from behind one of them."""
    firsts = [bisect_right(page, after, key=_name) if after else 0 for page in pages]
    behind = [page[at:] for page, at in zip(pages, firsts, strict=True)]
    upto = [page[:at] for page, at in zip(pages, firsts, strict=True)]
    pages.clear()
    for each in (behind, upto):
        yield from merge(*map(_taken_out, each), key=_name)


def _taken_out(page: list[_News]) -> Iterator[_News]:
    """These streams, each of which is freed when it is not needed."""
    page.reverse()
    while page:
        yield page.pop()


def _gaps(cursor: JointCursor, key: bytes, stream: Stream, seen: Mapping[int, int]) -> Gaps:
    """What collects the gaps of a stream. One without a place has come since the last call."""
    if cursor.places is None:
        return Gaps(stream, seen, seen)
    row = cursor.places.get(key)
    return Gaps(stream, {}, {}) if row is None else Gaps(stream, seen, vector_of(row))


def _in_rounds(
    ctx: Context, request: JointRequest, news: Iterator[_News], streams: int, limits: CallLimits
) -> Steps[dict[bytes, Taking]]:
    """What is taken of so many streams, as far as COUNT and the limits go.

    In each round every stream may take an equal share of what is left of COUNT.
    """
    takings: dict[bytes, Taking] = {}
    left = request.options.request.count
    share = max(left // max(streams, 1), 1) if left > 0 else -1
    for key, stream in news:
        if not left or limits.is_reached:
            break
        if ctx.db.values.get(key) is not stream:
            continue  # it is gone since the look
        seen = request.cursor.seen(key)
        gaps = _gaps(request.cursor, key, stream, seen) if request.options.notes else None
        taking = takings[key] = Taking(ctx, key, stream, seen, gaps)
        count = taking.take(limits, share)
        left -= count if left > 0 else 0
        if not len(takings) % TAKEN_AT_ONCE:
            yield
    while left > 0 and not limits.is_reached:
        active = [each for each in takings.values() if not each.is_done]
        if not active:
            break
        share = max(left // len(active), 1)
        for number, taking in enumerate(active, 1):
            if ctx.db.values.get(taking.key) is taking.stream:
                left -= taking.take(limits, min(share, left))
            else:
                taking.is_done = True
            if not number % TAKEN_AT_ONCE:
                yield
    return takings
