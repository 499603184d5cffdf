"""Single system calls that fail, take half, or are the last one of a server; and its clock set."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.faulty_calls import ALL, Call, FaultyServer
from tests.support.inspection import info, number, wait_until
from tests.support.wire import ConnectionLost, RespClient

ALWAYS = ("--appendfsync", "always")
HOUR_S = 3600


Start = Callable[..., FaultyServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a server with these settings; it is ended with the test."""
    servers: list[FaultyServer] = []

    def new(*settings: str) -> FaultyServer:
        servers.append(FaultyServer(tmp_path, settings))
        return servers[0].start()

    yield new
    for server in servers:
        server.kill()


def values(client: RespClient) -> list[bytes]:
    reply = client.call("XRANGE", "s", "-", "+")
    return [row[1][1][1][1][1] for row in reply[1]]


def has_after_kill(server: FaultyServer, expected: list[bytes]) -> None:
    """A kill and a start without faults."""
    server.kill()
    server.end_faults()
    server.start()
    with server.client() as client:
        found = values(client)
        assert found[: len(expected)] == expected


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_writes_that_take_half_lose_nothing(start: Start, policy: str) -> None:
    server = start("--appendfsync", policy)
    server.shorten_writes()
    sent = [b"%d" % each * 50 for each in range(100)]
    with server.client() as client:
        client.pipeline([("XADD", "s", "*", "v", each) for each in sent])
        assert client.call("SAVE") == ("+", b"OK")
        sent.append(b"last")
        assert client.call("XADD", "s", "*", "v", b"last")[0] == "$"
    assert server.seen > 20, "no write was cut"
    has_after_kill(server, sent)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EDQUOT])
def test_writes_that_fail_are_refused_until_they_succeed(start: Start, code: int) -> None:
    """EROFS is what a file system gives that was mounted read-only after an error."""
    server = start(*ALWAYS)
    with server.client() as writer, server.client() as other:
        assert writer.call("XADD", "s", "*", "v", "1")[0] == "$"
        server.fail(Call.WRITE | Call.CREATE, code)
        writer.send("XADD", "s", "*", "v", "2")
        wait_until(lambda: "oplog.write_failed" in server.log_text(), "a failed write")
        kind, text = other.call("XADD", "t", "*", "v", "3")
        assert kind == "-"
        assert text.startswith(b"MISCONF")
        assert other.call("XLEN", "s")[0] == "-", "nobody may see what is in no file"
        server.end_faults()
        assert writer.read_reply()[0] == "$"
        assert other.call("XADD", "s", "*", "v", "3")[0] == "$"
    has_after_kill(server, [b"1", b"2", b"3"])


def test_a_sync_that_fails_is_not_acknowledged_and_what_was_is_there(start: Start) -> None:
    server = start(*ALWAYS)
    with server.client() as writer, server.client() as other:
        assert writer.call("XADD", "s", "*", "v", "1")[0] == "$"
        server.fail(Call.SYNC, errno.EIO)
        with pytest.raises(ConnectionLost):
            writer.call("XADD", "s", "*", "v", "2")
        server.end_faults()
        assert other.call("XADD", "s", "*", "v", "3")[1].startswith(b"MISCONF")
        assert other.call("XLEN", "s")[1].startswith(b"MISCONF")
        assert other.call("PING") == ("+", b"PONG")
    has_after_kill(server, [b"1"])


def test_a_process_that_is_stopped_in_a_sync_goes_on_as_if_nothing_was(start: Start) -> None:
    server = start(*ALWAYS)
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status")
    with server.client() as writer:
        assert writer.call("XADD", "s", "*", "v", "1")[0] == "$"
        server.signal_at(Call.SYNC, signal.SIGSTOP)
        writer.send("XADD", "s", "*", "v", "2")
        wait_until(lambda: "State:\tT" in status.read_text(), "the process is stopped")
        with pytest.raises(TimeoutError):
            writer.read_reply(0.2)
        server.process.send_signal(signal.SIGCONT)
        assert writer.read_reply()[0] == "$"
    has_after_kill(server, [b"1", b"2"])


@pytest.mark.slow
def test_a_rewrite_that_is_killed_at_any_call_loses_nothing(start: Start, tmp_path: Path) -> None:
    """BGREWRITEAOF, killed at its first call for a file, at its second one, until it ends."""
    server = start("--oplog-segment-bytes", "4096")
    sent: list[bytes] = []
    for calls in range(1000):
        with server.client() as client:
            assert values(client) == sent
            more = [b"%d" % calls * 20 for _ in range(20)]
            client.pipeline([("XADD", "s", "*", "v", each) for each in more])
            sent += more
            server.signal_at(ALL, signal.SIGKILL, skip=calls)
            try:
                client.call("BGREWRITEAOF")
                wait_until(lambda: number(client, "aof_rewrite_in_progress") == 0, "it ends")
                is_killed = server.seen > calls
            except (ConnectionLost, OSError):
                is_killed = True
        if not is_killed:
            break
        assert server.process is not None
        assert server.process.wait(60) == -signal.SIGKILL
        server.end_faults()
        check = [sys.executable, "-m", "anabranch", "inspect", str(tmp_path / "data")]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert "damage" not in done.stdout, done.stdout
        server.start()
    assert calls > 8, "a rewrite makes more calls than that"
    has_after_kill(server, sent)


def test_a_clock_that_is_set_while_the_server_runs(start: Start) -> None:
    """An hour back, a day ahead, and right again: IDs ascend, deadlines follow the clock."""
    server = start()
    with server.client() as client, server.client() as blocked:
        ids = []
        client.call("SET", "hours", "v", "EX", 2 * HOUR_S)
        client.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        for ahead_s in (0, -HOUR_S, 24 * HOUR_S, 0, -HOUR_S):
            server.set_clock(ahead_s)
            for _ in range(3):
                kind, entry_id = client.call("XADD", "s", "*", "v", f"{ahead_s}")
                assert kind == "$", entry_id
                ids.append(tuple(map(int, entry_id.split(b"-"))))
            got = client.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")[1]
            assert len(got[0][1][1][1]) == 3
            for row in client.call("XPENDING", "s", "g", "-", "+", 100)[1]:
                assert row[1][2][1] >= 0, "an idle time is never negative"
            assert client.call("EXISTS", "hours") == (":", int(ahead_s < HOUR_S and len(ids) < 9))
            assert int(info(client, "server")["uptime_in_seconds"]) >= 0
        assert ids == sorted(set(ids))
        blocked.send("BLPOP", "nothing", "2")
        wait_until(lambda: number(client, "blocked_clients"), "the client is blocked")
        server.set_clock(-2 * HOUR_S)
        with pytest.raises(TimeoutError):
            blocked.read_reply(2.5)  # as in Redis, a timeout is a time of the wall clock
        server.set_clock(0)
        assert blocked.read_reply()[1] is None
    has_after_kill(server, [])
    with server.client() as client:
        assert client.call("XLEN", "s") == (":", len(ids))
        kind, entry_id = client.call("XADD", "s", "*", "v", "after")
        assert kind == "$"
        assert tuple(map(int, entry_id.split(b"-"))) > ids[-1]
