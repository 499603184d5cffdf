"""CLIENT KILL: choosing connections by their properties, and closing them."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.engine import texts
from anabranch.engine.arguments import integer, integer_or_none
from anabranch.engine.client_list import client_type, client_type_argument
from anabranch.engine.context import Context
from anabranch.engine.session import Session
from anabranch.errors import CommandError
from anabranch.resp.encode import OK
from anabranch.resp.encode import integer as integer_reply

_Filter = Callable[[list["Session"]], list["Session"]]
"""Leaves those that pass."""


def kill(ctx: Context, args: list[bytes]) -> bytes:
    """CLIENT KILL address, or CLIENT KILL filter value [filter value ...]."""
    if len(args) == 3:
        address = args[2].decode("latin-1")
        everybody = ctx.server.sessions.values()
        victims = [session for session in everybody if session.address == address]
        if not victims:
            raise CommandError("ERR No such client")
        _close(ctx, victims[0])
        return OK
    filters, skip_me = _filters(ctx, args)
    victims = list(ctx.server.sessions.values())
    for passing in filters:
        victims = passing(victims)
    if skip_me:
        victims = [session for session in victims if session is not ctx.session]
    for session in victims:
        _close(ctx, session)
    return integer_reply(len(victims))


def _close(ctx: Context, session: Session) -> None:
    """The calling client first gets its reply."""
    if session is ctx.session:
        session.closing = True
    else:
        ctx.server.host.close(session)


def _filters(ctx: Context, args: list[bytes]) -> tuple[list[_Filter], bool]:
    if len(args) % 2:
        raise CommandError(texts.SYNTAX)
    filters: list[_Filter] = []
    skip_me = True
    for word, value in zip(args[2::2], args[3::2], strict=True):
        option = word.lower()
        if option == b"skipme":
            if value.lower() not in (b"yes", b"no"):
                raise CommandError(texts.SYNTAX)
            skip_me = value.lower() == b"yes"
        elif option in _FILTERS:
            filters.append(_FILTERS[option](ctx, value))
        else:
            raise CommandError(texts.SYNTAX)
    return filters, skip_me


def _by_id(_ctx: Context, value: bytes) -> _Filter:
    number = integer_or_none(value)
    if number is None or number < 1:
        raise CommandError("ERR client-id should be greater than 0")
    return lambda sessions: [each for each in sessions if each.id == number]


def _by_type(_ctx: Context, value: bytes) -> _Filter:
    kind = client_type_argument(value)
    return lambda sessions: [each for each in sessions if client_type(each) == kind]


def _by_address(_ctx: Context, value: bytes) -> _Filter:
    address = value.decode("latin-1")
    return lambda sessions: [each for each in sessions if each.address == address]


def _by_local_address(_ctx: Context, value: bytes) -> _Filter:
    address = value.decode("latin-1")
    return lambda sessions: [each for each in sessions if each.local_address == address]


def _by_user(ctx: Context, value: bytes) -> _Filter:
    user = ctx.server.acl.users.get(value)
    if user is None:
        raise CommandError(b"ERR No such user '%b'" % value)
    return lambda sessions: [each for each in sessions if each.user is user]


def _by_age(ctx: Context, value: bytes) -> _Filter:
    seconds = integer(value, "ERR maxage is not an integer or out of range")
    if seconds < 1:
        raise CommandError("ERR maxage should be greater than 0")
    created_before_ms = ctx.now_ms - seconds * 1000
    return lambda sessions: [each for each in sessions if each.created_ms <= created_before_ms]


_FILTERS: dict[bytes, Callable[[Context, bytes], _Filter]] = {
    b"id": _by_id,
    b"type": _by_type,
    b"addr": _by_address,
    b"laddr": _by_local_address,
    b"user": _by_user,
    b"maxage": _by_age,
}
