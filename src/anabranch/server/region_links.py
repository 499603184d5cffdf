"""The sockets and certificates of a server for the exchange with other regions."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.config.settings import GOSSIP_PORT_ABOVE, Settings
from anabranch.errors import ConfigError
from anabranch.node.driver import Driver
from anabranch.node.durability import Durability
from anabranch.node.exchange import Exchange
from anabranch.node.local import RegionLocal
from anabranch.region.region import Region
from anabranch.server.admission import Admission
from anabranch.server.gossip import Fault, SocketTransport, bound
from anabranch.server.tls import RegionTls, files_of

PORT_MAX: Final = 65_535


class RegionLinks:
    """The gossip port, the certificates and the faults of links of one server.

    A :class:`~anabranch.node.driver.LinkDriver`.
    """

    def __init__(
        self,
        region: Region,
        durability: Durability,
        driver: Driver,
        admission: Admission,
        run_id: str,
    ) -> None:
        local = RegionLocal(region, durability)
        self.exchange = Exchange(local, region, durability, driver, secrets.SystemRandom())
        """What the server exchanges over these links."""
        self.exchange.sockets = self
        self._region = region
        self._settings = region.settings
        self._admission = admission
        self._run_id = run_id
        self._certificates: Certificates | None = None
        self._bound: list[socket.socket] = []  # do not listen yet
        self.gossip: SocketTransport

    def bind(self) -> None:
        """Take the gossip port; raises :class:`ConfigError` if that is impossible."""
        self._check_port()
        self._bound = bound(self._settings.gossip_bind, self.exchange.gossip_port)

    def _check_port(self) -> None:
        settings, port = self._settings, self.exchange.gossip_port
        if port > PORT_MAX:
            raise ConfigError(
                f"gossip-port is port plus {GOSSIP_PORT_ABOVE} unless set, and {port} is not a "
                "port; set gossip-port"
            )
        if port in (settings.port, settings.tls_port, settings.http_port):
            raise ConfigError(f"gossip-port {port} is a port for clients as well; set another one")

    def release(self) -> None:
        """Free the gossip port if the start has failed before :meth:`start`."""
        while self._bound:
            self._bound.pop().close()

    def start(self) -> None:
        """Listen for other regions, after :meth:`bind`, and dial them."""
        settings = self._settings
        if settings.tls_replication:
            self._certificates = Certificates(settings, self.exchange.local.report_event)
        self.gossip = SocketTransport(
            asyncio.get_running_loop(),
            self._tls,
            self._admission,
            lambda: settings.handshake_timeout,
            self._region.scheduler,
        )
        self.gossip.on_tls_refused = self._tls_refused
        exchange = self.exchange
        exchange.connect(self.gossip, self._run_id)
        buffer = exchange.replicator.receiver.buffer
        self._region.holdings.measured["causal"] = lambda: buffer.used_bytes
        self.gossip.on_heard = exchange.answer_waits
        sockets, self._bound = self._bound, []
        self.gossip.open(exchange.replicator, sockets)
        exchange.pulse()

    def shut_down(self) -> None:
        """Close all links and the port; the exchange has said farewell."""
        self.gossip.shut_down()

    def listen_anew(self) -> None:
        """``gossip-bind`` was set; ConfigError if that is impossible."""
        self.gossip.move(self._settings.gossip_bind, self.exchange.gossip_port)

    # -- certificates -------------------------------------------------------------------------

    def check_certificates(self) -> None:
        """Use certificates that have replaced earlier ones, looking at the files now and then."""
        now_ms, certificates = self.exchange.now_ms(), self._certificates
        if certificates is not None and certificates.check_files(now_ms, self._wall_s()):
            self.gossip.tls = certificates.tls

    @property
    def _tls(self) -> RegionTls | None:
        return None if self._certificates is None else self._certificates.tls

    def _wall_s(self) -> float:
        return self._region.clock.now_us() / 1_000_000

    def reload_certificates(self) -> None:
        """Take over changed settings for later connections; ConfigError if they are wrong."""
        if self._certificates is not None:
            self._certificates.load()
            self.gossip.tls = self._certificates.tls

    def _tls_refused(self, address: str, reason: str) -> None:
        self.exchange.local.report_event("tls_refused", address=address, reason=reason)

    def expiries(self) -> dict[int, int]:
        """When known certificates expire, in seconds since 1970, by region, own ones included."""
        found = self.gossip.expiries()
        if self._tls is not None and self._tls.expires is not None:
            found[self._region.replica.region] = self._tls.expires
        return found

    def facts(self) -> dict[str, int | float | str]:
        """When the own certificate ends, for INFO; nothing without certificates."""
        if self._tls is None:
            return {}
        expires = self._tls.expires
        left = "unknown" if expires is None else int(expires - self._wall_s())
        return {"tls_server_cert_expires_in_seconds": left}

    # -- faults that are made on purpose ------------------------------------------------------

    @property
    def faults(self) -> Mapping[int, Fault]:
        """The faults that an operator applies to links, by region."""
        return self.gossip.faults

    def fault(self, region: int) -> Fault:
        """The fault of one region, to be changed."""
        return self.gossip.fault(region)

    def faults_changed(self) -> None:
        """Send frames that are not delayed any more."""
        self.gossip.released()


# -- certificates: read again when the files change, with a warning before they expire -----------

LOOK_EVERY_MS: Final = 1000.0

DAY_S: Final = 86400

WARN_DAYS: Final = (30, 7, 1, 0)
"""A warning is logged when so many days are left."""


class Certificates:
    """The TLS contexts of both sides; the files are read again when they change.

    A program that renews certificates only has to write new files. Files that cannot be used, half
    written ones included, change nothing: connections use the certificates that were read last.
    """

    def __init__(self, settings: Settings, report: Callable[..., None]) -> None:
        """Read the files; ConfigError if they cannot be used. ``report`` logs an event."""
        self._settings = settings
        self._report = report
        self._look_ms = 0.0
        self._files = files_of(settings)
        self._warned: int | None = None  # the last warning, by days left
        self._told = ""
        self.tls = RegionTls(settings)
        self._judge()

    def load(self) -> None:
        """Use the present files; ConfigError if that is impossible, and nothing changes."""
        self._files = files_of(self._settings)
        self.tls = RegionTls(self._settings)
        self._warned = None
        self._told = ""
        self._judge()

    def check_files(self, now_ms: float, wall_s: float) -> bool:
        """Check the files if it is time; returns whether other certificates are used now."""
        if now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_EVERY_MS
        self._warn(wall_s)
        files = files_of(self._settings)
        if files == self._files:
            return False
        self._files = files
        try:
            self.load()
        except ConfigError as problem:
            self._report("certificate_refused", reason=str(problem))
            return False
        self._report("certificate_renewed", expires=self.tls.expires)
        self._warn(wall_s)
        return True

    def _judge(self) -> None:
        """Report if a region with the same settings would not accept the certificate."""
        fault = self.tls.fault()
        if fault and fault != self._told:
            self._told = fault
            self._report("certificate_bad", reason=fault)

    def _warn(self, wall_s: float) -> None:
        expires = self.tls.expires
        if expires is None:
            return
        days = (expires - wall_s) / DAY_S
        due = [each for each in WARN_DAYS if days <= each]
        if due and min(due) != self._warned:
            self._warned = min(due)
            self._report("certificate_expires", days=max(0, int(days)), expired=days <= 0)
