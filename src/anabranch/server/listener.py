"""Sockets to listen on: TCP, TLS, Unix; opened at the start, moved by CONFIG SET.

A start takes its TCP ports before it touches the data directory, so that a port in use changes
nothing there. It listens before the data are recovered: until then clients are told so.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from anabranch.config.settings import Settings
from anabranch.errors import ConfigError
from anabranch.server.acceptor import Acceptor, TlsHandshake
from anabranch.server.admission import Admission, ConnectionKind, Place
from anabranch.server.logs import emit, emit_sparingly
from anabranch.server.tls import client_facing

_FORGIVEN: Final = {
    errno.EADDRNOTAVAIL,
    errno.EAFNOSUPPORT,
    errno.EPROTONOSUPPORT,
    errno.ENOPROTOOPT,
}
"""Errors that "-address" in ``bind`` ignores: the machine does not have the address."""

_KEEP_IDLE_MAX: Final = 32_767
"""Seconds; the limit of Linux."""

_CHOICES_MAX: Final = 50
"""Free ports to try until one is free on every address of ``bind``."""

_CHOSEN_PORT_MAX: Final = 65535 - 10_000
"""The gossip port of a region is 10,000 above its port, unless ``gossip-port`` is set."""


class Listeners:
    """All listening sockets of a server, by their kind: "tcp", "tls", "unix"."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        protocol: Callable[[Place], asyncio.Protocol],
    ) -> None:
        self._settings = settings
        self._tls: ssl.SSLContext | None = None
        self._acceptors = {
            "tcp": Acceptor(admission, ConnectionKind.CLIENT, protocol),
            "unix": Acceptor(admission, ConnectionKind.CLIENT, protocol),
            "tls": Acceptor(
                admission,
                ConnectionKind.HANDSHAKE,
                protocol,
                tls=TlsHandshake(
                    lambda: self._tls, lambda: settings.handshake_timeout, _handshake_failed
                ),
            ),
        }
        self._bound: dict[str, list[socket.socket]] = {}  # do not listen yet
        self._unix_path = ""
        self.addresses: list[str] = []  # for the ready line

    def bind(self) -> None:
        """Take the TCP ports of the settings; ConfigError names the one that is impossible."""
        settings, bound = self._settings, self._bound
        for kind, port in (("tcp", settings.port), ("tls", settings.tls_port)):
            if port:
                bound[kind] = bind_all(settings.bind, port)
        if not (bound or settings.unixsocket):
            bound["tcp"] = bind_free_port(settings.bind, settings.tcp_backlog)
            settings.port = bound["tcp"][0].getsockname()[1]

    def open(self) -> None:
        """Listen, after :meth:`bind`; ConfigError names the socket for which it is impossible."""
        settings = self._settings
        if settings.tls_port:
            self._tls = client_facing(settings)
        if settings.unixsocket:
            self._bound["unix"] = [self._bind_unix()]
        while self._bound:
            kind, sockets = self._bound.popitem()
            self.addresses[:0] = [_address(each, kind) for each in sockets]
            self._listen(kind, sockets)

    def move(self, kind: str, port: int) -> None:
        """Listen on another port or on other addresses; connections stay.

        After a ConfigError no socket of this kind listens: restore the settings and call again.
        """
        settings = self._settings
        if kind == "tls" and port and self._tls is None:
            self._tls = client_facing(settings)
        self.close(kind)  # first, because the present sockets may occupy the new addresses
        if port:
            self._listen(kind, bind_all(settings.bind, port))

    def keep_alive_changed(self) -> None:
        """``tcp-keepalive`` was set: it applies to later connections."""
        for acceptor in self._acceptors.values():
            for each in acceptor.sockets:
                _keep_alive(each, self._settings.tcp_keepalive)

    def _listen(self, kind: str, sockets: list[socket.socket]) -> None:
        for each in sockets:
            _keep_alive(each, self._settings.tcp_keepalive)
        self._acceptors[kind].open(listening(sockets, self._settings.tcp_backlog))

    def reload_tls(self) -> None:
        """Take over changed certificates for later connections."""
        if self._tls is None:
            return
        try:
            self._tls = client_facing(self._settings)
        except ConfigError as problem:
            emit_sparingly("warning", "tls.refused", reason=str(problem))
            raise ConfigError("Unable to update TLS configuration. Check server logs.") from None

    def close(self, kind: str | None = None) -> None:
        """Stop accepting, or free what was bound only."""
        while kind is None and self._bound:
            for sock in self._bound.popitem()[1]:
                sock.close()
        for each in self._acceptors if kind is None else [kind]:
            self._acceptors[each].close()
            if each == "unix" and self._unix_path:
                with suppress(OSError):  # another process has removed it
                    os.unlink(self._unix_path)
                self._unix_path = ""

    def _bind_unix(self) -> socket.socket:
        path = self._settings.unixsocket
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode):
                if _answers(path):
                    raise ConfigError(
                        f"unixsocket '{path}' is in use by another server; choose another path"
                    )
                os.unlink(path)
            sock.bind(path)
            if self._settings.unixsocketperm:
                os.chmod(path, self._settings.unixsocketperm)
            sock.listen(self._settings.tcp_backlog)
        except OSError as problem:
            sock.close()
            why = problem.strerror or problem  # Python itself refuses a path that is too long
            raise ConfigError(f"cannot listen on unixsocket '{path}': {why}") from None
        except ConfigError:
            sock.close()
            raise
        self._unix_path = path
        return sock


def _handshake_failed(address: str, problem: OSError) -> None:
    emit_sparingly("verbose", "tls.handshake_failed", address=address, reason=str(problem))


def bind_all(bind: str, port: int, option: str = "--port") -> list[socket.socket]:
    """A socket for every address of ``bind``, all or none; they do not listen yet.

    Port 0 becomes the port that the first address gets. Raises :class:`ConfigError`; ``option`` is
    where another port can be chosen.
    """
    sockets: list[socket.socket] = []
    try:
        for word in bind.split():
            optional = word.startswith("-")
            host = word.removeprefix("-")
            try:
                sockets += _bind_host(host, port)
            except OSError as problem:
                if optional and problem.errno in _FORGIVEN:
                    continue
                raise ConfigError(_why_not(host, port, problem, option)) from None
            port = port or sockets[0].getsockname()[1]
        if not sockets:
            name = option.removeprefix("--")
            raise ConfigError(f"{name} {port}: none of the bind addresses '{bind}' can be used")
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def listening(
    sockets: list[socket.socket], backlog: int, option: str = "--port"
) -> list[socket.socket]:
    """The sockets of :func:`bind_all`, which listen now. Raises :class:`ConfigError`, see there.

    Several programs may have bound a port, but one listens.
    """
    for each in sockets:
        try:
            each.listen(backlog)
        except OSError as problem:
            host, port = each.getsockname()[:2]
            for other in sockets:
                other.close()
            raise ConfigError(_why_not(host, port, problem, option)) from None
    return sockets


def bind_free_port(bind: str, backlog: int) -> list[socket.socket]:
    """Sockets that listen on a port that is free on every address of ``bind``."""
    for attempt in range(_CHOICES_MAX):
        try:
            sockets = listening(bind_all(bind, 0), backlog)
        except ConfigError:  # the port that the first address got may be taken on another one
            if attempt == _CHOICES_MAX - 1:
                raise
            continue
        if sockets[0].getsockname()[1] <= _CHOSEN_PORT_MAX:
            return sockets
        for each in sockets:
            each.close()
    raise ConfigError("no free port was found; choose one with --port")


def _bind_host(host: str, port: int) -> list[socket.socket]:
    target = {"*": "0.0.0.0", "::*": "::"}.get(host, host)  # noqa: S104 - as the operator wrote
    try:
        found = socket.getaddrinfo(target, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as problem:
        raise OSError(errno.EADDRNOTAVAIL, f"{problem.strerror}") from None
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return [sock]


def _why_not(host: str, port: int, problem: OSError, option: str) -> str:
    name = option.removeprefix("--")
    if problem.errno == errno.EADDRINUSE:
        return (
            f"{name} {port} on {host} is already in use; "
            f"stop the other server or choose another with {option}"
        )
    if problem.errno == errno.EACCES:
        return f"{name} {port} on {host} needs privileges; choose one above 1023 with {option}"
    return (
        f"cannot listen on {host}, {name} {port}: {problem.strerror}; "
        f"check {name.removesuffix('port')}bind"
    )


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _address(sock: socket.socket, kind: str) -> str:
    name = sock.getsockname()
    if kind == "unix":
        return str(name)
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{host}:{name[1]}" + (" (TLS)" if kind == "tls" else "")


def _keep_alive(sock: socket.socket, seconds: int) -> None:
    """Let the kernel detect peers that have vanished; 0 is off.

    The option of a listening socket applies to connections that it accepts later.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, bool(seconds))
    if seconds and hasattr(socket, "TCP_KEEPIDLE"):
        idle = min(seconds, _KEEP_IDLE_MAX)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(idle // 3, 1))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


# -- ports that give full access to everyone who can reach them -----------------------------------


def warn_of_clients(settings: Settings) -> None:
    """Clients of other machines need no password."""
    if not settings.protected_mode and not settings.requirepass and _is_reachable(settings.bind):
        emit(
            "warning",
            "security.open",
            note="anybody who reaches the port may do everything: set requirepass or bind",
        )


def warn_of_gossip(settings: Settings) -> None:
    """Other machines need no secret and no certificate to become a region."""
    is_proved = settings.gossip_secret or settings.tls_replication
    if settings.region_id and not is_proved and _is_reachable(settings.gossip_bind):
        emit(
            "warning",
            "security.gossip_open",
            note="anybody who reaches the gossip port may change all data in all regions: set "
            "gossip-secret, or tls-replication, or gossip-bind",
        )


def _is_reachable(bind: str) -> bool:
    return any(
        not word.removeprefix("-").startswith(("127.", "::1", "localhost")) for word in bind.split()
    )
