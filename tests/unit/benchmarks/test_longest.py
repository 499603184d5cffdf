"""How long others wait: what the canary sees, and what the catalogue asks for."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress

from benchmarks.versus_redis.canary import PING, PONG, Canary
from benchmarks.versus_redis.longest import long_commands

STALL_S = 0.2


def test_a_canary_sees_a_stall_in_the_period_in_which_it_was():
    stalled = threading.Event()
    stall = threading.Event()

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client, suppress(ConnectionError):  # the canary may go in the middle of a ping
            while client.recv(len(PING)):
                if stall.is_set():
                    stall.clear()
                    time.sleep(STALL_S)
                    stalled.set()
                client.sendall(PONG)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        with Canary(listener.getsockname()[1], os.getpid()) as canary:
            stall.set()
            assert stalled.wait(60)
            sighting = canary.look()
            assert sighting.worst_ms >= STALL_S * 1000
            assert sighting.pings >= 1
        server.join(60)
        assert not server.is_alive()


def test_every_long_command_has_a_name_of_its_own():
    names = [command.name for command in long_commands()]
    assert len(names) == len(set(names))
