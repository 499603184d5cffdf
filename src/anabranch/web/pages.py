"""The files of the page: read once, and compared by their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/dark.css": ("dark.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/uplot.js": ("vendor/uPlot.iife.min.js", "text/javascript"),
    "/uplot.css": ("vendor/uPlot.min.css", "text/css"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}


def page_routes() -> list[Route]:
    """A route for each file. They contain no data, so they need no login."""
    return [Route(path, _served(name, kind)) for path, (name, kind) in _FILES.items()]


def _served(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("anabranch.web").joinpath("static", name).read_bytes()
    headers = {
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        "cache-control": "no-cache",
    }

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return serve
