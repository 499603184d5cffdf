"""python-socketio: servers that hand their messages to one another over PUBLISH."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import redis

from tests.support.inspection import wait_until
from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer, free_port

socketio = required("socketio")
uvicorn = required("uvicorn")


@asynccontextmanager
async def serving(server: AnabranchServer) -> AsyncIterator[str]:
    """A server of Socket.IO whose manager uses ours; its address."""
    manager = socketio.AsyncRedisManager(f"redis://127.0.0.1:{server.port}")
    sio = socketio.AsyncServer(async_mode="asgi", client_manager=manager)

    @sio.event
    async def enter(sid: str, room: str) -> str:
        await sio.enter_room(sid, room)
        return "entered"

    port = free_port()
    config = uvicorn.Config(socketio.ASGIApp(sio), port=port, log_level="error", lifespan="off")
    running = uvicorn.Server(config)
    task = asyncio.create_task(running.serve())
    await asyncio.to_thread(wait_until, lambda: running.started, "Socket.IO is served")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.should_exit = True
        await task


@in_a_loop_of_its_own
async def test_a_room_hears_what_another_process_says(server: AnabranchServer) -> None:
    heard: asyncio.Queue[object] = asyncio.Queue()
    async with serving(server) as address, socketio.AsyncSimpleClient() as client:
        await client.connect(address, transports=["websocket"])
        assert await client.call("enter", "kitchen") == "entered"
        client.client.on("news", heard.put)
        speaker = socketio.RedisManager(f"redis://127.0.0.1:{server.port}", write_only=True)
        with redis.Redis(port=server.port) as asked:
            heard_of = partial(asked.pubsub_channels, "socketio")
            await asyncio.to_thread(wait_until, heard_of, "its manager listens")
        await asyncio.to_thread(speaker.emit, "news", {"dish": "soup"}, room="hall")
        await asyncio.to_thread(speaker.emit, "news", {"dish": "pie"}, room="kitchen")
        assert await heard.get() == {"dish": "pie"}
        assert heard.empty()
