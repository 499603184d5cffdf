"""The rows of the command table: publish/subscribe."""

from __future__ import annotations

from functools import partial

from anabranch.commands.pubsub import pubsub
from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, CommandFunction, KeySpec

__all__ = ["COMMANDS"]

Row = partial(Command, group="pubsub")

_CHANNELS = pubsub.Kind("", "channels", "channels")


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
    return Row(
        name,
        function,
        arity=-1 if leaving else -2,
        flags=flags,
        keys=(KeySpec("not_key", last=-1),) if sharded else (),
        since=since,
        summary=summary,
        complexity="O(N), N being the names given or left.",
        syntax=syntax,
    )


def _query(name: str, function: CommandFunction, arity: int, summary: str, syntax: str) -> Command:
    return Row(
        name,
        function,
        arity=arity,
        flags="pubsub loading stale",
        since="7.0.0" if name.startswith("shard") else "2.8.0",
        summary=summary,
        complexity="O(N), N being the channels looked at.",
        syntax=syntax,
    )


_JOINING = "pubsub denyoom noscript loading stale"


COMMANDS: list[Command] = [
    _row(
        "subscribe",
        pubsub.subscriber(_CHANNELS),
        "2.0.0",
        "Listens to channels.",
        "channel [channel ...]",
        flags=_JOINING,
    ),
    _row(
        "psubscribe",
        pubsub.subscriber(pubsub.PATTERNS),
        "2.0.0",
        "Listens to all channels that match a pattern.",
        "pattern [pattern ...]",
        flags=_JOINING,
    ),
    _row(
        "ssubscribe",
        pubsub.subscriber(pubsub.SHARDS),
        "7.0.0",
        "Listens to shard channels.",
        "shardchannel [shardchannel ...]",
        flags=_JOINING,
        sharded=True,
    ),
    _row(
        "unsubscribe",
        pubsub.unsubscriber(_CHANNELS),
        "2.0.0",
        "Stops listening to channels, or to all.",
        "[channel [channel ...]]",
    ),
    _row(
        "punsubscribe",
        pubsub.unsubscriber(pubsub.PATTERNS),
        "2.0.0",
        "Stops listening to patterns, or to all.",
        "[pattern [pattern ...]]",
    ),
    _row(
        "sunsubscribe",
        pubsub.unsubscriber(pubsub.SHARDS),
        "7.0.0",
        "Stops listening to shard channels, or to all.",
        "[shardchannel [shardchannel ...]]",
        sharded=True,
    ),
    Row(
        "publish",
        pubsub.publish,
        arity=3,
        flags="pubsub loading stale fast",
        since="2.0.0",
        summary="Sends a message to a channel and counts who received it.",
        complexity="O(N+M), N being the channel's listeners and M all patterns.",
        syntax="channel message",
    ),
    Row(
        "spublish",
        pubsub.spublish,
        arity=3,
        flags="pubsub loading stale fast",
        keys=(KeySpec("not_key"),),
        since="7.0.0",
        summary="Sends a message to a shard channel and counts who received it.",
        complexity="O(N), N being the channel's listeners.",
        syntax="shardchannel message",
    ),
    Row(
        "pubsub",
        None,
        arity=-2,
        since="2.8.0",
        summary="Commands that show subscriptions.",
        complexity="Depends on the sub-command.",
        subcommands=[
            _query(
                "channels",
                pubsub.active(_CHANNELS),
                -2,
                "Lists channels with subscribers.",
                "[pattern]",
            ),
            help_row("6.2.0"),
            _query(
                "numpat",
                pubsub.numpat,
                2,
                "Counts the patterns with subscribers.",
                "",
            ),
            _query(
                "numsub",
                pubsub.numbers(_CHANNELS),
                -2,
                "Counts the listeners of channels, pattern listeners aside.",
                "[channel [channel ...]]",
            ),
            _query(
                "shardchannels",
                pubsub.active(pubsub.SHARDS),
                -2,
                "Lists shard channels with subscribers.",
                "[pattern]",
            ),
            _query(
                "shardnumsub",
                pubsub.numbers(pubsub.SHARDS),
                -2,
                "Counts the listeners of shard channels.",
                "[shardchannel [shardchannel ...]]",
            ),
        ],
    ),
]
