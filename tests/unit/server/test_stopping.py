"""A client that connects while the server stops: what it is answered is in the log."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.embedded import World, turns
from tests.support.wire import encode_command

TURNS_MAX = 8
"""Turns of the event loop between a connection and its first request, with room to spare."""


def sent(path: str, line: str) -> socket.socket:
    """A client that has connected and written a request while the event loop stood still."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(path)
    client.sendall(encode_command(line.split()))
    client.setblocking(False)
    return client


def reply_of(client: socket.socket) -> bytes:
    """What the client was answered; nothing if its connection was closed or forgotten."""
    try:
        return client.recv(1000)
    except (BlockingIOError, ConnectionResetError):
        return b""


@pytest.mark.parametrize("before", range(TURNS_MAX))
async def test_what_is_answered_while_it_stops_is_in_the_log(
    before: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, caplog)
    await world.start("no")
    client = sent(str(tmp_path / "socket"), "XADD s * f v")
    await turns(before)
    await world.stop()
    world.server.close()
    reply = reply_of(client)
    client.close()
    assert (b"s" in world.keys_on_disk()) == bool(reply)


async def test_what_is_answered_behind_the_snapshot_of_a_stop_is_saved_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, caplog)
    await world.start("no", appendonly=False, save="3600 1000")
    client = await world.client()
    await client.do("SET before v")
    world.server.persistence.save_for_stop()
    await client.do("SET behind v")
    await world.stop()
    world.server.close()
    assert world.keys_on_disk() == {b"before", b"behind"}
