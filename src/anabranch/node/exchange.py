"""The exchange of this region with others: files, clients that wait for progress, and warnings.

The replicator decides what regions exchange; an :class:`Exchange` gives it the time of the process.
An :class:`Exchange` also applies the rules on which other regions depend: a start that may have
lost effects opens an epoch, and :mod:`anabranch.node.write_gate` decides when clients may write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.config.settings import GOSSIP_PORT_ABOVE
from anabranch.errors import ConfigError
from anabranch.keyspace.inquiry import Inquiry, Verdict
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.replica import Member
from anabranch.metrics.peers import PeerFigures, PeerProgress
from anabranch.node.cluster_notes import continue_or_open_epoch
from anabranch.node.identity import remember
from anabranch.node.local import RegionLocal
from anabranch.node.stability import StabilityWatch
from anabranch.node.write_gate import WriteGate
from anabranch.oplog.log import OpLog
from anabranch.replication.interface import ReplicationConfig
from anabranch.replication.replicator import Replicator
from anabranch.replication.sealing import stretched
from anabranch.stream.shared import Dot

if TYPE_CHECKING:
    from anabranch.engine.host import LinkControl
    from anabranch.node.driver import Driver, LinkDriver, Timer
    from anabranch.node.durability import Durability
    from anabranch.oplog.storage import Storage
    from anabranch.region.region import Region
    from anabranch.replication.interface import Chance, Transport

TICK_S: Final = 0.05

COMPARE_S: Final = 0.01
"""The pause between two slices of work for the digest exchange."""

HAS_NO_CLUSTER: Final = (
    "this region belongs to no cluster: give the first region --cluster-create yes, and every "
    "other one --join host:port with the gossip address of a member"
)


class Exchange:
    """The part of one process in the cluster.

    ``local`` is the region as the replicator sees it; ``sockets`` are those of a server.
    """

    def __init__(
        self,
        local: RegionLocal,
        region: Region,
        durability: Durability,
        driver: Driver,
        chance: Chance,
    ) -> None:
        """``chance`` must be unpredictable if a secret is configured."""
        self.local = local
        self.replica = local.replica
        self.sockets: LinkDriver | None = None
        self._region = region
        self._settings = region.settings
        self._durability = durability
        self._driver = driver
        self._chance = chance
        self._pulse: Timer | None = None
        self._compares = False  # a slice of the digest exchange is scheduled
        self._told = False  # the replicator will be called when this turn is over
        self._confirmed: list[tuple[int, int]] = []  # by the other regions, at the last check
        self._stability = StabilityWatch(local, region.settings)
        self._config: ReplicationConfig
        self._secret = ""
        self.stretch: Callable[[str], bytes] = stretched
        """Derives the key from the secret; the derivation is slow on purpose."""
        self.gate = WriteGate(region, self.peers, local.report_event)
        """Whether clients may write."""
        self.replicator: Replicator

    # -- life ---------------------------------------------------------------------------------

    def open(self, storage: Storage, log: OpLog, *, was_cut: bool) -> None:
        """Call this after recovery, when the log can be written.

        Raises :class:`OSError`; :class:`ConfigError` if the settings name no cluster.

        ``was_cut``: recovery has cut off the end of the log.
        """
        settings = self._settings
        if not (self.replica.cluster_id or settings.cluster_create or settings.join):
            raise ConfigError(HAS_NO_CLUSTER)
        local, notes = self.local, self.local.notes
        local.open_log(storage, log)
        notes.open(storage)
        self._durability.on_taken = local.taken
        self._durability.on_progress = self._progress
        remember(storage, settings.region_id, self._self().name, self.gossip_port)
        policy = settings.appendfsync
        continue_or_open_epoch(local, notes.epoch_file, policy, self._chance, was_cut=was_cut)
        if not self.replica.cluster_id and settings.cluster_create:
            cluster_id = self._chance.randbytes(16).hex()
            local.found(cluster_id, self._self())
            self._region.host.log(
                "info", "region.cluster_created", cluster=cluster_id, region=settings.region_id
            )
        self._region.merging.resolve()
        self.gate.open(storage, is_new=not self.replica.cluster_id)

    def _self(self) -> Member:
        settings = self._settings
        return Member(
            settings.region_name or f"region{settings.region_id}",
            settings.gossip_announce or "127.0.0.1",
            self.gossip_port,
        )

    @property
    def gossip_port(self) -> int:
        """The gossip port of this region: by default 10000 above the port for clients."""
        settings = self._settings
        return settings.gossip_port or settings.port + GOSSIP_PORT_ABOVE

    def connect(
        self, transport: Transport, run_id: str, *, feature_level: int | None = None
    ) -> None:
        """Begin to dial other regions, and to accept their links."""
        me = self._self()
        self._config = ReplicationConfig(
            name=me.name,
            host=me.host,
            port=me.port,
            run_id=run_id,
            wall_ms=self.wall_ms,
            databases=len(self._region.keyspace.databases),
        )
        if feature_level is not None:
            self._config.feature_level = feature_level
        self.replica.feature_levels = self.feature_levels
        self.settings_changed()
        self.replicator = Replicator(self.local, transport, self._config, self._chance)
        notes = self.local.notes
        if notes.removed:
            self.replicator.links.expelled(notes.removed)
        if notes.set_back:
            self.replicator.links.set_back(notes.set_back)

    def wall_ms(self) -> int:
        """The wall-clock time in ms since 1970."""
        return self._region.clock.now_us() // 1000

    def now_ms(self) -> float:
        """A clock that never jumps, in ms."""
        return self._driver.now_s() * 1000

    def settings_changed(self) -> None:
        """Take over the settings that can change at run time."""
        self._config.host = self._self().host
        self._config.join = [_address(text) for text in self._settings.join.split()]
        self._config.window_bytes = self._settings.gossip_window
        self.local.recent_changed()
        self._config.max_clock_skew_ms = self._settings.max_clock_skew_ms
        self._config.digest_interval_ms = self._settings.digest_interval * 1000
        self._config.expire_after_ms = self._settings.region_expire_after * 1000
        self._config.hold_bytes = self._settings.gossip_hold_bytes
        secret = self._settings.gossip_secret
        if secret != self._secret:
            self._secret = secret
            self._config.secret = self.stretch(secret)

    def pulse(self) -> None:
        """Let the replicator do what is due; sets a timer for the next call, until :meth:`stop`."""
        if self.sockets is not None:
            self.sockets.check_certificates()
        self._pulse = self._driver.call_later(TICK_S, self.pulse)
        if self._durability.broken or self._region.scheduler.is_exclusive:
            return
        self.replicator.tick(self.now_ms())
        self._compare_on()
        self.answer_waits()
        self._stability.observe(self.replicator, self.now_ms())
        self.gate.update(self.replicator)
        self.local.on_answers()
        self._durability.end_turn()

    def _compare_on(self) -> None:
        if self.replicator.digest_exchange.is_busy and not self._compares:
            self._compares = True
            self._driver.call_later(COMPARE_S, self._compare)

    def _compare(self) -> None:
        self._compares = False
        if self._region.scheduler.is_exclusive:
            self._compare_on()
        elif self._pulse is not None and not self._durability.broken:
            self.replicator.digest_exchange.tick(self.now_ms())
            self._compare_on()

    def lacking(self) -> list[int]:
        """Regions whose links are up, and that have not confirmed all effects of this region."""
        return [] if self._pulse is None else self.replicator.gossip.lacking()

    def stop(self, *, farewell: bool = True) -> None:
        """End all links; the caller has written everything before."""
        if self._pulse is not None:
            self._pulse.cancel()
            self._pulse = None
            if farewell:
                self.replicator.sessions.stop()
            if self.sockets is not None:
                self.sockets.shut_down()

    def policy_changed(self) -> None:
        """``appendfsync`` has changed: record the policy in the epoch file.

        First everything is synced, because a stricter policy also covers earlier effects.
        Raises :class:`OSError`.
        """
        self._durability.sync_all()
        self.local.notes.epoch_file.write(self._settings.appendfsync)

    def snapshot_finished(self, position: int) -> None:
        """There is a snapshot of this position."""
        self.local.forget_full_syncs(position)
        self.local.notes.note_end(self._settings.appendfsync)

    # -- the log ------------------------------------------------------------------------------

    def _progress(self) -> None:
        """More effects are written, or are on the disk."""
        self.local.synced(self._durability.synced)
        if not self._told and self._pulse is not None:
            self._told = True
            self._driver.call_soon(self._send_progress)

    def _send_progress(self) -> None:
        self._told = False
        if self._pulse is not None:
            self.replicator.appended(self.now_ms())
            self._go_on_later()

    def answer_waits(self) -> None:
        """Other regions may have confirmed effects of this one: answer the clients that wait."""
        confirmed = self.replicator.gossip.confirmed()
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            if self._region.context.waits.safety:
                self._region.waking.answer_wait()
            self.local.on_answers()
        if self._region.context.waits.inquiries:
            self._region.waking.answer_inquiries()
            self.local.on_answers()
        self._go_on_later()

    def _go_on_later(self) -> None:
        """Continue in later turns with work that did not fit into a slice."""
        if self.replicator.is_behind:
            self._region.scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        """Do a slice; returns whether work is left. A :data:`anabranch.scheduling.Work`."""
        if self._pulse is None:
            return False
        if self._region.scheduler.is_exclusive:
            return True
        self.replicator.go_on(self.now_ms())
        return self.replicator.is_behind

    def retention_changed(self) -> None:
        """``mark-retention`` has changed: drop what is kept for too long now."""
        self._region.keyspace.prune(
            self.replica.watermark, keeps_tombstones=self._settings.mark_retention == "forever"
        )

    def address(self, region: int) -> str:
        """The gossip address of a member, as it was reported last; empty for other regions."""
        if region == self._settings.region_id:
            me = self._self()
            return f"{me.host}:{me.port}"
        membership = self.replicator.links.membership
        if not membership.is_member(region):
            return ""
        return "{}:{}".format(*membership.address(region))

    # -- for commands -------------------------------------------------------------------------

    @property
    def links(self) -> LinkControl:
        """The connections with other regions; only a process with sockets has some."""
        assert self.sockets is not None
        return self.sockets

    def peers(self) -> list[PeerFigures]:
        """Figures of all other regions."""
        return self.replicator.peers(self.now_ms())

    def facts(self) -> dict[str, int | float | str]:
        """Figures of this region for INFO."""
        now_ms = self.now_ms()
        facts = self.replicator.facts(now_ms)
        return {
            **facts,
            "caught_up": int(self.replicator.caught_up and not self.gate.is_newcomer),
            **self._stability.facts(self.replicator, now_ms),
            "good_regions": self.gate.good_regions(),
            "newcomer_waits_for": self.gate.awaited_by_newcomer(
                self.replicator, facts["joining_from"]
            ),
            **({} if self.sockets is None else self.sockets.facts()),
        }

    def peer_progress(self) -> dict[int, PeerProgress]:
        """The newest status row of each other region, received directly or through others."""
        return self.replicator.figures.peer_progress(self.now_ms())

    def feature_levels(self) -> dict[int, int]:
        """The feature level of each member, this region included."""
        return self.replicator.gossip.feature_levels()

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members whose disks may lack some of these effects; may include this region."""
        return self.replicator.figures.holding_back(effects)

    def acknowledged(self, effect: Dot) -> tuple[int, int]:
        """How many other regions have applied an own effect, and how many have it on the disk."""
        replica_id, number = effect
        return self.replicator.acknowledged(number, replica_id)

    def verify(self, region: int, places: list[Place]) -> Verdict:
        """Compare keys, or all if none are named; CommandError if the region is out of reach."""
        return self.replicator.verify(region, places, self.now_ms())

    def repair(self, region: int, place: Place) -> Inquiry:
        """Take over a key from a region; CommandError if the region is out of reach."""
        return self.replicator.repair(region, place, self.now_ms())

    def remove_member(self, region: int, *, force: bool) -> None:
        """Remove a region from the cluster; CommandError if it is no member or out of reach."""
        self.replicator.remove(region, force=force)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
