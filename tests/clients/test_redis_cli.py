"""redis-cli as people use it: one command, in a script, at a terminal, and its tools."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.inspection import number, wait_until
from tests.support.servers import AnabranchServer
from tests.support.terminal import Terminal
from tests.support.wire import encode_command

SECONDS = 60
PROMPT = "> $"
Run = Callable[..., str]


@pytest.fixture(params=[[], ["-3"]], ids=["RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> list[str]:
    """Options that choose the protocol."""
    chosen: list[str] = request.param
    return chosen


@pytest.fixture
def command(redis_cli: str, server: AnabranchServer) -> list[str]:
    """The start of every call."""
    return [redis_cli, "-p", str(server.port)]


def called(command: list[str], *arguments: object, stdin: str | bytes = b"", code: int = 0) -> str:
    """One call that ends by itself; what it prints."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        check=False,
        capture_output=True,
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        timeout=SECONDS,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return (done.stdout + (done.stderr if code else b"")).decode()


@pytest.fixture
def cli(command: list[str], protocol: list[str]) -> Run:
    """Calls redis-cli with a command."""
    return lambda *arguments, **options: called([*command, *protocol], *arguments, **options)


@pytest.fixture
def waiting(command: list[str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts calls that do not end at once."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def from_json(command: list[str], *arguments: object) -> Any:
    """A reply in RESP3 as redis-cli's JSON."""
    return json.loads(called(command, "-3", "--json", *arguments))


# -- one command at a time ------------------------------------------------------------------------


def test_group_round_trip(cli: Run, command: list[str]) -> None:
    assert cli("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM") == "OK\n"
    for n in range(1, 5):
        assert cli("XADD", "s", f"{n}-0", "n", n) == f"{n}-0\n"
    # What is not a terminal gets one line for each leaf of a reply.
    read = cli("XREADGROUP", "GROUP", "g", "alice", "COUNT", 2, "BLOCK", 1000, "STREAMS", "s", ">")
    assert read.split() == ["s", "1-0", "n", "1", "2-0", "n", "2"]
    assert cli("XACK", "s", "g", "1-0", "9-9") == "1\n"
    assert cli("XPENDING", "s", "g").split() == ["1", "2-0", "2-0", "alice", "1"]
    assert cli("XCLAIM", "s", "g", "bob", 0, "2-0").split() == ["2-0", "n", "2"]
    assert cli("XAUTOCLAIM", "s", "g", "carol", 0, 0).split() == ["0-0", "2-0", "n", "2"]
    pending = cli("XPENDING", "s", "g", "-", "+", 10).split()
    assert (pending[:2], pending[3]) == (["2-0", "carol"], "3")
    assert cli("XRANGE", "s", "(1-0", "+", "COUNT", 1).split() == ["2-0", "n", "2"]
    assert cli("XREVRANGE", "s", "+", "-", "COUNT", 1).split() == ["4-0", "n", "4"]
    assert cli("XLEN", "s") == "4\n"
    (group,) = from_json(command, "XINFO", "GROUPS", "s")
    assert group == {
        "name": "g",
        "consumers": 3,
        "pending": 1,
        "last-delivered-id": "2-0",
        "entries-read": 2,
        "lag": 2,
    }
    consumers = from_json(command, "XINFO", "CONSUMERS", "s", "g")
    assert [(one["name"], one["pending"]) for one in consumers] == [
        ("alice", 0),
        ("bob", 0),
        ("carol", 1),
    ]
    stream = from_json(command, "XINFO", "STREAM", "s", "FULL")
    assert [entry[0] for entry in stream["entries"]] == ["1-0", "2-0", "3-0", "4-0"]
    assert stream["groups"][0]["pending"][0][:2] == ["2-0", "carol"]


def test_idempotent_production(cli: Run) -> None:
    once = cli("XADD", "s", "IDMP", "producer", "order-1", "*", "a", "b")
    assert cli("XADD", "s", "IDMP", "producer", "order-1", "*", "a", "b") == once
    assert cli("XLEN", "s") == "1\n"


def test_a_blocked_read_is_served_by_another_call(
    server: AnabranchServer,
    cli: Run,
    protocol: list[str],
    waiting: Callable[..., subprocess.Popen[str]],
) -> None:
    reader = waiting(*protocol, "XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    with server.client() as client:
        wait_until(lambda: number(client, "blocked_clients") == 1, "it blocks")
    added = cli("XADD", "s", "*", "news", "yes").strip()
    shown, _ = reader.communicate(timeout=SECONDS)
    assert shown.split() == ["s", added, "news", "yes"]


def test_a_transaction_from_a_script(cli: Run) -> None:
    script = "MULTI\nXADD s 1-1 f v\nXLEN s\nEXEC\nXLEN s\n"
    assert cli(stdin=script).split() == ["OK", "QUEUED", "QUEUED", "1-1", "1", "1"]


def test_errors_and_exit_codes(cli: Run) -> None:
    assert cli("SET", "k", "v") == "OK\n"
    assert cli("-e", "XADD", "k", "*", "f", "v", code=1).startswith("WRONGTYPE ")
    assert cli("XADD", "s", "0-0", "f", "v").startswith("ERR The ID specified in XADD must be ")
    words = "ERR unknown command '{}', with args beginning with: 'a' "
    assert cli("NONSENSE", "a") == words.format("NONSENSE") + "\n\n"
    assert cli("HGET", "a").startswith(words.format("HGET") + "(Anabranch is a stream server and")


def test_options_that_choose_where_and_how(command: list[str], cli: Run) -> None:
    assert cli("-n", 5, "XADD", "s", "1-1", "f", "v") == "1-1\n"
    assert (cli("-n", 5, "DBSIZE"), cli("DBSIZE")) == ("1\n", "0\n")
    assert cli("-x", "XADD", "s", "2-1", "f", stdin="from a pipe") == "2-1\n"
    assert cli("XRANGE", "s", "-", "+").splitlines() == ["2-1", "f", "from a pipe"]
    assert cli("-r", 3, "-i", 0.01, "XLEN", "s") == "1\n1\n1\n"
    assert cli("--csv", "XRANGE", "s", "-", "+") == '"2-1","f","from a pipe"\n'
    shown = cli("--no-raw", "XRANGE", "s", "-", "+")
    assert shown == '1) 1) "2-1"\n   2) 1) "f"\n      2) "from a pipe"\n'
    assert called([command[0]], "-u", f"redis://127.0.0.1:{command[2]}/5", "DBSIZE") == "1\n"


def test_a_password(command: list[str], server: AnabranchServer, protocol: list[str]) -> None:
    with server.client() as client:
        client.call("ACL", "SETUSER", "worker", "on", ">secret", "~s*", "+xadd", "+xlen")
        user = ["--user", "worker", "--pass", "secret", "--no-auth-warning", *protocol]
        if protocol:  # HELLO 3 is sent after AUTH, so the user must be allowed to
            client.call("ACL", "SETUSER", "worker", "+hello")
        assert called(command, *user, "XADD", "s", "1-1", "f", "v") == "1-1\n"
        assert called(command, *user, "XADD", "t", "1-1", "f", "v").startswith("NOPERM ")
        assert called(command, *user, "XRANGE", "s", "-", "+").startswith("NOPERM ")
        assert client.call("ACL", "DELUSER", "worker") == (":", 1)


# -- tools ----------------------------------------------------------------------------------------


@pytest.fixture
def filled(server: AnabranchServer) -> AnabranchServer:
    """A server with streams of 1 to 20 entries, and one value of each other type."""
    with server.client() as client:
        client.pipeline(
            [("XADD", f"s:{n}", "*", "f", "v" * n) for n in range(1, 21) for _ in range(n)]
        )
        client.pipeline([("SET", "string", "x"), ("LPUSH", "list", "a"), ("SADD", "set", "a")])
    return server


@pytest.mark.usefixtures("filled")
def test_bigkeys(cli: Run) -> None:
    shown = cli("--bigkeys")
    assert "Sampled 23 keys in the keyspace!" in shown
    assert "Biggest stream found '\"s:20\"' has 20 entries" in shown
    assert "20 streams with 210 entries" in shown


def test_memkeys(cli: Run, filled: AnabranchServer) -> None:
    shown = cli("--memkeys")
    assert "Sampled 23 keys in the keyspace!" in shown
    found = re.search(r"Biggest stream found '\"(s:\d+)\"' has (\d+) bytes", shown)
    assert found is not None, shown
    with filled.client() as client:
        assert client.call("MEMORY", "USAGE", found[1], "SAMPLES", 0) == (":", int(found[2]))


@pytest.mark.usefixtures("filled")
def test_scan(cli: Run) -> None:
    assert sorted(cli("--scan").split()) == sorted(
        [f"s:{n}" for n in range(1, 21)] + ["string", "list", "set"]
    )
    assert sorted(cli("--scan", "--pattern", "s:1?").split()) == [f"s:{n}" for n in range(10, 20)]
    assert sorted(cli("--scan", "--pattern", "*[gt]").split()) == [
        *("list", "set", "string"),
    ]


def test_pipe(cli: Run, server: AnabranchServer) -> None:
    data = b"".join(
        encode_command(("XADD", "s", f"{n}-0", "binary", b"\0\r\n\xff")) for n in range(1, 20_001)
    )
    assert "errors: 0, replies: 20000" in cli("--pipe", stdin=data)
    inline = b"XADD s 20001-0 f v\r\nXADD s 1-0 f v\r\n"
    assert "errors: 1, replies: 2" in cli("--pipe", stdin=inline, code=1)
    with server.client() as client:
        assert client.call("XLEN", "s") == (":", 20_001)


def test_stat(command: list[str], protocol: list[str], filled: AnabranchServer) -> None:
    with Terminal([*command, *protocol, "--stat", "-i", "0.05"]) as terminal:
        terminal.expect("keys +mem +clients +blocked +requests +connections")
        first = terminal.expect(r"\n23 +[\d.]+[KMG] +(\d+) +0 +(\d+) \(\+0\)")
        second = terminal.expect(r"\n23 +[\d.]+[KMG] +(\d+) +0 +(\d+) \(\+\d+\)")
        assert int(second[2]) > int(first[2])
        terminal.interrupt()
        terminal.end()


def test_latency(cli: Run) -> None:
    # Without a terminal it measures for a second and prints the least, the most and the mean.
    least, most, mean, samples = cli("--latency", "-i", 1).split()
    assert 0 <= int(least) <= float(mean) <= int(most) < 1000
    assert int(samples) > 10


def test_latency_at_a_terminal(command: list[str], protocol: list[str]) -> None:
    with Terminal([*command, *protocol, "--latency-history", "-i", "0.2"]) as terminal:
        for _ in range(2):
            terminal.expect(r"min: \d+, max: \d+, avg: [\d.]+ \((\d+) samples\) -- 0\.2\d seconds")
        terminal.interrupt()
        terminal.end()
    with Terminal([*command, *protocol, "--latency-dist", "-i", "0.2"]) as terminal:
        terminal.expect("From 0 to 100%:")
        terminal.interrupt()
        terminal.end()


@pytest.mark.parametrize("option", [["--rdb"], ["--functions-rdb"]], ids="".join)
def test_a_backup_as_a_file_names_export(
    command: list[str], option: list[str], tmp_path: Path
) -> None:
    said = called(command, *option, tmp_path / "dump.rdb", code=1)
    assert "`anabranch export` writes its data to an RDB file" in said


@pytest.mark.usefixtures("filled")
def test_hotkeys_tells_what_is_missing(cli: Run) -> None:
    shown = cli("--hotkeys", code=1)
    assert "Scanning the entire keyspace to find hot keys" in shown


def test_monitor(
    cli: Run, server: AnabranchServer, waiting: Callable[..., subprocess.Popen[str]]
) -> None:
    monitor = waiting("MONITOR")
    assert monitor.stdout is not None
    assert monitor.stdout.readline() == "OK\n"
    cli("XADD", "s", "1-1", "f", 'quo"ted\n')
    lines = iter(monitor.stdout.readline, "")
    shown = next(line for line in lines if '"XADD"' in line)
    assert re.fullmatch(
        r'\d{10}\.\d{6} \[0 127\.0\.0\.1:\d+\] "XADD" "s" "1-1" "f" "quo\\"ted\\n"\n', shown
    )
    monitor.send_signal(signal.SIGINT)
    with server.client() as client:
        wait_until(lambda: number(client, "connected_clients") == 1, "it left")


def test_subscribe(
    cli: Run, protocol: list[str], waiting: Callable[..., subprocess.Popen[str]]
) -> None:
    listener = waiting(*protocol, "SUBSCRIBE", "news")
    assert listener.stdout is not None
    assert [listener.stdout.readline() for _ in range(3)] == ["subscribe\n", "news\n", "1\n"]
    assert cli("PUBLISH", "news", "hello") == "1\n"
    assert [listener.stdout.readline() for _ in range(3)] == ["message\n", "news\n", "hello\n"]


# -- at a terminal --------------------------------------------------------------------------------


@pytest.fixture
def terminal(command: list[str], protocol: list[str], tmp_path: Path) -> Iterator[Terminal]:
    """redis-cli waiting for input; it has asked for COMMAND DOCS by then."""
    variables = {"REDISCLI_HISTFILE": "/dev/null", "HOME": str(tmp_path)}
    with Terminal([*command, *protocol], **variables) as program:
        program.expect(PROMPT)
        yield program


def ask(terminal: Terminal, line: str, *wanted: str) -> None:
    """Type a command, wait for what it shows and for the next prompt."""
    terminal.type(line)
    for each in wanted:
        terminal.expect(each)
    terminal.expect(PROMPT)


def test_help_and_hints_come_from_the_server(terminal: Terminal) -> None:
    terminal.press("XADD s")
    terminal.expect(r"XADD s.*\[NOMKSTREAM\].*field value")
    ask(terminal, " 1-1 f v", '\n"1-1"\n')
    ask(
        terminal,
        "HELP XAUTOCLAIM",
        r"XAUTOCLAIM key group consumer min-idle-time start \[COUNT count\] \[JUSTID\]",
        r"summary: \w+",
        "group: stream",
    )
    ask(terminal, "HELP @stream", "XACK key group id", "XTRIM key MAXLEN")
    terminal.type("quit")
    assert terminal.end() == 0


def test_replies_at_a_terminal(terminal: Terminal, protocol: list[str]) -> None:
    ask(terminal, "XADD s 1-1 f v", '\n"1-1"\n')
    ask(terminal, "XRANGE s - +", r'1\) 1\) "1-1"\n   2\) 1\) "f"\n      2\) "v"\n')
    ask(terminal, "XGROUP CREATE s g 0", "\nOK\n")
    entry = r'1\) 1\) "1-1"\n'
    shown = rf'\n1# "s" => \n +{entry}' if protocol else rf'\n1\) 1\) "s"\n   2\) {entry}'
    ask(terminal, "XREADGROUP GROUP g c STREAMS s >", shown)
    ask(terminal, "XREADGROUP GROUP g c STREAMS s >", r"\n\(nil\)\n")
    ask(terminal, "XACK s g 1-1", r"\n\(integer\) 1\n")
    refused = r"\n\(error\) ERR The ID specified in XADD is equal or smaller"
    ask(terminal, "XADD s 1-1 f v", refused)
    ask(terminal, "XREAD BLOCK 600 STREAMS s $", r"\n\(nil\)\n\(0\.6\ds\)")


def test_the_prompt_follows_database_and_transaction(terminal: Terminal) -> None:
    ask(terminal, "SELECT 7", r"\nOK\n127\.0\.0\.1:\d+\[7\]")
    ask(terminal, "MULTI", r"\nOK\n127\.0\.0\.1:\d+\[7\]\(TX\)")
    ask(terminal, "XADD s 1-1 f v", r"QUEUED\n127\.0\.0\.1:\d+\[7\]\(TX\)")
    ask(terminal, "EXEC", r'1\) "1-1"\n127\.0\.0\.1:\d+\[7\]')
    ask(terminal, "RESET", r"RESET\n127\.0\.0\.1:\d+")


def test_the_protocol_can_be_changed(terminal: Terminal) -> None:
    ask(terminal, "HELLO 3", r'1# "server" => "redis"')
    ask(terminal, "HELLO 2", r'1\) "server"\n +2\) "redis"')


def test_a_lost_connection_is_made_again(terminal: Terminal, server: AnabranchServer) -> None:
    with server.client() as client:
        wait_until(lambda: number(client, "connected_clients") == 2, "those before are gone")
        assert client.call("CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal") == (":", 1)
    ask(terminal, "PING", "Error: (Server closed the connection|Connection reset by peer)")
    ask(terminal, "PING", "PONG")
