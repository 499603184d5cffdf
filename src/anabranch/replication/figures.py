"""The figures of replication: per peer for AB.PEERS and metrics, in sum for INFO."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.keyspace.replica import epoch_of
from anabranch.metrics.peers import PeerFigures, PeerProgress
from anabranch.replication.digest_exchange import DigestExchange
from anabranch.replication.gossip import Gossip
from anabranch.replication.links import Links
from anabranch.replication.receiving import Receiver
from anabranch.replication.sending import Sender

ALIVE_MS = 5000.0
"""How long the links in a status row of another region count."""


_SUMS = (
    *("fetches", "duplicates", "checksum_errors"),
    *("full_catch_ups", "partial_catch_ups", "failed_partial_catch_ups"),
)
"""The counters of peers that INFO shows in sum."""


class Figures:
    """Reads all parts of a replicator."""

    def __init__(
        self,
        links: Links,
        sender: Sender,
        receiver: Receiver,
        gossip: Gossip,
        digest_exchange: DigestExchange,
    ) -> None:
        self._links = links
        self._sender = sender
        self._receiver = receiver
        self._gossip = gossip
        self._digest_exchange = digest_exchange

    def _via(self, region: int, now_ms: float) -> list[int]:
        """Regions that recently reported a link to this region."""
        table = self._links.rows
        return sorted(
            other
            for other, row in table.rows.items()
            if other != region and region in row.links and now_ms - table.heard_ms[other] < ALIVE_MS
        )

    def _state(self, region: int, now_ms: float) -> str:
        links = self._links
        if links.membership.was_removed(region):
            return "removed"
        if links.transport.cut_ms(region) is not None:
            return "cut"
        session = links.session_of(region)
        if session is not None:
            incoming = self._receiver.joiner.joining
            joins = session.outgoing or (incoming is not None and incoming.session is session)
            return "in_sync" if session.in_sync and not joins else "catching_up"
        if self._via(region, now_ms):
            return "alive_via"
        return "unreachable"

    def of(self, region: int, now_ms: float) -> PeerFigures:
        """All figures of one other region for INFO and AB.PEERS."""
        links, buffer = self._links, self._receiver.buffer
        peer = links.peer(region)
        session = peer.session
        row = links.rows.rows.get(region)
        own = links.local.vector.get(links.replica_id, 0)
        lag_effects = lag_bytes = durable_lag = receive_lag = None
        lag_seconds = receive_lag_seconds = None
        if row is not None:
            applied = row.applied.get(links.replica_id, 0)
            lag_effects = max(0, own - applied)
            durable_lag = max(0, own - row.durable.get(links.replica_id, 0))
            lag_bytes, lag_seconds = self._sender.lag.after(applied, links.config.wall_ms())
            ours = links.local.vector.get(row.replica_id, 0)
            receive_lag = max(0, row.applied.get(row.replica_id, 0) - ours)
            receive_lag_seconds = peer.receive_lag.seconds(ours, now_ms)
        oldest = buffer.oldest_ms(region)
        heard = links.rows.heard_ms.get(region)
        compared = self._digest_exchange.compared.get(region)
        return PeerFigures(
            region=region,
            name=links.membership.name(region),
            state=self._state(region, now_ms),
            cut_ms=links.transport.cut_ms(region),
            via=self._via(region, now_ms),
            lag_effects=lag_effects,
            lag_bytes=lag_bytes,
            lag_seconds=lag_seconds,
            durable_lag_effects=durable_lag,
            receive_lag_effects=receive_lag,
            receive_lag_seconds=receive_lag_seconds,
            round_trip_ms=peer.clock.round_trip_ms,
            skew_ms=peer.clock.offset_ms,
            window_used_bytes=0 if session is None else max(0, session.window - session.credit),
            held_count=buffer.count_of(region),
            held_bytes=buffer.bytes_of[region],
            held_oldest_ms=0.0 if oldest is None else now_ms - oldest,
            relayed_for=sorted(o for o, via in self._receiver.relays.items() if via == region),
            feature_level=None if row is None else row.feature_level,
            row_age_ms=None if heard is None else now_ms - heard,
            connected_ms=None if session is None else now_ms - session.up_ms,
            differing_keys=None if compared is None else compared.differing,
            in_flight_keys=None if compared is None else compared.in_flight,
            compared_ms=None if compared is None else now_ms - compared.at_ms,
            refusal=peer.refusal,
            counters=peer.counters,
        )

    def facts(
        self, now_ms: float, unknown_frames: int, *, caught_up: bool
    ) -> dict[str, int | float | str]:
        """All figures of the region, zero and empty ones included."""
        links, buffer = self._links, self._receiver.buffer
        others = links.membership.others()
        counters = [peer.counters for peer in links.peers.values()]
        oldest = buffer.oldest_ms()
        levels = self._gossip.feature_levels()
        states = [self._state(region, now_ms) for region in others]
        incoming = self._receiver.joiner.joining
        return {
            "region": links.region,
            "epoch": epoch_of(links.replica_id),
            "cluster_id": links.local.replica.cluster_id,
            "members": len(others) + 1,
            "peers_connected": sum(1 for _ in links.up()),
            "peers_in_sync": states.count("in_sync"),
            "peers_unreachable": states.count("unreachable") + states.count("cut"),
            "caught_up": int(caught_up),
            "joining_from": 0 if incoming is None else incoming.session.region,
            "joining_bytes": 0 if incoming is None else incoming.bytes,
            "not_applied_because": self._receiver.trouble,
            "last_refusal": links.refusal,
            "not_pulled_because": "maxmemory" if self._receiver.is_full else "",
            "held_batches": len(buffer),
            "held_bytes": sum(buffer.bytes_of.values()),
            "held_oldest_ms": 0.0 if oldest is None else now_ms - oldest,
            "relayed_origins": len(self._receiver.relays),
            **{name: sum(getattr(each, name) for each in counters) for name in _SUMS},
            "unknown_frames": unknown_frames,
            "divergences": self._digest_exchange.divergences,
            "differing_keys": sum(
                each.differing for each in self._digest_exchange.compared.values()
            ),
            "feature_level": min(levels.values()),
            "feature_level_held_back_by": _least(levels),
            "unstable_effects": self._unstable(),
            "unstable_because_of": self._holding_back(),
        }

    def peer_progress(self, now_ms: float) -> dict[int, PeerProgress]:
        """The newest status row of each region, by its number."""
        table = self._links.rows
        return {
            region: PeerProgress(row.applied, list(row.links), now_ms - table.heard_ms[region])
            for region, row in table.rows.items()
        }

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members that may lack some of these effects on their disks; may include this region.

        While this region receives a full sync it is one of them: it forgets nothing then.
        """
        links = self._links
        found = links.rows.holding_back(effects, links.local.durable, links.membership)
        if self._receiver.joiner.incoming is not None:
            found = sorted({links.region, *found})
        return found

    def _unstable(self) -> int:
        """Effects applied here that are not known to be on every member's disk."""
        watermark = self._gossip.watermark
        return sum(
            number - watermark.get(replica_id, 0)
            for replica_id, number in self._links.local.vector.items()
        )

    def _holding_back(self) -> str:
        """The members that have the fewest effects on their disks, or have not reported any."""
        links = self._links
        on_disk: dict[int, int] = {}
        for region in links.membership.others():
            row = links.rows.rows.get(region)
            on_disk[region] = 0 if row is None else sum(row.durable.values())
        if not on_disk or not self._unstable():
            return ""
        least = min(on_disk.values())
        return ",".join(str(region) for region, sum_ in on_disk.items() if sum_ == least)


def _least(levels: Mapping[int, int]) -> str:
    """The regions with the lowest level, if not all have the same."""
    low, high = min(levels.values()), max(levels.values())
    if low == high:
        return ""
    return ",".join(str(region) for region, level in sorted(levels.items()) if level == low)
