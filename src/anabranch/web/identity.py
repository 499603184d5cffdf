"""Which user sends an HTTP request, and what the user may do.

A request with a user and a password (basic authentication) acts as this user. A request with
``http-token`` (bearer) acts as the default user. Without either a request reads as the default
user if that needs no password, and changes nothing. A user who needs no password only reads, too:
its name is no proof.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from starlette.requests import HTTPConnection

from anabranch.engine.acl.users import User
from anabranch.node.node import Node
from anabranch.region.region import Region
from anabranch.web.answers import Problem
from anabranch.web.conversation import Conversation, ErrorReply

_CHALLENGE = {"WWW-Authenticate": 'Basic realm="anabranch", charset="UTF-8"'}
_DEFAULT_USER = b"default"


class Viewer(NamedTuple):
    """The user of a request. ``may_act``: proven by a secret, so writing commands may run."""

    user: User
    may_act: bool
    address: str
    local: str

    @property
    def name(self) -> str:
        """The name of the user."""
        return self.user.name.decode("utf-8", "replace")


def client_address(request: HTTPConnection) -> str:
    """``ip:port`` as CLIENT LIST shows it."""
    return _shown(request.scope.get("client"))


def _shown(pair: tuple[str, int] | None) -> str:
    host, port = pair or ("", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def identify(node: Node, request: HTTPConnection) -> Viewer:
    """The user of a request; raises :class:`Problem` (401) if credentials are wrong or missing."""
    acl = node.region.acl
    address, local = client_address(request), _shown(request.scope.get("server"))
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        user = await _by_password(node, address, local, given)
        return Viewer(user, not user.nopass, address, local)
    if scheme.lower() == "bearer":
        token = node.region.settings.http_token
        user = acl.users[_DEFAULT_USER]
        if not token or not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise _refused("the token is not the one of http-token")
        if not user.enabled:
            raise _refused("the token stands for the default user, which is off")
        return Viewer(user, True, address, local)
    found = acl.initial_user()
    if found is None:
        raise _refused("a user and a password are needed, or the token of http-token")
    return Viewer(found, False, address, local)


async def _by_password(node: Node, address: str, local: str, given: str) -> User:
    """Authenticate by ``AUTH``, so that failures are counted and logged as for any client."""
    try:
        name, found, password = base64.b64decode(given, validate=True).partition(b":")
    except ValueError:  # not base64, or not even ASCII
        found = b""
    if not found:
        raise _refused("the user and the password cannot be read")
    conversation = Conversation(node, address, local, None)
    try:
        await conversation.call(b"AUTH", name or _DEFAULT_USER, password)
        user = conversation.session.user
    except ErrorReply:
        raise _refused("wrong user or password, or the user is off") from None
    finally:
        conversation.close()
    assert user is not None, "AUTH has succeeded"
    return user


def _refused(why: str) -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, "not_authenticated", why, _CHALLENGE)


# -- what a user may see: the rules are those of the commands that show the same --------------


def may_see(region: Region, user: User) -> Callable[[bytes], bool]:
    """Whether a user may see a stream's figures: whether ``XINFO STREAM key`` is allowed."""
    if user.is_unrestricted:
        return lambda _key: True
    command = region.dispatcher.entries[b"xinfo"].subcommands[b"stream"].command
    return lambda key: user.judge(command, [b"XINFO", b"STREAM", key]) is None


def may_run(region: Region, user: User, *words: bytes) -> bool:
    """Whether the rules of a user allow a command."""
    entry = region.dispatcher.find(list(words))
    return entry is not None and user.judge(entry.command, list(words)) is None


def require(region: Region, user: User, *words: bytes) -> None:
    """Raise 403 unless the rules of a user allow a command."""
    if not may_run(region, user, *words):
        text = b" ".join(words).decode("utf-8", "replace")
        raise Problem(HTTPStatus.FORBIDDEN, "no_permission", f"the user may not run {text}")
