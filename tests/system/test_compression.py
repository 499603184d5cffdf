"""Cold entries take less memory, and are read, deleted and recovered as before."""

from __future__ import annotations

import redis

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer

ENTRIES = 10_000


def test_cold_entries_shrink_and_stay_what_they_are() -> None:
    extra = ["--stream-compression-age", "1", "--stream-compression", "no"]
    extra += ["--stream-memory-hot", "1"]
    with AnabranchServer(extra=extra) as server:
        client = redis.Redis(port=server.port, protocol=3)
        with client.pipeline(transaction=False) as pipe:
            for number in range(ENTRIES):
                pipe.xadd("s", {"sensor": f"t{number % 20}", "value": number * 7919 % 1000})
            ids = pipe.execute()
        client.xgroup_create("s", "g", "0")
        entries = client.xrange("s")
        usage, used = client.memory_usage("s"), client.info("memory")["used_memory"]
        assert usage is not None
        client.config_set("stream-compression", "yes")
        wait_until(lambda: (client.memory_usage("s") or usage) < usage / 3, "it shrinks")
        wait_until(lambda: client.info("memory")["used_memory"] < used / 2, "so does the sum")
        wait_until(
            lambda: client.info("memory")["stream_compressed_blocks_total"] >= ENTRIES // 100 - 2,
            "all that are full",
        )

        client.config_set("stream-compression-cache", "100kb")
        assert client.xrange("s") == entries
        assert client.xrange("s", ids[5000], ids[5050]) == entries[5000:5051]
        assert client.xrevrange("s", count=300) == entries[:-301:-1]
        got = client.xreadgroup("g", "c", {"s": ">"}, count=1000)
        assert got == {b"s": [entries[:1000]]}
        assert client.xack("s", "g", *ids[:500]) == 500
        assert client.info("memory")["stream_opened_bytes"] < 200_000
        assert client.xdel("s", *ids[100:300], ids[7777]) == 201
        assert client.xtrim("s", maxlen=7_500, approximate=False) == ENTRIES - 201 - 7_500
        gone = {*ids[100:300], ids[7777]}
        left = [entry for entry in entries if entry[0] not in gone][-7_500:]
        payload = client.dump("s")
        client.restore("copy", 0, payload)
        assert client.xrange("copy") == client.xrange("s") == left
        client.save()
        server.kill()
        server.start()
        client = redis.Redis(port=server.port, protocol=3)
        assert client.xrange("s") == left
        assert client.xpending("s", "g")["pending"] == 500
        client.close()
