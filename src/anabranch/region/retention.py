"""Background work for the policies of streams: what is too old, or too much, is removed.

``Policies.retention`` of a database says when to look at which key: after a change
(:meth:`anabranch.stream.retained.Retained.look`), or when entries come of age. What is removed then
depends on facts alone. A look removes a limited number of nodes; a stream of which more is to be
removed is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.effects import kinds
from anabranch.stream.retention import plan_retention
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.keyspace.database import Database
    from anabranch.region.state import RegionState


class Retaining:
    """Looks at the streams that are due."""

    def __init__(self, region: RegionState) -> None:
        self._region = region

    def begin_if_due(self, now_ms: int) -> None:
        """Do what is due, a slice now and the rest later.

        A region whose clock is known to be wrong removes nothing.
        """
        region = self._region
        if region.context.ids.refusal:
            return
        databases = region.keyspace.databases
        is_due = any(each.policies.retention.first_due(now_ms) is not None for each in databases)
        if is_due and self._go_on():
            region.scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        """A :data:`anabranch.scheduling.Work`."""
        region = self._region
        if region.scheduler.is_exclusive:
            return True
        if region.dispatcher.write_refusal is not None or region.dispatcher.pause_until_ms:
            return False  # nothing may change: what is due is looked at again
        now_ms = region.clock.now_us() // 1000
        region.context.enter(region.nobody, now_ms)
        for database in region.keyspace.databases:
            deadlines = database.policies.retention
            while (key := deadlines.first_due(now_ms)) is not None:
                self._look(database, key, now_ms)
                if region.scheduler.is_over():
                    return True
        return False

    def _look(self, database: Database, key: bytes, now_ms: int) -> None:
        """Look at one stream; afterwards it is due later, or after a change, or again at once."""
        deadlines = database.policies.retention
        deadlines.pop(key, None)
        stream = database.values.get(key)
        if type(stream) is not Stream or stream.retained is None:
            return
        plan = plan_retention(stream, stream.retained, now_ms)
        before = stream.length
        region = self._region
        if plan.below:
            region.effects.emit(kinds.Trim(database.index, key, plan.below))
        removed = before - stream.length
        region.stats.policy_trimmed += removed
        region.context.changes += removed
        if removed:
            deadlines[key] = now_ms
        elif plan.next_ms:
            deadlines[key] = plan.next_ms
