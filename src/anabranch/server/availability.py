"""The availability API: what clients that fail over between regions ask by HTTP.

Two requests of the REST API of Redis Enterprise are answered, so that the lag-aware health checks
of official clients work unchanged::

    GET /v1/bdbs                                the database, and where it is found
    GET /v1/bdbs/<uid>/availability             200 if it can be used
        ?extend_check=lag                       and other regions are not far behind, nor this one
        &availability_lag_tolerance_ms=<ms>     (100 unless given)

``uid`` is the number of the region. What is not 200 carries ``error_code`` and ``description``. A
connection is closed after its answer; requests are short, and nobody has to log in.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from anabranch.server.acceptor import Acceptor
from anabranch.server.admission import Kind
from anabranch.server.listener import bind_all
from anabranch.version import REDIS_VERSION

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from anabranch.metrics.peers import PeerFigures
    from anabranch.node.exchange import Exchange
    from anabranch.region.region import Region
    from anabranch.server.admission import Admission, Place

__all__ = ["Availability", "Problem", "why_not_available"]

HEAD_BYTES_MAX: Final = 16 * 1024
TOLERANCE_MS: Final = 100
BACKLOG: Final = 128

_UNREACHABLE: Final = frozenset({"unreachable", "removed"})
"""States of regions that say nothing about this one."""


class Problem(Exception):
    """An answer other than 200."""

    def __init__(self, status: HTTPStatus, code: str, description: str) -> None:
        super().__init__(description)
        self.status = status
        self.code = code


def why_not_available(
    facts: Mapping[str, int | float | str],
    peers: list[PeerFigures],
    refusal: str | None,
    tolerance_ms: int | None,
) -> str | None:
    """Why clients had better use another region, None if they need not.

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
                return f"region {peer.region} has not told yet how far it is"
            if lag_s * 1000 > tolerance_ms:
                return f"region {peer.region} is {lag_s * 1000:.0f} ms {direction}"
    return None


class Availability:
    """Answers on ``http-port``."""

    def __init__(
        self, settings: Settings, admission: Admission, region: Region, regions: Exchange | None
    ) -> None:
        self._settings = settings
        self._region = region
        self._regions = regions
        self._acceptor = Acceptor(admission, Kind.HTTP, self._protocol)

    @property
    def uid(self) -> int:
        """Under which number the database is listed."""
        return self._settings.region_id or 1

    async def open(self) -> None:
        """Listen; raises :class:`ConfigError` if that is impossible."""
        self._acceptor.open(self._bind())

    def switch(self) -> None:
        """Listen, or not any more, as ``availability-api`` says now; raises ConfigError."""
        self.close()
        if self._settings.availability_api:
            self._acceptor.open(self._bind())

    def _bind(self) -> list[socket.socket]:
        settings = self._settings
        return bind_all(settings.bind, settings.http_port, BACKLOG, "--http-port")

    def close(self) -> None:
        """Stop answering: clients are to look elsewhere."""
        self._acceptor.close()

    # -- one connection -----------------------------------------------------------------------

    def _protocol(self, place: Place) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, partial(self._serve, place))

    async def _serve(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(self._settings.handshake_timeout):
                head = await reader.readuntil(b"\r\n\r\n")
                host, *_ = writer.get_extra_info("sockname")
                writer.write(self._answer(head.decode("latin-1"), host))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.transport.abort()  # nobody there, or nobody who speaks HTTP
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            place.leave()

    def _answer(self, head: str, address: str) -> bytes:
        request, *lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, found, value in (line.partition(":") for line in lines)
            if found
        }
        status, body = HTTPStatus.OK, b""
        try:
            content = self._content(request, headers.get("host", ""), address)
            body = b"" if content is None else msgspec.json.encode(content)
        except Problem as problem:
            status, body = problem.status, _explained(problem.code, str(problem))
        except ValueError as mistake:  # an address or a number that is none
            status, body = HTTPStatus.BAD_REQUEST, _explained("bad_request", str(mistake))
        return (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\n"
            "Connection: close\r\n\r\n"
        ).encode() + body

    def _content(self, request: str, host: str, address: str) -> Any:
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Problem(HTTPStatus.BAD_REQUEST, "bad_request", "this is not HTTP/1.1")
        method, target, _ = words
        if method != "GET":
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "bad_method", "only GET is answered")
        url = urlsplit(target)
        match url.path.strip("/").split("/"):
            case ["v1", "bdbs"]:
                return [self._database(host, address)]
            case ["v1", "bdbs", uid, *rest] if uid != str(self.uid) and rest in (
                [],
                ["availability"],
            ):
                raise Problem(
                    HTTPStatus.NOT_FOUND,
                    "bdb_not_found",
                    f"the only database here is number {self.uid}",
                )
            case ["v1", "bdbs", _]:
                return self._database(host, address)
            case ["v1", "bdbs", _, "availability"]:
                self._check(dict(parse_qsl(url.query)))
                return None
        raise Problem(HTTPStatus.NOT_FOUND, "not_found", f"there is nothing at {url.path}")

    def _check(self, options: dict[str, str]) -> None:
        """Raise 503 unless clients may use this region."""
        tolerance_ms = None
        if options.get("extend_check") == "lag":
            text = options.get("availability_lag_tolerance_ms", str(TOLERANCE_MS))
            if not text.isascii() or not text.isdecimal():
                raise Problem(
                    HTTPStatus.BAD_REQUEST,
                    "bad_request",
                    "availability_lag_tolerance_ms is a whole number of milliseconds",
                )
            tolerance_ms = int(text)
        regions = self._regions
        refusal = self._region.dispatcher.write_refusal
        if regions is None:
            why = refusal
        else:
            why = why_not_available(regions.facts(), regions.peers(), refusal, tolerance_ms)
        if why is not None:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "bdb_unavailable", why)

    def _database(self, host: str, address: str) -> dict[str, object]:
        """Under every name by which a client may have found us: it looks for the one it used."""
        settings = self._settings
        asked = urlsplit(f"//{host}").hostname or address
        names = dict.fromkeys([asked, settings.gossip_announce or asked])
        port = settings.port or settings.tls_port
        return {
            "uid": self.uid,
            "name": settings.region_name or f"region{settings.region_id}",
            "type": "redis",
            "version": REDIS_VERSION,
            "status": "active",
            "crdt": self._regions is not None,
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


def _explained(code: str, description: str) -> bytes:
    return msgspec.json.encode({"error_code": code, "description": description})
