"""Mistakes built into the product, each a broken rule: ``python -m tests.simulator.faults``.

Each is a patch, who has to notice it (random histories of regions, or the simulator with certain
faults), and within how many seeds. A mistake that is not found is a hole in the checks, or in what
the runs come to. As a program this tries all of them and prints a table of the seeds it took.
"""

from __future__ import annotations

import argparse
import copy
import gc
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import pytest

from anabranch.effects import adopting, apply_producers, kinds, streams
from anabranch.effects.applier import Applier
from anabranch.effects.apply import _APPLY, EFFECTS
from anabranch.engine import id_rules
from anabranch.keyspace.conflicts import Conflicts, Processed
from anabranch.keyspace.held_tags import HeldTag
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import region_of
from anabranch.node import exchange
from anabranch.node.cluster_notes import EpochFile
from anabranch.oplog import manifest, recovery, segment
from anabranch.oplog.batch import SentBatch
from anabranch.oplog.log import OpLog
from anabranch.oplog.log_index import LogIndex
from anabranch.oplog.segment import sound_batch_after
from anabranch.oplog.snapshot import Snapshot
from anabranch.replication import causal, status_table
from anabranch.replication.handshake import Handshaker
from anabranch.replication.receiving import Receiver
from anabranch.replication.status_table import StatusTable
from anabranch.simulator.faults import simulate
from anabranch.stream import by_number, entry_id, image_conversion, joining
from anabranch.stream.groups import runs as runs_module
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.progress import GroupProgress
from anabranch.stream.groups.runs import DeliveryRun, Runs
from anabranch.stream.region_log import RegionLog
from tests.active_active.histories import History
from tests.active_active.retries import RetryHistory
from tests.simulator.link_mistakes import OF_LINKS
from tests.simulator.process_mistakes import OF_A_PROCESS

__all__ = ["MINUTES", "MISTAKES", "Mistake", "first_seed", "known_seeds", "tombstones_at_once"]

Patch = pytest.MonkeyPatch


MINUTES: Final = 0.1
"""Of virtual time in each run of the simulator."""


def _function_of(kind: Any) -> Any:
    """What applies effects of a kind."""
    return EFFECTS[kind].apply


def _apply_by(patch: Patch, kind: Any, function: Any) -> None:
    """Have effects of a kind applied by another function."""
    patch.setitem(_APPLY, kind, function)


@dataclass(frozen=True)
class Mistake:
    """One broken rule."""

    name: str
    build_in: Callable[[Patch], None]
    within: int
    """So many seeds find it."""
    by: Literal["histories", "retries", "simulator"] = "histories"
    faults: tuple[str, ...] = ()
    """What has to go wrong in the simulator for it to matter."""


def known_seeds() -> dict[str, int]:
    """The seed that has found each mistake, by the table in docs/testing.md."""
    page = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    rows = re.findall(r"^\| (.+?) \| .+? \| (\d+) \| \d+ \|$", page, re.MULTILINE)
    return {name: int(seed) for name, seed in rows}


def first_seed(mistake: Mistake, begin_with: int | None = None) -> int | None:
    """The first seed that finds a mistake; None if none of those does that are allowed.

    A seed that goes wrong without the mistake as well finds something else. ``begin_with`` is tried
    before all others.
    """
    seeds = range(1, mistake.within + 1)
    for seed in seeds if begin_with is None else (begin_with, *seeds):
        with pytest.MonkeyPatch.context() as patch:
            mistake.build_in(patch)
            is_found = _goes_wrong(mistake, seed)
        if is_found and not _goes_wrong(mistake, seed):
            return seed
    return None


def _goes_wrong(mistake: Mistake, seed: int) -> bool:
    if mistake.by == "simulator":
        return simulate(seed, minutes=MINUTES, faults=mistake.faults).problem is not None
    kind = RetryHistory if mistake.by == "retries" else History
    try:
        kind(seed).run()
    except Exception:
        return True
    return False


# -- forgetting -----------------------------------------------------------------------------------


def tombstones_at_once(patch: Patch) -> None:
    patch.setattr(StatusTable, "watermark", lambda self, vector, durable, membership: dict(vector))


def _rows_as(patch: Patch, change: Callable[[Any], dict[str, Any]]) -> None:
    note = StatusTable.update

    def noted(self: StatusTable, row: Any, now_ms: float) -> None:
        note(self, msgspec.structs.replace(row, **change(row)), now_ms)

    patch.setattr(StatusTable, "update", noted)


def rows_not_durable(patch: Patch) -> None:
    _rows_as(patch, lambda row: {"durable": row.applied})


def have_ignored(patch: Patch) -> None:
    _rows_as(patch, lambda row: {"have": {}})


def former_rows_count(patch: Patch) -> None:
    patch.setattr(status_table, "_has_begun", lambda vector, beginnings, removals: True)


# -- removals -------------------------------------------------------------------------------------


def del_spares_unseen_groups(patch: Patch) -> None:
    delete = _function_of(kinds.Delete)

    def deleted(keyspace: Keyspace, effect: Any) -> None:
        effect = copy.copy(effect)
        effect.expired = True
        delete(keyspace, effect)

    _apply_by(patch, kinds.Delete, deleted)


def del_takes_whatever_is_there(patch: Patch) -> None:
    delete = _function_of(kinds.Delete)

    def deleted(keyspace: Keyspace, effect: Any) -> None:
        replica = keyspace.replica
        replica.context = dict(replica.vector)
        delete(keyspace, effect)

    _apply_by(patch, kinds.Delete, deleted)


def destroy_spares_unseen(patch: Patch) -> None:
    def destroyed(keyspace: Keyspace, effect: Any) -> None:
        replica = keyspace.replica
        stream = streams.begun_stream(keyspace, effect.db, effect.key)
        group: Any = stream.groups.get(effect.group)
        if group is not None:
            for dot in [dot for dot in group.shared.creations if replica.knows(dot)]:
                group.shared.drop_creation(dot)
            if not group.shared.creations:
                del stream.groups[effect.group]
        streams.bind_by_state(keyspace, effect.db, effect.key, stream)

    _apply_by(patch, kinds.DestroyGroup, destroyed)


def expiry_last_wins(patch: Patch) -> None:
    expire = _function_of(kinds.Expire)

    def expired(keyspace: Keyspace, effect: Any) -> None:
        stream = streams.begun_stream(keyspace, effect.db, effect.key)
        stream.shared.deadlines.clear()
        expire(keyspace, effect)

    _apply_by(patch, kinds.Expire, expired)


def max_deleted_not_kept(patch: Patch) -> None:
    patch.setattr(RegionLog, "record_deleted", lambda self, number, entry_id: None)


# -- groups ---------------------------------------------------------------------------------------


def ack_for_any_creation(patch: Patch) -> None:
    settle = Group.acknowledge_runs

    def settled(self: Group, creations: Any, *rest: Any, **named: Any) -> None:
        settle(self, list(self.shared.creations), *rest, **named)

    patch.setattr(Group, "acknowledge_runs", settled)


def runs_from_the_start(patch: Patch) -> None:
    extend = runs_module._extend

    def extended(runs: list[DeliveryRun], numbers: list[int]) -> None:
        was_empty = not runs
        extend(runs, numbers)
        if was_empty:
            runs[0].low = runs[0].sent = 0

    patch.setattr(runs_module, "_extend", extended)


def given_up_is_acknowledged(patch: Patch) -> None:
    patch.setattr(Group, "discard_consumer", lambda self, name, logs: self.remove_consumer(name))


def setid_leaves_runs_open(patch: Patch) -> None:
    patch.setattr(Runs, "close", lambda self: None)


def open_entries_are_acknowledged(patch: Patch) -> None:
    patch.setattr(Runs, "_first_open", lambda self, replica_id, log, run, pending: None)


def acknowledged_stays_pending(patch: Patch) -> None:
    patch.setattr(Group, "_drop", lambda self, replica_id, entries, numbers: None)


def creation_forgets_tombstones(patch: Patch) -> None:
    create = _function_of(kinds.CreateGroup)

    def created(keyspace: Keyspace, effect: Any) -> None:
        streams.begun_stream(keyspace, effect.db, effect.key).shared.set_tombstones({})
        create(keyspace, effect)

    _apply_by(patch, kinds.CreateGroup, created)


# -- streams that move ----------------------------------------------------------------------------


def pending_dropped_on_import(patch: Patch) -> None:
    adopt = _function_of(kinds.AdoptGroup)

    def adopted(keyspace: Keyspace, effect: Any) -> None:
        adopt(keyspace, msgspec.structs.replace(effect, pending=[]))

    _apply_by(patch, kinds.AdoptGroup, adopted)


def cursor_flattened_on_export(patch: Patch) -> None:
    patch.setattr(image_conversion, "_late", lambda stream, group: [])


def cursor_flattened_by_copies(patch: Patch) -> None:
    patch.setattr(GroupProgress, "late", lambda self, logs: iter(()))


def open_entries_settled_by_copies(patch: Patch) -> None:
    again = adopting._group_again

    def settled(db: int, key: bytes, name: bytes, was: Any) -> Any:
        was.unprocessed = []
        return again(db, key, name, was)

    patch.setattr(adopting, "_group_again", settled)


def given_up_settled_by_copies(patch: Patch) -> None:
    patch.setattr(Group, "passed_over", lambda self, logs: iter(()))


# -- IDs ------------------------------------------------------------------------------------------


def one_sequence_class(patch: Patch) -> None:
    patch.setattr(entry_id, "next_sequence", lambda own, after: after + 1)


def ids_by_the_clock(patch: Patch) -> None:
    made = entry_id.automatic_id
    patch.setattr(id_rules, "automatic_id", lambda own, now_ms, last: made(own, now_ms, 0))


def epochs_share_ids(patch: Patch) -> None:
    made = entry_id.next_sequence
    patch.setattr(entry_id, "next_sequence", lambda own, after: made(own & 0xFF, after))


def epochs_meet_in_ids(patch: Patch) -> None:
    patch.setattr(entry_id, "_EPOCHS", 1)


def no_collapse(patch: Patch) -> None:
    patch.setattr(Conflicts, "detect", lambda self, tag: None)


def tags_forgotten_at_the_limit(patch: Patch) -> None:
    """Only what answers a retry finds a conflict."""
    meet = Conflicts.detect

    def met(self: Conflicts, tag: HeldTag) -> None:
        for held in self.held.values():
            while len(held) > 3:
                held._open.pop(0)
        meet(self, tag)

    patch.setattr(Conflicts, "detect", met)


def tags_left_out_of_full_syncs(patch: Patch) -> None:
    patch.setattr(Conflicts, "join", lambda self, other, ours: ([], Counter()))


def tags_left_out_of_snapshots(patch: Patch) -> None:
    written = Conflicts.written
    patch.setattr(Conflicts, "written", lambda self: [[], *written(self)[1:]])


def winner_not_reported(patch: Patch) -> None:
    patch.setattr(apply_producers, "_answer_with", lambda stream, effect: None)


def only_the_losing_region_acts(patch: Patch) -> None:
    """All others wait for it."""
    emit = Applier.emit

    def emitted(self: Applier, effect: kinds.Effect) -> None:
        if (
            not isinstance(effect, kinds.ResolveConflict)
            or region_of(effect.replica_id) == self.keyspace.replica.region
        ):
            emit(self, effect)

    patch.setattr(Applier, "emit", emitted)


def own_entry_stays(patch: Patch) -> None:
    """Two regions choose differently."""
    note = Conflicts._queue

    def noted(self: Conflicts, goes: HeldTag, stays: HeldTag) -> None:
        if goes.replica_id < stays.replica_id:
            goes, stays = stays, goes
        note(self, goes, stays)

    patch.setattr(Conflicts, "_queue", noted)


def losing_entry_is_not_removed(patch: Patch) -> None:
    """The resolution removes nothing: retries are answered, and both entries stay."""
    resolve = _function_of(kinds.ResolveConflict)

    def resolved(keyspace: Keyspace, effect: kinds.ResolveConflict) -> None:
        resolve(keyspace, msgspec.structs.replace(effect, removed=False))

    _apply_by(patch, kinds.ResolveConflict, resolved)


def delivered_conflicts_are_not_counted(patch: Patch) -> None:
    note = Conflicts.record_processed

    def noted(self: Conflicts, where: Any, replica_id: int, numbers: Any) -> None:
        for number in list(numbers):
            self.stable[replica_id] = number + 1, self.stable.get(replica_id, (0, 0))[1]
            note(self, where, replica_id, [number])

    patch.setattr(Conflicts, "record_processed", noted)


def resolutions_count_each(patch: Patch) -> None:
    """Each region that resolves a conflict counts it."""
    resolve = _function_of(kinds.ResolveConflict)

    def resolved(keyspace: Keyspace, effect: kinds.ResolveConflict) -> None:
        conflicts = keyspace.replica.conflicts
        resolve(keyspace, effect)
        number, count = conflicts.stable.get(effect.replica_id, (0, 0))
        if keyspace.replica.replica_id != keyspace.replica.own:
            conflicts.stable[effect.replica_id] = number, count + 1

    _apply_by(patch, kinds.ResolveConflict, resolved)


def tags_forgotten_before_stable(patch: Patch) -> None:
    prune = Conflicts.prune
    patch.setattr(
        Conflicts, "prune", lambda self, stable, vector: prune(self, _Everything(), vector)
    )


def better_winner_ignored(patch: Patch) -> None:
    note = Conflicts._queue

    def noted(self: Conflicts, goes: HeldTag, stays: HeldTag) -> None:
        if goes.dot not in self.beaten:
            note(self, goes, stays)

    patch.setattr(Conflicts, "_queue", noted)


def processed_forgotten(patch: Patch) -> None:
    patch.setattr(Processed, "__contains__", lambda self, entry: False)


class _Everything(dict[int, int]):
    def get(self, key: int, default: Any = None) -> int:
        return 1 << 62


# -- exchange -------------------------------------------------------------------------------------


def no_causal_wait(patch: Patch) -> None:
    patch.setattr(causal, "_lacking", lambda unit, vector: iter(()))


def own_before_synced(patch: Patch) -> None:
    read = LogIndex.read

    def all_written(self: LogIndex, log: OpLog, *place: int) -> list[SentBatch] | None:
        *place, _ = place
        return read(self, log, *place, log.end)

    patch.setattr(LogIndex, "read", all_written)


def former_epochs_kept(patch: Patch) -> None:
    patch.setattr(Receiver, "drop_ended_epochs", lambda self: None)


def former_epoch_not_told(patch: Patch) -> None:
    patch.setattr(Handshaker, "_known_epoch", lambda self, theirs, now_ms: -1)


def numbers_given_twice(patch: Patch) -> None:
    patch.setattr(Handshaker, "_is_used_by_another", lambda self, theirs, now_ms: False)


def epoch_kept(patch: Patch) -> None:
    patch.setattr(EpochFile, "may_continue", lambda self: True)


def damage_sent(patch: Patch) -> None:
    patch.setattr(segment, "is_sound", lambda data: True)


def lost_end_not_noticed(patch: Patch) -> None:
    begin = exchange.continue_or_open_epoch
    patch.setattr(manifest.Manifest, "absence", lambda *_args, **_more: None)

    def without_cut(*given: Any, was_cut: bool) -> None:
        del was_cut
        begin(*given, was_cut=False)

    patch.setattr(exchange, "continue_or_open_epoch", without_cut)


def holes_are_damage(patch: Patch) -> None:
    def is_torn(data: bytes, first_position: int, damage: Any, later: Any) -> bool:
        del first_position, later
        return sound_batch_after(data, damage.broken) is None

    patch.setattr(recovery, "is_unfinished", is_torn)


# -- full syncs ----------------------------------------------------------------------------------


def join_drops(patch: Patch) -> None:
    logs = joining._join_logs
    patch.setattr(
        joining, "_join_logs", lambda ours, theirs, our, their: logs(ours, theirs, our, our)
    )


def join_resurrects(patch: Patch) -> None:
    def joined(ours: RegionLog, theirs: RegionLog, our: int, their: int) -> None:
        by_number.remove(theirs, 0, our)
        ours.adopt(theirs)

    patch.setattr(joining, "_join_logs", joined)


def snapshot_freezes_nothing(patch: Patch) -> None:
    patch.setattr(Snapshot, "before", lambda self, effect: None)


MISTAKES: Final = (
    # forgetting
    Mistake("tombstones are dropped at once", tombstones_at_once, 10),
    Mistake("rows report what is applied, not what is on disk", rows_not_durable, 50),
    Mistake("rows count although they report effects that are missing here", have_ignored, 500),
    Mistake("rows of former epochs count", former_rows_count, 50),
    # removals
    Mistake("DEL spares groups it has not seen", del_spares_unseen_groups, 10),
    Mistake("DEL removes whatever exists", del_takes_whatever_is_there, 10),
    Mistake("DESTROY spares creations it has not seen", destroy_spares_unseen, 50),
    Mistake("the deadline that arrives last wins", expiry_last_wins, 200),
    Mistake("the newest deletion is not kept", max_deleted_not_kept, 10),
    # groups
    Mistake("acknowledgements are for any creation", ack_for_any_creation, 100),
    Mistake("runs begin where the group does", runs_from_the_start, 500),
    Mistake("skipped entries count as acknowledged", given_up_is_acknowledged, 500),
    Mistake("SETID leaves runs open", setid_leaves_runs_open, 1000),
    Mistake("entries still pending are acknowledged", open_entries_are_acknowledged, 100),
    Mistake("entries acknowledged elsewhere stay pending", acknowledged_stays_pending, 100),
    Mistake("a creation forgets tombstones", creation_forgets_tombstones, 20),
    # streams that move
    Mistake("pending lists are dropped on import", pending_dropped_on_import, 50),
    Mistake("a cursor is flattened on export", cursor_flattened_on_export, 100),
    Mistake("a cursor is flattened by copies", cursor_flattened_by_copies, 100),
    Mistake("copies acknowledge open entries", open_entries_settled_by_copies, 100),
    Mistake("copies acknowledge skipped entries", given_up_settled_by_copies, 200),
    Mistake(
        "pending lists are dropped on import, in the simulator", pending_dropped_on_import, 100,
        "simulator", ("partition", "delay"),
    ),
    Mistake(
        "a cursor is flattened on export, in the simulator", cursor_flattened_on_export, 200,
        "simulator", ("partition", "delay"),
    ),
    # IDs
    Mistake("all regions use the same sequence numbers", one_sequence_class, 10),
    Mistake("IDs follow the clock alone", ids_by_the_clock, 10),
    Mistake("epochs do not differ in their IDs", epochs_share_ids, 200),
    Mistake("an earlier epoch goes on where a later one begins", epochs_meet_in_ids, 1000),
    Mistake("no region removes an entry that another accepted, too", no_collapse, 50),
    # idempotent IDs
    Mistake("tags are forgotten at the limit", tags_forgotten_at_the_limit, 100, "retries"),
    Mistake(
        "only tags that answer retries find conflicts", tags_forgotten_at_the_limit, 100,
        "simulator", ("retries", "partition", "delay"),
    ),
    Mistake("tags are left out of full syncs", tags_left_out_of_full_syncs, 100, "retries"),
    Mistake("tags are left out of snapshots", tags_left_out_of_snapshots, 200, "retries"),
    Mistake("unstable tags are forgotten", tags_forgotten_before_stable, 50, "retries"),
    Mistake("other regions do not learn which entry stays", winner_not_reported, 500, "retries"),
    Mistake("only the region of the losing entry acts", only_the_losing_region_acts, 50, "retries"),
    Mistake(
        "only the region of the losing entry acts, in histories", only_the_losing_region_acts, 200
    ),
    Mistake("two regions let different entries stay", own_entry_stays, 50, "retries"),
    Mistake("a resolution does not remove the entry", losing_entry_is_not_removed, 50, "retries"),
    Mistake(
        "conflicts of delivered entries are not counted", delivered_conflicts_are_not_counted, 200,
        "retries",
    ),
    Mistake("each resolution of a conflict counts", resolutions_count_each, 50, "retries"),
    Mistake("a tag that has lost once cannot lose again", better_winner_ignored, 2000, "retries"),
    Mistake("processed entries are not carried over", processed_forgotten, 200, "retries"),
    # exchange
    Mistake(
        "effects do not wait for their causes", no_causal_wait, 10, "simulator",
        ("partition", "delay"),
    ),
    Mistake(
        "effects leave before they are synced", own_before_synced, 100, "simulator", ("power",)
    ),
    Mistake("the epoch is kept after a power failure", epoch_kept, 10, "simulator", ("power",)),
    Mistake(
        "the epoch is kept after the end of the log was cut off", lost_end_not_noticed, 50,
        "simulator", ("rot", "crash"),
    ),
    Mistake("a hole counts as damage", holes_are_damage, 20, "simulator", ("power",)),
    Mistake(
        "damaged batches are sent", damage_sent, 1000, "simulator",
        ("rot", "limits", "partition", "delay"),
    ),
    Mistake(
        "batches of former epochs are kept", former_epochs_kept, 200, "simulator",
        ("blackout", "partition", "delay"),
    ),
    Mistake(
        "no region reports a former epoch", former_epoch_not_told, 20, "simulator", ("membership",)
    ),
    Mistake(
        "a number in use is given to another server", numbers_given_twice, 100, "simulator",
        ("impostor", "partition"),
    ),
    # full syncs
    Mistake("a join drops what the other has not seen", join_drops, 20),
    Mistake("a join brings back what was removed", join_resurrects, 50),
    Mistake("a snapshot shows several moments", snapshot_freezes_nothing, 100),
    Mistake(
        "a snapshot shows several moments, in the simulator", snapshot_freezes_nothing, 100,
        "simulator", ("limits", "crash", "power"),
    ),
    *(Mistake(*row[:3], "simulator", row[3]) for row in (*OF_LINKS, *OF_A_PROCESS)),
)  # fmt: skip


ELSEWHERE: Final = {
    "histories": ("partition", "delay", "membership"),
    "retries": ("retries", "partition", "delay"),
}
"""Faults under which the simulator may find what others find."""


# -- as a program ---------------------------------------------------------------------------------


def _seldom_collected() -> None:
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)


def _tried(number: int, seeds: int | None) -> Mistake:
    """A mistake; with ``seeds``, to be found by so many seeds of the simulator."""
    mistake = MISTAKES[number]
    if seeds is None:
        return mistake
    return replace(mistake, by="simulator", within=seeds, faults=ELSEWHERE[mistake.by])


def _found(number: int, seeds: int | None) -> int | None:
    return first_seed(_tried(number, seeds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="so many processes")
    parser.add_argument("--only", default="", help="mistakes with this in their names")
    parser.add_argument(
        "--simulator", type=int, metavar="SEEDS",
        help="whether so many seeds of the simulator find what histories and retries find",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    numbers = [n for n, each in enumerate(MISTAKES) if chosen.only in each.name]
    if chosen.simulator is not None:
        numbers = [n for n in numbers if MISTAKES[n].by in ELSEWHERE]
    print("| Mistake | found by | seeds it took | allowed |")  # noqa: T201
    print("|---|---|---|---|")  # noqa: T201
    missed = 0
    with ProcessPoolExecutor(chosen.jobs, initializer=_seldom_collected) as pool:
        for number, seed in zip(
            numbers, pool.map(_found, numbers, repeat(chosen.simulator)), strict=False
        ):
            mistake = _tried(number, chosen.simulator)
            missed += seed is None
            by = mistake.by
            if mistake.faults:
                by += ": " + ", ".join(mistake.faults)  # type: ignore[assignment]
            took = "**not found**" if seed is None else seed
            print(f"| {mistake.name} | {by} | {took} | {mistake.within} |", flush=True)  # noqa: T201
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
