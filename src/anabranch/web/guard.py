"""Checks before every route: where a request comes from; and headers that limit its answer.

A page of another site must not reach this server through the browser of somebody who may. So
``Host`` must be a name of this machine (else a site could give its own name our address), a request
that changes something must come from our own page (``Origin``, and a header that no form can send),
and the policy in our answers lets the page load nothing from elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch.config.settings import Settings
from anabranch.web.answers import Problem, bad, explained

ACT_HEADER: Final = "x-anabranch-act"
"""A header of every request of the page, without which nothing is changed.

A form of another site cannot send it.
"""

PARAMETERS_MAX: Final = 100

_FOR_EVERYBODY: Final = ("/healthz", "/readyz", "/v1/")
"""Paths that programs request under any host name. Their answers contain no data."""

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_CHALLENGE: Final = 'Bearer realm="anabranch"'
"""For the page, which asks for passwords itself. At Basic the browser asks, and a request waits."""

_PROTECTED: Final = (
    "protected-mode is on and the default user has no password, so only this machine is answered: "
    "set requirepass, or protected-mode no, or ask from this machine"
)


_TOO_MANY: Final = Problem(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too_many_connections",
    "too many connections to the HTTP port are open, all in all or from your address: close pages",
    {"retry-after": "1"},
)


class Guard:
    """An ASGI application that checks requests before it passes them to another application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        is_open: Callable[[], bool],
        is_loading: Callable[[], bool] = bool,
    ) -> None:
        """``is_open``: whether the default user needs no password.

        ``is_loading``: whether there are no data to be shown yet.
        """
        self._is_loading = is_loading
        self._app = app
        self._settings = settings
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is not let in; pass on the others (ASGI)."""
        assert scope["type"] == "http", "nothing else is spoken here"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                if "www-authenticate" in headers and ACT_HEADER in Headers(scope=scope):
                    headers["www-authenticate"] = _CHALLENGE
            await send(message)

        try:
            if scope["query_string"].count(b"&") >= PARAMETERS_MAX:
                raise bad(f"a request has at most {PARAMETERS_MAX} parameters")
            if not scope["path"].startswith(_FOR_EVERYBODY):
                self._check(scope)
        except Problem as problem:
            await explained(problem)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> None:
        if not self._settings.http_port:
            raise Problem(
                HTTPStatus.NOT_FOUND,
                "not_found",
                f"there is nothing at {scope['path']}: only the availability API is on, "
                "set http-port for the page and metrics",
            )
        if self._is_loading():
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "loading",
                "the data are being loaded from the disk, ask again soon",
                {"retry-after": "1"},
            )
        headers = Headers(scope=scope)
        if self._settings.protected_mode and self._is_open() and not _is_local(scope):
            raise Problem(HTTPStatus.FORBIDDEN, "protected_mode", _PROTECTED)
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise Problem(
                HTTPStatus.MISDIRECTED_REQUEST,
                "wrong_host",
                "this name is not known here: add it to http-hosts, or ask by the IP address",
            )
        if scope["method"] in {"GET", "HEAD"}:
            return
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host.lower():
            raise Problem(HTTPStatus.FORBIDDEN, "wrong_origin", "the request is of another site")
        if ACT_HEADER not in headers:
            raise Problem(
                HTTPStatus.FORBIDDEN, "no_act_header", f"the header {ACT_HEADER} is missing"
            )

    def _is_ours(self, host: str) -> bool:
        """Whether the host is allowed. An IP address is: an attacker can only redirect names."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        known = self._settings.http_hosts.lower().split()
        if name == "localhost" or name in known or "*" in known:
            return True
        return _is_ip(name)


class OnlyHealth:
    """For a connection beyond the places of HTTP: a probe must not fail because pages are open."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests for health alone (ASGI)."""

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        if scope["path"].startswith(_FOR_EVERYBODY):
            await self._app(scope, receive, send_last)
        else:
            await explained(_TOO_MANY)(scope, receive, send_last)


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_local(scope: Scope) -> bool:
    """Whether the client runs on this machine."""
    host, _ = scope.get("client") or ("", 0)
    if not _is_ip(host):
        return False
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
