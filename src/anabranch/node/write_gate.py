"""When clients may write in this region, as far as other regions matter.

Writes are refused in a new region that lacks the data of the others, while a full sync is under way
(``serve-while-joining``), and while too few regions keep up (``min-regions-to-write``). While the
clock differs too much, no IDs are made from it (``clock-skew-action``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from anabranch.metrics.peers import PeerFigures
from anabranch.node.identity import forget_newcomer, is_newcomer, write_newcomer
from anabranch.oplog.storage import Storage
from anabranch.region.region import Region
from anabranch.replication.replicator import Replicator

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


class WriteGate:
    """Refuses writes of clients, or accepts them again. Call :meth:`update` as time passes."""

    def __init__(
        self,
        region: Region,
        peers: Callable[[], list[PeerFigures]],
        report_event: Callable[..., None],
    ) -> None:
        """``peers`` returns figures of all other regions."""
        self._region = region
        self._settings = region.settings
        self._peers = peers
        self._report_event = report_event
        self._storage: Storage
        self._is_joining = False
        self._lacks_regions = False
        self.is_newcomer = False
        """Whether this region refuses writes because it lacks the data of the others."""

    def open(self, storage: Storage, *, is_new: bool) -> None:
        """The region starts; ``is_new`` if it belongs to no cluster. Raises :class:`OSError`."""
        self._storage = storage
        if is_new:
            write_newcomer(storage)
        if is_newcomer(storage):
            self.is_newcomer = True
            self._region.dispatcher.refuse_writes("newcomer", IS_NEWCOMER)

    def update(self, replicator: Replicator) -> None:
        """Check all conditions, and refuse or accept writes."""
        self._judge_newcomer(replicator)
        self._judge_joining(replicator)
        self.judge_regions()
        self._judge_clock(replicator)

    def _judge_newcomer(self, replicator: Replicator) -> None:
        """Accept writes when all data of some other region is applied.

        All effects of former epochs of this region that other members have must be applied, too:
        one member may have fewer than another (:mod:`anabranch.replication.former_epochs`).
        """
        if self.is_newcomer and replicator.caught_up and not replicator.former_epochs_at:
            with suppress(OSError):  # then the next call tries again
                forget_newcomer(self._storage)
                self.is_newcomer = False
                self._region.dispatcher.allow_writes("newcomer")
                self._report_event("takes_writes")

    def awaited_by_newcomer(self, replicator: Replicator, joining_from: object) -> str:
        """What a newcomer waits for before it accepts writes; empty for other regions."""
        if not self.is_newcomer:
            return ""
        if not self._region.replica.cluster_id:
            return f"a member that admits it: {replicator.entry or self._settings.join}"
        if joining_from:
            return f"the full sync from region {joining_from}"
        if not replicator.caught_up:
            return "the data of a member that it reaches"
        regions = ", ".join(map(str, replicator.former_epochs_at))
        return f"effects of its former epochs that these regions may have: {regions}"

    def _judge_joining(self, replicator: Replicator) -> None:
        """Refuse or accept writes by ``serve-while-joining``."""
        serves = self._settings.serve_while_joining or not replicator.is_joining
        if serves == self._is_joining:
            self._is_joining = not serves
            if serves:
                self._region.dispatcher.allow_writes("joining")
            else:
                self._region.dispatcher.refuse_writes("joining", IS_JOINING)

    def good_regions(self) -> int:
        """How many other regions are connected and lag by no more than ``min-regions-max-lag``."""
        lag_max_s = self._settings.min_regions_max_lag / 1000
        return sum(
            peer.connected_ms is not None
            and peer.lag_seconds is not None
            and peer.lag_seconds <= lag_max_s
            for peer in self._peers()
        )

    def judge_regions(self) -> None:
        """Refuse or accept writes by ``min-regions-to-write``."""
        wanted = self._settings.min_regions_to_write
        good = self.good_regions() if wanted else 0
        if self._lacks_regions == (good < wanted):
            return
        self._lacks_regions = good < wanted
        dispatcher, host = self._region.dispatcher, self._region.host
        if self._lacks_regions:
            dispatcher.refuse_writes("regions", NO_REPLICAS)
            host.log("warning", "region.too_few_for_writes", good=good, wanted=wanted)
        else:
            dispatcher.allow_writes("regions")
            host.log("info", "region.enough_for_writes", good=good, wanted=wanted)

    def _judge_clock(self, replicator: Replicator) -> None:
        """Refuse or accept IDs from the own clock by ``clock-skew-action``."""
        error_ms = 0.0
        if self._settings.clock_skew_action == "refuse":
            error_ms = replicator.clock_error()
        is_off = abs(error_ms) > self._settings.max_clock_skew_ms
        ids = self._region.context.ids
        if is_off == bool(ids.refusal):
            return
        ids.begin()
        if is_off:
            ids.refusal = CLOCK_IS_OFF
            self._report_event("clock_refused", ahead_ms=round(error_ms))
        else:
            ids.refusal = ""
            self._report_event("clock_accepted")
