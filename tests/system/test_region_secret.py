"""What stands between strangers and a cluster, on real processes and sockets."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from anabranch.replication import frames
from anabranch.replication.framing import FrameType
from tests.support.inspection import wait_until
from tests.support.servers import ServerFailed, free_port, regions_in, server_in

SECRET = ("--gossip-secret", "32 random bytes, or so")
WARNING = "security.gossip_open"


def test_a_region_without_a_cluster_does_not_start(tmp_path: Path) -> None:
    server = server_in(tmp_path, "--region-id", "3", "--gossip-port", str(free_port()))
    with pytest.raises(ServerFailed, match="--cluster-create yes, and every other one --join"):
        server.start()
    assert "Traceback" not in server.log_text()
    # Nothing was noted of it.
    server_in(tmp_path).start().stop()


@pytest.mark.parametrize(
    ("bind", "more", "warned"),
    [
        ("0.0.0.0", (), True),
        ("*", (), True),
        ("127.0.0.1", (), False),
        ("0.0.0.0", SECRET, False),
    ],
)
def test_a_gossip_port_that_is_open_to_all_is_warned_of(
    tmp_path: Path, bind: str, more: tuple[str, ...], warned: bool
) -> None:
    words = ("--region-id", "1", "--cluster-create", "yes", "--gossip-port", str(free_port()))
    with server_in(tmp_path, *words, "--gossip-bind", bind, *more) as server:
        assert (WARNING in server.log_text()) == warned


def test_a_gossip_port_that_is_opened_later_is_warned_of_as_well(tmp_path: Path) -> None:
    words = ("--region-id", "1", "--cluster-create", "yes", "--gossip-port", str(free_port()))
    with server_in(tmp_path, *words, *SECRET) as server, server.client() as client:
        assert client.call("CONFIG", "SET", "gossip-bind", "127.0.0.2") == ("+", b"OK")
        assert client.call("CONFIG", "SET", "gossip-bind", "0.0.0.0") == ("+", b"OK")
        assert WARNING not in server.log_text()
        assert client.call("CONFIG", "SET", "gossip-secret", "") == ("+", b"OK")
        assert server.log_text().count(WARNING) == 1
        assert client.call("CONFIG", "SET", "gossip-bind", "127.0.0.1") == ("+", b"OK")
        assert server.log_text().count(WARNING) == 1
        assert client.call("CONFIG", "SET", "gossip-bind", "*") == ("+", b"OK")
        assert server.log_text().count(WARNING) == 2


def test_a_secret_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    words = ("--region-id", "1", "--cluster-create", "yes", "--gossip-port", str(free_port()))
    with pytest.raises(ServerFailed, match=r"at least 16 characters; 'openssl rand -hex 32'"):
        server_in(tmp_path, *words, "--gossip-secret", "short").start()


def frame_on(link: socket.socket) -> tuple[int, bytes]:
    """The next frame: its type, and its body without the checksum."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = link.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    (length,) = struct.unpack("<I", exactly(4))
    content = exactly(length)
    return content[0], content[9:]


def test_a_stranger_is_shown_no_proof_and_told_to_go(tmp_path: Path) -> None:
    port = free_port()
    words = ("--region-id", "1", "--cluster-create", "yes", "--gossip-port", str(port))
    with (
        server_in(tmp_path, *words, *SECRET),
        socket.create_connection(("127.0.0.1", port), 60) as link,
    ):
        link.settimeout(60)
        hello = frames.Hello(
            1, 1, "", 2, "us", 0, "run", 1, frames.MODULUS, "us", 2, -1, bytes(32),
            has_secret=True,
        )  # fmt: skip
        link.sendall(frames.encode(hello))
        kind, body = frame_on(link)
        assert kind == FrameType.WELCOME  # which proves nothing
        link.sendall(frames.encode(frames.Proof(bytes(32))))
        kind, body = frame_on(link)
        assert kind == FrameType.BYE
        assert frames.decode(frames.Bye, body).reason == frames.Reason.SECRET
        with pytest.raises(EOFError):
            frame_on(link)


def test_regions_with_a_secret_exchange_what_they_write(tmp_path: Path) -> None:
    eu, us = regions_in(tmp_path, "eu", "us", extra=SECRET)
    with eu.client() as here, us.client() as there:
        here.call("XADD", "s", "*", "f", "v")
        there.call("XADD", "s", "*", "f", "v" * 5000)
        wait_until(lambda: here.call("XLEN", "s") == there.call("XLEN", "s") == (":", 2), "both")
