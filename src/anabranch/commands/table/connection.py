"""The rows of the command table: connections, cluster, publish/subscribe and transactions."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = [
    *rows(
        "connection",
        "anabranch.commands.connection",
        """
ping -1 connection.ping 1.0.0 fast
    [message]
    does: Answers PONG, or the message given.
    tips: request_policy:all_shards response_policy:all_succeeded
echo 2 connection.echo 1.0.0 loading stale fast
    message
    does: Answers the message given.
quit -1 connection.quit_ 1.0.0 noscript loading stale fast no_auth allow_busy
    does: Closes the connection after all replies are written.
reset 1 connection.reset 6.2.0 noscript loading stale fast no_auth allow_busy
    does: Puts the connection back to the state of a new one.
select 2 connection.select 1.0.0 loading stale fast
    index
    does: Chooses the database the connection works on.
auth -2 connection.auth 1.0.0 noscript loading stale fast no_auth allow_busy
    [username] password
    does: Authenticates the connection.
    cost: O(N) where N is the number of passwords of the user
    history: 6.0.0 Takes a user name.
hello -1 connection.hello 6.0.0 noscript loading stale fast no_auth allow_busy
    [protover [AUTH username password] [SETNAME clientname]]
    does: Agrees on the protocol and introduces the server.
    history: 6.2.0 protover may be left out.
client -2 - 2.4.0
    does: Commands about connections.
    help: 5.0.0 connection
client|caching 3 client.caching 6.0.0 noscript loading stale
    YES | NO
    does: Client-side caching only: refused by this server.
client|getname 2 client.getname 2.6.9 noscript loading stale
    does: Answers the connection's name.
client|getredir 2 client.getredir 6.0.0 noscript loading stale
    does: Answers -1: the connection is not tracked.
client|id 2 client.client_id 5.0.0 noscript loading stale
    does: Answers the connection's ID.
client|info 2 client.info 6.2.0 noscript loading stale
    does: Describes the connection.
    tips: nondeterministic_output
client|kill -3 client_kill.kill 2.4.0 admin noscript loading stale
    ip:port |
        <[ID client-id] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [USER username]
        [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] [MAXAGE seconds]>
    does: Closes connections.
    cost: O(N) where N is the number of connections
client|list -2 client.list_ 2.4.0 admin noscript loading stale
    [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]
    does: Describes connections, one a line.
    cost: O(N) where N is the number of connections
    tips: nondeterministic_output
client|no-evict 3 client.no_evict 7.0.0 admin noscript loading stale
    ON | OFF
    does: Accepted for compatibility: connections are never evicted.
client|no-touch 3 client.no_touch 7.2.0 noscript loading stale
    ON | OFF
    does: Says whether this connection's commands leave idle times alone.
client|pause -3 client.pause 3.0.0 admin noscript loading stale
    timeout [WRITE | ALL]
    does: Holds back commands, or writing commands, of all connections for a while.
client|reply 3 client.reply 3.2.0 noscript loading stale
    ON | OFF | SKIP
    does: Says whether this connection wants replies.
client|setinfo 4 client.setinfo 7.2.0 noscript loading stale
    LIB-NAME libname | LIB-VER libver
    does: Notes the client library and its version.
    tips: request_policy:all_nodes response_policy:all_succeeded
client|setname 3 client.setname 2.6.9 noscript loading stale
    connection-name
    does: Names the connection.
    tips: request_policy:all_nodes response_policy:all_succeeded
client|tracking -3 client.tracking 6.0.0 noscript loading stale
    <ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN] [OPTOUT]
        [NOLOOP]
    does: Client-side caching: can be switched off only, as it is not supported.
client|trackinginfo 2 client.trackinginfo 6.2.0 noscript loading stale
    does: Answers that the connection is not tracked.
client|unblock -3 client.unblock 5.0.0 admin noscript loading stale
    client-id [TIMEOUT | ERROR]
    does: Ends the wait of a blocked connection.
    cost: O(log N) where N is the number of connections
client|unpause 2 client.unpause 6.2.0 admin noscript loading stale
    does: Ends CLIENT PAUSE.
""",
        is_hot=True,
    ),
    *rows(
        "cluster",
        "anabranch.commands.connection",
        """
readonly 1 connection.no_cluster 3.0.0 loading stale fast
    does: Cluster only: refused by this server.
    acl: connection
readwrite 1 connection.no_cluster 3.0.0 loading stale fast
    does: Cluster only: refused by this server.
    acl: connection
asking 1 connection.no_cluster 3.0.0 fast
    does: Cluster only: refused by this server.
    acl: connection
cluster -2 - 3.0.0
    does: Cluster only: refused by this server.
cluster|addslots -3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|addslotsrange -4 connection.no_cluster 7.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|bumpepoch 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|count-failure-reports 3 connection.no_cluster 3.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|countkeysinslot 3 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|delslots -3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|delslotsrange -4 connection.no_cluster 7.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|failover -2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|flushslots 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|forget 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|getkeysinslot 4 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|help 2 connection.no_cluster 5.0.0 loading stale
    does: Cluster only: refused by this server.
cluster|info 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|keyslot 3 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|links 2 connection.no_cluster 7.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|meet -4 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|migration -4 connection.no_cluster 8.4.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|myid 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
cluster|myshardid 2 connection.no_cluster 7.2.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|nodes 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|replicas 3 connection.no_cluster 5.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|replicate 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|reset -2 connection.no_cluster 3.0.0 admin noscript stale
    does: Cluster only: refused by this server.
cluster|saveconfig 2 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|set-config-epoch 3 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|setslot -4 connection.no_cluster 3.0.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
cluster|shards 2 connection.no_cluster 7.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|slaves 3 connection.no_cluster 3.0.0 admin stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|slot-stats -4 connection.no_cluster 8.2.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output request_policy:all_shards
cluster|slots 2 connection.no_cluster 3.0.0 stale
    does: Cluster only: refused by this server.
    tips: nondeterministic_output
cluster|syncslots -3 connection.no_cluster 8.4.0 admin stale no_async_loading
    does: Cluster only: refused by this server.
""",
        is_hot=True,
    ),
    *rows(
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
    ),
    *rows(
        "transactions",
        "anabranch.commands.transactions",
        """
multi 1 transaction.multi 1.2.0 noscript loading stale fast allow_busy
    does: Begins a transaction: later commands are queued.
exec 1 transaction.execute 1.2.0 noscript loading stale skip_slowlog
    does: Runs the queued commands of a transaction at one moment.
    cost: That of the queued commands.
discard 1 transaction.discard 2.0.0 noscript loading stale fast allow_busy
    does: Drops the queued commands of a transaction.
    cost: O(N), N being the watched keys.
watch -2 transaction.watch 2.2.0 noscript loading stale fast allow_busy
    key [key ...]
    does: Makes the next transaction depend on keys staying as they are.
    cost: O(N), N being the keys.
    keys: @1..-1 RO
unwatch 1 transaction.unwatch 2.2.0 noscript loading stale fast allow_busy
    does: Takes back all WATCHes of the connection.
    cost: O(N), N being the watched keys.
""",
        is_hot=True,
    ),
]
