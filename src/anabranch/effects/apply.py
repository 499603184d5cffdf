"""The only door through which state changes: the table of effects, and what applies one.

Local execution, recovery and replication all come through here, so they cannot disagree. Apply
functions have no clock, no options and no error replies; an exception in one is our bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anabranch.effects import (
    apply_group,
    apply_keys,
    apply_stream,
    apply_values,
    kinds,
    merge_conflicts,
    merge_group,
    merge_keys,
    merge_stream,
)
from anabranch.keyspace.keyspace import Keyspace

__all__ = ["EFFECTS", "Row", "apply", "numbers_of", "total_numbers"]

_Apply = Callable[[Keyspace, Any], None]


class Row(NamedTuple):
    """What applies one kind of effect."""

    shared: _Apply | None
    """Where several regions write; None: the effect does not occur there, as other effects say the
    same (:mod:`anabranch.effects.prepare`), or the command is refused."""
    alone: _Apply | None
    """In a region alone; None: the effect does not occur there."""


def _both(function: _Apply) -> Row:
    return Row(function, function)


EFFECTS: dict[type[kinds.Effect], Row] = {
    kinds.CreateStream: Row(None, apply_stream.create_stream),
    kinds.Add: Row(merge_stream.add, apply_stream.add),
    kinds.AddRun: Row(merge_stream.add_run, apply_stream.add_run),
    kinds.Trim: Row(None, apply_stream.trim),
    kinds.Remove: Row(None, apply_stream.remove),
    kinds.Dereference: _both(merge_stream.dereference),
    kinds.SetLastId: Row(merge_stream.set_last_id, apply_stream.set_last_id),
    kinds.Remember: Row(merge_conflicts.remember, apply_stream.remember),
    kinds.CountDuplicate: _both(merge_stream.count_duplicate),
    kinds.ConfigureProducers: Row(
        merge_stream.configure_producers, apply_stream.configure_producers
    ),
    kinds.ForgetProducers: _both(merge_stream.forget_producers),
    kinds.Accept: Row(merge_stream.accept, apply_stream.accept),
    kinds.DropRecords: Row(merge_stream.drop_records, apply_stream.drop_records),
    kinds.CreateGroup: Row(merge_group.create_group, apply_group.create_group),
    kinds.SetGroup: Row(merge_group.set_group, apply_group.set_group),
    kinds.AdvanceGroup: Row(merge_group.advance_group, apply_group.advance_group),
    kinds.DestroyGroup: Row(merge_group.destroy_group, apply_group.destroy_group),
    kinds.CreateConsumer: _both(apply_group.create_consumer),
    kinds.DeleteConsumer: _both(merge_group.delete_consumer),
    kinds.SeeConsumer: _both(apply_group.see_consumer),
    kinds.Deliver: Row(merge_group.deliver, apply_group.deliver),
    kinds.Assign: Row(merge_group.assign, apply_group.assign),
    kinds.Acknowledge: Row(merge_group.acknowledge, apply_group.acknowledge),
    kinds.Delete: Row(merge_keys.delete, apply_keys.delete),
    kinds.Expire: Row(merge_keys.expire, apply_keys.expire),
    kinds.Rename: Row(None, apply_keys.rename),
    kinds.Copy: Row(None, apply_keys.copy),
    kinds.Restore: Row(None, apply_keys.restore),
    kinds.Flush: Row(merge_keys.flush, apply_keys.flush),
    kinds.Swap: Row(None, apply_keys.swap),
    kinds.SetString: Row(None, apply_values.set_string),
    kinds.Push: Row(None, apply_values.push),
    kinds.Pop: Row(None, apply_values.pop),
    kinds.Splice: Row(None, apply_values.splice),
    kinds.RemoveItems: Row(None, apply_values.remove_items),
    kinds.AddMembers: Row(None, apply_values.add_members),
    kinds.RemoveMembers: Row(None, apply_values.remove_members),
    kinds.SetUser: _both(apply_keys.set_user),
    kinds.DropUser: _both(apply_keys.drop_user),
    kinds.Synced: _both(apply_keys.synced),
    kinds.RemoveNumbers: Row(merge_stream.remove_numbers, None),
    kinds.ResolveConflict: Row(merge_conflicts.resolve_conflict, None),
    kinds.AdoptGroup: Row(merge_group.adopt_group, None),
    kinds.Settle: Row(merge_group.settle_entries, None),
    kinds.AddRegion: Row(merge_keys.add_region, None),
    kinds.RemoveRegion: Row(merge_keys.remove_region, None),
    kinds.EnterCluster: Row(merge_keys.enter_cluster, None),
    kinds.JoinFullSync: Row(merge_keys.join_full_sync, None),
    kinds.OpenEpoch: Row(merge_keys.open_epoch, None),
    kinds.TakeKey: Row(merge_keys.take_key, None),
}


def apply(keyspace: Keyspace, effect: kinds.Effect) -> None:
    """Carry out one effect; with several regions the replica knows whose it is and when."""
    replica = keyspace.replica
    row = EFFECTS[type(effect)]
    if not replica.is_regional:
        row.alone(keyspace, effect)  # type: ignore[misc]  # it occurs, or it would not be here
        return
    row.shared(keyspace, effect)  # type: ignore[misc]  # likewise
    if not effect.local and (key := getattr(effect, "key", None)) is not None:
        replica.last_effects.recent[effect.db, key, replica.replica_id] = replica.number  # type: ignore[attr-defined]


def numbers_of(effect: kinds.Effect) -> int:
    """How many numbers an effect takes of those that its region gives out."""
    if effect.local:
        return 0
    return len(effect.ids) if type(effect) is kinds.AddRun else 1


def total_numbers(effects: Sequence[kinds.Effect]) -> int:
    """The same of several."""
    if len(effects) == 1:
        return numbers_of(effects[0])
    if set(map(type, effects)) == {kinds.Add}:
        return len(effects)
    return sum(map(numbers_of, effects))
