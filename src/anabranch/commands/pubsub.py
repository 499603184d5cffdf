"""Publish/subscribe: SUBSCRIBE and its kin, PUBLISH, PUBSUB.

Shard channels (SSUBSCRIBE, SPUBLISH) are channels of a name space of their own; there is one
shard.
"""

from __future__ import annotations

from anabranch.commands.context import Context
from anabranch.commands.help import help_row, wrong_subcommand
from anabranch.commands.session import Session
from anabranch.commands.spec import Command, CommandFunction, KeySpec
from anabranch.keyspace.pattern import compile_glob
from anabranch.resp.encode import encode, integer
from anabranch.resp.values import Push

__all__ = ["COMMANDS"]

_Registry = dict[bytes, dict[Session, None]]


class _Kind:
    """One of the three sorts of subscription: words, registry, and the session's own set."""

    __slots__ = ("leave", "own", "registry", "verb")

    def __init__(self, prefix: str, registry: str, own: str) -> None:
        self.verb = f"{prefix}subscribe".encode()
        self.leave = f"{prefix}unsubscribe".encode()
        self.registry = registry
        self.own = own

    def listeners(self, ctx: Context) -> _Registry:
        registry: _Registry = getattr(ctx.channels, self.registry)
        return registry

    def names(self, session: Session) -> set[bytes]:
        names: set[bytes] = getattr(session, self.own)
        return names

    def count(self, session: Session) -> int:
        """What acknowledgements count: shard channels alone, or channels and patterns."""
        return len(session.shard_channels) if self is _SHARDS else session.subscriptions


_CHANNELS = _Kind("", "channels", "channels")
_PATTERNS = _Kind("p", "patterns", "patterns")
_SHARDS = _Kind("s", "shards", "shard_channels")


def _acknowledged(ctx: Context, messages: list[list[object]]) -> bytes:
    """The acknowledgements as the reply; CLIENT REPLY OFF and SKIP do not silence them."""
    session = ctx.session
    session.refresh()
    data = b"".join([encode(Push(message), session.resp3) for message in messages])
    if session.reply_mode == "on" and not session.reply_skip:
        return data
    session.outbox.append(data)
    return b""


def _subscriber(kind: _Kind) -> CommandFunction:
    """SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        session = ctx.session
        registry = kind.listeners(ctx)
        own = kind.names(session)
        messages: list[list[object]] = []
        if kind is _PATTERNS:
            ctx.channels.learn(args[1:])  # which refuses one that is too long, and so all
        for name in args[1:]:
            own.add(name)
            registry.setdefault(name, {})[session] = None
            messages.append([kind.verb, name, kind.count(session)])
        return _acknowledged(ctx, messages)

    return run


def _unsubscriber(kind: _Kind) -> CommandFunction:
    """UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE; without names from everything of the kind."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        session = ctx.session
        registry = kind.listeners(ctx)
        own = kind.names(session)
        messages: list[list[object]] = []
        for name in args[1:] or sorted(own):
            if name in own:
                own.remove(name)
                ctx.channels.leave(registry, (name,), session)
            messages.append([kind.leave, name, kind.count(session)])
        return _acknowledged(ctx, messages or [[kind.leave, None, kind.count(session)]])

    return run


def publish(ctx: Context, args: list[bytes]) -> bytes:
    """Send a message to a channel; returns how many received it."""
    return integer(ctx.channels.publish(args[1], args[2]))


def spublish(ctx: Context, args: list[bytes]) -> bytes:
    """Send a message to a shard channel; returns how many received it."""
    return integer(ctx.channels.publish_shard(args[1], args[2]))


def _active(kind: _Kind) -> CommandFunction:
    """PUBSUB CHANNELS or SHARDCHANNELS: channels somebody listens to."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        if len(args) > 3:
            raise wrong_subcommand(args)
        names = list(kind.listeners(ctx))
        if len(args) == 3:
            matches = compile_glob(args[2])
            names = [name for name in names if matches(name)]
        return ctx.reply(names)

    return run


def _numbers(kind: _Kind) -> CommandFunction:
    """PUBSUB NUMSUB or SHARDNUMSUB: listeners of the named channels, a flat list."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        registry = kind.listeners(ctx)
        reply: list[object] = []
        for name in args[2:]:
            reply += [name, len(registry.get(name, ()))]
        return ctx.reply(reply)

    return run


def numpat(ctx: Context, args: list[bytes]) -> bytes:
    """PUBSUB NUMPAT: patterns somebody listens to, each counted once."""
    return integer(len(ctx.channels.patterns))


def _row(
    name: str,
    function: CommandFunction,
    since: str,
    summary: str,
    syntax: str,
    *,
    flags: str = "pubsub noscript loading stale",
    sharded: bool = False,
) -> Command:
    leaving = "unsubscribe" in name
    return Command(
        name,
        function,
        arity=-1 if leaving else -2,
        flags=flags,
        categories="pubsub slow",
        keys=(KeySpec("not_key", last=-1),) if sharded else (),
        since=since,
        group="pubsub",
        summary=summary,
        complexity="O(N), N being the names given or left.",
        syntax=syntax,
    )


def _query(name: str, function: CommandFunction, arity: int, summary: str, syntax: str) -> Command:
    return Command(
        name,
        function,
        arity=arity,
        flags="pubsub loading stale",
        categories="pubsub slow",
        since="7.0.0" if name.startswith("shard") else "2.8.0",
        group="pubsub",
        summary=summary,
        complexity="O(N), N being the channels looked at.",
        syntax=syntax,
    )


_JOINING = "pubsub denyoom noscript loading stale"

COMMANDS: list[Command] = [
    _row(
        "subscribe",
        _subscriber(_CHANNELS),
        "2.0.0",
        "Listens to channels.",
        "channel [channel ...]",
        flags=_JOINING,
    ),
    _row(
        "psubscribe",
        _subscriber(_PATTERNS),
        "2.0.0",
        "Listens to all channels that match a pattern.",
        "pattern [pattern ...]",
        flags=_JOINING,
    ),
    _row(
        "ssubscribe",
        _subscriber(_SHARDS),
        "7.0.0",
        "Listens to shard channels.",
        "shardchannel [shardchannel ...]",
        flags=_JOINING,
        sharded=True,
    ),
    _row(
        "unsubscribe",
        _unsubscriber(_CHANNELS),
        "2.0.0",
        "Stops listening to channels, or to all.",
        "[channel [channel ...]]",
    ),
    _row(
        "punsubscribe",
        _unsubscriber(_PATTERNS),
        "2.0.0",
        "Stops listening to patterns, or to all.",
        "[pattern [pattern ...]]",
    ),
    _row(
        "sunsubscribe",
        _unsubscriber(_SHARDS),
        "7.0.0",
        "Stops listening to shard channels, or to all.",
        "[shardchannel [shardchannel ...]]",
        sharded=True,
    ),
    Command(
        "publish",
        publish,
        arity=3,
        flags="pubsub loading stale fast",
        categories="pubsub fast",
        since="2.0.0",
        group="pubsub",
        summary="Sends a message to a channel and counts who received it.",
        complexity="O(N+M), N being the channel's listeners and M all patterns.",
        syntax="channel message",
    ),
    Command(
        "spublish",
        spublish,
        arity=3,
        flags="pubsub loading stale fast",
        categories="pubsub fast",
        keys=(KeySpec("not_key"),),
        since="7.0.0",
        group="pubsub",
        summary="Sends a message to a shard channel and counts who received it.",
        complexity="O(N), N being the channel's listeners.",
        syntax="shardchannel message",
    ),
    Command(
        "pubsub",
        None,
        arity=-2,
        categories="slow",
        since="2.8.0",
        group="pubsub",
        summary="Commands that tell who listens to what.",
        complexity="Depends on the sub-command.",
        subcommands=[
            _query(
                "channels",
                _active(_CHANNELS),
                -2,
                "Lists channels that somebody listens to.",
                "[pattern]",
            ),
            help_row("6.2.0", "slow"),
            _query(
                "numpat",
                numpat,
                2,
                "Counts the patterns that somebody listens to.",
                "",
            ),
            _query(
                "numsub",
                _numbers(_CHANNELS),
                -2,
                "Counts the listeners of channels, pattern listeners aside.",
                "[channel [channel ...]]",
            ),
            _query(
                "shardchannels",
                _active(_SHARDS),
                -2,
                "Lists shard channels that somebody listens to.",
                "[pattern]",
            ),
            _query(
                "shardnumsub",
                _numbers(_SHARDS),
                -2,
                "Counts the listeners of shard channels.",
                "[shardchannel [shardchannel ...]]",
            ),
        ],
    ),
]
