"""What a connection held is freed when it closes: by reference count, not by a cycle collector.

A whole server in this process, on both event loops, over a Unix socket and TLS, with the collector
switched off.
"""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import pytest
import trustme

from anabranch.config.settings import Settings
from anabranch.server import connection
from anabranch.server.app import Server, Surroundings
from anabranch.server.connection import ClientConnection
from anabranch.server.driver import loop_factory
from anabranch.server.stop import orderly_stop
from anabranch.simulator.disk import MemoryPlace
from tests.support import region_certificates
from tests.support.gated_storage import GatedStorage
from tests.support.servers import free_port
from tests.support.wings import WINGS
from tests.support.wire import encode_command

SECONDS = 60.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

KINDS: dict[str, bytes] = {
    "nothing": b"",
    "a finished request": encode_command(["PING"]),
    "an unfinished argument": b"*2\r\n$3\r\nGET\r\n$60000\r\n" + b"x" * 50_000,
    "an unfinished inline request": b"x" * 50_000,
    "many arguments of an unfinished request": b"*9000\r\n" + b"$1\r\nx\r\n" * 5000,
    "a MULTI queue": encode_command(["MULTI"]) + encode_command(["SET", "k", "v" * 50_000]),
    "a watched key": encode_command(["WATCH", "k"]),
    "a backlog behind a blocked command": (
        encode_command(["BLPOP", "nothing", "1000"]) + encode_command(["SET", "k", "v" * 50_000])
    ),
    "a blocked command with a far deadline": (
        encode_command(["XREAD", "BLOCK", "100000000", "STREAMS", "nothing", "$"])
    ),
    "a wait for other regions": encode_command(["WAIT", "1", "1000000"]),
    "subscriptions": encode_command(["PSUBSCRIBE", "a*"]) + encode_command(["SUBSCRIBE", "b"]),
    "MONITOR": encode_command(["MONITOR"]),
    "a failed request": encode_command(["NOSUCH", "x" * 1000]) + encode_command(["GET"]),
    "requests held back by a pause": (
        encode_command(["CLIENT", "PAUSE", "100000"]) + encode_command(["GET", "k" * 1000])
    ),
}


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the event loop."""
    factory, name = loop_factory()
    if request.param == "asyncio":
        return asyncio.new_event_loop
    if name != "uvloop":
        pytest.skip("no uvloop here")
    return factory


async def until(it_is_so: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(SECONDS):
        while not it_is_so():  # noqa: ASYNC110 - what it asks knows no events
            await asyncio.sleep(0.001)
    assert it_is_so(), what


def parts_of(connection: ClientConnection) -> dict[str, ReferenceType[Any]]:
    """What must not outlive the connection."""
    session = connection.session
    parts: dict[str, object] = {"connection": connection, "session": session}
    if session.waiter is not None:
        parts["waiter"] = session.waiter
    return {name: ref(part) for name, part in parts.items() if type(part).__weakrefoffset__}


def run(
    directory: Path,
    factory: Callable[[], asyncio.AbstractEventLoop],
    test: Callable[[Server], Awaitable[None]],
    disk: GatedStorage | None = None,
    **settings: Any,
) -> None:
    """Run a test beside a server in one event loop."""

    async def both() -> None:
        server = Server(
            Settings(unixsocket=str(directory / "socket"), **settings),
            WINGS,
            surroundings=Surroundings(place=None if disk is None else MemoryPlace(disk)),
        )
        await server.start()
        try:
            await test(server)
        finally:
            if disk is not None:
                disk.let_all_sync()
            await orderly_stop(server, patient=False)
            server.persistence.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(both())


async def visit(server: Server, streams: Streams, sent: bytes, what: str) -> None:
    """Send something, go, and see that nothing is left."""
    _, writer = streams
    await until(lambda: server.connections, "nobody came")
    (connection,) = server.connections
    before = server.region.stats.net_input_bytes
    writer.write(sent)
    expected = before + len(sent)
    await until(lambda: server.region.stats.net_input_bytes >= expected, what)
    left = parts_of(connection)
    del connection
    writer.transport.abort()
    await until(lambda: not server.connections, "it is still there")
    await until(lambda: not any(each() for each in left.values()), f"{what}: {left}")


def test_who_leaves_takes_everything_along(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def test(server: Server) -> None:
        for what, sent in KINDS.items():
            streams = await asyncio.open_unix_connection(server.settings.unixsocket)
            await visit(server, streams, sent, what)
            server.region.dispatcher.unpause()

    run(tmp_path, loop, test, port=0, appendonly=False)


def test_who_leaves_by_tls_takes_everything_along(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    authority = trustme.CA()
    region_certificates.write(tmp_path, authority, authority, "localhost")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    port = free_port()

    async def test(server: Server) -> None:
        for what, sent in KINDS.items():
            streams = await asyncio.open_connection("localhost", port, ssl=context)
            await visit(server, streams, sent, what)
            server.region.dispatcher.unpause()

    run(
        tmp_path,
        loop,
        test,
        port=0,
        tls_port=port,
        tls_cert_file=str(tmp_path / "cert.pem"),
        tls_key_file=str(tmp_path / "key.pem"),
        tls_auth_clients="no",
        appendonly=False,
    )


def test_replies_that_wait_for_the_disk_go_with_their_client(
    tmp_path: Path,
    loop: Callable[[], asyncio.AbstractEventLoop],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "CLOSING_S", 0.05)
    disk = GatedStorage()

    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_unix_connection(server.settings.unixsocket)
        writer.write(encode_command(["SET", "k", "v" * 100_000]))
        assert await reader.readline() == b"+OK\r\n"
        (client,) = server.connections
        disk.hold_syncs()
        writer.write(encode_command(["SET", "other", "v"]) + encode_command(["GET", "k"]))
        held = client._held_replies
        await until(partial(len, held), "the reply does not wait")
        (parts,) = held
        left = parts_of(client)
        del left["connection"]  # the queue of who waits for the disk names it, until then
        del client
        writer.transport.abort()
        await until(lambda: not server.connections, "it is still there")
        assert not parts
        disk.let_all_sync()
        del parts, held
        await until(lambda: not any(each() for each in left.values()), str(left))

    run(tmp_path, loop, test, disk, port=0, appendfsync="always")


def test_timers_of_commands_that_wait_no_longer_do_not_pile_up(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        reader, writer = await asyncio.open_unix_connection(server.settings.unixsocket)
        for number in range(300):
            # Ten hours: nobody will look at the timer for a while.
            writer.write(encode_command(["BLPOP", "q", "36000"]))
            await until(lambda: server.region.keyspace.waiters.active, "it does not block")
            other_reader, other = await asyncio.open_unix_connection(server.settings.unixsocket)
            other.write(encode_command(["RPUSH", "q", str(number)]))
            assert await other_reader.readline() == b":1\r\n"
            other.close()
            await other.wait_closed()
            assert await reader.readline() == b"*2\r\n"
            for _ in range(4):
                await reader.readline()
        assert len(server.region.keyspace.waiters._timers) < 150
        writer.close()
        await writer.wait_closed()

    run(tmp_path, asyncio.new_event_loop, test, port=0, appendonly=False)
