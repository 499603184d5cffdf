"""The rows of the command table: connection commands."""

from __future__ import annotations

from functools import partial

from anabranch.commands.connection import client, connection
from anabranch.commands.connection.client_kill import kill
from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command, CommandFunction

__all__ = ["COMMANDS"]

Row = partial(Command, group="connection")


def _row(
    name: str,
    function: CommandFunction,
    arity: int,
    since: str,
    summary: str,
    *,
    syntax: str = "",
    admin: bool = False,
    complexity: str = "O(1)",
    tips: tuple[str, ...] = (),
) -> Command:
    """A sub-command of CLIENT: they share group, flags and categories."""
    return Row(
        name,
        function,
        arity=arity,
        flags=("admin " if admin else "") + "noscript loading stale",
        since=since,
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        tips=tips,
    )


_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")
_SUBCOMMANDS = [
    _row(
        "caching",
        client.caching,
        3,
        "6.0.0",
        "Client-side caching only: refused by this server.",
        syntax="YES | NO",
    ),
    _row("getname", client.getname, 2, "2.6.9", "Answers the connection's name."),
    _row("getredir", client.getredir, 2, "6.0.0", "Answers -1: the connection is not tracked."),
    help_row("5.0.0", "connection"),
    _row("id", client.client_id, 2, "5.0.0", "Answers the connection's ID."),
    _row(
        "info",
        client.info,
        2,
        "6.2.0",
        "Describes the connection.",
        tips=("nondeterministic_output",),
    ),
    _row(
        "kill",
        kill,
        -3,
        "2.4.0",
        "Closes connections.",
        syntax="ip:port | <[ID client-id] [TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] "
        "[USER username] [ADDR ip:port] [LADDR ip:port] [SKIPME <YES | NO>] [MAXAGE seconds]>",
        admin=True,
        complexity="O(N) where N is the number of connections",
    ),
    _row(
        "list",
        client.list_,
        -2,
        "2.4.0",
        "Describes connections, one a line.",
        syntax="[TYPE <NORMAL | MASTER | REPLICA | PUBSUB>] [ID client-id [client-id ...]]",
        admin=True,
        complexity="O(N) where N is the number of connections",
        tips=("nondeterministic_output",),
    ),
    _row(
        "no-evict",
        client.no_evict,
        3,
        "7.0.0",
        "Accepted for compatibility: connections are never evicted.",
        syntax="ON | OFF",
        admin=True,
    ),
    _row(
        "no-touch",
        client.no_touch,
        3,
        "7.2.0",
        "Says whether this connection's commands leave idle times alone.",
        syntax="ON | OFF",
    ),
    _row(
        "pause",
        client.pause,
        -3,
        "3.0.0",
        "Holds back commands, or writing commands, of all connections for a while.",
        syntax="timeout [WRITE | ALL]",
        admin=True,
    ),
    _row(
        "reply",
        client.reply,
        3,
        "3.2.0",
        "Says whether this connection wants replies.",
        syntax="ON | OFF | SKIP",
    ),
    _row(
        "setinfo",
        client.setinfo,
        4,
        "7.2.0",
        "Notes the client library and its version.",
        syntax="LIB-NAME libname | LIB-VER libver",
        tips=_ALL_NODES,
    ),
    _row(
        "setname",
        client.setname,
        3,
        "2.6.9",
        "Names the connection.",
        syntax="connection-name",
        tips=_ALL_NODES,
    ),
    _row(
        "tracking",
        client.tracking,
        -3,
        "6.0.0",
        "Client-side caching: can be switched off only, as it is not supported.",
        syntax="<ON | OFF> [REDIRECT client-id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] "
        "[OPTIN] [OPTOUT] [NOLOOP]",
    ),
    _row(
        "trackinginfo",
        client.trackinginfo,
        2,
        "6.2.0",
        "Answers that the connection is not tracked.",
    ),
    _row(
        "unblock",
        client.unblock,
        -3,
        "5.0.0",
        "Ends the wait of a blocked connection.",
        syntax="client-id [TIMEOUT | ERROR]",
        admin=True,
        complexity="O(log N) where N is the number of connections",
    ),
    _row("unpause", client.unpause, 2, "6.2.0", "Ends CLIENT PAUSE.", admin=True),
]


COMMANDS: list[Command] = [
    # connection/connection.py
    Row(
        "ping",
        connection.ping,
        arity=-1,
        flags="fast",
        since="1.0.0",
        summary="Answers PONG, or the message given.",
        syntax="[message]",
        tips=("request_policy:all_shards", "response_policy:all_succeeded"),
    ),
    Row(
        "echo",
        connection.echo,
        arity=2,
        flags="loading stale fast",
        since="1.0.0",
        summary="Answers the message given.",
        syntax="message",
    ),
    Row(
        "quit",
        connection.quit_,
        arity=-1,
        flags="noscript loading stale fast no_auth allow_busy",
        since="1.0.0",
        summary="Closes the connection after all replies are written.",
    ),
    Row(
        "reset",
        connection.reset,
        arity=1,
        flags="noscript loading stale fast no_auth allow_busy",
        since="6.2.0",
        summary="Puts the connection back to the state of a new one.",
    ),
    Row(
        "select",
        connection.select,
        arity=2,
        flags="loading stale fast",
        since="1.0.0",
        summary="Chooses the database the connection works on.",
        syntax="index",
    ),
    Row(
        "auth",
        connection.auth,
        arity=-2,
        flags="noscript loading stale fast no_auth allow_busy",
        since="1.0.0",
        summary="Authenticates the connection.",
        complexity="O(N) where N is the number of passwords of the user",
        syntax="[username] password",
        history=(("6.0.0", "Takes a user name."),),
    ),
    Row(
        "hello",
        connection.hello,
        arity=-1,
        flags="noscript loading stale fast no_auth allow_busy",
        since="6.0.0",
        summary="Agrees on the protocol and introduces the server.",
        syntax="[protover [AUTH username password] [SETNAME clientname]]",
        history=(("6.2.0", "protover may be left out."),),
    ),
    Row(
        "readonly",
        connection.no_cluster,
        arity=1,
        flags="loading stale fast",
        categories="connection",
        since="3.0.0",
        group="cluster",
        summary="Cluster only: refused by this server.",
    ),
    Row(
        "readwrite",
        connection.no_cluster,
        arity=1,
        flags="loading stale fast",
        categories="connection",
        since="3.0.0",
        group="cluster",
        summary="Cluster only: refused by this server.",
    ),
    Row(
        "asking",
        connection.no_cluster,
        arity=1,
        flags="fast",
        categories="connection",
        since="3.0.0",
        group="cluster",
        summary="Cluster only: refused by this server.",
    ),
    Row(
        "cluster",
        connection.no_cluster,
        arity=-2,
        flags="stale",
        since="3.0.0",
        group="cluster",
        summary="Cluster only: refused by this server.",
        syntax="subcommand [argument ...]",
    ),
    # connection/client.py
    Row(
        "client",
        None,
        arity=-2,
        categories="",
        since="2.4.0",
        summary="Commands about connections.",
        subcommands=_SUBCOMMANDS,
    ),
]
