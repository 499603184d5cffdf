"""Requests to the HTTP port of a server."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


def ask(port: int, path: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """One request on a connection of its own; names of headers with ``_`` for ``-``."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        sent = None if body is None else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent, named)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
