"""The rows of the command table: connection commands."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
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
)
