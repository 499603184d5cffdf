"""Answers in JSON, errors included; what requests ask for.

Bytes that are not UTF-8 become base64.
"""

from __future__ import annotations

import base64
from collections.abc import ItemsView
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anabranch.scheduling import Steps


class Problem(Exception):
    """An answer with an error status: ``code`` is for programs, the text for people."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        description: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(description)
        self.status = status
        self.code = code
        self.headers = headers


def as_json(
    content: Any, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response:
    """A complete answer in JSON. The content must not contain bytes that are not UTF-8."""
    return Response(
        msgspec.json.encode(content), status, headers=headers, media_type="application/json"
    )


async def problem(_request: Request, raised: Exception) -> Response:
    """The answer for a :class:`Problem`."""
    assert isinstance(raised, Problem)
    return explained(raised)


def explained(raised: Problem) -> Response:
    """The answer of code that is not a route."""
    content = {"error_code": raised.code, "description": str(raised)}
    return as_json(content, raised.status, raised.headers)


async def http_problem(request: Request, raised: Exception) -> Response:
    """The answer for an unknown path or method."""
    found: HTTPException = raised  # type: ignore[assignment]
    if found.status_code == HTTPStatus.NOT_FOUND:
        text, code = f"there is nothing at {request.scope['path']}", "not_found"
    else:
        text, code = f"{request.method} is not answered here", "bad_method"
    return explained(Problem(HTTPStatus(found.status_code), code, text))


# -- parameters of requests -------------------------------------------------------------------


DIGITS_MAX: Final = 18
"""Longer numbers are not read: very long ones raise an error of the interpreter."""


def bad(why: str) -> Problem:
    """A request that cannot be understood."""
    return Problem(HTTPStatus.BAD_REQUEST, "bad_request", why)


def number_of(request: Request, name: str, default: int, most: int) -> int:
    """A whole number from 0 to ``most``."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX and int(text) <= most):
        raise bad(f"{name} is a whole number from 0 to {most}")
    return int(text)


def place_of(request: Request) -> tuple[int, bytes] | None:
    """Database and key of ``db`` and ``key`` (or ``key64``); None if no key is named."""
    key = request.query_params.get("key")
    key64 = request.query_params.get("key64")
    if key is None and key64 is None:
        return None
    db = number_of(request, "db", 0, request.app.state.databases - 1)
    if key is not None:
        return db, key.encode("utf-8", "surrogatepass")
    try:
        return db, base64.b64decode(key64 or "", validate=True)
    except ValueError:  # not base64, or not even ASCII
        raise bad("key64 is not base64") from None


# -- JSON: replies as values, and commands from values --------------------------------------------

NAME_BYTES_MAX: Final = 1024
"""A longer name is cut where many names are shown."""

NAME_BYTES_LEFT: Final = 100
"""What is left of it."""


def shown_bytes(raw: bytes) -> Any:
    """Text, or ``{"b64": ...}`` if the bytes are not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode("ascii")}


def shown_name(raw: bytes) -> Any:
    """A name as :func:`shown_bytes` has it; if it is very long, ``{"cut": ..., "size": ...}``."""
    if len(raw) <= NAME_BYTES_MAX:
        return shown_bytes(raw)
    return {"cut": raw[:NAME_BYTES_LEFT].decode("utf-8", "replace"), "size": len(raw)}


def plain(reply: Any) -> Steps[Any]:
    """A reply of hiredis in the types of JSON; maps become lists of pairs."""
    if isinstance(reply, bytes):
        return shown_bytes(reply)
    if isinstance(reply, dict):
        reply = reply.items()
    if isinstance(reply, list | tuple | set | frozenset | ItemsView):
        found = []
        for item in reply:
            found.append((yield from plain(item)))
            yield
        return found
    if isinstance(reply, Exception):
        return {"error": str(reply)}
    return reply


def words_of(command: Any) -> Steps[list[bytes]]:
    """The words of a command; raises :class:`ValueError` if the value is not a command."""
    if not isinstance(command, list) or not command:
        raise ValueError("a command is a list of words")
    words = []
    for word in command:
        yield
        if isinstance(word, str):
            words.append(word.encode("utf-8", "surrogatepass"))
        elif isinstance(word, int) and not isinstance(word, bool):
            words.append(b"%d" % word)
        elif isinstance(word, dict) and isinstance(word.get("b64"), str):
            words.append(base64.b64decode(word["b64"], validate=True))
        else:
            raise ValueError('a word is text, a whole number, or {"b64": ...}')
    return words
