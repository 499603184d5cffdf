"""What retried messages come to, once all regions agree; in small worlds this is known exactly.

A part of I-16 of :mod:`anabranch.simulator.checks`: all regions answer a retry with the entry that
stays, count each conflict once, and do not deliver again what was processed as an entry that went.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.simulator import looking
from anabranch.simulator.record import Record, Violation

if TYPE_CHECKING:
    from anabranch.simulator.process import Process

DRAINER = b"z"
"""The consumer that has read all groups to their ends."""


def check_answers(process: Process, record: Record, keys: Iterable[bytes]) -> None:
    """Check what a retry would be answered, and how many conflicts the region counts."""
    vector = process.replica.vector
    streams = looking.streams(process.region.keyspace)
    now_ms = process.exchange.wall_ms()
    lost = 0
    where = f"region {process.machine.number}"
    for key in keys:
        shown = record.history.shown((0, key), vector)
        lost += len(shown.beaten)
        stream = streams.get(key)
        for (producer, iid), facts in shown.tags.items():
            found = None if stream is None else stream.producers.find(producer, iid, now_ms)
            if found is not None and found != shown.answer(facts):
                raise Violation(
                    16,
                    f"{where} answers {producer!r} {iid!r} with {found}, not {shown.answer(facts)}",
                )
    if process.replica.conflicts.total != lost:
        raise Violation(16, f"{where} counts {process.replica.conflicts.total} conflicts of {lost}")


def check_processed(process: Process, record: Record) -> None:
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
