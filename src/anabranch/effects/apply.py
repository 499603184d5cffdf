"""The only door through which state changes: effect kind -> function.

Local execution, recovery and replication all come through here, so they cannot disagree. Apply
functions have no clock, no options and no error replies; an exception in one is our bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.effects import apply_group, apply_keys, apply_stream, apply_values, kinds
from anabranch.effects.merge import MERGE
from anabranch.keyspace.keyspace import Keyspace

__all__ = ["APPLY", "apply", "numbers_of", "total_numbers"]

APPLY: dict[type[kinds.Effect], Callable[[Keyspace, Any], None]] = {
    kinds.CreateStream: apply_stream.create_stream,
    kinds.Add: apply_stream.add,
    kinds.AddRun: apply_stream.add_run,
    kinds.Trim: apply_stream.trim,
    kinds.Remove: apply_stream.remove,
    kinds.Dereference: apply_stream.dereference,
    kinds.SetLastId: apply_stream.set_last_id,
    kinds.Remember: apply_stream.remember,
    kinds.CountDuplicate: apply_stream.count_duplicate,
    kinds.ConfigureProducers: apply_stream.configure_producers,
    kinds.ForgetProducers: apply_stream.forget_producers,
    kinds.Accept: apply_stream.accept,
    kinds.DropRecords: apply_stream.drop_records,
    kinds.CreateGroup: apply_group.create_group,
    kinds.SetGroup: apply_group.set_group,
    kinds.AdvanceGroup: apply_group.advance_group,
    kinds.DestroyGroup: apply_group.destroy_group,
    kinds.CreateConsumer: apply_group.create_consumer,
    kinds.DeleteConsumer: apply_group.delete_consumer,
    kinds.SeeConsumer: apply_group.see_consumer,
    kinds.Deliver: apply_group.deliver,
    kinds.Assign: apply_group.assign,
    kinds.Acknowledge: apply_group.acknowledge,
    kinds.Delete: apply_keys.delete,
    kinds.Expire: apply_keys.expire,
    kinds.Rename: apply_keys.rename,
    kinds.Copy: apply_keys.copy,
    kinds.Restore: apply_keys.restore,
    kinds.Flush: apply_keys.flush,
    kinds.Swap: apply_keys.swap,
    kinds.SetString: apply_values.set_string,
    kinds.Push: apply_values.push,
    kinds.Pop: apply_values.pop,
    kinds.Splice: apply_values.splice,
    kinds.RemoveItems: apply_values.remove_items,
    kinds.AddMembers: apply_values.add_members,
    kinds.RemoveMembers: apply_values.remove_members,
    kinds.SetUser: apply_keys.set_user,
    kinds.DropUser: apply_keys.drop_user,
    kinds.Synced: apply_keys.synced,
}


def apply(keyspace: Keyspace, effect: kinds.Effect) -> None:
    """Carry out one effect; with several regions the replica knows whose it is and when."""
    replica = keyspace.replica
    if replica is None:
        APPLY[type(effect)](keyspace, effect)
        return
    MERGE[type(effect)](keyspace, effect)
    if not effect.local and (key := getattr(effect, "key", None)) is not None:
        replica.touches.recent[effect.db, key, replica.origin] = replica.number  # type: ignore[attr-defined]


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
