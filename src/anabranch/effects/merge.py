"""The door through which state changes where several regions write: effect kind -> function.

Kinds that are missing do not occur there: what they do is said by other effects (RENAME writes the
entries again under the new name), or is refused (strings, SWAPDB).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.effects import (
    apply_group,
    apply_keys,
    kinds,
    merge_conflicts,
    merge_group,
    merge_keys,
    merge_stream,
)
from anabranch.keyspace.keyspace import Keyspace

__all__ = ["MERGE"]

MERGE: dict[type[kinds.Effect], Callable[[Keyspace, Any], None]] = {
    kinds.Add: merge_stream.add,
    kinds.AddRun: merge_stream.add_run,
    kinds.RemoveNumbers: merge_stream.remove_numbers,
    kinds.Dereference: merge_stream.dereference,
    kinds.SetLastId: merge_stream.set_last_id,
    kinds.Remember: merge_conflicts.remember,
    kinds.CountDuplicate: merge_stream.count_duplicate,
    kinds.ResolveConflict: merge_conflicts.resolve_conflict,
    kinds.ConfigureProducers: merge_stream.configure_producers,
    kinds.ForgetProducers: merge_stream.forget_producers,
    kinds.Accept: merge_stream.accept,
    kinds.DropRecords: merge_stream.drop_records,
    kinds.CreateGroup: merge_group.create_group,
    kinds.SetGroup: merge_group.set_group,
    kinds.AdoptGroup: merge_group.adopt_group,
    kinds.AdvanceGroup: merge_group.advance_group,
    kinds.DestroyGroup: merge_group.destroy_group,
    kinds.CreateConsumer: apply_group.create_consumer,
    kinds.DeleteConsumer: merge_group.delete_consumer,
    kinds.SeeConsumer: apply_group.see_consumer,
    kinds.Deliver: merge_group.deliver,
    kinds.Assign: merge_group.assign,
    kinds.Acknowledge: merge_group.acknowledge,
    kinds.Settle: merge_group.settle_entries,
    kinds.Delete: merge_keys.delete,
    kinds.Expire: merge_keys.expire,
    kinds.Flush: merge_keys.flush,
    kinds.SetUser: apply_keys.set_user,
    kinds.DropUser: apply_keys.drop_user,
    kinds.Synced: apply_keys.synced,
    kinds.AddRegion: merge_keys.add_region,
    kinds.RemoveRegion: merge_keys.remove_region,
    kinds.EnterCluster: merge_keys.enter_cluster,
    kinds.JoinState: merge_keys.join_state,
    kinds.OpenEpoch: merge_keys.open_epoch,
    kinds.TakeKey: merge_keys.take_key,
}
