"""Parameters of requests."""

from __future__ import annotations

import base64
from http import HTTPStatus
from typing import Final

from starlette.requests import Request

from anabranch.web.answers import Problem

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
