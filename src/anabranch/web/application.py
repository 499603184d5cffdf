"""All routes of a server as one application."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from anabranch.node.node import Node
from anabranch.web.answers import Problem, http_problem, problem
from anabranch.web.api import Api
from anabranch.web.availability import Availability
from anabranch.web.entries import EntryParts
from anabranch.web.feed import Feed
from anabranch.web.guard import Guard, OnlyHealth
from anabranch.web.health import Health
from anabranch.web.metrics import Metrics
from anabranch.web.pages import page_routes
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
