"""Publish/subscribe: SUBSCRIBE and similar commands, PUBLISH, PUBSUB.

Shard channels (SSUBSCRIBE, SPUBLISH) are channels of a name space of their own; there is one
shard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.engine.channels import NAMES_AT_ONCE
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.engine.session import Session
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.pattern import check_length, compile_glob
from anabranch.resp.encode import bulk, integer, null
from anabranch.scheduling import Steps

_Registry = dict[bytes, dict[Session, None]]


class SubscriptionKind:
    """One of the three sorts of subscription: words, registry, and the session's own set."""

    def __init__(self, prefix: str, registry: str, own: str) -> None:
        self.joined = bulk(f"{prefix}subscribe".encode())
        self.left = bulk(f"{prefix}unsubscribe".encode())
        self.registry = registry
        self.own = own

    def listeners(self, ctx: Context) -> _Registry:
        """The subscribers of each name."""
        registry: _Registry = getattr(ctx.server.channels, self.registry)
        return registry

    def names(self, session: Session) -> dict[bytes, None]:
        """The names that a session subscribes to, in this order."""
        names: dict[bytes, None] = getattr(session, self.own)
        return names

    def count(self, session: Session) -> int:
        """What acknowledgements count: shard channels alone, or channels and patterns."""
        return len(session.shard_channels) if self is SHARDS else session.subscriptions


CHANNELS: Final[SubscriptionKind] = SubscriptionKind("", "channels", "channels")
PATTERNS: Final[SubscriptionKind] = SubscriptionKind("p", "patterns", "patterns")
SHARDS: Final[SubscriptionKind] = SubscriptionKind("s", "shards", "shard_channels")


def _acknowledgement(session: Session, head: bytes, name: bytes | None, count: int) -> bytes:
    """One name was added or removed; ``head`` says which."""
    shown = null(session.resp3) if name is None else bulk(name)
    return b"%b%b%b:%d\r\n" % (b">3\r\n" if session.resp3 else b"*3\r\n", head, shown, count)


_Change = Callable[[Context, list[bytes]], list[bytes]]
"""Adds or removes some names; returns the acknowledgements."""


def _changed(ctx: Context, args: list[bytes], names: list[bytes], change: _Change) -> bytes | None:
    """Add or remove names, very many of them in slices, each of which acknowledges its own.

    Rules of users are about all names at once, so a request of a user with rules is not cut.
    """
    user = ctx.session.user
    is_free = user is not None and user.is_unrestricted and not ctx.in_exec
    if is_free and len(names) > NAMES_AT_ONCE:
        return ctx.in_slices(args, _changed_in_steps(ctx, names, change))
    return _acknowledged(ctx, change(ctx, names))


def _changed_in_steps(ctx: Context, names: list[bytes], change: _Change) -> Steps[list[bytes]]:
    session = ctx.session
    for at in range(0, len(names), NAMES_AT_ONCE):
        session.outbox += change(ctx, names[at : at + NAMES_AT_ONCE])
        ctx.server.channels.pending[session] = None
        session.refresh()
        yield
    return [b""]


def _acknowledged(ctx: Context, acknowledgements: list[bytes]) -> bytes:
    """The acknowledgements as the reply; CLIENT REPLY OFF and SKIP do not silence them."""
    session = ctx.session
    session.refresh()
    data = b"".join(acknowledgements)
    if session.reply_mode == "on" and not session.reply_skip:
        return data
    session.outbox.append(data)
    return b""


def _subscriber(kind: SubscriptionKind) -> CommandFunction:
    """SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE."""

    def join(ctx: Context, names: list[bytes]) -> list[bytes]:
        session = ctx.session
        channels = ctx.server.channels
        registry = kind.listeners(ctx)
        own = kind.names(session)
        acknowledged: list[bytes] = []
        for name in names:
            own[name] = None
            channels.join(registry, name, session)
            count = kind.count(session)
            acknowledged.append(_acknowledgement(session, kind.joined, name, count))
        return acknowledged

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        if kind is SHARDS and ctx.in_exec:
            raise CommandError("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
        names = args[1:]
        if kind is PATTERNS:
            for name in names:  # one that is too long refuses all
                check_length(name)
        return _changed(ctx, args, names, join)

    return run


subscribe = _subscriber(CHANNELS)
psubscribe = _subscriber(PATTERNS)
ssubscribe = _subscriber(SHARDS)


def _unsubscriber(kind: SubscriptionKind) -> CommandFunction:
    """UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE; without names from everything of the kind."""

    def leave(ctx: Context, names: list[bytes]) -> list[bytes]:
        session = ctx.session
        channels = ctx.server.channels
        registry = kind.listeners(ctx)
        own = kind.names(session)
        acknowledged: list[bytes] = []
        for name in names:
            if name in own:
                del own[name]
                channels.leave(registry, (name,), session)
            count = kind.count(session)
            acknowledged.append(_acknowledgement(session, kind.left, name, count))
        return acknowledged

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        session = ctx.session
        names = args[1:] or list(kind.names(session))
        if not names:
            nothing = _acknowledgement(session, kind.left, None, kind.count(session))
            return _acknowledged(ctx, [nothing])
        return _changed(ctx, args, names, leave)

    return run


unsubscribe = _unsubscriber(CHANNELS)
punsubscribe = _unsubscriber(PATTERNS)
sunsubscribe = _unsubscriber(SHARDS)


def publish(ctx: Context, args: list[bytes]) -> bytes:
    """Send a message to a channel; returns how many received it."""
    return integer(ctx.server.channels.publish(args[1], args[2]))


def spublish(ctx: Context, args: list[bytes]) -> bytes:
    """Send a message to a shard channel; returns how many received it."""
    return integer(ctx.server.channels.publish_shard(args[1], args[2]))


def _active(kind: SubscriptionKind) -> CommandFunction:
    """PUBSUB CHANNELS or SHARDCHANNELS: channels with subscribers."""

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        if len(args) > 3:
            raise wrong_subcommand(args)
        names = list(kind.listeners(ctx))
        if len(args) == 3:
            matches = compile_glob(args[2])
            names = [name for name in names if matches(name)]
        return ctx.long_reply(args, names)

    return run


channels = _active(CHANNELS)
shard_channels = _active(SHARDS)


def _numbers(kind: SubscriptionKind) -> CommandFunction:
    """PUBSUB NUMSUB or SHARDNUMSUB: listeners of the named channels, a flat list."""

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        registry = kind.listeners(ctx)
        names = args[2:]
        reply: list[object] = [0] * (2 * len(names))
        reply[::2] = names
        if registry:
            reply[1::2] = [len(registry.get(name, ())) for name in names]
        return ctx.long_reply(args, reply)

    return run


numsub = _numbers(CHANNELS)
shard_numsub = _numbers(SHARDS)


def numpat(ctx: Context, args: list[bytes]) -> bytes:
    """PUBSUB NUMPAT: patterns with subscribers, each counted once."""
    return integer(len(ctx.server.channels.patterns))
