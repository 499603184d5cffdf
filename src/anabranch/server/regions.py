"""The sockets and certificates of a server for the exchange with other regions."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from anabranch.config.region_settings import GOSSIP_PORT_ABOVE
from anabranch.errors import ConfigError
from anabranch.node.exchange import Exchange
from anabranch.server.certificates import Certificates
from anabranch.server.gossip import Fault, Gossip, bound

if TYPE_CHECKING:
    from anabranch.node.driver import Driver
    from anabranch.node.durability import Durability
    from anabranch.region.region import Region
    from anabranch.server.admission import Admission
    from anabranch.server.tls import RegionTls

PORT_MAX: Final = 65_535


class Regions(Exchange):
    """One server's part in the cluster."""

    def __init__(
        self,
        region: Region,
        durability: Durability,
        driver: Driver,
        admission: Admission,
        run_id: str,
    ) -> None:
        super().__init__(region, durability, driver, secrets.SystemRandom())
        self._admission = admission
        self._run_id = run_id
        self._certificates: Certificates | None = None
        self._bound: list[socket.socket] = []  # do not listen yet
        self.gossip: Gossip

    def bind(self) -> None:
        """Take the gossip port; raises :class:`ConfigError` if that is impossible."""
        self._check_port()
        self._bound = bound(self._settings.gossip_bind, self.gossip_port)

    def _check_port(self) -> None:
        settings, port = self._settings, self.gossip_port
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
            self._certificates = Certificates(settings, self.report_event)
        self.gossip = Gossip(
            asyncio.get_running_loop(),
            self._tls,
            self._admission,
            lambda: settings.handshake_timeout,
            self._region.scheduler,
        )
        self.gossip.on_tls_refused = self._tls_refused
        self.connect(self.gossip, self._run_id)
        self._region.holdings.measured["causal"] = self.replicator.waiting_bytes
        self.gossip.on_heard = self.answer_waits
        sockets, self._bound = self._bound, []
        self.gossip.open(self.replicator, sockets)
        self.pulse()

    def pulse(self) -> None:
        """See :class:`Exchange`; certificates may be new ones."""
        certificates = self._certificates
        if certificates is not None and certificates.check_files(self.now_ms(), self._wall_s()):
            self.gossip.tls = certificates.tls
        super().pulse()

    def stop(self, *, farewell: bool = True) -> None:
        """See :class:`Exchange`."""
        is_running = self._pulse is not None
        super().stop(farewell=farewell)
        if is_running:
            self.gossip.shut_down()

    def listen_anew(self) -> None:
        """``gossip-bind`` was set; ConfigError if that is impossible."""
        self.gossip.move(self._settings.gossip_bind, self.gossip_port)

    # -- certificates -------------------------------------------------------------------------

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
        self.report_event("tls_refused", address=address, reason=reason)

    def expiries(self) -> dict[int, int]:
        """When known certificates expire, in seconds since 1970, by region, own ones included."""
        found = self.gossip.expiries()
        if self._tls is not None and self._tls.expires is not None:
            found[self.replica.region] = self._tls.expires
        return found

    def facts(self) -> dict[str, int | float | str]:
        """See :class:`Exchange`; and when our certificate ends."""
        facts = super().facts()
        if self._tls is not None:
            expires = self._tls.expires
            left = "unknown" if expires is None else int(expires - self._wall_s())
            facts["tls_server_cert_expires_in_seconds"] = left
        return facts

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
