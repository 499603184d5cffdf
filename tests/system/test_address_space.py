"""A snapshot for which the system has no memory (`ulimit -v`): dropped, said, and nothing lost."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.inspection import has_proc, info, wait_until
from tests.support.servers import AnabranchServer, kill_servers_in_directories, server_in
from tests.support.wire import RespClient

MEGABYTE = 1 << 20
ENTRIES = 12_000

pytestmark = pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")


@contextmanager
def no_more_than(server: AnabranchServer, more: int) -> Iterator[None]:
    """The process may take so many bytes more of address space than it has."""
    assert server.process is not None
    pid = server.process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    (size,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmSize")]
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (size * 1024 + more, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_AS, before)


def saved(client: RespClient) -> str:
    """Take a snapshot; what became of it."""
    kind, _ = client.call("BGSAVE")
    if kind == "-":
        return "not begun"
    wait_until(lambda: info(client, "persistence")["rdb_bgsave_in_progress"] == "0", "it is over")
    return info(client, "persistence")["rdb_last_bgsave_status"]


def test_a_snapshot_without_memory_for_it_is_dropped(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    rng = random.Random(1)
    try:
        with server.client() as client:
            for _ in range(0, ENTRIES, 500):
                lines = [("XADD", "s", "*", "f", rng.randbytes(1000)) for _ in range(500)]
                assert all(kind == "$" for kind, _ in client.pipeline(lines))
            with no_more_than(server, 2 * MEGABYTE):
                assert saved(client) == "not begun"  # there is no thread yet, nor place for one
                assert client.call("PING") == ("+", b"PONG")
            assert saved(client) == "ok"
            seen = []
            for more in (6, 10, 14):
                with no_more_than(server, more * MEGABYTE):
                    kind, _ = client.call("BGSAVE")
                    seen.append(kind)
                    wait_until(
                        lambda: (
                            server.log_text().count("snapshot.failed")
                            + server.log_text().count("snapshot.finished")
                            >= 2 + len(seen)
                        ),
                        "it is over",
                    )
                assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
            assert saved(client) == "ok"
        log = server.log_text()
        assert "snapshots.py" not in log, "no mistake of ours"
        server.kill()
        server.start()
        with server.client() as client:
            assert client.call("XLEN", "s") == (":", ENTRIES + 3)
    finally:
        kill_servers_in_directories()
