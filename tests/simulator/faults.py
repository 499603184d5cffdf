"""Mistakes built into the product, each a broken rule, to see whether the simulator notices.

Each is a patch and a place to look: which faults bring it to light, and within how many seeds that
must happen. A mistake that is not found is a hole in the checks, or in what the runs come to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest

from anabranch.commands import stream_add
from anabranch.effects import join, kinds, merge, merge_stream
from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.snapshot import Snapshot
from anabranch.replication import causal, vectors
from anabranch.replication.local import RegionLocal
from anabranch.replication.receiving import Receiver
from anabranch.replication.replicator import Replicator
from anabranch.replication.vectors import RowTable
from anabranch.server.lifetime import Lifetime
from anabranch.stream import joining, regional_id
from anabranch.stream.shared_group import Run, SharedGroup
from anabranch.stream.shared_log import SharedLog

__all__ = ["MISTAKES", "STUBBORN", "Mistake"]

Patch = pytest.MonkeyPatch

MERGE: Final[dict[Any, Any]] = merge.MERGE


@dataclass(frozen=True)
class Mistake:
    """One broken rule."""

    name: str
    build_in: Callable[[Patch], None]
    within: int
    """So many seeds find it."""
    faults: tuple[str, ...] = ("partition",)
    """What has to go wrong for it to matter."""
    is_quick: bool = False
    """Whether every run of the tests tries it."""


# -- forgetting -----------------------------------------------------------------------------------


def marks_at_once(patch: Patch) -> None:
    patch.setattr(RowTable, "stable", lambda self, vector, durable, membership: dict(vector))


def _rows_as(patch: Patch, change: Callable[[Any], dict[str, Any]]) -> None:
    note = RowTable.note

    def noted(self: RowTable, row: Any, now_ms: float) -> None:
        note(self, msgspec.structs.replace(row, **change(row)), now_ms)

    patch.setattr(RowTable, "note", noted)


def rows_not_durable(patch: Patch) -> None:
    _rows_as(patch, lambda row: {"durable": row.applied})


def have_ignored(patch: Patch) -> None:
    _rows_as(patch, lambda row: {"have": {}})


def former_rows_count(patch: Patch) -> None:
    patch.setattr(vectors, "_has_begun", lambda vector, origins: True)


# -- removals -------------------------------------------------------------------------------------


def del_spares_unseen_groups(patch: Patch) -> None:
    delete = MERGE[kinds.Delete]

    def deleted(keyspace: Keyspace, effect: Any) -> None:
        effect = copy.copy(effect)
        effect.expired = True
        delete(keyspace, effect)

    patch.setitem(MERGE, kinds.Delete, deleted)


def del_takes_whatever_is_there(patch: Patch) -> None:
    delete = MERGE[kinds.Delete]

    def deleted(keyspace: Keyspace, effect: Any) -> None:
        replica = keyspace.replica
        assert replica is not None
        replica.context = dict(replica.vector)
        delete(keyspace, effect)

    patch.setitem(MERGE, kinds.Delete, deleted)


def destroy_spares_unseen(patch: Patch) -> None:
    def destroyed(keyspace: Keyspace, effect: Any) -> None:
        replica = keyspace.replica
        assert replica is not None
        stream = merge_stream.shared_stream(keyspace, effect.db, effect.key)
        group: Any = stream.groups.get(effect.group)
        if group is not None:
            for dot in [dot for dot in group.creations if replica.knows(dot)]:
                group.forget_creation(dot)
            if not group.creations:
                del stream.groups[effect.group]
        merge_stream.settle(keyspace, effect.db, effect.key, stream)

    patch.setitem(MERGE, kinds.DestroyGroup, destroyed)


def expiry_last_wins(patch: Patch) -> None:
    expire = MERGE[kinds.Expire]

    def expired(keyspace: Keyspace, effect: Any) -> None:
        stream = merge_stream.shared_stream(keyspace, effect.db, effect.key)
        merge_stream.parts(stream).deadlines.clear()
        expire(keyspace, effect)

    patch.setitem(MERGE, kinds.Expire, expired)


def max_deleted_not_kept(patch: Patch) -> None:
    patch.setattr(SharedLog, "note_deleted", lambda self, number, entry_id: None)


# -- groups ---------------------------------------------------------------------------------------


def ack_for_any_creation(patch: Patch) -> None:
    settle = SharedGroup.settle

    def settled(self: SharedGroup, creations: Any, *rest: Any, **named: Any) -> None:
        settle(self, list(self.creations), *rest, **named)

    patch.setattr(SharedGroup, "settle", settled)


def runs_from_the_start(patch: Patch) -> None:
    extend = SharedGroup._extend_runs

    def extended(runs: list[Run], numbers: list[int]) -> None:
        was_empty = not runs
        extend(runs, numbers)
        if was_empty:
            runs[0].low = runs[0].sent = 0

    patch.setattr(SharedGroup, "_extend_runs", staticmethod(extended))


def given_up_is_acknowledged(patch: Patch) -> None:
    patch.setattr(SharedGroup, "discard_consumer", lambda self, name: self.remove_consumer(name))


def setid_leaves_runs_open(patch: Patch) -> None:
    patch.setattr(SharedGroup, "_close_runs", lambda self: None)


def open_entries_are_acknowledged(patch: Patch) -> None:
    patch.setattr(SharedGroup, "_first_open", lambda self, origin, log, run: None)


def acknowledged_stays_pending(patch: Patch) -> None:
    patch.setattr(SharedGroup, "drop_between", lambda self, origin, low, high: None)


def creation_forgets_marks(patch: Patch) -> None:
    create = MERGE[kinds.CreateGroup]

    def created(keyspace: Keyspace, effect: Any) -> None:
        merge_stream.parts(
            merge_stream.shared_stream(keyspace, effect.db, effect.key)
        ).marks.clear()
        create(keyspace, effect)

    patch.setitem(MERGE, kinds.CreateGroup, created)


# -- IDs ------------------------------------------------------------------------------------------


def one_sequence_class(patch: Patch) -> None:
    patch.setattr(regional_id, "next_sequence", lambda own, after: after + 1)


def ids_by_the_clock(patch: Patch) -> None:
    made = regional_id.automatic_id
    patch.setattr(stream_add, "automatic_id", lambda own, now_ms, last: made(own, now_ms, 0))


def no_collapse(patch: Patch) -> None:
    for module in (merge_stream, join):
        patch.setattr(module, "note_collapses", lambda *arguments: None)


# -- exchange -------------------------------------------------------------------------------------


def no_causal_wait(patch: Patch) -> None:
    patch.setattr(causal, "_lacking", lambda unit, vector: iter(()))


def own_before_synced(patch: Patch) -> None:
    patch.setattr(RegionLocal, "_visible", lambda self: self._journal.log.end)


def former_lives_kept(patch: Patch) -> None:
    patch.setattr(Receiver, "forget_former_lives", lambda self: None)


def former_life_not_told(patch: Patch) -> None:
    patch.setattr(Replicator, "_known_epoch", lambda self, theirs: -1)


def epoch_kept(patch: Patch) -> None:
    patch.setattr(Lifetime, "may_go_on", lambda self: True)


# -- states ---------------------------------------------------------------------------------------


def join_drops(patch: Patch) -> None:
    logs = joining._join_logs
    patch.setattr(
        joining, "_join_logs", lambda ours, theirs, our, their: logs(ours, theirs, our, our)
    )


def join_resurrects(patch: Patch) -> None:
    def joined(ours: SharedLog, theirs: SharedLog, our: int, their: int) -> None:
        theirs.remove_numbered(0, our)
        ours.adopt(theirs)

    patch.setattr(joining, "_join_logs", joined)


def snapshot_freezes_nothing(patch: Patch) -> None:
    patch.setattr(Snapshot, "before", lambda self, effect: None)


MISTAKES: Final = (
    Mistake("marks are forgotten at once", marks_at_once, 5, is_quick=True),
    Mistake("DEL spares groups it has not seen", del_spares_unseen_groups, 5, is_quick=True),
    Mistake("DEL takes whatever is there", del_takes_whatever_is_there, 5, is_quick=True),
    Mistake("DESTROY spares creations it has not seen", destroy_spares_unseen, 5, is_quick=True),
    Mistake("the deadline that comes last wins", expiry_last_wins, 40),
    Mistake("the newest deletion is not kept", max_deleted_not_kept, 5, is_quick=True),
    Mistake("acknowledgements are for any creation", ack_for_any_creation, 30),
    Mistake("entries still pending are acknowledged", open_entries_are_acknowledged, 30),
    Mistake(
        "what is acknowledged elsewhere stays pending", acknowledged_stays_pending, 10,
        is_quick=True,
    ),
    Mistake("a creation forgets marks", creation_forgets_marks, 5, is_quick=True),
    Mistake("all regions use the same sequence numbers", one_sequence_class, 10, is_quick=True),
    Mistake(
        "IDs follow the clock alone", ids_by_the_clock, 5, ("partition", "skew"), is_quick=True
    ),
    Mistake(
        "effects do not wait for their causes", no_causal_wait, 10, ("partition", "delay"),
        is_quick=True,
    ),
    Mistake("effects leave before they are synced", own_before_synced, 20, ("power",)),
    Mistake("the epoch is kept after a power failure", epoch_kept, 5, ("power",), is_quick=True),
    Mistake("a join drops what the other has not seen", join_drops, 40, ("limits", "partition")),
)  # fmt: skip
"""Found in a fifth of the seeds that are allowed here, or fewer."""

STUBBORN: Final = (
    Mistake("rows tell what is applied, not what is on disk", rows_not_durable, 1000, ("power",)),
    Mistake("rows count though they tell of what is not here", have_ignored, 1000),
    Mistake("rows of former lives count", former_rows_count, 1000, ("power", "partition")),
    Mistake("runs begin where the group does", runs_from_the_start, 1000),
    Mistake("what was given up counts as acknowledged", given_up_is_acknowledged, 1000),
    Mistake("SETID leaves runs open", setid_leaves_runs_open, 1000),
    Mistake("nobody removes what another region accepted, too", no_collapse, 1000),
    Mistake("what came of former lives is kept", former_lives_kept, 1000, ("power", "partition")),
    Mistake("nobody is told of a former life", former_life_not_told, 1000, ("membership",)),
    Mistake("a join brings back what was removed", join_resurrects, 1000, ("limits", "partition")),
    Mistake("a snapshot shows several moments", snapshot_freezes_nothing, 1000, ("crash",)),
)
"""Not found in ten seeds: they need a rare meeting of events, and many runs."""
