"""How a server stops: signals, the steps of an orderly stop, and an immediate end.

The first SIGTERM or SIGINT (or SHUTDOWN) begins it: stop accepting, write pending data, give linked
regions the effects that they lack, close connections once their clients have read their last
replies, and sync the log, or save a snapshot where ``save`` asks for it and there is no log. All
waiting takes at most ``shutdown-timeout``.
A second signal ends the process at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from anabranch.errors import CommandError
from anabranch.server.logs import emit

if TYPE_CHECKING:
    from anabranch.node.exchange import Exchange
    from anabranch.server.host import Parts

_HAND_OVER_LOOK_S: Final = 0.01


def install_signal_handlers(server: Parts, pid_file: str) -> None:
    """SIGTERM and SIGINT stop, SIGHUP and SIGPIPE are ignored."""
    loop = asyncio.get_running_loop()

    def at_once(*_: object) -> NoReturn:
        for path in (server.settings.unixsocket, pid_file):
            with suppress(OSError):
                if path:
                    os.unlink(path)
        sys.stdout.flush()
        os._exit(1)

    def begin(name: str) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            # Without the loop, so that it works while the loop is busy.
            signal.signal(number, at_once)
        try:
            server.node.persistence.save_for_stop()
        except CommandError:
            emit("error", "server.stop_refused", signal=name, reason="the snapshot failed")
            install_signal_handlers(server, pid_file)
            return
        server.request_stop(name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin, number.name)
    for ignored in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(ignored, signal.SIG_IGN)


async def orderly_stop(server: Parts, *, patient: bool) -> None:
    """End all connections; ``patient`` waits for regions and clients that still have to read."""
    timeout = server.settings.shutdown_timeout if patient else 0
    deadline = asyncio.get_running_loop().time() + timeout
    server.listeners.close()
    server.http.close()
    server.clients.finish()
    if patient and server.links is not None:
        await _hand_over(server.links.exchange, deadline)
    server.stop_timers()
    server.node.stop()
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            await server.clients.all_closed.wait()
    left = list(server.clients.connections)
    if left:
        emit("warning", "server.clients_cut_off", clients=len(left), after_seconds=timeout)
        for connection in left:
            connection.transport.abort()
        await asyncio.sleep(0)
    server.node.sync_all()
    server.node.persistence.save_rest()


async def _hand_over(exchange: Exchange, deadline: float) -> None:
    """Wait until the regions that can be reached have all effects of this one."""
    try:
        async with asyncio.timeout_at(deadline):
            while exchange.lacking():  # noqa: ASYNC110 - looked at for a moment, once in a process
                await asyncio.sleep(_HAND_OVER_LOOK_S)
    except TimeoutError:
        emit("warning", "server.regions_lack_effects", regions=exchange.lacking())


def abandon(server: Parts) -> None:
    """End as after a kill: nothing more is written, neither to files nor to clients."""
    server.http.close()
    server.stop_timers()
    server.node.durability.abandon()
    if server.links is not None:
        server.links.exchange.stop(farewell=False)
    server.clients.are_ending = True
    for connection in list(server.clients.connections):
        connection.transport.abort()
    server.close()
