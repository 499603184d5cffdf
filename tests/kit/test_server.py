"""The test kit's server, used as a test suite uses it: with clients that know nothing of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from sys import getrefcount

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.errors import ConfigError
from anabranch.server.app import Server as LiveServer
from anabranch.stream.stream import Stream
from anabranch.testing import CommandFailedError, Server
from tests.support.inspection import wait_until

EIGHT_UTC_MS = 1_800_000_000_000
"""Eight in the morning of a day."""


def client_of(server: Server) -> redis.Redis:
    once = Retry(NoBackoff(), 0)  # a server that is gone is gone
    return redis.Redis(port=server.port, decode_responses=True, retry=once)


def test_clients_connect_by_tcp_and_by_a_unix_socket() -> None:
    with Server(unix=True) as server, client_of(server) as one:
        one.xadd("s", {"f": "v"}, id="1-1")
        with redis.Redis.from_url(server.unix_url) as other:
            assert other.xlen("s") == 1
        assert server.execute("XLEN", "s") == 1
        assert server.url == f"redis://127.0.0.1:{server.port}"


def taken(client: redis.Redis, consumer: str) -> list[str]:
    """What a plain read gives."""
    reply: object = client.xreadgroup("g", consumer, {"s": ">"}, count=1)
    assert isinstance(reply, list)
    return [entry_id for _, entries in reply for entry_id, _ in entries]


def test_a_killed_worker_loses_its_entries_and_one_that_takes_long_keeps_them() -> None:
    with (
        Server() as server,
        client_of(server) as ann,
        client_of(server) as bob,
        client_of(server) as eve,
    ):
        server.clock.freeze()
        server.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        assert server.kill_worker("s", "g", "ann") == 0
        server.execute("AB.POLICY", "SET", "s", "lease", "connection:10s")
        for number in (1, 2):
            server.execute("XADD", "s", f"{number}-0", "f", "v")
        assert (taken(ann, "ann"), taken(bob, "bob")) == (["1-0"], ["2-0"])
        server.clock.advance(3600)
        assert taken(eve, "eve") == []
        assert server.kill_worker("s", "g", "ann") == 1
        server.clock.advance(9)
        assert taken(eve, "eve") == []
        server.clock.advance(2)
        assert taken(eve, "eve") == ["1-0"]
        assert bob.xack("s", "g", "2-0") == 1
        assert server.kill_worker("s", "g", "ann") == 0


@pytest.mark.parametrize(
    ("policy", "late_s"),
    [("lease time:1m", 61), ("lease heartbeat:1h", 3601), ("max-age 1d", 86_401)],
)
def test_its_clock_moves_policies(policy: str, late_s: int) -> None:
    with Server() as server, client_of(server) as ann, client_of(server) as bob:
        server.clock.freeze()
        server.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        server.execute("AB.POLICY", "SET", "s", *policy.split(), "exact", "yes")
        server.execute("XADD", "s", "*", "f", "v")
        assert len(taken(ann, "ann")) == 1
        server.clock.advance(late_s - 2)
        assert (taken(bob, "bob"), bob.xlen("s")) == ([], 1)
        server.clock.advance(2)
        assert (len(taken(bob, "bob")), bob.xlen("s")) == ((0, 0) if "age" in policy else (1, 1))


def test_its_clock_brings_all_that_is_scheduled() -> None:
    """Also what takes several turns of a server: it is there when the call returns."""
    with Server() as server, client_of(server) as client:
        server.clock.freeze()
        server.clock.set(EIGHT_UTC_MS)
        for number in range(300):
            server.execute("AB.SCHEDULE", "s", "IN", "1h", "n", number)
        server.execute("AB.SCHEDULE", "daily", "CRON", "0 4 * * *", "f", "v")
        server.clock.advance(3599)
        assert client.xlen("s") == 0
        server.clock.advance(1)
        assert client.xlen("s") == 300
        server.clock.advance(86_400)
        assert client.xlen("daily") == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_a_server_that_has_ended_holds_no_pending_entries(end: str) -> None:
    """A test suite makes hundreds of servers in its process."""
    with Server() as server:
        server.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for _ in range(10):
            server.execute("XADD", "s", "*", "f", "v")
        server.execute("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
        entries = server.call(_pending_entries)
        assert len(entries) == 10
        before = [getrefcount(entries[at]) for at in range(10)]
        getattr(server, end)()
        after = [getrefcount(entries[at]) for at in range(10)]
    assert after == [was - 2 for was in before], "neither the group nor the consumer has them"


def _pending_entries(live: LiveServer) -> list[object]:
    stream = live.region.keyspace.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    (pending,) = stream.groups[b"g"].pending.lists.values()
    return list(pending.entries.values())


async def test_it_serves_the_loop_of_its_caller() -> None:
    async with Server() as server, redis.asyncio.from_url(server.url) as client:
        reader = asyncio.create_task(client.xread({"s": "$"}, block=0))
        await asyncio.to_thread(
            wait_until, lambda: server.statistics()["blocked_clients"] == 1, "a reader waits"
        )
        await client.xadd("s", {"f": "v"}, id="1-1")
        assert await reader == [[b"s", [(b"1-1", {b"f": b"v"})]]]


def test_two_servers_know_nothing_of_each_other() -> None:
    with Server() as one, Server() as other, client_of(one) as client:
        client.set("k", "v")
        assert one.dump() == {"k": "v"}
        assert other.dump() == {}


def test_settings_are_directives_and_a_wrong_one_is_refused() -> None:
    with Server(stream_idmp_maxsize=7, maxmemory="10mb") as server, client_of(server) as client:
        assert client.config_get("maxmemory") == {"maxmemory": "10485760"}
    with pytest.raises(Exception, match="maxmemry"):
        Server(maxmemry="10mb").start()


# -- time -------------------------------------------------------------------------------------


def test_deadlines_ids_and_idle_times_follow_the_clock() -> None:
    with Server() as server, client_of(server) as client:
        server.clock.freeze()
        server.clock.set(1_000_000)
        assert client.xadd("s", {"f": "v"}) == "1000000-0"
        assert client.xadd("s", {"f": "v"}) == "1000000-1"
        client.set("k", "v", ex=10)
        client.xgroup_create("s", "g", 0)
        client.xreadgroup("g", "dead", {"s": ">"}, count=1)
        server.clock.advance(60)
        assert client.get("k") is None
        assert client.xpending_range("s", "g", "-", "+", 1)[0]["time_since_delivered"] == 60_000
        _, claimed, _ = client.xautoclaim("s", "g", "alive", min_idle_time=60_000)
        assert [entry_id for entry_id, _ in claimed] == ["1000000-0"]
        assert client.xadd("s", {"f": "v"}) == "1060000-0"
        server.clock.resume()
        assert server.clock.now_ms >= 1_060_000


def test_a_blocked_reader_times_out_when_the_clock_says_so() -> None:
    with Server() as server, client_of(server) as client:
        server.clock.freeze()
        answers: list[object] = []
        reader = threading.Thread(
            target=lambda: answers.append(client.xread({"s": "$"}, block=3_600_000))
        )
        reader.start()
        wait_until(lambda: server.statistics()["blocked_clients"] == 1, "a reader waits")
        server.clock.advance(3599)
        assert server.statistics()["blocked_clients"] == 1
        server.clock.advance(1)
        reader.join(60)
        assert answers == [[]]


def test_an_idempotent_id_is_forgotten_when_the_clock_says_so() -> None:
    with Server(stream_idmp_duration=60) as server:
        server.clock.freeze()
        words = ("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
        first = server.execute(*words)
        server.clock.advance(59)
        assert server.execute(*words) == first
        server.clock.advance(2)
        assert server.execute(*words) != first


# -- faults -----------------------------------------------------------------------------------


def test_the_next_calls_of_a_command_fail() -> None:
    with Server() as server, client_of(server) as client:
        server.fail_next("XADD", "OOM not now", times=2)
        server.fail_next("XGROUP CREATE", "ERR no")
        pipeline = client.pipeline(transaction=False)
        for _ in range(3):
            pipeline.xadd("s", {"f": "v"})
        failed, also, done = pipeline.execute(raise_on_error=False)
        assert isinstance(failed, redis.OutOfMemoryError)
        assert isinstance(also, redis.OutOfMemoryError)
        assert done.endswith("-0")
        with pytest.raises(redis.ResponseError, match=r"^no$"):
            client.xgroup_create("s", "g")
        client.xgroup_create("s", "g")
        with pytest.raises(ValueError, match="no command 'XAD'"):
            server.fail_next("XAD", "ERR no")
        with pytest.raises(ValueError, match="no command ''"):
            server.fail_next("", "ERR no")


def test_flush_ends_what_a_test_has_set_up() -> None:
    with Server() as server, client_of(server) as client:
        server.fail_next("FLUSHALL", "ERR not now")
        server.clock.freeze()
        server.clock.advance(86_400)
        client.execute_command("CLIENT", "PAUSE", 1_000_000)
        writer = threading.Thread(target=lambda: client.set("k", "v"))
        writer.start()
        wait_until(
            lambda: server.call(lambda live: len(live.region.dispatcher.postponed)) == 1,
            "the write is held back",
        )
        server.flush()
        writer.join(60)
        assert not writer.is_alive()
        assert server.dump() == {}
        assert abs(time.time() - int(server.execute("TIME")[0])) < 3600


def test_what_was_answered_survives_a_crash_and_nothing_else() -> None:
    with Server(persist=True) as server, client_of(server) as client:
        for number in range(100):
            client.xadd("s", {"n": number})
        port = server.port
        server.crash()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        server.restart()
        assert (server.port, client.xlen("s")) == (port, 100)


def test_without_a_directory_a_crash_loses_everything() -> None:
    with Server() as server, client_of(server) as client:
        client.set("k", "v")
        server.crash()
        server.restart()
        assert client.get("k") is None


def test_servers_in_memory_share_nothing() -> None:
    with Server() as one:
        one.execute("SET", "k", "v")
        one.execute("SAVE")
        with Server() as other, Server(appendonly=True), Server(appendonly=True):
            assert other.dump() == {}
            assert other.execute("SAVE") == b"OK"


@pytest.mark.parametrize("options", [{}, {"persist": True}, {"unix": True}])
def test_what_was_made_for_a_server_is_deleted(
    options: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Server(**options) as server:  # type: ignore[arg-type]
        server.execute("SAVE")
        assert list(tmp_path.iterdir())
        server.crash()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"unix": True}, {"persist": True}])
def test_a_start_that_fails_leaves_nothing_behind(
    options: dict[str, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = Server(maxmemory="x", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="maxmemory"):
        server.start()
    assert not list(tmp_path.iterdir())


def test_a_restart_that_fails_leaves_the_data() -> None:
    with Server(persist=True) as server:
        server.execute("SET", "k", "v")
        server.stop()
        with socket.create_server((server.host, server.port)), pytest.raises(ConfigError):
            server.start()
        assert server.start().dump() == {"k": "v"}


def test_a_directory_is_used_again(tmp_path: Path) -> None:
    for expected in (1, 2):
        with Server(persist=tmp_path) as server, client_of(server) as client:
            client.xadd("s", {"f": "v"})
            assert client.xlen("s") == expected


def test_a_full_disk_refuses_writes_and_a_free_one_takes_them() -> None:
    with Server(persist=True) as server, client_of(server) as client:
        client.xadd("s", {"f": "v"}, id="1-1")
        server.disk.full()
        writer = threading.Thread(target=lambda: client.xadd("s", {"f": "v"}, id="2-1"))
        writer.start()  # its reply waits until the entry is on the disk
        wait_until(
            lambda: server.statistics()["aof_last_write_status"] == "err", "the disk is full"
        )
        with client_of(server) as other:
            with pytest.raises(redis.ResponseError, match="No space left on device"):
                other.xadd("t", {"f": "v"})
            assert writer.is_alive()
            server.disk.free()
            writer.join(60)
            assert not writer.is_alive()
            assert other.xlen("s") == 2


def test_a_disk_that_is_free_takes_writes_at_once() -> None:
    with Server(persist=True) as server:
        for end_it in (server.disk.free, server.flush):
            server.disk.full()
            server.execute("XADD", "s", "*", "f", "v")  # notices it
            with pytest.raises(CommandFailedError, match="MISCONF"):
                server.execute("XADD", "s", "*", "f", "v")
            end_it()
            server.execute("XADD", "s", "*", "f", "v")
            assert server.statistics()["aof_last_write_status"] == "ok"


def test_shutdown_ends_it_and_start_begins_again() -> None:
    with Server(persist=True) as server, client_of(server) as client:
        client.xadd("s", {"f": "v"})
        client.shutdown()
        with pytest.raises(RuntimeError, match="start"):
            server.execute("PING")
        server.restart()
        assert client.xlen("s") == 1


# -- looking inside ---------------------------------------------------------------------------


def test_data_commands_and_figures_can_be_read() -> None:
    with Server() as server, client_of(server) as client:
        client.xadd("s", {"f": "v"}, id="1-1")
        client.xgroup_create("s", "g", 0)
        client.xreadgroup("g", "c", {"s": ">"})
        client.rpush("l", "a", "b")
        client.sadd("set", "m")
        client.set(b"\xff", "v")
        assert server.dump() == {
            "l": ["a", "b"],
            "s": {
                "entries": {"1-1": {"f": "v"}},
                "groups": {
                    "g": {
                        "last-delivered-id": "1-1",
                        "lag": 0,
                        "pending": {"1-1": {"consumer": "c", "deliveries": 1}},
                    }
                },
            },
            "set": {"m"},
            "\\xff": "v",
        }
        assert any('"RPUSH" "l" "a" "b"' in line for line in server.commands)
        assert server.statistics()["total_commands_processed"] >= 6
        server.flush()
        assert (server.dump(), server.commands) == ({}, [])


def test_a_large_value_is_remembered_by_its_beginning() -> None:
    with Server() as server, client_of(server) as client:
        client.set("large", "x" * 20_000_000)
        client.rpush("many", *range(500))
        large, many = server.commands[-2:]
        assert large.endswith(f'"SET" "large" "{"x" * 200}"... (20000000 bytes)')
        assert many.endswith('"97" ... (402 more)')
        with client.monitor() as monitor:  # shows it all
            client.set("large", "y" * 1000)
            while not (shown := monitor.next_command()["command"]).startswith("SET"):
                pass
            assert len(shown) > 1000
        assert server.commands[-1].endswith("... (1000 bytes)")


def test_the_kit_is_no_client() -> None:
    with Server() as server, client_of(server) as client:
        server.execute("XADD", "s", "*", "f", "v")
        server.dump()
        assert len(client.client_list()) == 1
        found = client.info("everything")
        assert (found["connected_clients"], found["total_connections_received"]) == (1, 1)
        assert server.statistics()["connected_clients"] == 1
        server.execute("CLIENT", "KILL", "TYPE", "normal")
        with client_of(server) as other:
            other.ping()
            assert server.commands[-1].endswith('"PING"')


def test_a_password_and_rules_do_not_stop_the_kit() -> None:
    with Server(requirepass="secret") as server:
        with pytest.raises(redis.AuthenticationError):
            client_of(server).ping()
        assert server.execute("XADD", "s", "1-1", "f", "v") == b"1-1"
        with pytest.raises(CommandFailedError, match="WRONGTYPE"):
            server.execute("LPUSH", "s", "x")
        with pytest.raises(CommandFailedError, match="would wait"):
            server.execute("BLPOP", "nothing", 0)


@pytest.mark.parametrize("password", ["secret", "--p@ss/w?rd# %é", "-"])
def test_an_address_has_the_password(password: str) -> None:
    with Server(unix=True, requirepass=password) as server:
        for url in (server.url, server.unix_url):
            with redis.Redis.from_url(url) as client:
                assert client.ping()


def test_a_process_that_was_forked_leaves_the_server_alone() -> None:
    program = """
import os, signal, sys, warnings
from anabranch.testing import Cluster, Server

# Python 3.12 and later warn of a fork beside threads, which is what this is about.
warnings.simplefilter("ignore", DeprecationWarning)
with Server(persist=True) as server, Cluster("eu", "us", persist=True) as cluster:
    child = os.fork()
    if not child:
        signal.alarm(30)
        for call in (server.crash, lambda: server.execute("PING"), cluster.settle):
            try:
                call()
            except RuntimeError as problem:
                print(problem)
        sys.exit(7)  # closes both, as it seems
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for each in (server, *cluster):
        each.execute("XADD", "s", "*", "f", "v")
        each.execute("SAVE")
    print(status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, text=True
    )
    *refusals, status = done.stdout.splitlines()
    assert (status, done.stderr) == ("7", "")
    assert len(refusals) == 3
    assert all("from which this one was forked" in each for each in refusals)


def test_save_is_done_when_it_returns_and_says_if_it_failed(tmp_path: Path) -> None:
    with Server(persist=tmp_path) as server:
        server.execute("XADD", "s", "1-1", "f", "v")
        assert server.execute("SAVE") == b"OK"
        assert len(list(tmp_path.rglob("*.absnap"))) == 1
        server.disk.full()
        with pytest.raises(CommandFailedError, match="SAVE: ERR"):
            server.execute("SAVE")
        assert server.statistics()["rdb_last_bgsave_status"] == "err"
        assert server.statistics()["rdb_bgsave_in_progress"] == 0


def test_chance_comes_from_the_seed() -> None:
    drawn = []
    for _ in range(2):
        with Server(seed=7) as server, client_of(server) as client:
            client.sadd("s", *range(100))
            drawn.append(client.srandmember("s", 10))
    assert drawn[0] == drawn[1]


def test_importing_the_kit_and_its_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, anabranch.testing, anabranch.testing.plugin\n"
        "heavy = {'asyncio', 'msgspec', 'uvloop', 'redis', 'hiredis', 'anabranch.server'}\n"
        "before = set(sys.modules)\n"
        "print(sorted(heavy & {name for name in before if name != 'asyncio'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_prints_nothing_and_logs_to_who_listens() -> None:
    program = """
import logging, sys
from anabranch.testing import Server
if sys.argv[1:]:
    logging.basicConfig(format="%(name)s: %(message)s")
with Server() as server:
    server.execute("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
"""
    silent, listening = (
        subprocess.run([sys.executable, "-c", program, *words], capture_output=True, check=True)
        for words in ([], ["listen"])
    )
    assert (silent.stdout, silent.stderr) == (b"", b"")
    assert listening.stderr == b"anabranch: maxmemory_policy.no_effect\n"


def test_servers_that_were_closed_leave_nothing_behind() -> None:
    code = """
import os
from contextlib import suppress
from anabranch.testing import CommandFailedError, Server

def held():
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd"))

for number in range(30):
    with Server(persist=number % 2 == 0) as server:
        server.execute("XADD", "s", "*", "f", "v")
        with suppress(CommandFailedError):  # Lua is not installed
            server.execute("EVAL", "return redis.call('XLEN', 's')", 0)
    if number == 9:
        bytes_before, files_before = held()
bytes_after, files_after = held()
print(bytes_after - bytes_before, files_after - files_before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, files = map(int, done.stdout.split())
    assert files == 0
    assert grown < 10_000_000, "twenty Lua machines take more than 20 MB"
