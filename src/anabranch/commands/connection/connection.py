"""Commands about the connection: HELLO, AUTH, SELECT, PING, QUIT and similar.

Also the cluster commands, which a server without cluster answers with one sentence: cluster-aware
clients fall back on reading it.
"""

from __future__ import annotations

from typing import Final, NoReturn

from anabranch.commands.connection.client import checked_name
from anabranch.engine import texts
from anabranch.engine.acl.rules import DEFAULT_USER
from anabranch.engine.arguments import int32, integer_or_none, options_of
from anabranch.engine.context import Context
from anabranch.engine.queueing import end_transaction
from anabranch.engine.redaction import redacted
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, bulk
from anabranch.scheduling import Steps
from anabranch.version import REDIS_VERSION

_WRONGPASS = "WRONGPASS invalid username-password pair or user is disabled."
_WITHOUT_NEED = (
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
_HELLO_NOAUTH = (
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
    "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
    "select the RESP protocol version at the same time"
)
_NO_CLUSTER = "ERR This instance has cluster support disabled"
_PONG = b"+PONG\r\n"


def ping(ctx: Context, args: list[bytes]) -> bytes:
    """PING [message]. A RESP2 subscriber gets an array, as all it reads are messages."""
    if len(args) > 2:
        raise texts.wrong_arity("ping")
    session = ctx.session
    if not session.resp3 and (session.channels or session.patterns or session.shard_channels):
        return ctx.reply([b"pong", args[1] if len(args) == 2 else b""])
    return bulk(args[1]) if len(args) == 2 else _PONG


def echo(_ctx: Context, args: list[bytes]) -> bytes:
    """ECHO message: the message comes back."""
    return bulk(args[1])


def quit_(ctx: Context, _args: list[bytes]) -> bytes:
    """QUIT: close the connection after the reply."""
    ctx.session.closing = True
    return OK


def select(ctx: Context, args: list[bytes]) -> bytes:
    """SELECT index: the database that following commands use."""
    index = int32(args[1])
    if not 0 <= index < len(ctx.keyspace.databases):
        raise CommandError(texts.DB_RANGE)
    ctx.session.db = index
    ctx.db = ctx.keyspace.databases[index]
    return OK


# -- who is it --------------------------------------------------------------------------------


def auth(ctx: Context, args: list[bytes]) -> bytes:
    """AUTH [username] password: become this user."""
    words = _without_secrets(args)
    if len(words) > 3:
        raise CommandError(texts.SYNTAX)
    if len(words) == 2:
        ctx.server.acl.expect()
        if ctx.server.acl.users[DEFAULT_USER].nopass:
            raise CommandError(_WITHOUT_NEED)
        _authenticate(ctx, args, DEFAULT_USER, words[1])
    else:
        _authenticate(ctx, args, words[1], words[2])
    return OK


def _without_secrets(args: list[bytes]) -> list[bytes]:
    """Hide the passwords of a request from later readers; returns the former request."""
    words = args[:]
    args[:] = redacted(args)
    return words


def _authenticate(ctx: Context, args: list[bytes], name: bytes, password: bytes) -> None:
    user = ctx.server.acl.authenticate(name, password)
    if user is None:
        ctx.server.acl.log_failed_login(ctx, name, args)
        raise CommandError(_WRONGPASS)
    ctx.session.user = user
    ctx.session.refresh()


def hello(ctx: Context, args: list[bytes]) -> bytes:
    """HELLO [protover [AUTH username password] [SETNAME clientname]]."""
    session = ctx.session
    resp3 = session.resp3
    if len(args) > 1:
        version = integer_or_none(args[1])
        if version is None:
            raise CommandError("ERR Protocol version is not an integer or out of range")
        if version not in (2, 3):
            raise CommandError("NOPROTO unsupported protocol version")
        resp3 = version == 3
    if session.subscribed is not None and not resp3:
        raise CommandError("ERR entries are pushed with RESP3 only: AB.UNSUBSCRIBE first")
    credentials, name = _hello_options(_without_secrets(args))
    if credentials is not None:
        _authenticate(ctx, args, *credentials)
    if session.user is None:
        ctx.server.acl.expect()
        raise CommandError(_HELLO_NOAUTH)
    if name is not None:
        session.set_names(name, session.library_name, session.library_version)
    session.resp3 = resp3
    session.refresh()
    return ctx.reply(
        {
            b"server": b"redis",
            b"version": REDIS_VERSION,
            b"proto": 3 if resp3 else 2,
            b"id": session.id,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }
    )


_HELLO: Final = {b"AUTH": 2, b"SETNAME": 1}


def _hello_options(args: list[bytes]) -> tuple[tuple[bytes, bytes] | None, bytes | None]:
    credentials = None
    name = None
    for word, values in options_of(args[2:], _HELLO, b"ERR Syntax error in HELLO option '%b'"):
        if word == b"AUTH":
            credentials = (values[0], values[1])
        else:
            name = checked_name(values[0], "Client names")
    return credentials, name


def reset(ctx: Context, args: list[bytes]) -> bytes | None:
    """RESET: the state of a new connection, except for the name and version of the library."""
    return ctx.in_slices(args, _reset(ctx))


def _reset(ctx: Context) -> Steps[list[bytes]]:
    session = ctx.session
    yield from ctx.server.channels.leave_all(session)
    end_transaction(ctx.keyspace, session)
    ctx.server.blocked.unsubscribe(session)
    ctx.server.dispatcher.stop_monitoring(session)
    session.monitoring = False
    session.user = ctx.server.acl.initial_user()
    session.set_names(b"", session.library_name, session.library_version)
    session.reply_mode = "on"
    session.no_evict = session.no_touch = False
    session.db = 0
    session.resp3 = False
    session.refresh()
    ctx.enter(session, ctx.now_ms)
    return [b"+RESET\r\n"]


# -- no cluster -------------------------------------------------------------------------------


def no_cluster(_ctx: Context, _args: list[bytes]) -> NoReturn:
    """READONLY, READWRITE, ASKING, CLUSTER: standalone servers refuse them."""
    raise CommandError(_NO_CLUSTER)
