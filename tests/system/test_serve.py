"""The server as a process: how it starts, whom it lets in, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.support import servers
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import ConnectionLost, RespClient, encode_command

COMMAND = [sys.executable, "-m", "anabranch"]
SECONDS = 60


def run(
    *arguments: str, directory: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A start that ends by itself."""
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=directory,
        env={**AnabranchServer(directory or Path()).environment(), **variables},
    )


@contextmanager
def serving(*extra: str) -> Iterator[AnabranchServer]:
    """A server with further arguments; that it stops well is checked at the end."""
    with AnabranchServer(extra=extra) as server:
        yield server


def ready_line(server: AnabranchServer) -> str:
    (line,) = [each for each in server.log_text().splitlines() if "Ready to accept" in each]
    if line.startswith("{"):
        message: str = json.loads(line)["message"]
        return message
    return line


def ended(server: AnabranchServer) -> int:
    """The exit status, once the process has ended."""
    assert server.process is not None
    return server.process.wait(SECONDS)


# -- starting -----------------------------------------------------------------------------------


def test_one_line_says_that_it_is_ready() -> None:
    with serving() as server:
        assert server.process is not None
        line = ready_line(server)
        assert line.startswith("Ready to accept connections: anabranch 0.")
        assert f"standalone on 127.0.0.1:{server.port}" in line
        assert f"(pid {server.process.pid})" in line
        assert f"data in {server.directory / 'data' / 'appendonlydir'}" in line
        assert "appendfsync everysec" in line
        assert len(server.log_text().splitlines()) == 1
    with serving("--appendonly", "no") as server:
        line = ready_line(server)
        assert f"dir {server.directory / 'data'}" in line
        assert "data lives in memory only (appendonly no)" in line
        assert not (server.directory / "data" / "appendonlydir").exists()


def test_port_0_alone_chooses_a_port_and_says_which(tmp_path: Path) -> None:
    arguments = [*COMMAND, "serve", "--port", "0", "--dir", str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            found = re.search(r"on 127\.0\.0\.1:(\d+)", line)
            assert found is not None, line
            with RespClient(port=int(found[1])) as client:
                assert client.call("CONFIG", "GET", "port")[1][1] == ("$", found[1].encode())
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def test_a_taken_port_is_named_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), "--dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(port) in line
    assert "in use" in line
    assert "--port" in line


def test_a_taken_port_is_named_with_its_own_source(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ("--port", str(free_port()), "--http-port", str(port))
        done = run("serve", *words, "--dir", str(tmp_path))
    assert f"http-port {port} on 127.0.0.1 is already in use" in done.stderr
    assert done.stderr.endswith("(http-port: command line)\n")


@pytest.mark.parametrize(
    ("port", "options", "word"),
    [
        (65_000, (), "75000 is not a port; set gossip-port"),  # no port that is given at random
        (10_111, ("--gossip-port", "10111"), "gossip-port 10111 is a port for clients as well"),
    ],
)
def test_an_impossible_gossip_port_is_not_recorded(
    port: int, options: tuple[str, ...], word: str, tmp_path: Path
) -> None:
    words = ("--port", str(port), "--region-id", "1", "--cluster-create", "yes")
    done = run("serve", *words, *options, "--dir", str(tmp_path))
    assert done.returncode == 1
    assert word in done.stderr
    assert not list(tmp_path.rglob("region"))


def test_a_gossip_port_that_is_taken_is_not_recorded(tmp_path: Path) -> None:
    words = ("--port", str(free_port()), "--region-id", "1", "--cluster-create", "yes")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", *words, "--gossip-port", str(port), "--dir", str(tmp_path))
    assert f"gossip-port {port} on 127.0.0.1 is already in use" in done.stderr
    assert not list(tmp_path.rglob("region"))


def test_a_region_on_a_port_of_the_system_records_its_gossip_port(tmp_path: Path) -> None:
    words = ("--region-id", "1", "--cluster-create", "yes", "--dir", str(tmp_path))
    with subprocess.Popen([*COMMAND, "serve", "--port", "0", *words], stdout=-1) as process:
        try:
            assert process.stdout is not None
            ready = next(line for line in map(bytes.decode, process.stdout) if "Ready to" in line)
            found = re.search(r"gossip port (\d+), on 127\.0\.0\.1:(\d+)", ready)
            assert found is not None
            (noted,) = tmp_path.rglob("region")
            assert json.loads(noted.read_text())["gossip-port"] == int(found[1])
            with RespClient(port=int(found[2])) as client:
                assert f"127.0.0.1:{found[1]}" in str(client.call("AB.REGION", "LIST"))
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def test_a_start_that_is_refused_leaves_the_pid_file_of_the_other(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with AnabranchServer(tmp_path, extra=["--pidfile", str(pid)]) as server:
        words = ("--port", str(server.port), "--dir", str(tmp_path), "--pidfile", str(pid))
        assert run("serve", *words).returncode == 1
        assert server.process is not None
        assert pid.read_text() == f"{server.process.pid}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dir", "/nowhere/at/all"], ["/nowhere/at/all", "No such file", "set dir"]),
        (["--prot", "1"], ["unknown directive 'prot'", "did you mean 'port'?"]),
        (["--daemonize", "yes"], ["foreground"]),
        (["--user", "alice", "+nosuch"], ["user line 1", "nosuch"]),
        (["--aclfile", "nosuch.acl"], ["nosuch.acl"]),
        (["--unixsocket", "/nowhere/a.sock"], ["/nowhere/a.sock", "No such file"]),
        (["--unixsocket", "/tmp/" + "x" * 200], ["/tmp/xxx", "path too long"]),
        (["--appenddirname", "../x"], ["appenddirname can't be a path, just a dirname"]),
        (["--appenddirname", "a/b"], ["appenddirname can't be a path, just a dirname"]),
        (["--appenddirname", ".."], ["appenddirname can't be a path, just a dirname"]),
        (["--appenddirname", ""], ["appenddirname can't be empty"]),
        (["--bind", "192.0.2.1"], ["192.0.2.1", "check bind"]),
        (["--http-port", "8080", "--http-bind", "192.0.2.1"], ["check http-bind"]),
        (["--join", "10.0.0.1:16379"], ["region-id of its own", "(join: command line)"]),
        (["--cluster-create"], ["region-id of its own"]),
        (["--region-id", "1"], ["this region belongs to no cluster", "address of a member\n"]),
        (["--region-id", "1", "--join", "a:99999"], ["join: an address is host:port"]),
        (["nosuch.conf"], ["nosuch.conf", "No such file"]),
    ],
)
def test_a_mistake_starts_nothing(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    done = run(*["serve", *arguments, "--port", str(free_port())], directory=tmp_path)
    usage = ("anabranch: command line: ", "anabranch: cannot read configuration file ")
    is_usage = done.stderr.startswith(usage) and "user line" not in done.stderr
    assert done.returncode == (2 if is_usage else 1)
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = run("serve", "--port", str(free_port()), "--dir", str(tmp_path))
    assert done.returncode == 1
    assert f"chown {os.geteuid()}" in done.stderr


def test_settings_reach_the_server_in_order_of_precedence(tmp_path: Path) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text("hz 11\nstream-idmp-maxsize 12\nstream-idmp-duration 13\nport 1\n")
    server = AnabranchServer(tmp_path)
    environment = {
        **server.environment(),
        "ANABRANCH_STREAM_IDMP_MAXSIZE": "22",
        "ANABRANCH_STREAM_IDMP_DURATION": "23",
    }
    server.environment = lambda: environment  # type: ignore[method-assign]
    server.command = lambda: [  # type: ignore[method-assign]
        *(*COMMAND, "serve", str(conf), "--port", str(server.port)),
        *("--dir", str(tmp_path), "--stream-idmp-duration", "33"),
    ]
    with server, server.client(3) as client:
        reply = dict(client.call("CONFIG", "GET", "hz", "stream-idmp-*")[1])
    assert {key[1]: value[1] for key, value in reply.items()} == {
        b"hz": b"11",
        b"stream-idmp-maxsize": b"22",
        b"stream-idmp-duration": b"33",
    }


def test_the_lines_of_redis_server_can_be_pasted(tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path)
    server.command = lambda: [  # type: ignore[method-assign]
        *(sys.executable, "-c", "from anabranch.cli.main import server_main; server_main()"),
        *("--port", str(server.port), "--save", "", "--appendonly", "no"),
        *("--io-threads", "4", "--dir", str(tmp_path)),
    ]
    with server:
        assert '"directives": "io-threads"' in server.log_text()


def test_systemd_is_told_when_it_is_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        path = tmp_path / "notify.sock"
        notified.bind(str(path))
        notified.settimeout(SECONDS)
        server = AnabranchServer(extra=["--supervised", "auto"])
        environment = {**server.environment(), "NOTIFY_SOCKET": str(path)}
        server.environment = lambda: environment  # type: ignore[method-assign]
        with server:
            assert notified.recv(100) == b"READY=1"
        assert notified.recv(100) == b"STOPPING=1"


def test_maxclients_is_lowered_to_what_the_system_allows(tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path)
    server.command = lambda: [  # type: ignore[method-assign]
        *("sh", "-c", 'ulimit -Sn 80; ulimit -Hn 100; exec setpriv --bounding-set=-all "$@"'),
        *("sh", *COMMAND, "serve", "--port", str(server.port), "--dir", str(tmp_path)),
    ]
    if subprocess.run(["which", "setpriv"], capture_output=True, check=False).returncode:
        pytest.skip("setpriv is needed to take privileges away")
    with server, server.client() as client:
        assert '"event": "maxclients.lowered"' in server.log_text()
        assert client.call("CONFIG", "GET", "maxclients")[1][1] == ("$", b"36")


@pytest.mark.parametrize("where", ["logfile", "standard output"])
def test_without_room_for_its_log_it_goes_on_and_stops_in_order(where: str, tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path, extra=["--enable-debug-command", "yes"])
    if where == "logfile":
        server.extra += ["--logfile", "/dev/full"]
    else:
        plain = server.command
        server.command = lambda: [  # type: ignore[method-assign]
            *("sh", "-c", 'exec "$@" > /dev/full', "sh", *plain())
        ]
    with server, server.client() as client:
        for _ in range(100):
            assert client.call("DEBUG", "LOG", "x" * 1000) == ("+", b"OK")
    text = server.log_text()
    assert text.count("Ready to accept connections") == (where == "logfile")
    assert len(text.splitlines()) <= 1, text


# -- stopping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(number: signal.Signals, tmp_path: Path) -> None:
    server = AnabranchServer(
        tmp_path, extra=["--pidfile", str(tmp_path / "pid"), "--unixsocket", str(tmp_path / "s")]
    ).start()
    assert server.process is not None
    assert (tmp_path / "pid").read_text() == f"{server.process.pid}\n"
    with server.client() as client:
        server.process.send_signal(number)
        with pytest.raises((ConnectionLost, ConnectionError)):
            client.read_reply()
    assert ended(server) == 0
    assert "server.stopped" in server.log_text()
    assert not (tmp_path / "pid").exists()
    assert not (tmp_path / "s").exists()


def unread(server: AnabranchServer) -> RespClient:
    """A client that asked for more than the sockets hold and reads none of it."""
    client = server.client()
    client.call("XADD", "s", "*", "f", b"x" * 1_000_000)
    client.send_raw(encode_command(["XRANGE", "s", "-", "+"]) * 30)
    with server.client() as other:
        other.call("PING")  # came later, is answered later
    return client


def test_a_stop_waits_for_clients_that_still_read() -> None:
    with serving() as server:
        client = unread(server)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        received = b""
        while data := client.socket.recv(1 << 20):
            received += data
        assert received.count(b"f\r\n$1000000\r\n") == 30
        client.close()
        assert ended(server) == 0


def test_a_stop_does_not_wait_longer_than_shutdown_timeout() -> None:
    with serving("--shutdown-timeout", "1") as server:
        client = unread(server)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert ended(server) == 0
        assert "server.clients_cut_off" in server.log_text()
        client.close()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(second: signal.Signals, tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path, extra=["--shutdown-timeout", "60"]).start()
    client = unread(server)
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "server.stopping" in server.log_text(), "it stops")
    server.process.send_signal(second)
    assert ended(server) == 1
    client.close()


def test_a_hangup_is_ignored() -> None:
    with serving() as server, server.client() as client:
        assert server.process is not None
        server.process.send_signal(signal.SIGHUP)
        assert client.call("PING") == ("+", b"PONG")


def test_shutdown_is_a_stop_without_reply(tmp_path: Path) -> None:
    server = AnabranchServer(tmp_path).start()
    with server.client() as client:
        client.send("SHUTDOWN", "NOSAVE")
        with pytest.raises((ConnectionLost, ConnectionError)):
            client.read_reply()
    assert ended(server) == 0


# -- who may come -------------------------------------------------------------------------------


def test_a_unix_socket_serves_too(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # what a crash leaves behind
    with serving("--unixsocket", str(path), "--unixsocketperm", "700") as server:
        assert str(path) in ready_line(server)
        assert path.stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SECONDS)
            sock.connect(str(path))
            sock.sendall(b"PING\r\n")
            assert sock.recv(100) == b"+PONG\r\n"
        done = run("serve", "--port", "0", "--unixsocket", str(path), "--dir", str(tmp_path))
        assert done.returncode == 1
        assert "in use by another server" in done.stderr
        assert run("health", "-s", str(path)).returncode == 0


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def certificates(authority: trustme.CA, tmp_path: Path) -> list[str]:
    """The TLS directives of a server."""
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(tmp_path / "cert.pem"), append=True)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return [
        *("--tls-cert-file", str(tmp_path / "cert.pem")),
        *("--tls-key-file", str(tmp_path / "key.pem")),
        *("--tls-ca-cert-file", str(tmp_path / "ca.pem")),
    ]


def tls_ping(port: int, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        try:
            sock.sendall(b"PING\r\n")
            return sock.recv(100)
        except (ssl.SSLError, ConnectionError):  # TLS 1.3 says so only after the handshake
            return b""


def test_tls_both_ways(authority: trustme.CA, certificates: list[str], tmp_path: Path) -> None:
    port = free_port()
    with serving("--tls-port", str(port), *certificates) as server:
        assert f"127.0.0.1:{port} (TLS)" in ready_line(server)
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        assert tls_ping(port, context) == b""  # without a certificate of its own
        authority.issue_cert("client").configure_cert(context)
        assert tls_ping(port, context) == b"+PONG\r\n"
        assert "error" not in server.log_text()
        with server.client() as client:
            assert client.call("CONFIG", "SET", "tls-auth-clients", "no") == ("+", b"OK")
        healthy = run(
            *("health", "--tls", "-h", "localhost", "-p", str(port)),
            *("--cacert", str(tmp_path / "ca.pem"), "--json"),
        )
        assert json.loads(healthy.stdout)["healthy"] is True, healthy.stderr


def test_renewed_certificates_are_read_again(
    authority: trustme.CA, certificates: list[str], tmp_path: Path
) -> None:
    port = free_port()
    address = ("127.0.0.1", port)
    extra = ("--tls-port", str(port), "--tls-auth-clients", "no")
    with serving(*extra, *certificates) as server, server.client() as client:

        def name_again() -> object:
            return client.call("CONFIG", "SET", "tls-cert-file", certificates[1])

        old = ssl.get_server_certificate(address)
        renewed = authority.issue_cert("localhost", "127.0.0.1")
        renewed.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "cert.pem"))
        renewed.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        assert name_again() == ("+", b"OK")
        new = ssl.get_server_certificate(address)
        assert new != old
        (tmp_path / "cert.pem").write_text("half a certif")
        assert name_again() == (
            "-",
            b"ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - "
            b"Unable to update TLS configuration. Check server logs.",
        )
        assert ssl.get_server_certificate(address) == new
    assert "Traceback" not in server.log_text()


def test_tls_needs_what_it_needs(certificates: list[str], tmp_path: Path) -> None:
    port = str(free_port())
    done = run("serve", "--port", "0", "--tls-port", port, *certificates[:4], directory=tmp_path)
    assert done.returncode == 1
    assert "tls-ca-cert-file" in done.stderr
    done = run("serve", "--port", "0", "--tls-port", port, *certificates[:2], directory=tmp_path)
    assert done.returncode == 1
    assert "tls-key-file" in done.stderr


def test_one_client_too_many_is_told_so() -> None:
    with serving("--maxclients", "2") as server, server.client() as one, server.client() as two:
        assert one.call("PING") == two.call("PING") == ("+", b"PONG")
        with server.client() as three:
            assert three.read_reply() == ("-", b"ERR max number of clients reached")
            with pytest.raises(ConnectionLost):
                three.read_reply()
        one.close()

        def admitted() -> bool:
            with server.client() as again:
                try:
                    return again.call("PING") == ("+", b"PONG")
                except (ConnectionLost, ConnectionError):
                    return False

        wait_until(admitted, "room again")


def other_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


def test_protected_mode_refuses_other_machines() -> None:
    address = other_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    with serving("--bind", "*") as server, server.client() as local:
        with RespClient(server.port, address) as stranger:
            kind, text = stranger.read_reply()
            assert kind == "-"
            assert text.startswith(b"DENIED ")
            with pytest.raises(ConnectionLost):
                stranger.read_reply()
        assert local.call("CONFIG", "SET", "requirepass", "secret") == ("+", b"OK")
        with RespClient(server.port, address) as stranger:
            assert stranger.call("PING") == ("-", b"NOAUTH Authentication required.")
            assert stranger.call("AUTH", "secret") == ("+", b"OK")
        assert run("health", "-p", str(server.port)).returncode == 1
        assert run("health", "-p", str(server.port), "-a", "secret").returncode == 0
        url = f"redis://default:secret@127.0.0.1:{server.port}"
        assert run("health", "-u", url).stdout == "PONG\n"
        assert run("health", "-p", str(server.port), REDISCLI_AUTH="secret").returncode == 0


def test_an_idle_client_is_closed() -> None:
    with serving() as server, server.client() as busy, server.client() as idle:
        assert idle.call("PING") == ("+", b"PONG")
        assert busy.call("CONFIG", "SET", "timeout", "1", "hz", "100") == ("+", b"OK")
        with pytest.raises(ConnectionLost):
            idle.read_reply()


def test_a_subscriber_that_does_not_read_is_closed() -> None:
    limit = ["--client-output-buffer-limit", "pubsub", "1mb", "0", "0"]
    with serving(*limit) as server, server.client() as talker, server.client() as listener:
        listener.call("SUBSCRIBE", "c")
        count = 0
        while talker.call("PUBLISH", "c", b"x" * 100_000) == (":", 1):
            count += 1
            assert count < 1000
        assert "client.output_limit" in server.log_text()


@pytest.mark.parametrize(
    ("opening", "endless"),
    [
        (b"*2\r\n$4\r\nECHO\r\n$9000000\r\n", b"x" * 64_000),
        (b"MULTI\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n" * 3_000),
    ],
    ids=["request", "transaction"],
)
def test_a_client_that_never_comes_to_an_end_is_closed(opening: bytes, endless: bytes) -> None:
    limit = ["--client-query-buffer-limit", "1mb"]
    with serving(*limit) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(60)
        with pytest.raises(ConnectionError):
            client.sendall(opening + endless * (8_000_000 // len(endless)))
        assert "client.query_limit" in server.log_text()
        with server.client() as other:
            assert other.call("PING") == ("+", b"PONG")


# -- while it runs ------------------------------------------------------------------------------


def test_ports_can_be_moved_and_a_failed_move_changes_nothing() -> None:
    with serving() as server, server.client() as client, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        error = client.call("CONFIG", "SET", "port", taken.getsockname()[1])
        assert error == (
            "-",
            b"ERR CONFIG SET failed (possibly related to argument 'port') - "
            b"Unable to listen on this port. Check server logs.",
        )
        with server.client() as again:
            assert again.call("PING") == ("+", b"PONG")
        port = free_port()
        assert client.call("CONFIG", "SET", "port", port) == ("+", b"OK")
        with RespClient(port) as moved:
            assert moved.call("PING") == ("+", b"PONG")
        with pytest.raises(ConnectionRefusedError):
            server.client()
        assert client.call("PING") == ("+", b"PONG")


def test_a_memory_limit_refuses_what_adds() -> None:
    with serving("--maxmemory", "1kb") as server, server.client() as client:
        reply = client.call("XADD", "s", "*", "f", "v")
        assert reply == ("-", b"OOM command not allowed when used memory > 'maxmemory'.")
        assert client.call("XLEN", "s") == (":", 0)
        assert client.call("CONFIG", "SET", "maxmemory", "0") == ("+", b"OK")
        assert client.call("XADD", "s", "1-1", "f", "v") == ("$", b"1-1")


@pytest.mark.parametrize("is_link", [False, True])
def test_rewrite_keeps_the_file_and_adds_what_changed(is_link: bool, tmp_path: Path) -> None:
    conf = tmp_path / "my.conf"
    if is_link:
        (tmp_path / "elsewhere").mkdir()
        conf.symlink_to("elsewhere/target.conf")
    server = AnabranchServer(tmp_path)
    server.command = lambda: [  # type: ignore[method-assign]
        *(*COMMAND, "serve", str(conf), "--port", str(server.port), "--dir", str(tmp_path)),
    ]
    conf.write_text("# mine\nhz 20\n")
    with server, server.client() as client:
        client.call("CONFIG", "SET", "hz", "30", "stream-idmp-maxsize", "5")
        assert client.call("CONFIG", "REWRITE") == ("+", b"OK")
    assert conf.is_symlink() == is_link
    lines = conf.read_text().splitlines()
    assert lines[:2] == ["# mine", "hz 30"]
    assert "stream-idmp-maxsize 5" in lines
    assert f"port {server.port}" in lines
    with server, server.client() as client:
        reply = client.call("CONFIG", "GET", "stream-idmp-maxsize")
        assert reply[1][1] == ("$", b"5")


def test_logs_go_where_and_look_as_they_should(tmp_path: Path) -> None:
    log = tmp_path / "my.log"
    with serving("--logfile", str(log), "--log-format", "logfmt") as server:
        assert ready_line(server)
    events = [word for line in log.read_text().split("\n") for word in line.split()[2:3]]
    assert events == ["event=server.ready", "event=server.stopping", "event=server.stopped"]


def test_with_json_logs_everything_is_json() -> None:
    with serving("--log-format", "json", "--io-threads", "2") as server:
        text = server.log_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["event"] for record in records] == ["config.no_effect", "server.ready"]
    assert "standalone on 127.0.0.1" in records[1]["message"]


def test_a_first_start_says_that_it_does_not_read_the_files_of_redis(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").touch()
    for is_first in (True, False):
        with serving("--dir", str(tmp_path)) as server:
            assert ('"files": ["dump.rdb"]' in server.log_text()) == is_first


def test_off_a_terminal_every_line_is_json_whatever_the_level() -> None:
    with serving("--loglevel", "warning", "--io-threads", "2") as server:
        assert server.process is not None
        records = [json.loads(line) for line in server.log_text().splitlines()]
        assert [record["event"] for record in records] == ["config.no_effect", "server.ready"]
        assert records[1]["level"] == "info"
        assert records[1]["pid"] == server.process.pid
        assert f"127.0.0.1:{server.port}" in records[1]["addresses"]
        assert records[1]["message"].startswith("Ready to accept connections: anabranch 0.")


def test_in_the_form_of_redis_the_ready_line_is_what_libraries_wait_for() -> None:
    with serving("--log-format", "legacy") as server:
        (line,) = server.log_text().splitlines()
    begin, _, rest = line.partition(" * ")
    assert re.fullmatch(r"\d+:M \d\d \w+ \d{4} [\d:.]+", begin)
    assert rest.startswith("Ready to accept connections: anabranch ")
    assert " event=server.ready " in rest


def test_with_a_logfile_the_ready_line_is_in_both(tmp_path: Path) -> None:
    log = tmp_path / "my.log"
    with serving("--logfile", str(log)) as server:
        (line,) = server.log_text().splitlines()
        assert json.loads(line)["event"] == "server.ready"
        assert json.loads(log.read_text().splitlines()[0])["message"] == json.loads(line)["message"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            "# mine\ntls-port 7001\ntls-cert-file /no/such.pem\ntls-key-file /no/key.pem\n",
            "tls-cert-file /no/such.pem: No such file or directory (tls-cert-file: {conf}:3)",
        ),
        (
            "tls-port 7001\ntls-cert-file {conf}\ntls-key-file {conf}\n",
            "tls-cert-file {conf}: no certificate in PEM (tls-cert-file: {conf}:2)",
        ),
        ("tls-port 7001\n", "tls-port needs tls-cert-file and tls-key-file (tls-port: {conf}:1)"),
        (
            "user a on nopass\n\nuser b on +nosuch\n",
            "{conf}:3: user line 2: Error in applying operation '+nosuch'",
        ),
        (
            "hz 10\ninclude /no/other.conf\n",
            '{conf}, line 2: "include /no/other.conf"\n  cannot read configuration file '
            "/no/other.conf: No such file or directory",
        ),
        ("dir /no/where\n", "cannot use dir '/no/where': No such file or directory"),
        (
            "aclfile {conf}.acl\n",
            "aclfile: {conf}.acl:2: Error in applying operation '+nosuch': Unknown command or "
            "category name in ACL. (aclfile: {conf}:1)",
        ),
    ],
    ids=["no file", "no certificate", "together", "user", "include", "dir", "aclfile"],
)
def test_a_mistake_is_named_with_file_and_line(tmp_path: Path, lines: str, why: str) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text(lines.format(conf=conf))
    (tmp_path / "my.conf.acl").write_text("user a on nopass +@all\nuser b on +nosuch\n")
    done = run("serve", str(conf), "--port", "0", *(
        () if "dir " in lines else ("--dir", str(tmp_path))
    ))  # fmt: skip
    assert done.returncode == 1
    assert why.format(conf=conf) in done.stderr
    assert str(conf) in done.stderr


def test_blocked_clients_time_out_on_time() -> None:
    with serving() as server, server.client() as client:
        started = time.monotonic()
        assert client.call("XREAD", "BLOCK", "150", "STREAMS", "s", "$") == ("*", None)
        assert 0.149 <= time.monotonic() - started < 60


def test_a_server_on_the_same_port_is_not_mistaken_for_the_one_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What starts servers for tests: another run of the tests may have got the port first."""
    with serving() as first:
        ports = iter([first.port, free_port()])
        monkeypatch.setattr(servers, "free_port", lambda: next(ports))
        with serving() as second:
            assert second.port != first.port
