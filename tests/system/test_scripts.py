"""Scripts that do not end leave other clients served, and nothing of them reaches the log."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch.testing import Server
from tests.support.servers import STOP_SECONDS, server_in

BUSY = "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as started:
        yield started


@pytest.fixture(autouse=True)
def fresh(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.flushall()
    client.config_set("busy-reply-threshold", 30)


class Running:
    """A script of another client."""

    def __init__(self, port: int, *request: object) -> None:
        self.outcome: object = None
        # It does not send the script again when the server has crashed.
        self._client = redis.Redis(
            port=port, retry=Retry(NoBackoff(), 0), socket_timeout=DEADLINE_S
        )
        self._thread = threading.Thread(target=self._run, args=request)
        self._thread.start()

    def _run(self, *request: object) -> None:
        try:
            self.outcome = self._client.execute_command(*request)
        except redis.RedisError as problem:
            self.outcome = str(problem)

    def wait(self) -> object:
        """The reply, or the text of the error."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self.outcome


@contextmanager
def running(server: Server, *request: object) -> Iterator[Running]:
    """A script that others have been answered BUSY for; the server is answering again behind it."""
    client = redis.Redis(port=server.port)
    script = Running(server.port, *request)
    deadline = time.monotonic() + DEADLINE_S
    while refusal_of(client, "GET", "a") != BUSY:
        assert time.monotonic() < deadline, script.outcome
    try:
        yield script
    finally:
        refusal_of(client, "SCRIPT", "KILL")
        script.wait()


def refusal_of(client: redis.Redis, *request: str) -> str:
    """The error of a request; empty if it is answered."""
    try:
        client.execute_command(*request)
    except redis.ResponseError as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(
    "script",
    [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do pcall(redis.call, 'GET', 'a') end",
        "while true do coroutine.wrap(function() while true do end end)() end",
        "local function f() while true do end end while true do xpcall(f, f) end",
        "local t = {} while true do t = {t} end",
        "while true do local s = string.rep('x', 1000000) s = s:reverse() end",
        "while true do cjson.decode(cjson.encode({1, 2, {3}})) end",
    ],
)  # fmt: skip
def test_an_endless_script_can_be_killed(server: Server, script: str) -> None:
    client = redis.Redis(port=server.port)
    client.set("a", "b")
    with running(server, "EVAL", script, 0) as others:
        # It may have ended for want of memory.
        assert refusal_of(client, "SCRIPT", "KILL")[:8] in ("", "NOTBUSY ")
    outcome = str(others.outcome)
    assert "Script killed by user with SCRIPT KILL" in outcome or "not enough memory" in outcome
    assert client.get("a") == b"b"
    assert client.eval("return 1", 0) == 1


@pytest.mark.parametrize(
    "script",
    [
        "return string.rep('x', 2 ^ 30)",
        "local s = 'x' while true do s = s .. s end",
        "local function f() return f() + 1 end return f()",
        "local function f() return coroutine.wrap(f)() end return f()",
        "local t = {} while true do t[#t + 1] = string.rep(#t, 200) end",
    ],
)
def test_a_greedy_script_fails_and_others_are_served(server: Server, script: str) -> None:
    canary = redis.Redis(port=server.port, socket_timeout=DEADLINE_S)
    canary.config_set("busy-reply-threshold", 60_000)
    greedy = Running(server.port, "EVAL", "redis.call('INCR', 'n') " + script, 0)
    while greedy.outcome is None:  # a request behind the script waits for its end
        assert canary.get("n") in (None, b"1")
    outcome = str(greedy.wait())
    assert "not enough memory" in outcome or "stack overflow" in outcome
    assert canary.get("n") == b"1"


def test_info_shows_what_scripts_take(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.eval("collectgarbage() return 1", 0)  # what earlier scripts have left
    before = client.info("memory")["used_memory_lua"]
    assert before > 100_000
    client.eval(f"return '{'x' * 200_000}'", 0)
    assert client.info("memory")["used_memory_vm_eval"] > before + 100_000


def test_what_others_may_do_meanwhile(server: Server) -> None:
    client = redis.Redis(port=server.port)
    with running(server, "EVAL", "while true do end", 0):
        for request in (
            ["PING"],
            ["EVAL", "return 1", "0"],
            ["XADD", "s", "*", "f", "v"],
            ["SAVE"],
        ):
            with pytest.raises(redis.ResponseError, match="BUSY"):
                client.execute_command(*request)
        with pytest.raises(redis.ResponseError, match="BUSY"):
            client.execute_command("SHUTDOWN")
        client.execute_command("HELLO", "2")
        client.execute_command("MULTI")
        with pytest.raises(redis.ResponseError, match="Transaction discarded because of: BUSY"):
            client.execute_command("EXEC")
        client.script_kill()
    assert client.exists("s") == 0


def test_what_waits_is_served_after_a_script_that_takes_long(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.config_set("busy-reply-threshold", 60_000)
    script = "redis.call('INCR', 'n') local t = redis.call('TIME')[1] + 0 "
    script += "for i = 1, 3000000 do t = t + 1 end return redis.call('INCR', 'n')"
    first, second = Running(server.port, "EVAL", script, 0), Running(server.port, "EVAL", script, 0)
    seen = set()
    while first.outcome is None or second.outcome is None:
        seen.add(int(client.get("n") or 0))  # never in the midst of a script
    assert sorted([first.wait(), second.wait()]) == [2, 4]  # type: ignore[type-var]
    assert seen <= {0, 2, 4}


def test_a_script_that_has_written_is_not_killed_and_is_all_or_nothing() -> None:
    with Server(persist=True) as server:
        _is_all_or_nothing(server)


def _is_all_or_nothing(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.config_set("busy-reply-threshold", 30)
    client.set("a", "before")
    script = (
        "redis.call('SET', 'a', 'half') redis.call('XADD', 's', '*', 'f', 'v') while true do end"
    )
    with running(server, "EVAL", script, 0) as others:
        with pytest.raises(redis.ResponseError, match="UNKILLABLE Sorry the script already"):
            client.script_kill()
        server.crash()
        others.wait()
        server.restart()
    assert client.get("a") == b"before"
    assert client.exists("s") == 0


@pytest.mark.parametrize("end", ["SIGTERM", "SHUTDOWN NOSAVE"])
def test_a_server_stops_although_a_script_is_endless(tmp_path: Path, end: str) -> None:
    words = ("--appendonly", "yes", "--shutdown-timeout", "1", "--busy-reply-threshold", "30")
    with server_in(tmp_path, *words) as server:
        client = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
        client.set("kept", "yes")
        endless = "redis.call('SET', 'half', 'yes') while true do end"
        script = Running(server.port, "EVAL", endless, 0)
        deadline = time.monotonic() + DEADLINE_S
        while refusal_of(client, "GET", "a") != BUSY:
            assert time.monotonic() < deadline, script.outcome
        if end == "SIGTERM":
            server.stop()  # fails if it takes much longer than shutdown-timeout
        else:
            with suppress(redis.ConnectionError):
                client.shutdown(nosave=True)
            assert server.process is not None
            assert server.process.wait(STOP_SECONDS) == 0
            server.process = None
        assert "onnection" in str(script.wait())  # it gets no reply
        server.start()
        client = redis.Redis(port=server.port)
        assert client.mget("kept", "half") == [b"yes", None]


def test_a_function_is_killed_by_its_own_command_only(server: Server) -> None:
    client = redis.Redis(port=server.port)
    client.function_load(
        "#!lua name=lib\nredis.register_function('endless', function() while true do end end)",
        replace=True,
    )
    function = Running(server.port, "FCALL", "endless", 0)
    busy = BUSY.replace("SCRIPT", "FUNCTION")
    deadline = time.monotonic() + DEADLINE_S
    while refusal_of(client, "GET", "a") != busy:
        assert time.monotonic() < deadline, function.outcome
    assert client.function_stats()
    assert refusal_of(client, "SCRIPT", "KILL") == busy
    assert refusal_of(client, "FUNCTION", "KILL") == ""
    assert "Script killed by user" in str(function.wait())
    assert client.get("a") is None


def test_a_script_in_a_transaction_can_be_killed(server: Server) -> None:
    client = redis.Redis(port=server.port)
    queue = client.pipeline()
    queue.set("a", "b")
    queue.eval("while true do end", 0)
    queue.get("a")
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.extend(queue.execute(raise_on_error=False)))
    thread.start()
    deadline = time.monotonic() + DEADLINE_S
    while refusal_of(client, "SCRIPT", "KILL"):
        assert time.monotonic() < deadline
    thread.join(DEADLINE_S)
    assert outcomes[0] is True
    assert "Script killed by user" in str(outcomes[1])
    assert outcomes[2] == b"b"


def test_a_client_that_leaves_does_not_end_its_script(server: Server) -> None:
    client = redis.Redis(port=server.port)
    script = "redis.call('INCR', 'n') for i = 1, 20000000 do end redis.call('INCR', 'n')"
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(f'EVAL "{script}" 0\r\n'.encode())
        deadline = time.monotonic() + DEADLINE_S
        while refusal_of(client, "GET", "a") != BUSY:
            assert time.monotonic() < deadline
    while refusal_of(client, "GET", "a"):
        assert time.monotonic() < deadline
    assert client.get("n") == b"2"
