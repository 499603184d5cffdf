"""This region among others: the replicator with the connections and the timer of a server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from anabranch.errors import ConfigError
from anabranch.keyspace.replica import Dot, Member, includes, region_of
from anabranch.keyspace.touches import Place
from anabranch.oplog.log import OpLog
from anabranch.replication.held import HeldTagWatch
from anabranch.replication.inquiry import Inquiry, Verdict
from anabranch.replication.interface import ReplicationConfig
from anabranch.replication.local import RegionLocal
from anabranch.replication.marks import MarkWatch
from anabranch.replication.peer import PeerFigures
from anabranch.replication.replicator import Replicator
from anabranch.replication.sealing import stretched
from anabranch.server.certificates import Certificates
from anabranch.server.gossip import Fault, Gossip
from anabranch.server.identity import (
    forget_newcomer,
    is_newcomer,
    note_newcomer,
    note_removal,
    note_set_back,
    remember,
    removal_noted,
    set_back_noted,
)
from anabranch.server.lifetime import CLEAN, Lifetime, begin_life
from anabranch.server.logs import emit

if TYPE_CHECKING:
    from anabranch.oplog.storage import Storage
    from anabranch.server.app import Server
    from anabranch.server.tls import RegionTls

__all__ = ["Regions"]

TICK_S: Final = 0.05

COMPARE_S: Final = 0.01
"""Between slices of the work that comparing digests takes, while there is some."""

NO_REPLICAS: Final = "NOREPLICAS Not enough good replicas to write."
IS_NEWCOMER: Final = (
    "READONLY This region is new to its cluster, or has lost its data: it takes writes when it has "
    "got what the others have"
)

IS_JOINING: Final = (
    "READONLY This region is getting the whole state of another one: it takes writes when it has it"
)

CLOCK_IS_OFF: Final = (
    "CLOCKSKEW The clock of this region differs too much from those of the others: "
    "IDs are not made from it, give milliseconds or write to another region"
)

HAS_NO_CLUSTER: Final = (
    "this region belongs to no cluster: give the first region --cluster-create yes, and every "
    "other one --join host:port with the gossip address of a member"
)

_QUIET: Final = frozenset(
    {
        *("caught_up", "certificate_renewed", "clock_accepted", "entered", "fewer_held_tags"),
        *("fewer_marks", "idmp_conflict"),
        *("join_resumed", "joined", "not_full", "reachable", "relay", "relay_ended"),
        *("repaired", "state_joined", "takes_writes"),
    }
)
"""Events that are no reason to worry."""


class Regions(RegionLocal):
    """One server's part in the cluster: its view for the replicator, its connections, its timer."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.region, server.durability)
        self._server = server
        self._settings = server.settings
        self._durability = server.durability
        self._lifetime: Lifetime
        self._tick: asyncio.TimerHandle | None = None
        self._compares = False  # the next slice of that is due
        self._told = False  # the replicator is to hear of progress in the next turn of the loop
        self._confirmed: list[tuple[int, int]] = []  # by the other regions, when last looked
        # What some disk may lack, and since when:
        self._unstable: tuple[dict[int, int], float] = ({}, 0.0)
        self._marks = MarkWatch()
        self._held_tags = HeldTagWatch()
        self._is_waiting = False  # for a state, and takes no writes meanwhile
        self._refusing = False  # writes, because too few regions keep up
        self._certificates: Certificates | None = None
        self._config: ReplicationConfig
        self._secret = ""
        self._is_newcomer = False  # and takes no writes yet
        self._was_removed = ""  # why others do not listen to us any more
        self._was_set_back = ""  # how they know
        self._began: dict[int, int] = {}  # how many effects of this region there were at the start
        self.replicator: Replicator
        self.gossip: Gossip

    # -- life ---------------------------------------------------------------------------------

    def open(self, storage: Storage, log: OpLog, *, was_cut: bool) -> None:
        """What was kept is recovered, and the log can be written.

        Raises :class:`OSError`; :class:`ConfigError` if there is no cluster to belong to.

        ``was_cut``: recovery has cut off the end of the log.
        """
        settings = self._settings
        if not (self.replica.cluster_id or settings.cluster_create or settings.join):
            raise ConfigError(HAS_NO_CLUSTER)
        self.open_log(storage, log)
        self._lifetime = Lifetime(storage)
        self._durability.on_taken = self.taken
        self._durability.on_progress = self._progress
        remember(storage, settings.region_id, self._self().name, self.gossip_port)
        self._was_removed = removal_noted(storage)
        if (noted := set_back_noted(storage)) is not None:
            self._was_set_back = noted[0]
        region = settings.region_id
        self._began = {o: n for o, n in self.replica.vector.items() if region_of(o) == region}
        begin_life(self, self._lifetime, settings.appendfsync, was_cut=was_cut)
        if not self.replica.cluster_id and settings.cluster_create:
            cluster_id = secrets.token_hex(16)
            self.found(cluster_id, self._self())
            emit("info", "region.cluster_created", cluster=cluster_id, region=settings.region_id)
        elif not self.replica.cluster_id:
            note_newcomer(storage)
        if is_newcomer(storage):
            self._is_newcomer = True
            self._region.dispatcher.refuse_writes("newcomer", IS_NEWCOMER)

    def _self(self) -> Member:
        settings = self._settings
        return Member(
            settings.region_name or f"region{settings.region_id}",
            settings.gossip_announce or "127.0.0.1",
            self.gossip_port,
        )

    @property
    def gossip_port(self) -> int:
        """Where other regions find us: like a cluster bus, 10000 above the port for clients."""
        settings = self._settings
        return settings.gossip_port or settings.port + 10000

    async def start(self) -> None:
        """Listen for other regions, and look for them."""
        settings = self._settings
        me = self._self()
        loop = asyncio.get_running_loop()
        if settings.tls_replication:
            self._certificates = Certificates(settings, self.note)
        self.gossip = Gossip(
            loop,
            self._tls,
            self._server.admission,
            lambda: settings.handshake_timeout,
            self._server.region.scheduler,
        )
        self.gossip.on_tls_refused = self._tls_refused
        config = ReplicationConfig(
            name=me.name,
            host=me.host,
            port=me.port,
            run_id=self._server.host.run_id,
            wall_ms=lambda: self._server.clock.now_us() // 1000,
        )
        self._config = config
        self.settings_changed()
        self.replicator = Replicator(self, self.gossip, config, secrets.SystemRandom())
        self._server.buffers.others.append(self.replicator.waiting_bytes)
        self.gossip.on_heard = self._heard
        if self._was_removed:
            super().expelled(self._was_removed)
        if self._was_set_back:
            self.replicator.set_back(self._was_set_back)
        await self.gossip.open(self.replicator, settings.gossip_bind, self.gossip_port)
        self._pulse()

    def settings_changed(self) -> None:
        """Take over what can be changed at any time."""
        self._config.host = self._self().host
        self._config.join = [_address(text) for text in self._settings.join.split()]
        self._config.window_bytes = self._settings.gossip_window
        self._origins.keep_recent(self._settings.region_cache_bytes)
        self._config.max_clock_skew_ms = self._settings.max_clock_skew_ms
        self._config.digest_interval_ms = self._settings.digest_interval * 1000
        self._config.expire_after_ms = self._settings.region_expire_after * 1000
        self._config.hold_bytes = self._settings.gossip_hold_bytes
        secret = self._settings.gossip_secret
        if secret != self._secret:
            self._secret = secret
            self._config.secret = stretched(secret)

    def _pulse(self) -> None:
        self._tick = asyncio.get_running_loop().call_later(TICK_S, self._pulse)
        if self._durability.broken:
            return
        now_ms = self.gossip.now_ms()
        self.replicator.tick(now_ms)
        self._compare_on()
        self._heard()
        self._watch_stability()
        certificates = self._certificates
        if certificates is not None and certificates.look(now_ms, self._wall_s()):
            self.gossip.tls = certificates.tls
        self._judge_newcomer()
        self._judge_joining()
        self.judge_writes()
        self.judge_clock()
        self._server.flush_pending()
        self._durability.end_turn()

    def _compare_on(self) -> None:
        if self.replicator.is_comparing and not self._compares:
            self._compares = True
            asyncio.get_running_loop().call_later(COMPARE_S, self._compare)

    def _compare(self) -> None:
        self._compares = False
        if self._tick is not None and not self._durability.broken:
            self.replicator.compare(self.gossip.now_ms())
            self._compare_on()

    # -- certificates -------------------------------------------------------------------------

    @property
    def _tls(self) -> RegionTls | None:
        return None if self._certificates is None else self._certificates.tls

    def _wall_s(self) -> float:
        return self._server.clock.now_us() / 1_000_000

    def reload_certificates(self) -> None:
        """Take over changed settings for connections to come; ConfigError if they are wrong."""
        if self._certificates is not None:
            self._certificates.load()
            self.gossip.tls = self._certificates.tls

    def _tls_refused(self, address: str, reason: str) -> None:
        self.note("tls_refused", address=address, reason=reason)

    def expiries(self) -> dict[int, int]:
        """When known certificates end, in seconds since 1970, by region; ours too."""
        found = self.gossip.expiries()
        if self._tls is not None and self._tls.expires is not None:
            found[self.replica.region] = self._tls.expires
        return found

    def stop(self, *, farewell: bool = True) -> None:
        """End, and tell the others; what is to be kept was settled before."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
            if farewell:
                self.replicator.stop()
            self.gossip.shut_down()

    def policy_changed(self) -> None:
        """``appendfsync`` is another one: note what an end means from now on.

        All is synced before, or a stricter policy would promise what the looser one did not keep.
        Raises :class:`OSError`.
        """
        self._durability.settle()
        self._lifetime.note(self._settings.appendfsync)

    def ended_well(self) -> None:
        """Everything is on the disk, and nothing will be written any more."""
        with suppress(OSError):
            self._lifetime.note(CLEAN)

    # -- the log ------------------------------------------------------------------------------

    def _progress(self) -> None:
        """More is written, or on the disk."""
        self.synced()
        if not self._told and self._tick is not None:
            self._told = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._told = False
        if self._tick is not None:
            self.replicator.appended(self.gossip.now_ms())
            self._go_on_later()

    def _heard(self) -> None:
        """Others may have told that they have more of ours: answer who waits for that."""
        confirmed = self.replicator.confirmed()
        if confirmed != self._confirmed:
            self._confirmed = confirmed
            self._region.waking.safer()
            self._server.flush_pending()
        if self._region.context.inquiries:
            self._region.waking.found_out()
            self._server.flush_pending()
        self._go_on_later()

    def _go_on_later(self) -> None:
        """What did not fit into a slice has turns to come."""
        if self.replicator.is_behind:
            self._region.scheduler.add(self._go_on)

    def _go_on(self) -> bool:
        """Do more of it; whether some is left. A :data:`anabranch.scheduling.Work`."""
        if self._tick is None:
            return False
        self.replicator.go_on(self.gossip.now_ms())
        return self.replicator.is_behind

    def _watch_stability(self) -> None:
        awaited, _ = self._unstable
        now_ms = self.gossip.now_ms()
        if includes(self.replica.stable, awaited):
            self._unstable = dict(self.replica.vector), now_ms
        replica = self.replica
        most = self._settings.max_unstable_marks
        self._marks.look(replica.unstable_marks, replica.vector, now_ms, most, self._note_marks)
        most = self._settings.max_held_tags
        self._held_tags.look(replica.conflicts, now_ms, most, self.note)

    def _note_marks(self, event: str, marks: int) -> None:
        self.note(event, marks=marks, held_back_by=",".join(map(str, self._late())))

    def _late(self) -> list[int]:
        """The regions that hold back the oldest mark; none if there is no mark."""
        return self.holding_back(dict([oldest])) if (oldest := self.replica.oldest_mark) else []

    def good_regions(self) -> int:
        """How many other regions are connected and lag by no more than ``min-regions-max-lag``."""
        lag_max_s = self._settings.min_regions_max_lag / 1000
        return sum(
            peer.connected_ms is not None
            and peer.lag_seconds is not None
            and peer.lag_seconds <= lag_max_s
            for peer in self.peers()
        )

    def _judge_newcomer(self) -> None:
        """Take writes as soon as everything has been applied that some other region had."""
        if self._is_newcomer and self.replicator.caught_up:
            with suppress(OSError):  # then it is looked at again
                forget_newcomer(self._storage)
                self._is_newcomer = False
                self._region.dispatcher.allow_writes("newcomer")
                self.note("takes_writes")

    def _judge_joining(self) -> None:
        """Refuse writes, or not any more, by ``serve-while-joining``."""
        serves = self._settings.serve_while_joining or not self.replicator.is_joining
        if serves == self._is_waiting:
            self._is_waiting = not serves
            if serves:
                self._region.dispatcher.allow_writes("joining")
            else:
                self._region.dispatcher.refuse_writes("joining", IS_JOINING)

    def retention_changed(self) -> None:
        """``mark-retention`` is another one: let go of what was kept in vain."""
        self._region.keyspace.forget_stable(
            self.replica.stable, keeps_marks=self._settings.mark_retention == "forever"
        )

    def listen_anew(self) -> None:
        """``gossip-bind`` is another one; ConfigError if that is impossible."""
        self.gossip.move(self._settings.gossip_bind, self.gossip_port)

    def judge_writes(self) -> None:
        """Refuse writes, or not any more, by ``min-regions-to-write``."""
        wanted = self._settings.min_regions_to_write
        good = self.good_regions() if wanted else 0
        if self._refusing == (good < wanted):
            return
        self._refusing = good < wanted
        dispatcher = self._region.dispatcher
        if self._refusing:
            dispatcher.refuse_writes("regions", NO_REPLICAS)
            emit("warning", "region.too_few_for_writes", good=good, wanted=wanted)
        else:
            dispatcher.allow_writes("regions")
            emit("info", "region.enough_for_writes", good=good, wanted=wanted)

    def judge_clock(self) -> None:
        """Make no IDs from our clock while it is off, or do so again, by ``clock-skew-action``."""
        error_ms = 0.0
        if self._settings.clock_skew_action == "refuse":
            error_ms = self.replicator.clock_error()
        is_off = abs(error_ms) > self._settings.max_clock_skew_ms
        context = self._region.context
        if is_off == bool(context.clock_refusal):
            return
        if is_off:
            context.clock_refusal = CLOCK_IS_OFF
            self.note("clock_refused", ahead_ms=round(error_ms))
        else:
            context.clock_refusal = ""
            self.note("clock_accepted")

    def expelled(self, reason: str) -> None:
        """See :class:`Local`. A restart remembers it."""
        if not self._was_removed:
            self._was_removed = reason
            with suppress(OSError):  # then the others tell it again
                note_removal(self._storage, reason)
        super().expelled(reason)

    def set_back(self, reason: str) -> None:
        """See :class:`Local`. A restart remembers it, and ``anabranch region salvage`` reads it."""
        if not self._was_set_back:
            self._was_set_back = reason
            stable = self.replica.stable
            agreed = {o: min(n, stable.get(o, 0)) for o, n in self._began.items()}
            with suppress(OSError):  # then the others tell it again
                note_set_back(self._storage, reason, agreed)
        super().set_back(reason)

    def after_effects(self) -> None:
        """Who was waiting gets an answer."""
        self._server.flush_pending()

    def note(self, event: str, **facts: object) -> None:
        """See :class:`Local`."""
        level = "info" if event in _QUIET else "warning"
        emit(level, f"region.{event}", **facts)  # type: ignore[arg-type]  # none is an exception
        super().note(event, **facts)
        self._server.flush_pending()

    # -- for commands -------------------------------------------------------------------------

    def peers(self) -> list[PeerFigures]:
        """Figures of all other regions."""
        return self.replicator.peers(self.gossip.now_ms())

    def facts(self) -> dict[str, int | float | str]:
        """Figures of this region for INFO."""
        now_ms = self.gossip.now_ms()
        awaited, since_ms = self._unstable
        is_stable = includes(self.replica.stable, awaited)
        return {
            **self.replicator.facts(now_ms),
            "unstable_seconds": 0.0 if is_stable else (now_ms - since_ms) / 1000,
            "unstable_marks": len(self.replica.unstable_marks),
            "oldest_mark_seconds": self._marks.oldest_ms(self.replica.unstable_marks, now_ms)
            / 1000,
            "oldest_mark_held_back_by": ",".join(map(str, self._late())),
            "good_regions": self.good_regions(),
            **self._expiry_facts(),
        }

    def _expiry_facts(self) -> dict[str, int | float | str]:
        if self._tls is None:
            return {}
        if self._tls.expires is None:
            return {"tls_server_cert_expires_in_seconds": "unknown"}
        return {"tls_server_cert_expires_in_seconds": int(self._tls.expires - self._wall_s())}

    def feature_levels(self) -> dict[int, int]:
        """What each member understands, this region included."""
        return self.replicator.feature_levels()

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members, maybe this one, whose disks may lack some of these effects."""
        return self.replicator.holding_back(effects)

    def acknowledged(self, effect: Dot) -> tuple[int, int]:
        """How many other regions have applied an effect of ours, and have it on the disk."""
        origin, number = effect
        return self.replicator.acknowledged(number, origin)

    def verify(self, region: int, places: list[Place]) -> Verdict:
        """Compare keys, or all if none are named; CommandError if the region is out of reach."""
        return self.replicator.verify(region, places, self.gossip.now_ms())

    def repair(self, region: int, place: Place) -> Inquiry:
        """Take over a key from a region; CommandError likewise."""
        return self.replicator.repair(region, place, self.gossip.now_ms())

    def remove_member(self, region: int, *, force: bool) -> None:
        """Remove a region from the cluster; CommandError if it is none, or out of reach."""
        self.replicator.remove(region, force=force)

    @property
    def faults(self) -> Mapping[int, Fault]:
        """What is done to links on purpose, by region."""
        return self.gossip.faults

    def fault(self, region: int) -> Fault:
        """The same for a region, to be changed."""
        return self.gossip.fault(region)

    def faults_changed(self) -> None:
        """Let go of what is not held back any more."""
        self.gossip.released()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
