"""Clients that come, misbehave and go, on every listener of a server."""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.support.wire import encode_command

__all__ = ["Ports", "Stranger", "visit"]


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    plain: int
    tls: int
    gossip: int
    http: int


Stranger = Callable[[random.Random, Ports], socket.socket]
"""Comes and misbehaves; the connection is still open afterwards."""


def _to(port: int, *sent: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 5)
    sock.settimeout(5)
    with suppress(OSError):  # it may have been closed already
        for each in sent:
            sock.sendall(each)
    return sock


def _login(*sent: bytes) -> bytes:
    return b"".join((encode_command(["AUTH", "secret"]), *sent))


def silent(_rng: random.Random, ports: Ports) -> socket.socket:
    return _to(ports.plain)


def guesses(rng: random.Random, ports: Ports) -> socket.socket:
    return _to(ports.plain, encode_command(["AUTH", "x" * rng.randrange(20)]) * 50)


def inline(rng: random.Random, ports: Ports) -> socket.socket:
    return _to(ports.plain, b"a\n" * rng.randrange(5000))


def unfinished(rng: random.Random, ports: Ports) -> socket.socket:
    size = rng.randrange(1 << 20)
    return _to(ports.plain, _login(b"*2\r\n$3\r\nGET\r\n$%d\r\n" % (size + 100), b"x" * size))


def many_arguments(rng: random.Random, ports: Ports) -> socket.socket:
    return _to(ports.plain, _login(b"*100000\r\n", b"$1\r\nx\r\n" * rng.randrange(20_000)))


def transaction(rng: random.Random, ports: Ports) -> socket.socket:
    queued = encode_command(["SET", "k", "x" * rng.randrange(100_000)])
    return _to(ports.plain, _login(encode_command(["MULTI"]), queued * rng.randrange(10)))


def blocked(rng: random.Random, ports: Ports) -> socket.socket:
    wait = ["XREAD", "BLOCK", str(rng.randrange(1, 10**8)), "STREAMS", "nothing", "$"]
    behind = encode_command(["SET", "k", "x" * rng.randrange(100_000)])
    return _to(ports.plain, _login(encode_command(wait), behind * rng.randrange(10)))


def subscriber(rng: random.Random, ports: Ports) -> socket.socket:
    patterns = [f"*{rng.random()}*" for _ in range(rng.randrange(1, 200))]
    return _to(ports.plain, _login(encode_command(["PSUBSCRIBE", *patterns])))


def does_not_read(rng: random.Random, ports: Ports) -> socket.socket:
    read = encode_command(["XRANGE", "s", "-", "+", "COUNT", "2000"])
    return _to(ports.plain, _login(read * rng.randrange(1, 50)))


def writes(rng: random.Random, ports: Ports) -> socket.socket:
    add = encode_command(["XADD", "s", "MAXLEN", "2000", "*", "f", "v" * rng.randrange(200)])
    return _to(ports.plain, _login(add * rng.randrange(1, 500)))


def long_pattern(rng: random.Random, ports: Ports) -> socket.socket:
    long = "*[ab]" * rng.randrange(1, 100_000)
    return _to(ports.plain, _login(encode_command(["SCAN", "0", "MATCH", long])))


def noise(rng: random.Random, ports: Ports) -> socket.socket:
    port = rng.choice([ports.plain, ports.tls, ports.gossip, ports.http])
    return _to(port, rng.randbytes(rng.randrange(5000)))


def half_open_tls(rng: random.Random, ports: Ports) -> socket.socket:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(32)
    return _to(ports.tls, hello if rng.random() < 0.5 else b"")


def tls(rng: random.Random, ports: Ports) -> socket.socket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    raw = socket.create_connection(("127.0.0.1", ports.tls), 5)
    try:
        secure = context.wrap_socket(raw)
        secure.sendall(_login(encode_command(["MULTI"])) + b"*3\r\n$3\r\nSET\r\n$100000\r\n")
        secure.sendall(b"x" * rng.randrange(90_000))
    except OSError:
        raw.close()
        raise
    return secure


def gossip(rng: random.Random, ports: Ports) -> socket.socket:
    frame = struct.pack("<IB", 5, rng.randrange(256)) + b"what"
    return _to(ports.gossip, frame * rng.randrange(5))


def http(rng: random.Random, ports: Ports) -> socket.socket:
    asked = b"GET /v1/bdbs HTTP/1.1\r\nHost: x\r\n\r\n"
    return _to(ports.http, asked[: rng.randrange(len(asked) + 1)])


STRANGERS: tuple[Stranger, ...] = (
    *(silent, guesses, inline, unfinished, many_arguments, transaction, blocked, subscriber),
    *(does_not_read, writes, long_pattern, noise, half_open_tls, tls, gossip, http),
)


def visit(rng: random.Random, ports: Ports, count: int, stay_s: float) -> int:
    """So many strangers come, all of them stay a moment, and go; returns how many got in."""
    inside = []
    for _ in range(count):
        with suppress(OSError):  # no place for this one
            inside.append(rng.choice(STRANGERS)(rng, ports))
    time.sleep(stay_s)
    for sock in inside:
        if rng.random() < 0.5:  # a reset, not an orderly end
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    return len(inside)
