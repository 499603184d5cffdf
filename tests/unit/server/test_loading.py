"""A server whose data are still being recovered: what it answers, and what it never does.

Between :meth:`Server.listen` and :meth:`Server.load` time stands still for the data, so these tests
see a server that loads for as long as they want. They talk to it over real sockets.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import hiredis
import pytest

from anabranch.config.load import load
from anabranch.errors import ConfigError
from anabranch.oplog.errors import LogError
from anabranch.server.app import Server
from anabranch.server.stop import orderly_stop
from tests.support.http import ask
from tests.support.inspection import wait_until
from tests.support.servers import free_port, redis_server_path
from tests.support.wings import WINGS
from tests.support.wire import RespClient

LOADING = "LOADING Redis is loading the dataset in memory"


class Wire:
    """A connection of a client in the loop of the server."""

    def __init__(self, port: int) -> None:
        """Connected: the system accepts connections before the server does."""
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setblocking(False)
        self._replies = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        OPEN.append(self)

    async def call(self, text: str) -> Any:
        """The reply to one command; an error is its text."""
        return (await self.call_all([text]))[0]

    async def call_all(self, texts: list[str]) -> list[Any]:
        """The replies to a pipeline."""
        loop = asyncio.get_running_loop()
        found: list[Any] = []
        try:
            await loop.sock_sendall(
                self._sock, b"".join(hiredis.pack_command(tuple(each.split())) for each in texts)
            )
            while len(found) < len(texts):
                while (reply := self._replies.gets()) is not False:
                    found.append(str(reply) if isinstance(reply, hiredis.HiredisError) else reply)
                if len(found) < len(texts):
                    data = await loop.sock_recv(self._sock, 65536)
                    if not data:
                        raise ConnectionResetError
                    self._replies.feed(data)
        except ConnectionError:
            found += ["closed"] * (len(texts) - len(found))
        return found

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


OPEN: list[Wire] = []


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@asynccontextmanager
async def listening(directory: Path, *words: str) -> AsyncIterator[Server]:
    """A server that has begun to listen, and loads nothing yet."""
    settings = load(["--port", str(free_port()), "--dir", str(directory), *words], {}).settings
    server = Server(settings, WINGS)
    try:
        server.listen()
        yield server
        await orderly_stop(server, patient=False)
    finally:
        server.close()


def connect(server: Server) -> Wire:
    """A new connection to it."""
    return Wire(server.settings.port)


async def filled(directory: Path, *commands: str, words: tuple[str, ...] = ()) -> None:
    """Run a server in a directory until it has executed these commands."""
    async with listening(directory, *words) as server:
        assert await server.load()
        wire = connect(server)
        for at in range(0, len(commands), 20):  # a turn of the log each
            for reply in await wire.call_all([*commands[at : at + 20]]):
                assert not str(reply).startswith("ERR")
        wire.close()


def contents(directory: Path) -> dict[str, str]:
    """Every file but the lock, by a digest."""
    files = [each for each in directory.rglob("*") if each.is_file() and each.name != "lock"]
    return {each.name: sha256(each.read_bytes()).hexdigest() for each in files}


def entries(count: int) -> list[str]:
    """Commands that add entries to some streams."""
    return [f"XADD s{number % 7} * n {number}" for number in range(count)]


# -- as redis-server ------------------------------------------------------------------------------

COMMANDS = """
PING|INFO persistence|HELLO 3|HELLO 2|AUTH x|AUTH default x|GET k|GET|MULTI|GET k|EXEC|MULTI
INFO server|EXEC|DISCARD|DBSIZE|CONFIG GET port|CONFIG SET appendonly yes|CONFIG SET maxmemory 0
BGSAVE|SAVE|BGREWRITEAOF|CLIENT LIST|CLIENT ID|CLIENT SETNAME me|CLIENT GETNAME|CLIENT INFO|ECHO x
EVAL return 0|EVALSHA x 0|SCRIPT KILL|SCRIPT EXISTS x|FUNCTION STATS|FUNCTION LIST|XINFO HELP
XGROUP HELP|OBJECT HELP|OBJECT ENCODING k|LASTSAVE|ROLE|TIME|MEMORY DOCTOR|MEMORY USAGE k|WAIT 0 1
SELECT 99|SELECT 1|SELECT 0|SWAPDB 0 1|FLUSHALL|FLUSHDB|XADD s|XADD s * f v|XREAD STREAMS s 0
XREADGROUP GROUP g c STREAMS s >|XRANGE s - +|XLEN s|DEL k|KEYS *|SCAN 0|RANDOMKEY|TYPE k|TTL k
LATENCY DOCTOR|LATENCY LATEST|SLOWLOG LEN|SLOWLOG GET|SLOWLOG RESET|WATCH k|UNWATCH|PUBLISH a b
SUBSCRIBE a|UNSUBSCRIBE a|PUBSUB CHANNELS|ACL WHOAMI|ACL LIST|ACL CAT|ACL USERS|COMMAND COUNT
COMMAND INFO get|DUMP k|RESTORE k 0 x|COPY k l|RENAME k l|DEBUG SLEEP 0|RESET|QUIT
"""


@pytest.fixture
def loading_redis(tmp_path: Path) -> Iterator[int]:
    """The port of a redis-server that is loading."""
    program = redis_server_path()
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    words = [program, "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    words += ["--enable-debug-command", "yes", "--appendonly", "no", "--rdbcompression", "no"]
    slow = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]

    def answers() -> bool:
        with suppress(OSError), RespClient(port) as client:
            return bool(client.call("INFO"))
        return False

    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        wait_until(answers, "redis-server answers")
        with RespClient(port) as client:
            client.call("DEBUG", "POPULATE", "20000", "key", "500")
            client.call("SAVE")
        process.kill()
    with subprocess.Popen([*words, *slow], stdout=subprocess.DEVNULL) as process:
        wait_until(answers, "redis-server answers")
        yield port
        process.kill()


def shown(reply: Any) -> Any:
    """What both servers must agree on: errors and statuses as they are, of others the type."""
    if isinstance(reply, str) and reply.split(" ")[0].isupper():
        return reply
    return type(reply).__name__


async def test_every_command_is_answered_as_by_redis_server(
    tmp_path: Path, loading_redis: int
) -> None:
    (tmp_path / "ours").mkdir()
    await filled(tmp_path / "ours", "SET k v", *entries(20))
    words = COMMANDS.strip().replace("\n", "|").split("|")
    async with listening(tmp_path / "ours", "--enable-debug-command", "yes") as server:
        ours = connect(server)
        theirs = Wire(loading_redis)
        info = await theirs.call("INFO persistence")
        assert "\nloading:1\r" in info
        differing = {}
        for command in words:
            one, other = await ours.call(command), await theirs.call(command)
            if shown(one) != shown(other):
                differing[command] = (one, other)
        assert not differing
        fields = {line.split(":")[0] for line in info.split() if line.startswith("loading_")}
        ours = connect(server)
        lines = (await ours.call("INFO persistence")).split()
        assert {line.split(":")[0] for line in lines if line.startswith("loading_")} == fields


# -- progress, and the end ------------------------------------------------------------------------


async def test_commands_see_all_data_or_none(tmp_path: Path) -> None:
    await filled(tmp_path, *entries(12_000))
    async with listening(tmp_path) as server:
        wire = connect(server)
        assert await wire.call("XLEN s1") == LOADING
        loading = asyncio.create_task(server.load())
        seen = set()
        percents = []
        while not loading.done():
            seen.add(await wire.call("XLEN s1"))
            lines = (await wire.call("INFO persistence")).split()
            found = [line for line in lines if line.startswith("loading_loaded_perc:")]
            percents += [float(line.partition(":")[2]) for line in found]
        assert await loading
        assert seen in ({LOADING, 1715}, {LOADING})
        assert len(percents) > 3, "clients are answered while the data are loaded"
        assert percents == sorted(percents)
        assert 0 <= percents[0] < percents[-1] <= 100
        assert await wire.call("XLEN s1") == 1715
        assert await wire.call("PING") == "PONG"
        info = await wire.call("INFO persistence")
        assert "\nloading:0\r" in info
        assert "loading_" not in info


async def test_what_is_watched_while_loading_is_not_as_it_was(tmp_path: Path) -> None:
    await filled(tmp_path, "SET k 1")
    async with listening(tmp_path) as server:
        wire = connect(server)
        assert await wire.call("WATCH k") == "OK"
        assert await server.load()
        other = connect(server)
        assert await other.call("SET k 2") == "OK"
        assert await wire.call("MULTI") == "OK"
        assert await wire.call("GET k") == "QUEUED"
        assert await wire.call("EXEC") is None


async def test_a_stop_while_loading_changes_nothing(tmp_path: Path) -> None:
    await filled(tmp_path, *entries(4000))
    before = contents(tmp_path)
    async with listening(tmp_path, "--save", "1 1") as server:
        wire = connect(server)
        assert await wire.call("CONFIG SET appendonly no") == LOADING
        loading = asyncio.create_task(server.load())
        while not server.persistence.loaded_percent:
            assert await wire.call("PING") == LOADING
        ended = asyncio.create_task(wire.call("SHUTDOWN SAVE"))
        assert await loading is False
        assert 0 < server.persistence.loaded_percent < 100
    assert await ended == "closed"
    assert contents(tmp_path) == before
    async with listening(tmp_path) as server:
        assert await server.load()
        assert await connect(server).call("XLEN s1") == 572


def damaged(directory: Path) -> str:
    """The name of the snapshot, of which a bit is changed now."""
    snapshot = next(directory.rglob("snapshot-*"))
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.write_bytes(data)
    return snapshot.name


async def test_damage_refuses_the_start_and_clients_are_cut_off(tmp_path: Path) -> None:
    await filled(tmp_path, *entries(50), "BGREWRITEAOF", words=("--appendfsync", "always"))
    async with listening(tmp_path) as server:
        assert await server.load()
        server.persistence.save()
    name = damaged(tmp_path)
    async with listening(tmp_path) as server:
        wire = connect(server)
        assert await wire.call("PING") == LOADING
        with pytest.raises(LogError, match=name):
            await server.load()
        assert await wire.call("PING") == LOADING, "the data never come"


async def test_nobody_is_served_when_the_log_cannot_begin_behind_the_data(tmp_path: Path) -> None:
    words = ("--region-id", "3", "--gossip-port", str(free_port()))
    async with listening(tmp_path, *words) as server:
        wire = connect(server)
        with pytest.raises(ConfigError, match="belongs to no cluster"):
            await server.load()
        assert await wire.call_all(["PING", "XADD s * f v"]) == [LOADING, LOADING]


async def test_a_directory_in_use_is_refused_before_anybody_is_let_in(tmp_path: Path) -> None:
    async with listening(tmp_path):
        with pytest.raises(ConfigError, match="another server"):
            async with listening(tmp_path):
                raise AssertionError


async def test_no_background_work_touches_what_is_loaded(tmp_path: Path) -> None:
    await filled(tmp_path, *entries(20), "SET k v PX 1")
    async with listening(tmp_path) as server:
        for _ in range(20):
            server.node.tick()
        assert not server.region.keyspace.databases[0].values
        assert await server.load()
        server.node.tick()
        assert await connect(server).call("GET k") is None


# -- users ----------------------------------------------------------------------------------------


async def test_users_of_the_log_let_nobody_in_before_they_are_loaded(tmp_path: Path) -> None:
    await filled(tmp_path, "ACL SETUSER default >secret", "ACL SETUSER ann on >pw +@all ~*")
    async with listening(tmp_path) as server:
        wire = connect(server)
        for command in ("INFO", "CONFIG GET *", "ACL LIST", "AUTH secret", "AUTH ann pw", "HELLO"):
            assert await wire.call(command) == LOADING, command
        assert await server.load()
        assert str(await wire.call("INFO")).startswith("NOAUTH")
        assert await wire.call("AUTH ann pw") == "OK"
        assert await wire.call("ACL WHOAMI") == "ann"


async def test_users_of_the_configuration_are_let_in_at_once(tmp_path: Path) -> None:
    await filled(tmp_path, "ACL SETUSER ann on >pw +@all ~*")
    words = ("--requirepass", "secret", "--user", "bob on >pw +@all ~*")
    async with listening(tmp_path, *words) as server:
        wire = connect(server)
        assert str(await wire.call("INFO")).startswith("NOAUTH")
        assert await wire.call("AUTH ann pw") == LOADING
        assert str(await wire.call("AUTH bob no")).startswith("WRONGPASS")
        assert await wire.call("AUTH bob pw") == "OK"
        assert await wire.call("ACL WHOAMI") == "bob"
        assert await wire.call("ACL SETUSER eve on") == LOADING
        assert await wire.call("ACL DELUSER bob") == LOADING
        assert await server.load()
        assert await wire.call("AUTH ann pw") == "OK"
        assert "eve" not in str(await wire.call("ACL USERS"))


async def test_who_came_while_users_were_unknown_may_go_on(tmp_path: Path) -> None:
    await filled(tmp_path, "SET k v", "ACL SETUSER ann on >pw")
    async with listening(tmp_path) as server:
        wire = connect(server)
        assert await wire.call("GET k") == LOADING
        assert await server.load()
        assert await wire.call("GET k") == "v"


# -- HTTP -----------------------------------------------------------------------------------------


async def test_the_process_is_alive_and_not_ready(tmp_path: Path) -> None:
    pytest.importorskip("anabranch.web.application", reason="the extra web is not installed")
    await filled(tmp_path, *entries(20))
    port = free_port()
    words = ("--http-port", str(port), "--availability-api", "yes")
    async with listening(tmp_path, *words) as server:

        async def status(path: str) -> tuple[int, str]:
            answer = await asyncio.to_thread(ask, port, path)
            return answer.status, answer.body.decode()

        assert await status("/healthz") == (200, "ok\n")
        assert await status("/readyz") == (503, "the data are being loaded: 0 %\n")
        available = ("/v1/bdbs/1/availability", "/v1/local/bdbs/1/endpoint/availability")
        for path in (*available, "/", "/metrics", "/status.json"):
            found, text = await status(path)
            assert (found, "being loaded" in text) == (503, True), path
        assert await server.load()
        assert (await status("/v1/local/bdbs/2/endpoint/availability"))[0] == 404
        for path in (*available, "/healthz", "/readyz", "/", "/metrics"):
            assert (await status(path))[0] == 200, path


async def test_a_region_links_when_it_is_loaded(tmp_path: Path) -> None:
    words = ("--region-id", "1", "--cluster-create", "yes", "--gossip-secret", "s" * 20)
    await filled(tmp_path, *entries(20), words=words)
    async with listening(tmp_path, *words) as server:
        wire = connect(server)
        gossip_port = server.settings.port + 10_000
        with pytest.raises(OSError, match="refused"):
            Wire(gossip_port)
        for command in (
            "INFO",
            "INFO everything",
            "CONFIG GET *",
            "CONFIG SET mark-retention safe",
        ):
            assert not str(await wire.call(command)).startswith("LOADING"), command
        assert await wire.call("CONFIG SET gossip-bind 127.0.0.1") == LOADING
        for command in ("AB.PEERS", "AB.REGION LIST", "AB.INFO"):
            assert await wire.call(command) == LOADING, command
        assert await server.load()
        Wire(gossip_port)
        assert await wire.call("XLEN s1") == 3
