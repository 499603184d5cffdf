"""A server with its page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.inspection import mistakes
from tests.support.servers import AnabranchServer, free_port

__all__ = ["TOKEN", "page_server"]

TOKEN = "a-token-of-some-length"


@contextmanager
def page_server() -> Iterator[tuple[AnabranchServer, int]]:
    """The server and the port of its page; its log must name no mistake at the end."""
    port = free_port()
    with AnabranchServer(extra=["--http-port", str(port), "--http-token", TOKEN]) as server:
        yield server, port
        assert not mistakes(server)
