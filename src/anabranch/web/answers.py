"""Answers in JSON, errors included."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response


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
    """The same for code that is not a route."""
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
