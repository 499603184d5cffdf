"""Changed full syncs with correct checksums: refused, or joined as a whole.

    python -m tests.fuzzing.full_syncs --cases 100000

In random histories regions join full syncs. A record of one is changed.
A case fails if anything is raised but a refusal, if what was refused has changed anything, if a
stream breaks its promises afterwards, or if memory runs out.
"""

from __future__ import annotations

import io
import random
from functools import lru_cache
from typing import Any, Final, NamedTuple

import hiredis
import msgspec

from anabranch.oplog.errors import LogError
from anabranch.oplog.file_kind import HEADER_BYTES
from anabranch.oplog.snapshot import Contents, Snapshot, framed, records_in
from anabranch.scheduling import in_one_go
from tests.fuzzing.batches import HISTORIES, Moment, Target
from tests.fuzzing.mutations import changed_bytes, changed_tree
from tests.fuzzing.running import Outcomes, program
from tests.support.mesh import Node, Unit

__all__ = ["run"]

CASES_A_STATE: Final = 100
STATES_A_HISTORY: Final = 4
UNCHANGED_EVERY: Final = 10

_encode: Final = msgspec.msgpack.Encoder().encode


class Arrival(NamedTuple):
    """A region, and a full sync that it is to join."""

    moment: Moment
    header: bytes
    records: list[list[Any]]
    partial: bool


@lru_cache(1)
def arrivals(seed: int) -> list[Arrival]:
    """Where a history comes to."""
    found: list[Arrival] = []
    taken = Node.join

    def join(self: Node, snapshot: bytes, sender: Node, *, partial: bool = False) -> None:
        ours = Snapshot(self.region.keyspace, Contents(1)).whole()
        none = Unit(0, 0, 0, {}, ())
        members = dict(self.replica.members)
        moment = Moment(self.number, self.settings, self.clock.us, ours, members, none)
        records = [record for _, _, record in records_in(io.BytesIO(snapshot), "full sync")][1:]
        found.append(Arrival(moment, snapshot[:HEADER_BYTES], records, partial))
        taken(self, snapshot, sender, partial=partial)

    while not found:
        Node.join = join  # type: ignore[method-assign]
        try:
            HISTORIES[seed % len(HISTORIES)](seed).run()
        except (AssertionError, hiredis.ReplyError):  # for histories to find
            found.clear()
        finally:
            Node.join = taken  # type: ignore[method-assign]
        seed += 1
    return found


def changed(rng: random.Random, arrival: Arrival) -> bytes:
    """The changed snapshot of a full sync."""
    records = list(arrival.records)
    at = rng.randrange(len(records))
    dice = rng.random()
    if dice < 0.8:
        records[at] = changed_tree(rng, records[at])
    elif dice < 0.85:
        rng.shuffle(records)
    elif dice < 0.9:
        del records[at]
    elif dice < 0.95:
        records.insert(at, rng.choice(records))
    bodies = [_encode(record) for record in records]
    if dice >= 0.95:
        bodies[at] = changed_bytes(rng, bodies[at])
    bodies.append(_encode([8, len(bodies)]))
    return arrival.header + b"".join(map(framed, bodies))


def _join(target: Target, snapshot: bytes, *, partial: bool) -> str:
    merging = target.region.merging
    try:
        theirs = in_one_go(merging.loading(io.BytesIO(snapshot), "full sync"))
    except LogError:
        return "refused"
    merging.join(theirs, "full sync", partial=partial)
    return "joined"


def run(cases: range, seed: int, outcomes: Outcomes) -> None:
    """Some cases."""
    target: Target | None = None
    block = -1
    arrival: Arrival | None = None
    for case in cases:
        if arrival is None or block != case // CASES_A_STATE:
            block = case // CASES_A_STATE
            some = arrivals(seed * 1_000_000 + block // STATES_A_HISTORY)
            arrival = random.Random(f"{seed} {block}").choice(some)
            target = None
        rng = random.Random(f"{seed} {case}")
        try:
            snapshot = changed(rng, arrival)
            if target is None:
                target = Target(arrival.moment)
            outcome = _join(target, snapshot, partial=arrival.partial)
            if outcome == "joined":
                target.look(closely=rng.random() < 0.2)
                target = None
            elif case % UNCHANGED_EVERY == 0:
                assert target.whole_snapshot() == target.before, "something was changed"
            outcomes.counts[outcome] += 1
        except Exception as problem:
            outcomes.failed(case, problem)
            target = None


if __name__ == "__main__":
    raise SystemExit(program(run, __doc__))
