"""Publish/subscribe: SUBSCRIBE and similar commands, PUBLISH, PUBSUB.

Shard channels (SSUBSCRIBE, SPUBLISH) are channels of a name space of their own; there is one
shard.
"""

from __future__ import annotations

from typing import Final

from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.engine.session import Session
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob
from anabranch.resp.encode import bulk, integer, null

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

    def names(self, session: Session) -> set[bytes]:
        """The names that a session subscribes to."""
        names: set[bytes] = getattr(session, self.own)
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

    def run(ctx: Context, args: list[bytes]) -> bytes:
        if kind is SHARDS and ctx.in_exec:
            raise CommandError("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
        session = ctx.session
        channels = ctx.server.channels
        registry = kind.listeners(ctx)
        own = kind.names(session)
        acknowledged: list[bytes] = []
        if kind is PATTERNS:
            channels.learn(args[1:])  # which refuses one that is too long, and so all
        for name in args[1:]:
            own.add(name)
            channels.join(registry, name, session)
            count = kind.count(session)
            acknowledged.append(_acknowledgement(session, kind.joined, name, count))
        return _acknowledged(ctx, acknowledged)

    return run


subscribe = _subscriber(CHANNELS)
psubscribe = _subscriber(PATTERNS)
ssubscribe = _subscriber(SHARDS)


def _unsubscriber(kind: SubscriptionKind) -> CommandFunction:
    """UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE; without names from everything of the kind."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        session = ctx.session
        registry = kind.listeners(ctx)
        own = kind.names(session)
        acknowledged: list[bytes] = []
        for name in args[1:] or sorted(own):
            if name in own:
                own.remove(name)
                ctx.server.channels.leave(registry, (name,), session)
            count = kind.count(session)
            acknowledged.append(_acknowledgement(session, kind.left, name, count))
        if not acknowledged:
            acknowledged.append(_acknowledgement(session, kind.left, None, kind.count(session)))
        return _acknowledged(ctx, acknowledged)

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

    def run(ctx: Context, args: list[bytes]) -> bytes:
        if len(args) > 3:
            raise wrong_subcommand(args)
        names = list(kind.listeners(ctx))
        if len(args) == 3:
            matches = compile_glob(args[2])
            names = [name for name in names if matches(name)]
        return ctx.reply(names)

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
