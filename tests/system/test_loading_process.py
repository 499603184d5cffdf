"""A process that loads much after a crash: what clients, signals and health checks find."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.exceptions import BusyLoadingError
from redis.retry import Retry

from anabranch.cli.cluster_files import ClusterFiles, Member
from anabranch.cli.cluster_servers import wait_entered
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import RespClient

ENTRIES = 60_000
READY = b"Ready to accept connections"


class Loading(AnabranchServer):
    """Is started when it listens."""

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        def listens() -> bool:
            assert process.poll() is None, self.log_tail()
            with suppress(OSError), RespClient(self.port):
                return True
            return False

        wait_until(listens, "the server listens", 60)


@pytest.fixture(scope="module")
def killed() -> Iterator[AnabranchServer]:
    """A server that was killed, and left much to load."""
    server = AnabranchServer()
    server.start()
    with redis.Redis(port=server.port) as client:
        for at in range(0, ENTRIES, 100):
            pipeline = client.pipeline(transaction=False)
            for number in range(at, at + 100):
                pipeline.xadd(f"s{number % 50}", {"n": number})
            pipeline.execute()
    server.kill()
    yield server
    server._clean()


def restarted(killed: AnabranchServer) -> Loading:
    """Started again, and loading."""
    killed.log_path.unlink(missing_ok=True)
    return Loading(killed.directory).start()


def test_clients_that_retry_find_all_data(killed: AnabranchServer) -> None:
    server = restarted(killed)
    try:
        never = Retry(NoBackoff(), 0)
        with redis.Redis(port=server.port, retry=never) as hasty, pytest.raises(BusyLoadingError):
            hasty.xlen("s1")
        assert READY not in server.log_path.read_bytes()
        health = [sys.executable, "-m", "anabranch", "health", "-p", str(server.port)]
        patient = redis.Redis(
            port=server.port,
            retry=Retry(ConstantBackoff(0.01), 6000),
            retry_on_error=[BusyLoadingError],
        )
        with patient:
            assert patient.xlen("s1") == ENTRIES // 50
            assert patient.dbsize() == 50
        assert READY in server.log_path.read_bytes()
        done = subprocess.run(health, capture_output=True, check=False, env=server.environment())
        assert done.stdout == b"PONG\n"
    finally:
        server.kill()


def test_a_cluster_waits_until_a_restarted_region_has_its_data(killed: AnabranchServer) -> None:
    server = restarted(killed)
    assert server.process is not None
    try:
        member = Member(1, "eu", server.port, 0)
        files = ClusterFiles(server.directory, [member])
        wait_entered(files, {member: server.process}, 1)
        with redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0)) as hasty:
            assert hasty.dbsize() == 50
    finally:
        server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_in_order(killed: AnabranchServer, number: int) -> None:
    server = restarted(killed)
    assert server.process is not None
    with RespClient(server.port) as client:
        assert client.call("PING")[0] == "-"
        server.process.send_signal(number)
        assert server.process.wait(60) == 0, server.log_tail()
    assert READY not in server.log_path.read_bytes()
    server = restarted(killed)
    try:
        with redis.Redis(port=server.port, retry=Retry(ConstantBackoff(0.01), 6000)) as client:
            client.set_retry(Retry(ConstantBackoff(0.01), 6000, (BusyLoadingError,)))
            assert client.dbsize() == 50
    finally:
        server.kill()


def test_a_refused_start_ends_with_its_message(killed: AnabranchServer) -> None:
    newest = sorted((killed.directory / "data").rglob("log-*"))[-1]
    sound = newest.read_bytes()
    at = len(sound) // 2
    newest.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
    try:
        command = AnabranchServer(killed.directory)
        command.port = free_port()
        done = subprocess.run(
            command.command(), capture_output=True, check=False, env=command.environment()
        )
        assert done.returncode == 1
        assert newest.name.encode() in done.stderr
        assert READY not in done.stdout
    finally:
        newest.write_bytes(sound)
