"""All routes of a server as one application."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.node.node import Node
from anabranch.web.answers import Problem, http_problem, problem
from anabranch.web.api import Api
from anabranch.web.availability import Availability, Health
from anabranch.web.entries import EntryParts
from anabranch.web.feed import Feed
from anabranch.web.guard import Guard, OnlyHealth
from anabranch.web.metrics import Metrics
from anabranch.web.protocol import Connections, HttpConnection


class Web:
    """The HTTP side of one server."""

    def __init__(
        self,
        node: Node,
        logger: logging.Logger,
        silent_s: Callable[[], float],
        feeds: Callable[[], tuple[int, int]],
    ) -> None:
        """``silent_s``: how long ago background work ran, in seconds.

        ``feeds``: how many pages may be open, of all addresses and of one.
        """
        region = node.region
        self.health = Health(node, silent_s)
        self._feed = Feed(node, self.health, feeds)
        app = Starlette(
            routes=[
                *self.health.routes,
                *Availability(region).routes,
                *Metrics(node).routes,
                *self._feed.routes,
                *Api(node, self._feed.survey).routes,
                *EntryParts(node).routes,
                *page_routes(),
            ],
            exception_handlers={Problem: problem, HTTPException: http_problem},
        )
        app.router.redirect_slashes = False  # they would go to whatever Host says
        app.state.databases = region.settings.databases
        guarded = Guard(
            app,
            region.settings,
            lambda: region.acl.initial_user() is not None,
            lambda: region.dispatcher.is_loading,
        )
        self._only_health = OnlyHealth(guarded)
        self._connections = Connections(
            guarded, logger, lambda: region.settings.handshake_timeout, region.scheduler
        )

    def connection(self, left: Callable[[], None], *, only_health: bool) -> HttpConnection:
        """A protocol for a connection that has come; ``left`` is called when it is gone.

        ``only_health``: it gets one answer, which is an error unless it asks for health.
        """
        return self._connections.new(left, self._only_health if only_health else None)

    def close(self) -> None:
        """End all connections."""
        self.health.is_stopping = True
        self._feed.close()
        self._connections.close()


# -- the files of the page: read once, and compared by their digest ---------------------------


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
