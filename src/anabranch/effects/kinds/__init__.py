"""All kinds of effects: a small record for each kind of change.

A command *decides* (validates, chooses the ID, chooses what to trim) and emits effects that leave
nothing to choose; ``apply*.py`` applies them. ``codec.py`` turns them into the arrays of the log
and of messages to other regions, where ``tag`` is the kind. New fields are added at the end only,
with defaults. ``db`` is a database number, times are wall-clock milliseconds.

The modules are families of kinds; other code imports every kind from this package.
"""

from anabranch.effects.kinds.base import (
    Effect,
    EntryId,
    EntryIds,
)
from anabranch.effects.kinds.entries import (
    Add,
    AddRun,
    CreateStream,
    Dereference,
    Remove,
    RemoveNumbers,
    SetLastId,
    Trim,
)
from anabranch.effects.kinds.groups import (
    Acknowledge,
    AcknowledgeRuns,
    AdoptGroup,
    AdvanceGroup,
    Assign,
    CreateConsumer,
    CreateGroup,
    DeleteConsumer,
    Deliver,
    DestroyGroup,
    SetGroup,
)
from anabranch.effects.kinds.keys import (
    Copy,
    Delete,
    DeleteKeys,
    Expire,
    Flush,
    Rename,
    Restore,
    Swap,
)
from anabranch.effects.kinds.libraries import (
    DropLibrary,
    SetLibrary,
)
from anabranch.effects.kinds.policies import SetPolicies
from anabranch.effects.kinds.producers import (
    Accept,
    ConfigureProducers,
    CountDuplicate,
    DropRecords,
    ForgetProducers,
    Remember,
    ResolveConflict,
)
from anabranch.effects.kinds.regions import (
    AddRegion,
    EnterCluster,
    JoinFullSync,
    OpenEpoch,
    RemoveRegion,
    Synced,
    TakeKey,
)
from anabranch.effects.kinds.users import (
    DropUser,
    SetUser,
)
from anabranch.effects.kinds.values import (
    AddMembers,
    Overwrite,
    Pop,
    Push,
    RemoveItems,
    RemoveMembers,
    SetString,
    SetStrings,
    Splice,
)

__all__ = [
    "Accept",
    "Acknowledge",
    "AcknowledgeRuns",
    "Add",
    "AddMembers",
    "AddRegion",
    "AddRun",
    "AdoptGroup",
    "AdvanceGroup",
    "Assign",
    "ConfigureProducers",
    "Copy",
    "CountDuplicate",
    "CreateConsumer",
    "CreateGroup",
    "CreateStream",
    "Delete",
    "DeleteConsumer",
    "DeleteKeys",
    "Deliver",
    "Dereference",
    "DestroyGroup",
    "DropLibrary",
    "DropRecords",
    "DropUser",
    "Effect",
    "EnterCluster",
    "EntryId",
    "EntryIds",
    "Expire",
    "Flush",
    "ForgetProducers",
    "JoinFullSync",
    "OpenEpoch",
    "Overwrite",
    "Pop",
    "Push",
    "Remember",
    "Remove",
    "RemoveItems",
    "RemoveMembers",
    "RemoveNumbers",
    "RemoveRegion",
    "Rename",
    "ResolveConflict",
    "Restore",
    "SetGroup",
    "SetLastId",
    "SetLibrary",
    "SetPolicies",
    "SetString",
    "SetStrings",
    "SetUser",
    "Splice",
    "Swap",
    "Synced",
    "TakeKey",
    "Trim",
]
