"""broadcaster: messages between the processes of a web application, over a stream."""

from __future__ import annotations

from tests.support.packages import in_a_loop_of_its_own, required
from tests.support.servers import AnabranchServer

broadcaster = required("broadcaster")


@in_a_loop_of_its_own
async def test_subscribers_of_a_stream_get_every_message(server: AnabranchServer) -> None:
    url = f"redis-stream://127.0.0.1:{server.port}"

    async with (
        broadcaster.Broadcast(url) as one,
        broadcaster.Broadcast(url) as other,
        one.subscribe("chat") as here,
        other.subscribe("chat") as there,
    ):
        for number in range(3):
            await one.publish("chat", f"message {number}")
        for subscriber in (here, there):
            got = [await subscriber.get() for _ in range(3)]
            assert [each.message for each in got] == [f"message {n}" for n in range(3)]
            assert {each.channel for each in got} == {"chat"}


@in_a_loop_of_its_own
async def test_a_subscriber_does_not_get_what_was_there_before(server: AnabranchServer) -> None:
    async with broadcaster.Broadcast(f"redis-stream://127.0.0.1:{server.port}") as one:
        await one.publish("chat", "before")
        async with one.subscribe("chat") as subscriber:
            await one.publish("chat", "after")
            assert (await subscriber.get()).message == "after"
