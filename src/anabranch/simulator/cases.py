"""The situations that runs must reach: an invariant that was never at risk is not tested."""

from __future__ import annotations

from typing import Final

__all__ = ["CASES", "RARE_CASES", "meaning"]

CASES: Final = (
    "acknowledgement that travels",
    "acknowledgement held back",
    "pending entries given up",
    "SETID forward",
    "SETID to an ID",
    "CREATE || CREATE",
    "CREATE || DESTROY",
    "DEL || XADD",
    "removal || removal",
    "idempotent ID accepted by two regions",
    "relay used",
    "held batch",
    "full sync joined",
    "hole left by a power failure",
    "bit of the log flipped",
    "start refused for a damaged log",
    "end of the log damaged after a kill",
    "epoch opened",
    "effects fetched back",
    "tombstones waited",
    "equal vectors compared",
    "recovery compared with what was written",
    "recovery compared with replay",
    "wandering reader read to the end",
    "half-open connection",
    "region removed",
    "disk lost",
    "number in use refused",
    "batch sent twice",
    "memory full",
    "blackout",
    "feature level raised",
    "group moved",
    "read withheld",
    "replies held for a slow sync",
    "newcomer refused writes",
    "snapshot taken",
    "turn for unfinished work",
    "command in slices",
)
"""Twenty runs must reach each of these."""

RARE_CASES: Final = (
    "read answered in trouble",
    "full syncs in both directions",
    "full sync: link ended when it was requested",
    "full sync: link ended when it was in progress",
    "full sync: process ended when it was requested",
    "full sync: process ended when it was in progress",
    "full sync: power failed before it was on the disk",
    "full sync resumed",
    "frame during a join",
    "damage found by a reader of the log",
    "pending entry moved",
    "late entry moved",
    "disk lost before one that knows less",
    "silent connection",
)
"""Some hundred runs must reach these, too."""

_MEANINGS: Final = {
    "acknowledgement held back": "an acknowledgement stayed in its region, as the run has a gap",
    "acknowledgement that travels": "an acknowledgement closed a run, which went to other regions",
    "batch sent twice": "the network delivered a batch of effects twice",
    "bit flip": "the network changed a bit of a frame",
    "bit of the log flipped": "the disk changed a bit of a segment of the log",
    "blackout": "all regions lost power at once",
    "command in slices": "a DUMP took several slices, while other commands ran",
    "clock jumped": "the clock of a machine was set",
    "connection lost": "a connection between regions ended",
    "CREATE": "a group was created",
    "DEL or expiry": "a key was deleted, or expired",
    "damage found by a reader of the log": "a region found damage when it sent effects",
    "DESTROY": "a group was destroyed",
    "disk full": "the disk of a machine was full for a while",
    "disk lost": "a machine lost its disk, and its region joined again",
    "disk lost before one that knows less": "a region that lost its disk asked a lagging member",
    "end of the log damaged after a kill": "one of the last bits of a log changed after a kill",
    "effects fetched back": "a region got effects of its own back from another one",
    "effects not applied for want of disk": "received effects waited, as the disk took no writes",
    "epoch opened": "a region opened a new epoch, as it may have lost effects",
    "equal vectors compared": "two regions had applied the same effects, and their data was equal",
    "feature level raised": "the last region of a rolling update was updated",
    "FLUSH": "a database, or all of them, was emptied",
    "frame during a join": "a frame waited until all keys of a full sync were joined",
    "group moved": "a group was copied or restored together with its stream",
    "half-open connection": "a connection ended for one side only",
    "held batch": "a batch waited for effects that it depends on",
    "hole left by a power failure": "after a power failure unsynced data was missing in the middle",
    "idempotent ID accepted by two regions": "a retry reached a second region during a partition",
    "idempotent ID of another region": "a retry was answered from an entry of another region",
    "idempotent ID repeated": "a retry was answered from an entry of the same region",
    "kill": "a process was killed",
    "late entry moved": "a copied group kept entries that it must still deliver",
    "link refused": "a region refused a link",
    "tombstones waited": "a tombstone waited until every region had it on its disk",
    "memory full": "a region reached maxmemory",
    "newcomer refused writes": "a new region took no writes before it had the data of the others",
    "number in use refused": "a second server that used the number of a region was refused",
    "orderly stop": "a process was stopped in order",
    "partition": "a link was cut",
    "pause": "a process stood still for a while",
    "pending entries given up": "XGROUP SETID gave up pending entries",
    "pending entry moved": "a copied group kept its pending entries",
    "power failure": "a machine lost power, and its disk lost unsynced data",
    "read answered in trouble": "a read was answered while the disk took no writes",
    "read withheld": "a read was refused, as its data was not on the disk",
    "recovery compared with replay": "a snapshot was compared with the effects of the log",
    "recovery compared with what was written": "a start recovered what had been written",
    "region removed": "a region was removed from the cluster",
    "relay used": "effects of a region arrived through another one",
    "replies held for a slow sync": "replies waited, as a sync took long",
    "SETID forward": "XGROUP SETID moved a group forward",
    "SETID to an ID": "XGROUP SETID set a group to an ID",
    "silent connection": "a connection carried nothing more, and neither side noticed",
    "snapshot taken": "a snapshot was finished",
    "start refused by the disk": "a process could not start, as its disk failed",
    "start refused for a damaged log": "a process did not start from a damaged log",
    "full sync joined": "a region got a full sync",
    "full syncs in both directions": "two regions got full syncs from each other",
    "full sync resumed": "a full sync went on where an earlier link had ended",
    "sync error": "a sync failed",
    "transaction": "an EXEC was carried out",
    "turn for unfinished work": "work went on after its slice of time was over",
    "wandering reader read to the end": "a reader that changes regions got every entry once",
    "write error": "a write to the disk failed",
}


def meaning(name: str) -> str:
    """The meaning of a counter in a sentence; empty if its name suffices."""
    one, both, other = name.partition(" || ")
    if both:
        same = one == other
        what = f"two effects ({one})" if same else f"{one} and {other}"
        return f"{what} were concurrent: neither region had seen the other effect"
    if name.startswith("full sync: "):
        return f"a full sync was interrupted: {name.removeprefix('full sync: ')}"
    return _MEANINGS.get(name, "")
