"""The address of a server and the login: options of redis-cli, URLs, and a plain socket.

A Redis client is built from an :class:`Address`; health checks use the socket, which opens in a few
milliseconds.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import click
import hiredis

from anabranch.cli.options import FiniteRange, with_options

CONNECT_SECONDS_MAX = 10.0
_SCHEMES = {"redis", "rediss", "unix"}
_HOST_AND_PORT = re.compile(r"[\w.-]+:[0-9]+")
_PORT_DEFAULT = 6379
_PIECE_BYTES = 65536
_FILE = click.Path(exists=True, dir_okay=False)


class RefusedByServer(Exception):
    """The server answered with an error, or unexpectedly; the text is its answer, on one line."""


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach a server: place, login, certificates, timeout."""

    host: str = "127.0.0.1"
    port: int = _PORT_DEFAULT
    path: str | None = None
    """A Unix socket, instead of host and port."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int | None = None
    """A database that a URL named."""
    tls: bool = False
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure: bool = False
    """Do not check the server's certificate."""
    timeout: float = 2.0
    """Seconds to wait for each answer. For a connection also at most :data:`CONNECT_SECONDS_MAX`.
    """

    is_other: bool = False
    """The other side of a transfer, which a URL and ``ANABRANCH_OTHER_AUTH`` describe."""

    def __post_init__(self) -> None:
        """Refuse what cannot be asked for: the look-up raises no :class:`OSError` then."""
        try:
            self.host.encode("idna")
        except UnicodeError as problem:
            raise click.UsageError(f"'{self.host}' is no host name: {problem}") from None

    def __str__(self) -> str:
        """The address in its usual form, without secrets."""
        return self.path or f"{self.host}:{self.port}"

    @classmethod
    def of_options(
        cls,
        *,
        port: int | None,
        path: str | None,
        password: str | None,
        url: str | None,
        tls: bool,
        **others: Any,
    ) -> Address:
        """What :func:`server_options` and the environment say; :class:`click.UsageError`.

        ``others`` are the options that are attributes of an address as they are.
        """
        env = os.environ.get
        if url is None and port is None and path is None:
            plain = _port(env("ANABRANCH_PORT"))
            if plain == 0 and (secure := _port(env("ANABRANCH_TLS_PORT"))):
                port, tls = secure, True
            elif plain == 0:
                path = env("ANABRANCH_UNIXSOCKET")
            else:
                port = plain
        password = password or env("ANABRANCH_AUTH") or env("REDISCLI_AUTH")
        address = cls(
            port=port or _PORT_DEFAULT,
            path=path,
            password=password or env("ANABRANCH_REQUIREPASS"),
            tls=tls,
            **others,
        )
        return address if url is None else address.at_url(url, "-u")

    def at_url(self, url: str, what: str) -> Address:
        """This address with all that a URL says; ``what`` names the URL in errors."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as problem:
            raise click.UsageError(f"{what}: {problem}") from None
        if parts.scheme not in _SCHEMES:
            raise click.UsageError(f"{what} takes redis://, rediss:// or unix://")
        return replace(
            self,
            host=parts.hostname or self.host,
            port=port or self.port,
            path=parts.path if parts.scheme == "unix" else None,
            user=unquote(parts.username) if parts.username else self.user,
            password=unquote(parts.password) if parts.password else self.password,
            db=_database(parts, what),
            tls=self.tls or parts.scheme == "rediss",
        )

    def other(self, url: str, what: str) -> Address:
        """The other side of a transfer, at a URL: with these certificates, and its own login."""
        password = os.environ.get("ANABRANCH_OTHER_AUTH")
        plain = replace(self, user=None, password=password, port=_PORT_DEFAULT, path=None)
        return replace(plain, tls=False, is_other=True).at_url(url, what)

    def open(self) -> socket.socket:
        """A connection, authenticated; raises :class:`OSError` or :class:`RefusedByServer`."""
        patience = min(self.timeout, CONNECT_SECONDS_MAX)
        if self.path is None:
            sock = socket.create_connection((self.host, self.port), patience)
        else:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(patience)
            sock.connect(self.path)
        try:
            if self.tls:
                sock = self._context().wrap_socket(sock, server_hostname=self.host)
            sock.settimeout(self.timeout)
            if self.password:
                self._authenticate(sock)
        except BaseException:
            sock.close()
            raise
        return sock

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.cacert)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert:
            context.load_cert_chain(self.cert, self.key)
        return context

    def _authenticate(self, sock: socket.socket) -> None:
        assert self.password is not None
        words = [self.user, self.password] if self.user else [self.password]
        try:
            ask(sock, "AUTH", *words)
        except RefusedByServer as problem:
            if "without any password" not in str(problem):  # such a server can be used as well
                raise


def ask(sock: socket.socket, *words: str) -> Any:
    """The reply to one command, with texts; :class:`RefusedByServer` if it is an error or none."""
    parts = tuple(map(os.fsencode, words))
    sock.sendall(hiredis.pack_command(parts))  # type: ignore[arg-type]
    reader = hiredis.Reader(encoding="utf-8", errors="replace")
    heard = b""
    try:
        while (reply := reader.gets()) is False:
            piece = sock.recv(_PIECE_BYTES)
            if not piece:
                raise RefusedByServer("the connection was closed")
            heard = heard or piece
            reader.feed(piece)
    except hiredis.ProtocolError:
        line = heard.partition(b"\r\n")[0].decode("utf-8", "replace")
        text = f"what answers does not speak the Redis protocol: {line}"
        raise RefusedByServer(text) from None
    if isinstance(reply, hiredis.HiredisError):
        raise RefusedByServer(str(reply))
    return reply


def is_url(text: str) -> bool:
    """Whether an argument is the URL of a server; ``host:port`` is refused, as it is meant so."""
    if _HOST_AND_PORT.fullmatch(text):
        raise click.UsageError(f"{text} is no URL: redis://{text} is that server, ./{text} a file")
    return text.partition("://")[0] in _SCHEMES and "://" in text


def server_options(timeout: float) -> Callable[[Any], Any]:
    """The options that name the running server; ``timeout``: seconds, by default."""
    options = [
        click.option(
            "-h", "host", default="127.0.0.1", show_default=True, help="Host name or address."
        ),
        click.option("-p", "port", type=click.IntRange(1, 65535), help="Port. [default: 6379]"),
        click.option("-s", "path", metavar="PATH", help="Unix socket, instead of host and port."),
        click.option("-a", "password", help="Password."),
        click.option("--user", help="ACL user."),
        click.option(
            "-u", "url", help="redis://[user:password@]host[:port], rediss:// or unix://PATH."
        ),
        click.option("--tls", is_flag=True, help="Use TLS."),
        click.option("--cacert", type=_FILE, help="Certificates to trust (PEM)."),
        click.option("--cert", type=_FILE, help="Certificate of the client (PEM)."),
        click.option("--key", type=_FILE, help="Private key of that certificate (PEM)."),
        click.option("--insecure", is_flag=True, help="Do not check the server's certificate."),
        click.option(
            "--timeout",
            type=FiniteRange(0, 1_000_000, min_open=True),
            default=timeout,
            show_default=True,
            help="Seconds to wait.",
        ),
    ]
    return with_options(*options)


def _port(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _database(parts: SplitResult, what: str) -> int | None:
    text = parts.path.strip("/") if parts.scheme != "unix" else ""
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"{what}: the database of a URL is a number")
    return int(text)
