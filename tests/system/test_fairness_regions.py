"""Nobody waits long for another region: canaries ping while frames flood in, from whomever.

As in test_fairness.py the bound is in CPU time of the server. Regions must not lose their links
meanwhile: whoever is busy goes on sending heartbeats.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest

from anabranch.replication import frames
from benchmarks.versus_redis.canary import Sighting
from tests.support.inspection import wait_until
from tests.support.known_peer import KnownPeer
from tests.support.servers import AnabranchServer, regions_in
from tests.support.wire import RespClient, encode_command
from tests.system.test_fairness import TRIES, WAIT_MS, best, canary_of, waited_ms

pytestmark = pytest.mark.usefixtures("compiled_form")

SECRET = "not to be guessed by anybody"
KEYS = 1000
EACH, IMPORTS, ROWS = 10, 25, 2000
EVERYTHING = 1 << 40
FLOODS: dict[str, tuple[Callable[[int], msgspec.Struct], int]] = {
    "FETCH": (lambda replica_id: frames.Fetch(replica_id, 0, EVERYTHING, 1 << 20), 30),
    "SUB": (lambda replica_id: frames.Sub({replica_id: 0}), 300),
    "CREDIT": (lambda _: frames.Credit(1), 20_000),
    "FETCHED": (frames.Fetched, 20_000),
    "BEHIND": (lambda replica_id: frames.Behind(replica_id, 0), 5000),
    "KEYS_GET": (
        lambda _: frames.KeysGet(1, None, [(0, b"k%d" % each) for each in range(KEYS)]),
        70,
    ),
}
UNKNOWN_FRAME = struct.pack("<IB", 1, 200)


def pipeline(client: RespClient, requests: list[bytes]) -> None:
    """Send them in pieces, and read the replies."""
    for at in range(0, len(requests), 5000):
        client.send_raw(b"".join(requests[at : at + 5000]))
        for _ in requests[at : at + 5000]:
            assert client.read_reply()[0] != "-"


def added(keys: int, times: int) -> list[bytes]:
    """Requests that add so many entries to each of so many streams."""
    names = [f"k{number}" for number in range(keys)]
    return [encode_command(("XADD", name, "*", "f", "v")) for name in names] * times


def rows(count: int) -> bytes:
    """What AB.IMPORT takes."""
    each = [b"*2\r\n$1\r\nv\r\n$8\r\n%08d\r\n" % number for number in range(count)]
    return b"".join([struct.pack(f"<I{count}I", count, *accumulate(map(len, each))), *each])


def lost_links(server: AnabranchServer) -> set[int]:
    """The regions to which a region has lost its link, by its log."""
    lines = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    return {line["region"] for line in lines if line["event"] == "region.unreachable"}


def test_a_healed_link_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Two regions have written much when the third one hears of it all at once."""
    eu, us, ap = regions_in(tmp_path, "eu", "us", "ap", extra=("--gossip-secret", SECRET))
    with (
        eu.client() as one,
        us.client() as other,
        ap.client() as third,
        canary_of(us) as receiving,
        canary_of(eu) as sending,
    ):
        entries = 0

        def sight() -> Sighting:
            nonlocal entries
            entries += 1
            for region in (1, 3):
                other.call("AB.LINK", region, "PAUSE")
            pipeline(third, added(KEYS, EACH))
            for _ in range(IMPORTS):
                assert one.call("AB.IMPORT", "bulk", rows(ROWS))[0] != "-"
            pipeline(one, added(KEYS, 1))
            receiving.look()
            sending.look()
            for region in (1, 3):
                other.call("AB.LINK", region, "RESUME")
            wait_until(is_here, "all is here", 60)
            return max(receiving.look(), sending.look(), key=lambda seen: seen.worst_cpu_ms)

        def is_here() -> bool:
            wanted = (":", entries * (EACH + 1))
            return other.call("XLEN", "bulk") == (":", entries * IMPORTS * ROWS) and all(
                other.call("XLEN", f"k{number}") == wanted for number in (0, KEYS - 1)
            )

        assert best(sight) < WAIT_MS
    assert 3 not in lost_links(eu)
    assert 1 not in lost_links(ap)


def test_frames_keep_nobody_waiting(tmp_path: Path) -> None:
    """Those of strangers, who know no secret, and those of a member."""
    eu, us = regions_in(tmp_path, "eu", "us", extra=("--gossip-secret", SECRET))
    port = int(eu.extra[eu.extra.index("--gossip-port") + 1])
    waits = {}
    with eu.client() as client:
        pipeline(client, added(KEYS, EACH))
    with canary_of(eu) as canary:

        def strange_frames() -> Sighting:
            canary.look()
            with socket.create_connection(("127.0.0.1", port), 60) as stranger, suppress(OSError):
                stranger.sendall(UNKNOWN_FRAME * 200_000)
            return canary.look()

        waits["a stranger"] = best(strange_frames)

        async def member_frames() -> None:
            async with KnownPeer(3, port, SECRET) as peer:
                for kind, (make, count) in FLOODS.items():
                    for _ in range(TRIES):
                        canary.look()
                        await peer.flood(1, make, count)
                        waits[kind] = waited_ms(canary.look())
                        if waits[kind] < WAIT_MS:
                            break

        asyncio.run(member_frames())
    assert max(waits.values()) < WAIT_MS, waits
    assert 2 not in lost_links(eu)
    assert 1 not in lost_links(us)
