"""Whether the process works, and whether it serves."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from anabranch.node.node import Node

SILENT_S: Final = 5.0
"""Seconds. If background work has not run for longer, the process does not work."""


class Health:
    """``/healthz`` and ``/readyz``. Other regions do not count: one that is cut off serves."""

    def __init__(self, node: Node, silent_s: Callable[[], float]) -> None:
        """``silent_s``: how long ago background work ran, in seconds."""
        self._node = node
        self._silent_s = silent_s
        self.is_stopping = False
        self.routes = [Route("/healthz", self._healthz), Route("/readyz", self._readyz)]

    async def _healthz(self, _request: Request) -> Response:
        silent_s = self._silent_s()
        if silent_s > SILENT_S:
            return _said(f"background work has not run for {silent_s:.0f} s", ok=False)
        return _said("ok", ok=True)

    async def _readyz(self, _request: Request) -> Response:
        why = self.why_not_ready()
        return _said(why or "ok", ok=why is None)

    def why_not_ready(self) -> str | None:
        """Why clients should not use this server; None if they may."""
        if self.is_stopping:
            return "the server is stopping"
        if self._node.persistence.is_loading:
            return f"the data are being loaded: {self._node.persistence.loaded_percent:.0f} %"
        trouble = self._node.durability.trouble
        if trouble is not None:
            return f"the log cannot be written: {trouble}"
        exchange = self._node.persistence.exchange
        if exchange is not None and exchange.gate.is_newcomer:
            return "this region is new to its cluster and has no state yet"
        return None


def _said(text: str, *, ok: bool) -> Response:
    status = HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE
    return PlainTextResponse(f"{text}\n", status)
