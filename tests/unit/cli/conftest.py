"""Shared by the tests of the command line."""

from __future__ import annotations

import socket

import pytest


@pytest.fixture
def unused_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
