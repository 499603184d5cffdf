"""CLIENT: properties of the own connection, and control of other connections.

``client_list.py`` turns a connection into text, ``client_kill.py`` chooses whom to close.
"""

from __future__ import annotations

from typing import Final, NoReturn

from anabranch.engine import texts
from anabranch.engine.arguments import integer, options_of, timeout_argument
from anabranch.engine.client_list import client_type, client_type_argument, describe
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, ONE, ZERO, bulk, null, verbatim
from anabranch.resp.encode import integer as integer_reply
from anabranch.resp.values import SetReply

_NO_TRACKING = "ERR Client tracking is not supported by this server"
_NOT_TRACKED = (
    "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
    "OPTOUT mode enabled"
)


def client_id(ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT ID."""
    return integer_reply(ctx.session.id)


# -- what the connection says of itself -------------------------------------------------------


def setname(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT SETNAME connection-name; an empty name removes the name."""
    session = ctx.session
    name = checked_name(args[2], "Client names")
    session.set_names(name, session.library_name, session.library_version)
    return OK


def getname(ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT GETNAME."""
    name = ctx.session.name
    return bulk(name) if name else null(ctx.resp3)


def setinfo(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT SETINFO LIB-NAME | LIB-VER value."""
    attribute = args[2].lower()
    if attribute not in (b"lib-name", b"lib-ver"):
        raise CommandError(b"ERR Unrecognized option '%b'" % args[2])
    value = checked_name(args[3], args[2].decode("latin-1"))
    session = ctx.session
    if attribute == b"lib-name":
        session.set_names(session.name, value, session.library_version)
    else:
        session.set_names(session.name, session.library_name, value)
    return OK


def no_evict(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT NO-EVICT ON | OFF."""
    ctx.session.no_evict = _on_off(args[2])
    return OK


def no_touch(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT NO-TOUCH ON | OFF."""
    ctx.session.no_touch = _on_off(args[2])
    return OK


def _on_off(raw: bytes) -> bool:
    word = raw.lower()
    if word not in (b"on", b"off"):
        raise CommandError(texts.SYNTAX)
    return word == b"on"


def reply(ctx: Context, args: list[bytes]) -> bytes | None:
    """CLIENT REPLY ON | OFF | SKIP: OFF and SKIP are silent themselves."""
    session = ctx.session
    word = args[2].lower()
    if word == b"on":
        session.reply_mode = "on"
        session.reply_skip = False
    elif word == b"off":
        session.reply_mode = "off"
    elif word == b"skip":
        session.reply_skip = session.reply_mode == "on"
    else:
        raise CommandError(texts.SYNTAX)
    session.refresh()
    return OK if word == b"on" else None


# -- looking ----------------------------------------------------------------------------------


def info(ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT INFO."""
    return verbatim(describe([ctx.session], ctx.session, "client|info", ctx.now_ms), ctx.resp3)


def list_(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT LIST [TYPE normal | master | replica | pubsub] [ID client-id ...]."""
    sessions = list(ctx.server.sessions.values())
    option = args[2].lower() if len(args) > 3 else b""
    if option == b"type" and len(args) == 4:
        kind = client_type_argument(args[3])
        sessions = [session for session in sessions if client_type(session) == kind]
    elif option == b"id":
        ids = [integer(raw, "ERR Invalid client ID") for raw in args[3:]]
        known = ctx.server.sessions
        sessions = [known[number] for number in dict.fromkeys(ids) if number in known]
    elif len(args) > 2:
        raise CommandError(texts.SYNTAX)
    return verbatim(describe(sessions, ctx.session, "client|list", ctx.now_ms), ctx.resp3)


# -- acting on connections --------------------------------------------------------------------


def pause(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT PAUSE timeout [WRITE | ALL]. A longer or stricter pause in force stays."""
    if len(args) > 4:
        raise wrong_subcommand(args)
    mode = args[3].lower() if len(args) == 4 else b"all"
    if mode not in (b"write", b"all"):
        raise CommandError("ERR CLIENT PAUSE mode must be WRITE or ALL")
    timeout_ms = timeout_argument(args[2])
    if timeout_ms == 0:
        return OK
    dispatcher = ctx.server.dispatcher
    in_force = dispatcher.pause_until_ms > ctx.now_ms
    dispatcher.pause_writes_only = mode == b"write" and (
        not in_force or dispatcher.pause_writes_only
    )
    dispatcher.pause_until_ms = max(dispatcher.pause_until_ms, ctx.now_ms + timeout_ms)
    dispatcher.guarded_by.add("pause")
    return OK


def unpause(ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT UNPAUSE."""
    ctx.server.blocked.unpause()
    return OK


def unblock(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT UNBLOCK client-id [TIMEOUT | ERROR]."""
    if len(args) > 4:
        raise wrong_subcommand(args)
    reason = args[3].lower() if len(args) == 4 else b"timeout"
    if reason not in (b"timeout", b"error"):
        raise CommandError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
    session = ctx.server.sessions.get(integer(args[2]))
    if session is None or session.waiter is None or session.waiter in ctx.waits.inquiries:
        return ZERO  # also if it waits for the end of work that goes on
    waiter = session.waiter
    entry = ctx.server.dispatcher.find(waiter.args)
    if entry is not None:
        entry.histogram[0] += 1
    if reason == b"timeout":
        ctx.server.blocked.time_out(waiter)
    else:
        refusal = CommandError("UNBLOCKED client unblocked via CLIENT UNBLOCK")
        ended = ctx.server.dispatcher.failed(refusal)
        if entry is not None:
            entry.failed += 1
        ctx.server.blocked.end_wait(waiter, ended)
    return ONE


# -- client-side caching, which this server leaves to others ----------------------------------


_TRACKING: Final = {
    **dict.fromkeys((b"REDIRECT", b"PREFIX"), 1),
    **dict.fromkeys((b"BCAST", b"OPTIN", b"OPTOUT", b"NOLOOP"), 0),
}


def tracking(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT TRACKING ON | OFF [...]: OFF is the case already, ON is refused."""
    given: set[bytes] = set()
    for name, values in options_of(args[3:], _TRACKING):
        if name == b"REDIRECT":
            if name in given:
                raise CommandError("ERR A client can only redirect to a single other client")
            if integer(values[0]) not in ctx.server.sessions:
                raise CommandError("ERR The client ID you want redirect to does not exist")
        given.add(name)
    word = args[2].lower()
    if word == b"on":
        if b"PREFIX" in given and b"BCAST" not in given:
            raise CommandError("ERR PREFIX option requires BCAST mode to be enabled")
        if {b"OPTIN", b"OPTOUT"} <= given:
            raise CommandError("ERR You can't specify both OPTIN mode and OPTOUT mode")
        raise CommandError(_NO_TRACKING)
    if word != b"off":
        raise CommandError(texts.SYNTAX)
    return OK


def caching(_ctx: Context, _args: list[bytes]) -> NoReturn:
    """CLIENT CACHING YES | NO: only for tracked connections, of which there are none."""
    raise CommandError(_NOT_TRACKED)


def getredir(_ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT GETREDIR: -1 means not tracked."""
    return integer_reply(-1)


def trackinginfo(ctx: Context, _args: list[bytes]) -> bytes:
    """CLIENT TRACKINGINFO."""
    return ctx.reply({b"flags": SetReply([b"off"]), b"redirect": -1, b"prefixes": []})


# names that clients give themselves, restricted so that CLIENT LIST stays one line each


_PRINTABLE: Final = bytes(range(0x21, 0x7F))


def checked_name(raw: bytes, what: str) -> bytes:
    """A name of printable ASCII without blanks, or empty; ``what`` begins the error text."""
    if not raw.translate(None, _PRINTABLE):
        return raw
    raise CommandError(f"ERR {what} cannot contain spaces, newlines or special characters.")
