"""The availability API: HTTP requests of clients that fail over between regions.

These requests of the REST API of Redis Enterprise are answered, so that the lag-aware health checks
of official clients work unchanged::

    GET /v1/bdbs                                the database, and where it is found
    GET /v1/bdbs/<uid>/availability             200 if it can be used
    GET /v1/local/bdbs/<uid>/endpoint/availability      the same, as load balancers ask
        ?extend_check=lag                       and other regions are not far behind, nor this one
        &availability_lag_tolerance_ms=<ms>     (100 unless given)

``uid`` is the number of the region. What is not 200 carries ``error_code`` and ``description``.
Nobody has to log in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from anabranch.metrics.peers import PeerFigures
from anabranch.node.node import Node
from anabranch.region.region import Region
from anabranch.version import REDIS_VERSION
from anabranch.web.answers import Problem, as_json, bad, number_of

TOLERANCE_MS: Final = 100
TOLERANCE_MAX_MS: Final = 10**12

_UNREACHABLE: Final = frozenset({"unreachable", "cut", "removed"})
"""States of regions that say nothing about this one."""


def why_not_available(
    facts: Mapping[str, int | float | str],
    peers: list[PeerFigures],
    refusal: str | None,
    tolerance_ms: int | None,
) -> str | None:
    """Why clients should use another region; None if they should use this one.

    ``refusal`` is what writing clients are told, if they are; with a tolerance the lag counts.
    """
    if refusal is not None:
        return refusal
    if not facts["cluster_id"]:
        return "this region has not joined its cluster yet"
    if facts["joining_from"]:
        return f"the state of region {facts['joining_from']} is being joined"
    reachable = [peer for peer in peers if peer.state not in _UNREACHABLE]
    if tolerance_ms is None or not reachable:
        return None
    if not facts["caught_up"]:
        return "this region is still catching up"
    for peer in reachable:
        for lag_s, direction in ((peer.lag_seconds, "behind"), (peer.receive_lag_seconds, "ahead")):
            if lag_s is None:
                return f"region {peer.region} has not reported its progress yet"
            if lag_s * 1000 > tolerance_ms:
                return f"region {peer.region} is {lag_s * 1000:.0f} ms {direction}"
    return None


class Availability:
    """The routes of the API, while ``availability-api`` is on."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._settings = region.settings
        self.routes = [
            Route("/v1/bdbs", self._databases),
            Route("/v1/bdbs/{uid}", self._database),
            Route("/v1/bdbs/{uid}/availability", self._availability),
            Route("/v1/local/bdbs/{uid}/endpoint/availability", self._availability),
        ]

    @property
    def uid(self) -> int:
        """The number under which the database is listed."""
        return self._settings.region_id or 1

    def _require(self, uid: str) -> None:
        if not self._settings.availability_api:
            raise Problem(
                HTTPStatus.NOT_FOUND, "not_found", "the availability API is off (availability-api)"
            )
        if uid != str(self.uid):
            raise Problem(
                HTTPStatus.NOT_FOUND,
                "bdb_not_found",
                f"the only database here is number {self.uid}",
            )

    async def _databases(self, request: Request) -> Response:
        self._require(str(self.uid))
        return as_json([self._described(request)])

    async def _database(self, request: Request) -> Response:
        self._require(request.path_params["uid"])
        return as_json(self._described(request))

    async def _availability(self, request: Request) -> Response:
        """Answer 200 if clients may use this region, otherwise 503."""
        self._require(request.path_params["uid"])
        tolerance_ms = None
        if request.query_params.get("extend_check") == "lag":
            tolerance_ms = number_of(
                request, "availability_lag_tolerance_ms", TOLERANCE_MS, TOLERANCE_MAX_MS
            )
        regions = self._region.host.regions
        refusal = self._region.dispatcher.write_refusal
        why: str | None
        if self._region.dispatcher.is_loading:
            why = "the data are being loaded"
        elif regions is None:
            why = refusal
        else:
            why = why_not_available(regions.facts(), regions.peers(), refusal, tolerance_ms)
        if why is not None:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "bdb_unavailable", why)
        return Response(b"", media_type="application/json")

    def _described(self, request: Request) -> dict[str, object]:
        """Every name under which a client may have reached this region; it looks for its own."""
        settings = self._settings
        address = str((request.scope.get("server") or ("", 0))[0])
        try:
            asked = urlsplit(f"//{request.headers.get('host', '')}").hostname or address
        except ValueError as mistake:
            raise bad(str(mistake)) from None
        names = dict.fromkeys([asked, settings.gossip_announce or asked])
        port = settings.port or settings.tls_port
        return {
            "uid": self.uid,
            "name": settings.region_name or f"region{settings.region_id}",
            "type": "redis",
            "version": REDIS_VERSION,
            "status": "active",
            "crdt": self._region.host.regions is not None,
            "endpoints": [
                {
                    "uid": f"{self.uid}:{number}",
                    "dns_name": name,
                    "addr": [address],
                    "addr_type": "external",
                    "port": port,
                }
                for number, name in enumerate(names, 1)
            ],
        }


# -- /healthz and /readyz --------------------------------------------------------------------------

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
