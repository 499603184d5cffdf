"""What is added twice, by retries or by several regions; in small worlds this is known exactly.

A part of I-16 of :mod:`anabranch.simulator.checks`: a region answers a retry with the entry that
stays, as far as it knows. In the end it counts each conflict once, and does not deliver again what
was processed as an entry that went. Likewise I-31 of scheduled entries and dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.effects import kinds
from anabranch.keyspace.replica import region_of
from anabranch.simulator import looking
from anabranch.simulator.record import RunRecord, Violation

if TYPE_CHECKING:
    from anabranch.simulator.machine import Process

DRAINER = b"z"
"""The consumer that has read all groups to their ends."""


def check_answers(process: Process, record: RunRecord, keys: Iterable[bytes]) -> None:
    """Check what a retry would be answered: the smallest ID that any region has given it."""
    vector = process.replica.vector
    streams = looking.streams(process.region.keyspace)
    now_ms = process.exchange.wall_ms()
    for key, stream in streams.items():
        if key not in keys:
            continue
        shown = record.history.shown((0, key), vector)
        tags = shown.all_tags
        for (producer, iid), facts in shown.tags.items():
            found = stream.producers.find(producer, iid, now_ms)
            rivals = [
                each.effect.entry_id
                for each in tags.get((producer, iid), ())
                if any(each is fact or not (each.knew(fact) or fact.knew(each)) for fact in facts)
            ]
            if found is not None and found != min(rivals):
                raise Violation(
                    16,
                    f"region {process.machine.number} answers {producer!r} {iid!r} with {found}, "
                    f"not {min(rivals)}",
                )


def check_count(process: Process, record: RunRecord, keys: Iterable[bytes]) -> None:
    """Check how many conflicts a region counts: one for each acceptance that was removed."""
    vector = process.replica.vector
    lost = sum(len(record.history.shown((0, key), vector).beaten) for key in keys)
    if process.replica.conflicts.total != lost:
        raise Violation(
            16,
            f"region {process.machine.number} counts {process.replica.conflicts.total} conflicts "
            f"of {lost}",
        )


def check_processed(process: Process, record: RunRecord) -> None:
    """Check that nothing was delivered again which was acknowledged as an entry that went."""
    for ((_, key), stays), went in record.history.stands_for.items():
        stream = looking.streams(process.region.keyspace).get(key)
        for name, group in () if stream is None else looking.groups(stream):
            alive = set(group.shared.creations)
            done = [record.acknowledged_under.get((key, name, dot), set()) for dot in went]
            pending = group.pending.lists.get(stays[0])
            for entry in () if pending is None else pending.entries.values():
                if (
                    entry.number == stays[1]
                    and entry.consumer is not None
                    and entry.consumer.name == DRAINER
                    and alive & set().union(*done)
                ):
                    raise Violation(
                        16,
                        f"{name!r} of {key!r} in region {process.machine.number} delivers "
                        f"{stays} again, which was processed as {went}",
                    )


def check_once(process: Process, record: RunRecord) -> None:
    """Check that no entry is there twice, and that regions add only what they have scheduled."""
    for key, stream in looking.streams(process.region.keyspace).items():
        tokens = Counter(entry.token for entry in looking.entries(stream))
        twice = [token for token, count in tokens.items() if count > 1]
        if twice:
            raise Violation(31, f"region {process.machine.number} has {twice} twice in {key!r}")
    if process.replica.removed or process.machine.settings.schedule_takeover:
        return
    for fact in (each for facts in record.history.facts.values() for each in facts):
        rows = fact.effect.rows if isinstance(fact.effect, kinds.AdvanceScheduled) else []
        for _, _, replica_id, _, _, number in rows:
            if number and region_of(replica_id) != region_of(fact.replica_id):
                raise Violation(31, f"{fact} is of an entry that another region has scheduled")
