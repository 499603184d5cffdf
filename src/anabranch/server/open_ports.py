"""Warns about ports that give full access to everyone who can reach them."""

from __future__ import annotations

from anabranch.config.settings import Settings
from anabranch.server.logs import emit


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
