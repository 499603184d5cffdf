"""The steps of docs/upgrading.md: regions one by one under traffic, and what a downgrade meets."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import redis
import xxhash

from anabranch.testing import Cluster, CommandFailedError
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer


def test_regions_restart_one_by_one_while_a_producer_writes() -> None:
    """Each message goes to the first region that answers, under an ID of its own."""
    with Cluster() as cluster:
        regions = list(cluster)
        sent: list[int] = []
        ended = threading.Event()

        def produce() -> None:
            number = 0
            while not ended.is_set():
                for region in regions:
                    words = ("orders", "IDMP", "shop", str(number), "*", "n", str(number))
                    try:
                        with redis.Redis(port=region.port, socket_timeout=60) as client:
                            client.execute_command("XADD", *words)
                    except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
                        continue
                    sent.append(number)
                    number += 1
                    break

        producer = threading.Thread(target=produce)
        producer.start()
        try:
            for region in regions:
                before = len(sent)
                wait_until(lambda before=before: len(sent) > before + 5, "the producer goes on")  # type: ignore[misc]
                region.stop()
                region.start()
                wait_until(lambda region=region: _is_in_sync(region), "it has all")  # type: ignore[misc]
        finally:
            ended.set()
            producer.join()
        cluster.settle()
        cluster.assert_converged()
        for region in regions:
            entries = region.execute("XRANGE", "orders", "-", "+")
            assert sorted(int(fields[1]) for _, fields in entries) == sent


def _is_in_sync(region: object) -> bool:
    try:
        rows = region.execute("AB.PEERS")  # type: ignore[attr-defined]
    except CommandFailedError:
        return False
    return bool(rows) and all(row[b"state"] == b"in_sync" for row in rows)


def test_a_file_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    with AnabranchServer(tmp_path) as server, redis.Redis(port=server.port) as client:
        client.xadd("s", {"f": "v"})
        client.bgsave()
        wait_until(lambda: list(tmp_path.rglob("*.absnap")), "there is a snapshot")
    (snapshot,) = tmp_path.rglob("*.absnap")
    data = snapshot.read_bytes()
    header = data[:8] + 2 * (99).to_bytes(2, "little") + data[12:24]  # its format, and its reader's
    checksum = xxhash.xxh3_64_intdigest(header).to_bytes(8, "little")
    snapshot.write_bytes(header + checksum + data[32:])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.ab*")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "anabranch",
            "serve",
            "--dir",
            str(tmp_path / "data"),
            "--port",
            "0",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert snapshot.name in done.stderr
    assert "was written by a newer server (format 99, " in done.stderr
    assert {path: path.read_bytes() for path in before} == before, "nothing was changed"
