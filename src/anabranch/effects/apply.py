"""The table of effects, and the function that applies one: all changes of data go through it.

Local execution, recovery and replication use the same table, so they cannot disagree. Apply
functions have no clock, no options and no error replies; an exception in one is a bug of the
server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from anabranch.effects import (
    apply_group,
    apply_homes,
    apply_keys,
    apply_producers,
    apply_regions,
    apply_scheduled,
    apply_stream,
    apply_values,
    kinds,
)
from anabranch.keyspace.keyspace import Keyspace


class EffectRow(NamedTuple):
    """The function that applies one kind of effect, and where the kind occurs."""

    apply: Callable[[Keyspace, Any], None]
    alone: bool = True
    """Whether it occurs in a region alone."""
    regional: bool = True
    """Whether it occurs where several regions write. If not, other effects express the same there
    (:mod:`anabranch.effects.prepare`), or the command is refused."""
    binds: bool = False
    """Whether it only binds and unbinds keys in a region alone: the values stay as they are."""
    subject: str = ""
    """What it changes that is not in a key."""
    ages: bool = False
    """Whether only the passing of time causes it."""


def _alone(function: Callable[[Keyspace, Any], None], *, binds: bool = False) -> EffectRow:
    return EffectRow(function, regional=False, binds=binds)


def _regional(function: Callable[[Keyspace, Any], None], subject: str = "") -> EffectRow:
    return EffectRow(function, alone=False, subject=subject)


EFFECTS: dict[type[kinds.Effect], EffectRow] = {
    kinds.CreateStream: _alone(apply_stream.create_stream, binds=True),
    kinds.Add: EffectRow(apply_stream.add),
    kinds.AddRun: EffectRow(apply_stream.add_run),
    kinds.Trim: _alone(apply_stream.trim),
    kinds.Remove: _alone(apply_stream.remove),
    kinds.RemoveNumbers: _regional(apply_stream.remove_numbers),
    kinds.Dereference: EffectRow(apply_stream.dereference),
    kinds.SetLastId: EffectRow(apply_stream.set_last_id),
    kinds.Remember: EffectRow(apply_producers.remember),
    kinds.CountDuplicate: EffectRow(apply_producers.count_duplicate),
    kinds.ConfigureProducers: EffectRow(apply_producers.configure_producers),
    kinds.ForgetProducers: EffectRow(apply_producers.forget_producers, ages=True),
    kinds.Accept: EffectRow(apply_producers.accept),
    kinds.DropRecords: EffectRow(apply_producers.drop_records, ages=True),
    kinds.ResolveConflict: _regional(apply_producers.resolve_conflict),
    kinds.CreateGroup: EffectRow(apply_group.create_group),
    kinds.SetGroup: EffectRow(apply_group.set_group),
    kinds.AdvanceGroup: EffectRow(apply_group.advance_group),
    kinds.DestroyGroup: EffectRow(apply_group.destroy_group),
    kinds.CreateConsumer: EffectRow(apply_group.create_consumer),
    kinds.DeleteConsumer: EffectRow(apply_group.delete_consumer),
    kinds.Deliver: EffectRow(apply_group.deliver),
    kinds.Assign: EffectRow(apply_group.assign),
    kinds.Acknowledge: EffectRow(apply_group.acknowledge),
    kinds.AdoptGroup: _regional(apply_group.adopt_group),
    kinds.AcknowledgeRuns: _regional(apply_group.acknowledge_runs),
    kinds.HandOver: _regional(apply_homes.hand_over),
    kinds.LeaveHome: _regional(apply_homes.leave_home),
    kinds.AskHome: _regional(apply_homes.ask_home),
    kinds.Delete: EffectRow(apply_keys.delete, binds=True),
    kinds.DeleteKeys: _alone(apply_keys.delete_keys, binds=True),
    kinds.Expire: EffectRow(apply_keys.expire, binds=True),
    kinds.Rename: _alone(apply_keys.rename),
    kinds.Copy: _alone(apply_keys.copy, binds=True),
    kinds.Restore: _alone(apply_keys.restore, binds=True),
    kinds.Flush: EffectRow(apply_keys.flush, binds=True),
    kinds.Swap: _alone(apply_keys.swap),
    kinds.SetString: _alone(apply_values.set_string, binds=True),
    kinds.SetStrings: _alone(apply_values.set_strings, binds=True),
    kinds.WriteString: _regional(apply_values.write_string),
    kinds.Increase: _regional(apply_values.increase),
    kinds.PutElements: _regional(apply_values.put_elements),
    kinds.TakeElements: _regional(apply_values.take_elements),
    kinds.Overwrite: _alone(apply_values.overwrite),
    kinds.Push: _alone(apply_values.push),
    kinds.Pop: _alone(apply_values.pop),
    kinds.Splice: _alone(apply_values.splice),
    kinds.RemoveItems: _alone(apply_values.remove_items),
    kinds.AddMembers: _alone(apply_values.add_members),
    kinds.RemoveMembers: _alone(apply_values.remove_members),
    kinds.SetUser: EffectRow(apply_keys.set_user, binds=True, subject="users"),
    kinds.DropUser: EffectRow(apply_keys.drop_user, binds=True, subject="users"),
    kinds.SetLibrary: EffectRow(apply_keys.set_library, binds=True, subject="libraries"),
    kinds.DropLibrary: EffectRow(apply_keys.drop_library, binds=True, subject="libraries"),
    kinds.SetPolicies: EffectRow(apply_keys.set_policies, subject="policies"),
    kinds.ScheduleEntry: EffectRow(apply_scheduled.schedule_entry),
    kinds.AdvanceScheduled: EffectRow(apply_scheduled.advance_scheduled),
    kinds.Synced: EffectRow(apply_keys.synced),
    kinds.AddRegion: _regional(apply_regions.add_region, "members"),
    kinds.RemoveRegion: _regional(apply_regions.remove_region, "members"),
    kinds.EnterCluster: _regional(apply_regions.enter_cluster, "members"),
    kinds.JoinFullSync: _regional(apply_regions.join_full_sync),
    kinds.OpenEpoch: _regional(apply_regions.open_epoch, "members"),
    kinds.TakeKey: _regional(apply_regions.take_key),
}

_APPLY: Final = {kind: row.apply for kind, row in EFFECTS.items()}


def apply(keyspace: Keyspace, effect: kinds.Effect) -> None:
    """Apply one effect. Its dot, if it has one, is that of the replica."""
    _APPLY[type(effect)](keyspace, effect)
