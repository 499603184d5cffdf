"""The rows of the command table: publish/subscribe."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "pubsub",
    "anabranch.commands.pubsub",
    """
subscribe -2 pubsub.subscribe 2.0.0 pubsub denyoom noscript loading stale
    channel [channel ...]
    does: Listens to channels.
    cost: O(N), N being the names given or left.
psubscribe -2 pubsub.psubscribe 2.0.0 pubsub denyoom noscript loading stale
    pattern [pattern ...]
    does: Listens to all channels that match a pattern.
    cost: O(N), N being the names given or left.
ssubscribe -2 pubsub.ssubscribe 7.0.0 pubsub denyoom noscript loading stale
    shardchannel [shardchannel ...]
    does: Listens to shard channels.
    cost: O(N), N being the names given or left.
    keys: @1..-1 not_key
unsubscribe -1 pubsub.unsubscribe 2.0.0 pubsub noscript loading stale
    [channel [channel ...]]
    does: Stops listening to channels, or to all.
    cost: O(N), N being the names given or left.
punsubscribe -1 pubsub.punsubscribe 2.0.0 pubsub noscript loading stale
    [pattern [pattern ...]]
    does: Stops listening to patterns, or to all.
    cost: O(N), N being the names given or left.
sunsubscribe -1 pubsub.sunsubscribe 7.0.0 pubsub noscript loading stale
    [shardchannel [shardchannel ...]]
    does: Stops listening to shard channels, or to all.
    cost: O(N), N being the names given or left.
    keys: @1..-1 not_key
publish 3 pubsub.publish 2.0.0 pubsub loading stale fast
    channel message
    does: Sends a message to a channel and counts who received it.
    cost: O(N+M), N being the channel's listeners and M all patterns.
spublish 3 pubsub.spublish 7.0.0 pubsub loading stale fast
    shardchannel message
    does: Sends a message to a shard channel and counts who received it.
    cost: O(N), N being the channel's listeners.
    keys: not_key
pubsub -2 - 2.8.0
    does: Commands that show subscriptions.
    help: 6.2.0
pubsub|channels -2 pubsub.channels 2.8.0 pubsub loading stale
    [pattern]
    does: Lists channels with subscribers.
    cost: O(N), N being the channels looked at.
pubsub|numpat 2 pubsub.numpat 2.8.0 pubsub loading stale
    does: Counts the patterns with subscribers.
    cost: O(N), N being the channels looked at.
pubsub|numsub -2 pubsub.numsub 2.8.0 pubsub loading stale
    [channel [channel ...]]
    does: Counts the listeners of channels, pattern listeners aside.
    cost: O(N), N being the channels looked at.
pubsub|shardchannels -2 pubsub.shard_channels 7.0.0 pubsub loading stale
    [pattern]
    does: Lists shard channels with subscribers.
    cost: O(N), N being the channels looked at.
pubsub|shardnumsub -2 pubsub.shard_numsub 7.0.0 pubsub loading stale
    [shardchannel [shardchannel ...]]
    does: Counts the listeners of shard channels.
    cost: O(N), N being the channels looked at.
""",
    is_hot=True,
)
