"""Which regions are dialled, and when again.

A region dials members to which it has no link, or, if it has no cluster, the configured members. It
also dials removed regions from time to time: two regions may have removed each other, each on its
side of a partition. Without a link neither would notice, and both would go on writing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.keyspace.replica import epoch_of
from anabranch.replication.interface import Address, ReplicationConfig
from anabranch.replication.links import Links
from anabranch.replication.peer import Backoff

DIAL_TIMEOUT_MS: Final = 10_000.0
"""A dial without an answer is forgotten after this."""

REMOVED_MS: Final = 10_000.0
"""The pause between two dials of a removed region."""


class Dialler:
    """Dials in progress, and addresses that must wait. Times are in ms."""

    def __init__(
        self,
        links: Links,
        config: ReplicationConfig,
        region_at: Callable[[Address], int | None],
    ) -> None:
        """``region_at`` returns the region that has an address."""
        self._links = links
        self._config = config
        self._region_at = region_at
        self._under_way: dict[Address, float] = {}  # since when
        self._seeds: dict[Address, Backoff] = {}
        self._recommended: set[Address] = set()
        self._failures: dict[Address, tuple[int, str]] = {}  # of those we may join by, in a row

    def recommend(self, address: Address) -> None:
        """A member named the address of the region that admits others."""
        if not self._links.local.replica.cluster_id:
            self._recommended.add(address)

    def connected(self, address: Address) -> None:
        """The dial of an address has succeeded."""
        self._under_way.pop(address, None)

    @property
    def tries(self) -> str:
        """The members that did not admit this region, and the reasons."""
        return ", ".join(
            f"{host}:{port} ({why}; {count} {'try' if count == 1 else 'tries'})"
            for (host, port), (count, why) in self._failures.items()
        )

    def failed(self, address: Address, now_ms: float, why: str) -> None:
        """The address did not answer; ``why`` is the reason for operators."""
        self._under_way.pop(address, None)
        if address in self._recommended and not self._links.local.replica.cluster_id:
            self._recommended.clear()
            if not epoch_of(self._links.replica_id):
                # Any member can admit this region unless it could be confused with another server.
                self._links.outlived(0)
        self.wait(address, now_ms)
        self.record_failure(address, now_ms, why)

    def record_failure(self, address: Address, now_ms: float, why: str) -> None:
        """Report a failed attempt to be admitted."""
        if self._links.local.replica.cluster_id:
            return
        count = self._failures.get(address, (0, ""))[0] + 1
        self._failures[address] = count, why
        backoff = self._seeds.get(address)
        again_ms = 0.0 if backoff is None else max(0.0, backoff.next_ms - now_ms)
        self._links.local.report_event(
            "join_failed",
            address=f"{address[0]}:{address[1]}",
            reason=why,
            tries=count,
            again_in_s=round(again_ms / 1000, 1),
        )

    def wait(self, address: Address, now_ms: float, at_least_ms: float = 0) -> None:
        """Do not dial an address again at once."""
        region = self._region_at(address)
        if region is None and self._links.local.replica.cluster_id:
            at_least_ms = max(at_least_ms, REMOVED_MS)
        backoff = self._seeds.get(address) if region is None else self._links.peer(region).backoff
        if backoff is not None:
            backoff.failed(now_ms, self._links.chance, at_least_ms)

    def dial_due(self, now_ms: float) -> None:
        """Dial the regions without a link that were not tried a moment ago."""
        for address, since_ms in list(self._under_way.items()):
            if now_ms - since_ms >= DIAL_TIMEOUT_MS:
                self.failed(address, now_ms, f"no answer within {DIAL_TIMEOUT_MS / 1000:g} s")
        for address, backoff in self._wanted().items():
            if address not in self._under_way and now_ms >= backoff.next_ms:
                self._under_way[address] = now_ms
                self._links.transport.dial(*address)

    def _wanted(self) -> dict[Address, Backoff]:
        """The addresses of regions that have neither a link nor a dial in progress."""
        links = self._links
        making = {session.dialled for session in links.sessions.values() if session.dialled}
        if not links.local.replica.cluster_id:
            addresses = [*self._config.join, *self._recommended]
            seeds = {seed: self._seeds.setdefault(seed, Backoff()) for seed in addresses}
            return {} if making else seeds
        if not links.membership.is_member(links.region):
            return {}
        removed = links.membership.to_look_for()
        wanted = {each: self._seeds.setdefault(each, Backoff()) for each in removed}
        wanted |= {
            address: links.peer(region).backoff
            for region in links.membership.others()
            if links.session_of(region) is None
            and (address := links.membership.address(region)) not in making
        }
        return wanted
