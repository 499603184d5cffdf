"""``anabranch health``: connect, authenticate, PING; for container health checks and scripts.

Uses nothing but a socket, so it answers in a few milliseconds. Options are those of redis-cli.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import time
from urllib.parse import unquote, urlsplit

import click

__all__ = ["command"]


class _Failed(Exception):
    """Why the server is not healthy, in one line."""


@click.command(
    help="""Connect to a server and PING it. Exit 0 if it answers, 1 if not.

The password may come from ANABRANCH_AUTH or REDISCLI_AUTH; port, Unix socket, TLS and password
also from the variables that configure a server here (ANABRANCH_PORT, ANABRANCH_UNIXSOCKET,
ANABRANCH_TLS_PORT, ANABRANCH_REQUIREPASS).""",
)
@click.option("-h", "host", default="127.0.0.1", show_default=True, help="Host name or address.")
@click.option("-p", "port", type=click.IntRange(1, 65535), help="Port. [default: 6379]")
@click.option("-s", "path", metavar="PATH", help="Unix socket, instead of host and port.")
@click.option("-a", "password", help="Password.")
@click.option("--user", help="ACL user.")
@click.option("-u", "url", help="redis://[user:password@]host[:port], rediss:// or unix://PATH.")
@click.option("--tls", is_flag=True, help="Use TLS.")
@click.option("--cacert", help="Certificates to trust (PEM).")
@click.option("--cert", help="Certificate of the client (PEM).")
@click.option("--key", help="Private key of that certificate (PEM).")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--timeout", type=float, default=2.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    host: str,
    port: int | None,
    path: str | None,
    password: str | None,
    user: str | None,
    url: str | None,
    tls: bool,
    cacert: str | None,
    cert: str | None,
    key: str | None,
    insecure: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Try once."""
    env = os.environ.get
    if url is not None:
        parts = urlsplit(url)
        if parts.scheme not in {"redis", "rediss", "unix"}:
            raise click.UsageError("-u takes redis://, rediss:// or unix://")
        host, port = parts.hostname or host, parts.port or port
        path = parts.path if parts.scheme == "unix" else path
        tls = tls or parts.scheme == "rediss"
        user = unquote(parts.username) if parts.username else user
        password = unquote(parts.password) if parts.password else password
    elif port is None and path is None:
        plain = _port(env("ANABRANCH_PORT"))
        if plain == 0 and (secure := _port(env("ANABRANCH_TLS_PORT"))):
            port, tls = secure, True
        elif plain == 0:
            path = env("ANABRANCH_UNIXSOCKET")
        else:
            port = plain
    password = password or env("ANABRANCH_AUTH") or env("REDISCLI_AUTH")
    password = password or env("ANABRANCH_REQUIREPASS")
    started = time.perf_counter()
    try:
        sock = _connect(host, port or 6379, path, timeout)
        with sock:
            if tls:
                sock = _secured(sock, host, cacert, cert, key, insecure=insecure)
            reply = _ping(sock, user, password)
    except (OSError, _Failed) as problem:
        reason = str(problem) or type(problem).__name__
        if as_json:
            print(json.dumps({"healthy": False, "reason": reason}))
        else:
            print(f"anabranch: {path or f'{host}:{port or 6379}'}: {reason}", file=sys.stderr)
        ctx.exit(1)
    spent_ms = round((time.perf_counter() - started) * 1000, 1)
    print(json.dumps({"healthy": True, "ms": spent_ms}) if as_json else reply)


def _port(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _connect(host: str, port: int, path: str | None, timeout: float) -> socket.socket:
    if path is None:
        return socket.create_connection((host, port), timeout)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    sock.connect(path)
    return sock


def _secured(
    sock: socket.socket,
    host: str,
    cacert: str | None,
    cert: str | None,
    key: str | None,
    *,
    insecure: bool,
) -> socket.socket:
    context = ssl.create_default_context(cafile=cacert)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    return context.wrap_socket(sock, server_hostname=host)


def _ping(sock: socket.socket, user: str | None, password: str | None) -> str:
    """AUTH if there is a password, then PING; raises what the server objects to."""
    with sock, sock.makefile("rb") as replies:
        if password:
            words = ["AUTH", user, password] if user else ["AUTH", password]
            answer = _ask(sock, replies.readline, words)
            # A server without password is as healthy as one with it.
            if answer.startswith("-") and "without any password" not in answer:
                raise _Failed(answer[1:])
        answer = _ask(sock, replies.readline, ["PING"])
    if answer != "+PONG":
        raise _Failed(answer.lstrip("-") or "the connection was closed")
    return "PONG"


def _ask(sock: socket.socket, readline: object, words: list[str]) -> str:
    parts = [word.encode() for word in words]
    sock.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))
    assert callable(readline)
    line: bytes = readline(4096)
    return line.decode("utf-8", "replace").strip()
