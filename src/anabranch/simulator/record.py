"""The record of a run outside of all regions: effects that were made, sent and confirmed.

A region may lose its memory and its disk; the record does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from xxhash import xxh3_64_intdigest

from anabranch.effects import kinds
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.oplog.batch import Batch, decode_batch, effects_in, is_local, sent_batch, wire_form
from anabranch.simulator.formulas import History
from anabranch.simulator.timeline import Timeline

Dot = tuple[int, int]

_TRAVELLING = {
    kinds.AcknowledgeRuns: "acknowledgement that travels",
    kinds.Delete: "DEL or expiry",
    kinds.Flush: "FLUSH",
    kinds.DestroyGroup: "DESTROY",
    kinds.CreateGroup: "CREATE",
    kinds.OpenEpoch: "epoch opened",
    kinds.RemoveRegion: "region removed",
}


_RACERS = {
    kinds.AddRun: "XADD",
    kinds.CreateGroup: "CREATE",
    kinds.DestroyGroup: "DESTROY",
    kinds.Delete: "DEL",
    kinds.RemoveNumbers: "removal",
    kinds.AcknowledgeRuns: "acknowledgement",
    kinds.Expire: "EXPIRE",
    kinds.Remember: "IDMP",
}
"""Kinds of which the record counts concurrent pairs on one key."""


class Violation(Exception):
    """An invariant does not hold; ``number`` as in :mod:`anabranch.simulator.checks`."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"I-{number}: {text}")
        self.number = number


def _alarmed(number: int, facts: Mapping[str, object]) -> None:
    raise Violation(1, f"region {number} reports {facts}")


class RunRecord:
    """All effects that were made, sent and confirmed to clients."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.history = History()
        self.on_divergence: Callable[[int, Mapping[str, object]], None] = _alarmed
        """Called with the number of a region that reports a divergence, and the facts."""
        self.lines: list[str] = []
        """The events of the run, one per line."""
        self.reached: Counter[str] = Counter()
        """The situations that the run has reached, and how often."""
        self.promised: dict[int, int] = {}
        """By replica ID, the number up to which writes were confirmed to clients."""
        self._reported: dict[
            int, dict[int, int]
        ] = {}  # by region: the effects that clients have seen
        self.left: dict[int, int] = {}
        """By replica ID, the number up to which effects have left their region."""
        self.acknowledged_under: defaultdict[tuple[bytes, bytes, Dot], set[Dot]] = defaultdict(set)
        """By key, group and entry, the creations under which it was acknowledged by a client."""
        self.has_lost = False
        """Whether effects were lost that clients of their region had seen, but no other region."""
        self._contents: dict[Dot, int] = {}  # hash of the batch, by each of its dots
        self._races: list[tuple[int, int, dict[int, int], str, bytes | None]] = []

    def say(self, who: object, text: str) -> None:
        """Add a line about an event."""
        self.lines.append(f"{self._timeline.now_ms / 1000:9.3f} {who!s:>3} {text}")

    def made(self, data: bytes) -> None:
        """A region has written a batch of its own."""
        if is_local(data):
            return
        batch = decode_batch(data)
        digest = xxh3_64_intdigest(wire_form(data))
        for number in range(batch.first, batch.last + 1):
            dot = batch.replica_id, number
            if self._contents.setdefault(dot, digest) != digest:
                raise Violation(
                    23,
                    f"effect {number} of region {batch.region} in epoch {batch.epoch} was written "
                    "a second time, and the first one has left the region",
                )
        effects = effects_in(batch)
        self.history.read(batch.replica_id, batch.first, batch.dependencies, effects)
        for effect in effects:
            name = _TRAVELLING.get(type(effect))
            if name is not None:
                self.reached[name] += 1
            self._record_concurrent(effect, batch)

    def _record_concurrent(self, effect: kinds.Effect, batch: Batch) -> None:
        """Count concurrent pairs of effects on one key, by their kinds."""
        name = _RACERS.get(type(effect))
        if name is None:
            return
        dependencies = {**batch.dependencies, batch.replica_id: batch.last}
        key = getattr(effect, "key", None)
        for replica_id, number, context, other_name, other_key in self._races[-30:]:
            if (
                other_key == key
                and number > dependencies.get(replica_id, 0)
                and batch.first > context.get(batch.replica_id, 0)
            ):
                pair = " || ".join(sorted((name, other_name)))
                self.reached[pair] += 1
        self._races.append((batch.replica_id, batch.first, dependencies, name, key))

    def arrives(self, raw: bytes) -> None:
        """A region is about to apply a batch of another."""
        head = sent_batch(raw)
        digest = xxh3_64_intdigest(raw)
        for number in range(head.first, head.last + 1):
            if self._contents.get((head.replica_id, number)) != digest:
                raise Violation(
                    23,
                    f"effect {number} of region {region_of(head.replica_id)} in epoch "
                    f"{epoch_of(head.replica_id)} arrives with contents that were changed",
                )

    def leaves(self, replica_id: int, last: int) -> None:
        """Note that effects up to a number were sent to another region."""
        self.left[replica_id] = max(last, self.left.get(replica_id, 0))

    def replica_ids(self) -> list[int]:
        """All replica IDs with effects."""
        return sorted({replica_id for replica_id, _ in self._contents})

    def lost(self, replica_id: int, after: int) -> None:
        """A region has lost its newest effects; those that had not left the region are gone."""
        gone_after = max(after, self.left.get(replica_id, 0))
        lost = [dot for dot in self._contents if dot[0] == replica_id and dot[1] > after]
        self.has_lost = self.has_lost or bool(lost)
        gone = {dot for dot in lost if dot[1] > gone_after}
        for dot in gone:
            del self._contents[dot]
        self.history.drop_after(replica_id, gone_after)
        for place in [each for each in self.acknowledged_under if each[2] in gone]:
            del self.acknowledged_under[place]  # its number is given again

    def excuse(self, replica_id: int, upto: int) -> None:
        """Confirmed effects after these numbers may be lost, as ``appendfsync`` permits."""
        if self.promised.get(replica_id, 0) > upto:
            self.promised[replica_id] = upto

    def was_reported(self, region: int, upto: Mapping[int, int]) -> None:
        """A client of a region has received a reply that may report these effects."""
        reported = self._reported.setdefault(region, {})
        for replica_id, number in upto.items():
            if number > reported.get(replica_id, 0):
                reported[replica_id] = number

    def recovered(self, region: int, vector: Mapping[int, int], *, is_excused: bool) -> None:
        """A region has these effects after a crash; they must include all that clients have seen.

        ``is_excused``: some may be lost: ``appendfsync`` permits it, or the disk was damaged.
        """
        reported = self._reported.pop(region, {})
        for replica_id, number in reported.items():
            if number > vector.get(replica_id, 0) and not is_excused:
                raise Violation(
                    24,
                    f"replies of region {region} reported effect {number} of replica ID "
                    f"{replica_id}; after a crash {vector.get(replica_id, 0)} effects are left",
                )

    def promise(self, replica_id: int, number: int) -> None:
        """Effects up to this number were confirmed to a client."""
        self.promised[replica_id] = max(number, self.promised.get(replica_id, 0))
