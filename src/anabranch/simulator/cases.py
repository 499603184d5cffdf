"""The situations that runs must reach: an invariant that was never at risk is not tested."""

from __future__ import annotations

from typing import Final


def _rows(text: str) -> dict[str, str]:
    """Lines ``name - meaning``; the meaning is empty if the name suffices."""
    lines = [line.strip().partition(" - ") for line in text.strip().splitlines()]
    return {name: meaning for name, _, meaning in lines}


CASES: Final = _rows(
    """
    acknowledgement that travels - an acknowledgement closed a run, which went to other regions
    acknowledgement held back - an acknowledgement stayed in its region, as the run has a gap
    pending entries given up - XGROUP SETID gave up pending entries
    SETID forward - XGROUP SETID moved a group forward
    SETID to an ID - XGROUP SETID set a group to an ID
    CREATE || CREATE
    CREATE || DESTROY
    DEL || XADD
    removal || removal
    idempotent ID accepted by two regions - a retry reached a second region during a partition
    relay used - effects of a region arrived through another one
    held batch - a batch waited for effects that it depends on
    full sync joined - a region got a full sync
    hole left by a power failure - after a power failure unsynced data was missing in the middle
    bit of the log flipped - the disk changed a bit of a segment of the log
    start refused for a damaged log - a process did not start from a damaged log
    end of the log damaged after a kill - one of the last bits of a log changed after a kill
    epoch opened - a region opened a new epoch, as it may have lost effects
    effects fetched back - a region got effects of its own back from another one
    tombstones waited - a tombstone waited until every region had it on its disk
    equal vectors compared - two regions had applied the same effects, and their data was equal
    recovery compared with what was written - a start recovered what had been written
    recovery compared with replay - a snapshot was compared with the effects of the log
    wandering reader read to the end - a reader that changes regions got every entry once
    half-open connection - a connection ended for one side only
    region removed - a region was removed from the cluster
    disk lost - a machine lost its disk, and its region joined again
    number in use refused - a second server that used the number of a region was refused
    batch sent twice - the network delivered a batch of effects twice
    memory full - a region reached maxmemory
    blackout - all regions lost power at once
    feature level raised - the last region of a rolling update was updated
    group moved - a group was copied or restored together with its stream
    read withheld - a read was refused, as its data was not on the disk
    replies held for a slow sync - replies waited, as a sync took long
    newcomer refused writes - a new region took no writes before it had the data of the others
    snapshot taken - a snapshot was finished
    turn for unfinished work - work went on after its slice of time was over
    command in slices - a DUMP took several slices, while other commands ran
    """
)
"""Twenty runs must reach each of these."""

RARE_CASES: Final = _rows(
    """
    read answered in trouble - a read was answered while the disk took no writes
    full syncs in both directions - two regions got full syncs from each other
    full sync: link ended when it was requested
    full sync: link ended when it was in progress
    full sync: process ended when it was requested
    full sync: process ended when it was in progress
    full sync: power failed before it was on the disk
    full sync resumed - a full sync went on where an earlier link had ended
    frame during a join - a frame waited until all keys of a full sync were joined
    damage found by a reader of the log - a region found damage when it sent effects
    pending entry moved - a copied group kept its pending entries
    late entry moved - a copied group kept entries that it must still deliver
    disk lost before one that knows less - a region that lost its disk asked a lagging member
    silent connection - a connection carried nothing more, and neither side noticed
    """
)
"""Some hundred runs must reach these, too."""

_OTHERS: Final = _rows(
    """
    bit flip - the network changed a bit of a frame
    clock jumped - the clock of a machine was set
    connection lost - a connection between regions ended
    CREATE - a group was created
    DEL or expiry - a key was deleted, or expired
    DESTROY - a group was destroyed
    disk full - the disk of a machine was full for a while
    effects not applied for want of disk - received effects waited, as the disk took no writes
    FLUSH - a database, or all of them, was emptied
    idempotent ID of another region - a retry was answered from an entry of another region
    idempotent ID repeated - a retry was answered from an entry of the same region
    kill - a process was killed
    link refused - a region refused a link
    orderly stop - a process was stopped in order
    partition - a link was cut
    pause - a process stood still for a while
    power failure - a machine lost power, and its disk lost unsynced data
    start refused by the disk - a process could not start, as its disk failed
    sync error - a sync failed
    transaction - an EXEC was carried out
    write error - a write to the disk failed
    """
)


def meaning(name: str) -> str:
    """The meaning of a counter in a sentence; empty if its name suffices."""
    one, both, other = name.partition(" || ")
    if both:
        same = one == other
        what = f"two effects ({one})" if same else f"{one} and {other}"
        return f"{what} were concurrent: neither region had seen the other effect"
    if name.startswith("full sync: "):
        return f"a full sync was interrupted: {name.removeprefix('full sync: ')}"
    return (CASES | RARE_CASES | _OTHERS).get(name, "")
