"""AB.SUBSCRIBE, AB.CREDIT, AB.UNSUBSCRIBE: entries are pushed to a connection as they come.

A subscription is a command that waits for its keys as a blocked one does, and stays: when a key has
something, it runs again, and puts a push into the output of its connection, which goes on with
other requests meanwhile. Credit bounds what is on its way: with a group the entries that the
consumer has and has not acknowledged, without one what the reader has asked for. An entry of a
group is delivered by ``xreadgroup``, as if the client had sent it.

    >2 ab.entries [[key, [entry, ...]], ...]    entries; with NOTES a row has a list of notes, too
    >3 ab.gone key error                        a stream or its group is gone, the others stay
    >2 ab.unsubscribed error                    the subscription has ended
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from itertools import islice
from typing import Final

from anabranch.commands.extensions.joint_read import JointRequest, be_told, begin, look, stand
from anabranch.commands.extensions.reading import EntryRequest, is_stream, names_at
from anabranch.commands.stream.read_request import parse_read
from anabranch.commands.stream.readgroup import check_groups, news_of, next_turn_ms, xreadgroup
from anabranch.engine.arguments import integer, integer_or_none
from anabranch.engine.context import Context
from anabranch.engine.holding import use_name
from anabranch.engine.key_extraction import options_before
from anabranch.errors import CommandError
from anabranch.keyspace.waiter import Condition, Waiter
from anabranch.resp.encode import OK, array_header, bulk
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.stream import Stream

CREDIT_MAX: Final = 1_000_000_000

PUSH_ENTRIES: Final = 500
PUSH_BYTES: Final = 1 << 20
"""What one push has at most; more follows in a later turn."""

STARVING_MS: Final = 1_000
"""When a subscription without credit looks whether its entries were taken away from it."""

_ROWS_MAX: Final = 1_000

_REQUEUED_KEYS_MAX: Final = 64
"""Subscriptions of a group take turns if they have no more keys: it costs time for each key."""

_CHECKED: Final = 200
_LOOKED_AT: Final = 50
_COUNTED: Final = 500
"""Keys whose groups are looked up, that are read, and in which pending entries are counted, at
once: a millisecond."""

_READ_AT_ONCE: Final = 500
"""Streams that a reader without a group looks at together: some milliseconds if all have news."""

_PUSH: Final = b">2\r\n" + bulk(b"ab.entries")
_NO_RESP3: Final = (
    "ERR AB.SUBSCRIBE pushes entries, which RESP2 cannot: send HELLO 3 first, or read with BLOCK"
)
_SYNTAX: Final = (
    "ERR AB.SUBSCRIBE CREDIT n GROUP group consumer STREAMS key ..., or CREDIT n FROM cursor "
    "[NOTES] [WHERE field = value] STREAMS key ... | PATTERN pattern"
)
_NO_CREDIT: Final = f"ERR CREDIT is a number of entries, from 1 to {CREDIT_MAX}"
_NO_MORE: Final = f"ERR AB.CREDIT adds a number of entries from 0 on, to {CREDIT_MAX} in all"
_IN_EXEC: Final = "ERR AB.SUBSCRIBE is not allowed inside a transaction"
_HAS_ONE: Final = "ERR This connection has a subscription already: AB.UNSUBSCRIBE ends it"
_HAS_NONE: Final = "ERR This connection has no subscription: AB.SUBSCRIBE begins one"
_GROUP_CREDIT: Final = "ERR A consumer of a group gets credit back by XACK, not by AB.CREDIT"


class GroupSubscription:
    """What is pushed to a consumer of a group."""

    def __init__(self, group: bytes, consumer: bytes, keys: list[bytes], credit: int) -> None:
        self.group = group
        self.consumer = consumer
        self.credit = credit
        self.keys = dict.fromkeys(keys)
        self._due: dict[bytes, None] = {}
        """Keys to look at; of those that have more than they may push, the next one is first."""
        self._later: dict[bytes, int] = {}
        """Keys to look at again at a time, although nothing happens to them until then."""
        self._held: OrderedDict[bytes, int] = OrderedDict()
        """Keys in which the consumer may have pending entries, and how many when it was counted."""
        self._pending = 0
        """All of these. It may be too many: it is counted again when something of the connection's
        own may have given credit back, because a change of a key must cost the writer little."""
        self._to_count = 0
        """How many of the keys must be counted, the first ones."""
        self._is_known = False
        """Whether all keys were counted since the subscription looked at all of them."""
        self._round: Collection[bytes] | None = None
        """The keys that had changed at the last run: each one of them makes it run."""

    def run(self, ctx: Context, waiter: Waiter) -> None:
        """Push what there is, as far as the credit goes. CommandError: no stream is left."""
        if waiter.changed is None:
            self._to_count = len(self._held)
        if waiter.is_behind:
            self._due.update(self.keys)
            self._held = OrderedDict.fromkeys(self.keys, 0)
            self._pending, self._to_count = 0, len(self._held)
            waiter.is_behind = False
            self._is_known = False
        if waiter.changed is not self._round:
            self._round = waiter.changed
            self._due.update((key, None) for key in waiter.changed or () if key in self.keys)
        for key in [key for key, at_ms in self._later.items() if at_ms <= ctx.now_ms]:
            del self._later[key]
            self._due[key] = None
        if waiter.changed is None or self._left <= 0:
            self._count(ctx)
        self._is_known = self._is_known or not self._to_count
        rows, gone = self._deliver(ctx) if self._is_known else ([], [])
        for key, error in gone:
            del self.keys[key]
            ctx.server.channels.send([ctx.session], [b"ab.gone", key, error])
        if rows:
            _push(ctx, len(rows), [each for row in rows for each in row])
            if len(waiter.keys) <= _REQUEUED_KEYS_MAX:
                ctx.keyspace.waiters.requeue(waiter)
        if not self.keys:
            raise CommandError("NOGROUP No stream of the subscription has its group any more")
        self._go_on(ctx, waiter)

    def _go_on(self, ctx: Context, waiter: Waiter) -> None:
        """Arrange that it runs again, if there is more to do now, or will be."""
        look_ms = min(self._later.values(), default=0)
        if self._due and (self._left > 0 or self._to_count):
            ctx.server.blocked.look_again(waiter)
        elif self._due:
            starving_ms = ctx.now_ms + STARVING_MS
            look_ms = min(look_ms or starving_ms, starving_ms)
        if look_ms and not ctx.now_ms < waiter.recheck_ms <= look_ms:
            ctx.keyspace.waiters.recheck_at(waiter, look_ms)

    @property
    def _left(self) -> int:
        """What may be delivered at least: the credit without what is not acknowledged."""
        return self.credit - self._pending

    def _deliver(self, ctx: Context) -> tuple[list[tuple[bytes, ...]], list[tuple[bytes, bytes]]]:
        """Rows of entries within the credit, in equal shares; and keys that are gone."""
        rows: list[tuple[bytes, ...]] = []
        gone: list[tuple[bytes, bytes]] = []
        left, size = min(self._left, PUSH_ENTRIES), 0
        share = max(left // max(len(self._due), 1), 1)
        for key in list(islice(self._due, _LOOKED_AT)):
            if left <= 0 or size >= PUSH_BYTES:
                break
            del self._due[key]
            most = min(share, left)
            words = [b"XREADGROUP", b"GROUP", self.group, self.consumer]
            words += [b"COUNT", b"%d" % most, b"MAXSIZE", b"%d" % PUSH_BYTES]
            try:
                reply = xreadgroup(ctx, [*words, b"STREAMS", key, b">"])
            except CommandError as refusal:
                gone.append((key, refusal.text))
                continue
            head = b"%%1\r\n$%d\r\n%b\r\n" % (len(key), key)
            has_more = False
            if reply is not None and reply.startswith(head):
                entries = reply[len(head) :]
                rows.append((array_header(2), bulk(key), entries))
                count = int(entries[1 : entries.index(b"\r")])
                left -= count
                self._pending += count
                size += len(entries)
                self._held[key] = self._held.get(key, 0) + count
                has_more = count == most or 2 * len(entries) > PUSH_BYTES
            if has_more:
                self._due[key] = None
            elif (at_ms := self._next_turn_ms(ctx, key)) > 0:
                self._later[key] = at_ms
        return rows, gone

    def _next_turn_ms(self, ctx: Context, key: bytes) -> int:
        """When a key that had nothing must be looked at again, 0 for never."""
        stream = ctx.db.values.get(key)
        group = stream.groups.get(self.group) if type(stream) is Stream else None
        return 0 if group is None else next_turn_ms(group, ctx.now_ms)

    def _count(self, ctx: Context) -> None:
        """Count what the consumer has not acknowledged in some of the keys."""
        for _ in range(min(self._to_count, _COUNTED)):
            self._to_count -= 1
            key, before = self._held.popitem(last=False)
            stream = ctx.db.values.get(key)
            group = stream.groups.get(self.group) if type(stream) is Stream else None
            consumer = None if group is None else group.consumers.get(self.consumer)
            count = 0 if consumer is None else consumer.pending_count
            self._pending += count - before
            if count:
                self._held[key] = count


class ReaderSubscription:
    """What is pushed to a reader without a group: what its cursor does not cover."""

    def __init__(self, request: JointRequest, credit: int) -> None:
        self.request = request
        self.credit = credit
        """How many entries may still be pushed."""
        self._due: dict[bytes, None] = {}
        """Streams to look at."""
        self._is_whole = False
        """Whether all streams are to be looked at together once these are done."""
        self._round: Collection[bytes] | None = None
        """As in :class:`GroupSubscription`."""

    def run(self, ctx: Context, waiter: Waiter) -> None:
        """Push what there is, as far as the credit goes."""
        if not self.credit:
            waiter.is_behind = waiter.is_behind or waiter.changed is not None
            return
        is_seen = waiter.changed is not None and waiter.changed is self._round
        self._round = waiter.changed
        if is_seen and not (self._due or self._is_whole or waiter.is_behind):
            return
        request = self.request
        followed = request.followed(ctx)
        if waiter.is_behind:
            self._due.update(dict.fromkeys(followed))
            self._is_whole = True
            waiter.is_behind = False
        if not is_seen:
            self._due.update((key, None) for key in waiter.changed or () if key in followed)
        if not self._due and not self._is_whole:
            return
        is_whole = not self._due
        names = list(followed) if is_whole else list(islice(self._due, _READ_AT_ONCE))
        request.options.request.count = min(self.credit, PUSH_ENTRIES)
        takings = in_one_go(look(ctx, request, names, is_whole=is_whole))
        if takings:
            self.credit -= sum([each.count for each in takings])
            _push(ctx, len(takings), request.rows(takings))
        cursor = request.cursor
        if not cursor.after:  # otherwise there is more in these streams
            for name in names:
                self._due.pop(name, None)
            # A look at all streams makes the cursor short again where several regions write.
            is_long = bool(cursor.base) and len(cursor.rows) > _ROWS_MAX
            self._is_whole = not is_whole and (self._is_whole or is_long)
        if (self._due or self._is_whole) and self.credit:
            ctx.server.blocked.look_again(waiter)


def _push(ctx: Context, count: int, pieces: list[bytes]) -> None:
    """Put so many rows into the output of the connection."""
    session = ctx.session
    session.outbox += [_PUSH, array_header(count), *pieces]
    ctx.server.channels.pending[session] = None


# -- commands ---------------------------------------------------------------------------------


def subscribe(ctx: Context, args: list[bytes]) -> bytes | None:
    """AB.SUBSCRIBE: have entries pushed as they come."""
    waiter = ctx.waiter
    if waiter is not None:
        present = ctx.db
        ctx.waiter, ctx.db = None, ctx.keyspace.databases[waiter.db]
        try:
            waiter.request.run(ctx, waiter)
        finally:
            ctx.waiter, ctx.db = waiter, present
        return None
    session = ctx.session
    if ctx.in_exec:
        raise CommandError(_IN_EXEC)
    if not ctx.resp3:
        raise CommandError(_NO_RESP3)
    if session.subscribed is not None:
        raise CommandError(_HAS_ONE)
    credit, group, rest = _parsed(args)
    if group is not None:
        keys = list(dict.fromkeys(rest))
        return ctx.in_slices(args, _begun_for_group(ctx, args, group, keys, credit))
    request = begin(ctx, args, EntryRequest(rest, ctx.now_ms))
    if request is None:
        return None
    return ctx.in_slices(args, _begun_for_reader(ctx, args, request, credit))


def _begun_for_reader(
    ctx: Context, args: list[bytes], request: JointRequest, credit: int
) -> Steps[list[bytes]]:
    """Begin the subscription of a reader without a group, when its cursor is read."""
    yield from stand(ctx, request)
    names = yield from request.names(ctx)
    waiter = _begin(ctx, args, names, ReaderSubscription(request, credit), is_stream)
    be_told(ctx, waiter, request)
    return [OK]


def _begun_for_group(
    ctx: Context, args: list[bytes], group: tuple[bytes, bytes], keys: list[bytes], credit: int
) -> Steps[list[bytes]]:
    """Begin the subscription of a consumer, after a look at all groups, some at a time."""
    for at in range(0, len(keys), _CHECKED):
        _check_groups(ctx, group, keys[at : at + _CHECKED])
        yield
    wants = news_of(group[0], ctx.replica.region)
    waiter = _begin(ctx, args, keys, GroupSubscription(*group, keys, credit), wants)
    waiter.fails_without_key = True
    return [OK]


def _begin(
    ctx: Context,
    args: list[bytes],
    keys: list[bytes],
    subscription: GroupSubscription | ReaderSubscription,
    wants: Condition,
) -> Waiter:
    """Let the subscription of the connection wait for its keys, and look at all of them soon."""
    session = ctx.session
    waiter = Waiter(session, args, ctx.db.index, keys, 0, b"")
    waiter.wants = wants
    waiter.request = subscription
    waiter.is_lasting = waiter.is_behind = True
    session.subscribed = waiter
    session.refresh()
    ctx.keyspace.waiters.enqueue(waiter)
    ctx.server.blocked.look_again(waiter)
    return waiter


def _parsed(args: list[bytes]) -> tuple[int, tuple[bytes, bytes] | None, list[bytes]]:
    """The credit; group and consumer, and their keys; or without a group a request of AB.READ."""
    first = names_at(args)
    credit: int | None = None
    group = None
    others = [b"AB.READ"]
    for word, given in options_before(args, first):
        if word == b"CREDIT" and len(given) == 2:
            credit = integer_or_none(given[1])
            if credit is None or not 1 <= credit <= CREDIT_MAX:
                raise CommandError(_NO_CREDIT)
        elif word == b"GROUP" and len(given) == 3:
            group = given[1], given[2]
        elif word in (b"FROM", b"NOTES", b"WHERE"):
            others += given
        else:
            raise CommandError(_SYNTAX)
    is_reader = b"FROM" in [each.upper() for each in others]
    if credit is None or (group is None) != is_reader or (group is not None and len(others) > 1):
        raise CommandError(_SYNTAX)
    if group is None:
        others += [b"MAXSIZE", b"%d" % PUSH_BYTES, *args[first - 1 :]]
        return credit, None, others
    if args[first - 1].upper() == b"PATTERN":
        raise CommandError(_SYNTAX)
    return credit, group, args[first:]


def _check_groups(ctx: Context, group: tuple[bytes, bytes], keys: list[bytes]) -> None:
    """Fail if one of the groups is missing, as XREADGROUP does; use the name of the consumer."""
    ids = [b">"] * len(keys)
    request = parse_read(
        [b"XREADGROUP", b"GROUP", *group, b"STREAMS", *keys, *ids], grouped=True, now_ms=ctx.now_ms
    )
    check_groups(ctx, request)
    for key in keys:
        stream = ctx.stream(key)
        assert stream is not None
        use_name(ctx, key, group[0], stream.groups[group[0]], group[1])


def credit(ctx: Context, args: list[bytes]) -> bytes:
    """AB.CREDIT: allow so many entries more; returns where the reader stands."""
    subscription = _subscription(ctx)
    if isinstance(subscription, GroupSubscription):
        raise CommandError(_GROUP_CREDIT)
    more = integer(args[1])
    if not 0 <= more <= CREDIT_MAX - subscription.credit:
        raise CommandError(_NO_MORE)
    subscription.credit += more
    return bulk(subscription.request.text)


def unsubscribe(ctx: Context, _args: list[bytes]) -> bytes:
    """AB.UNSUBSCRIBE: end the subscription; returns where a reader without a group stands."""
    subscription = _subscription(ctx)
    ctx.server.blocked.unsubscribe(ctx.session)
    return OK if isinstance(subscription, GroupSubscription) else bulk(subscription.request.text)


def _subscription(ctx: Context) -> GroupSubscription | ReaderSubscription:
    if ctx.session.subscribed is None:
        raise CommandError(_HAS_NONE)
    found: GroupSubscription | ReaderSubscription = ctx.session.subscribed.request
    return found
