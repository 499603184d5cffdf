"""Seeded mistakes that exploration finds, without chance: ``python -m tests.simulator.exploring``.

Each mistake that concerns several regions has a world in which the search comes to a broken
invariant: those of :mod:`tests.simulator.faults`, of strings, sets and lists, of the policies that
regions share, and of scheduled entries. As a program this searches all of these worlds and prints
how many states it took, and how many steps the counterexample has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from typing import Final

import pytest

from anabranch.simulator.exploration.reactions import describe
from anabranch.simulator.exploration.script import line_of
from anabranch.simulator.exploration.search import Explored, Reductions, Search, seldom_collected
from anabranch.simulator.exploration.worlds import WORLDS, world_named
from tests.active_active import element_mistakes, policy_mistakes, string_mistakes
from tests.simulator import faults, lease_mistakes, scheduled_mistakes

__all__ = ["BUILT_IN", "FOUND_IN", "NOT_OF_REGIONS", "VARIANTS", "search_with"]

BUILT_IN: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    **{mistake.name: mistake.build_in for mistake in faults.MISTAKES},
    **string_mistakes.MISTAKES,
    **element_mistakes.MISTAKES,
    **policy_mistakes.MISTAKES,
    **{
        name: build_in
        for module in (lease_mistakes, scheduled_mistakes)
        for name, (kind, build_in) in module.MISTAKES.items()
        if kind == module.REGIONS
    },
}
"""By its name, how a mistake is built in. What leases, scheduled entries and the order of keys
promise without other regions is left to their own simulations."""

FOUND_IN: Final[dict[str, str]] = {
    "tombstones are dropped at once": "groups-or-del",
    "rows report what is applied, not what is on disk": "tombstones-and-crashes",
    "rows count although they report effects that are missing here": "tombstones-and-rows",
    "rows of former epochs count": "former-epochs",
    "DEL spares groups it has not seen": "groups-or-del",
    "DEL removes whatever exists": "entries",
    "DESTROY spares creations it has not seen": "groups-or-del",
    "the deadline that arrives last wins": "deadlines",
    "the newest deletion is not kept": "counters",
    "acknowledgements are for any creation": "groups-made-again",
    "runs begin where the group does": "skipped",
    "skipped entries count as acknowledged": "skipped",
    "SETID leaves runs open": "skipped",
    "entries still pending are acknowledged": "acknowledgements",
    "entries acknowledged elsewhere stay pending": "acknowledgements",
    "a creation forgets tombstones": "groups-or-del",
    "pending lists are dropped on import": "moved-groups",
    "a cursor is flattened on export": "moved-groups",
    "a cursor is flattened by copies": "moved-groups",
    "copies acknowledge open entries": "moved-groups",
    "copies acknowledge skipped entries": "moved-groups",
    "all regions use the same sequence numbers": "entries",
    "IDs follow the clock alone": "entries",
    "epochs do not differ in their IDs": "power",
    "an earlier epoch goes on where a later one begins": "epochs-in-ids",
    "no region removes an entry that another accepted, too": "retries",
    "tags are forgotten at the limit": "retries-and-others",
    "tags are left out of full syncs": "full-syncs-of-tags",
    "tags are left out of snapshots": "full-syncs-of-tags",
    "unstable tags are forgotten": "retries",
    "other regions do not learn which entry stays": "retries-and-del",
    "only the region of the losing entry acts": "retries",
    "two regions let different entries stay": "retries",
    "a resolution does not remove the entry": "retries",
    "conflicts of delivered entries are not counted": "retries-delivered",
    "each resolution of a conflict counts": "retries",
    "a tag that has lost once cannot lose again": "retries-of-three",
    "processed entries are not carried over": "retries-delivered",
    "effects do not wait for their causes": "entries-of-three",
    "effects leave before they are synced": "slow-disks",
    "the epoch is kept after a power failure": "power",
    "batches of former epochs are kept": "blackouts",
    "no region reports a former epoch": "lost-disks",
    "a join drops what the other has not seen": "full-syncs",
    "a join brings back what was removed": "full-syncs",
    "a region refuses long batches that another one writes": "turns",
    "no reply waits for the log": "slow-disks",
    "written effects count as synced": "slow-disks",
    "a full sync is not kept until a snapshot contains it": "full-syncs-broken-off",
    "a newcomer takes writes at once": "lost-disks",
    "a region that begins anew asks one member only": "lost-disks-of-three",
    "a transfer does not end with its link": "full-syncs-broken-off",
    "a peer is granted no more than at first": "turns",
    "a unit is applied before all of it has come": "turns",
    "a silent link is never given up": "silence",
    # strings and counters
    "the write that arrives last counts": "strings",
    "the write with the lowest stamp counts": "strings",
    "SET removes increments that it has not seen": "set-or-incr",
    "DEL removes writes that it has not seen": "strings-or-streams",
    "DEL keeps increments that it has seen": "del-or-incr",
    "what was seen of increments is forgotten at once": "del-or-incr",
    "each increment begins a new total": "del-or-incr",
    "a full sync forgets what was seen of increments": "full-syncs-of-counters",
    "a full sync brings back increments": "full-syncs-of-counters",
    "EXPIRE changes writes that it has not seen": "strings",
    "the deadline of another write counts": "strings",
    "a stream drops the string that it meets": "strings-or-streams",
    "snapshots leave writes out": "full-syncs-of-counters",
    "SET keeps the deadline": "strings",
    # sets and lists
    "SREM and pops take what they have not seen": "sets",
    "SADD of a member that is there changes nothing": "sets",
    "DEL removes elements that it has not seen": "types-that-meet",
    "DEL takes what came by a full sync for seen": "full-syncs-and-del",
    "LSET removes an item that it has not seen": "set-at-once",
    "of items set at once the one that came first counts": "set-at-once",
    "items stand in the order of their arrival": "lists",
    "RPUSH puts items before the last one": "lists",
    "a pop of several items leaves the last one": "lists",
    "a full sync brings back what was taken": "full-syncs-of-elements",
    "a full sync drops what the other side lacks": "full-syncs-of-elements",
    "snapshots leave lists out": "full-syncs-of-elements",
    "a stream drops the set that it meets": "types-that-meet",
    "a list hides a set": "types-that-meet",
    "a new set has the deadline of the former one": "expiring-sets",
    "draws meet members that are gone": "sets",
    "RENAME and COPY leave out what a set hides": "values-renamed",
    # policies, scheduled entries, dead letters
    "a home is handed over before that is on the disk": "homes-and-power",
    "what is pending is not handed over": "homes",
    "a home begins without a hand-over": "homes-and-full-syncs",
    "the home that is told last counts": "homes-of-three",
    "nobody compares what two homes delivered": "homes-taken",
    "a former home says nothing after a forced take": "homes-taken",
    "what is acknowledged elsewhere is not noted": "homes-taken",
    "all that is pending is told as acknowledged": "every-acknowledgement",
    "acknowledged intervals reach too far": "every-acknowledgement",
    "what NOACK delivers is not told": "told-one-by-one",
    "of several acknowledged entries one is told": "told-one-by-one",
    "what was held back stays so with acks all": "told-later",
    "what was given up is told later": "told-later",
    "the policy that arrives last counts": "settings",
    "the limits of idempotent IDs that arrive last count": "settings",
    "each region adds a copy": "dead-letters",
    "every region adds a scheduled entry": "scheduled",
    "nobody adds what a removed region has scheduled": "scheduled-and-leaving",
    "of two additions both stay": "scheduled-twice",
    "of two additions each region keeps another one": "scheduled-twice",
    "additions are forgotten at once": "scheduled-twice",
}
"""By mistake, the world that finds it."""

VARIANTS: Final[dict[str, str]] = {
    "pending lists are dropped on import, in the simulator": "pending lists are dropped on import",
    "a cursor is flattened on export, in the simulator": "a cursor is flattened on export",
    "only tags that answer retries find conflicts": "tags are forgotten at the limit",
    "only the region of the losing entry acts, in histories": (
        "only the region of the losing entry acts"
    ),
}
"""Mistakes that change the code as another one does."""

NOT_OF_REGIONS: Final[dict[str, str]] = {
    "the epoch is kept after the end of the log was cut off": "flipped bits on a disk",
    "a hole counts as damage": "holes in unsynced data",
    "damaged batches are sent": "flipped bits on a disk",
    "a number in use is given to another server": "a second server with the number of a region",
    "a snapshot shows several moments": "snapshots in slices",
    "a snapshot shows several moments, in the simulator": "snapshots in slices",
    "replies made before the trouble go out": "disks that refuse writes",
    "reads are not refused in trouble": "disks that refuse writes",
    "a stop counts as orderly although the disk is full": "disks that refuse writes",
    "a snapshot has its name before it is synced": "a power failure within a snapshot",
    "the log goes before the snapshot is there": "a kill within a snapshot",
    "a DUMP in slices shows later acknowledgements": "commands in slices",
}
"""Mistakes that concern one process, and what no world has; the simulator finds them."""


REDUCTIONS: Final = tuple(each.name for each in fields(Reductions))


def search_with(name: str, world: str, states_max: int = 0, without: str = "") -> Explored:
    """Search a world with a mistake built in, ``without`` one of the reductions."""
    reductions = Reductions(**{without: False}) if without else Reductions()
    with pytest.MonkeyPatch.context() as patch:
        BUILT_IN[name](patch)
        return Search(world_named(world), reductions, situations_max=states_max).run()


def _row(given: tuple[str, str, int, str, bool]) -> tuple[str, bool]:
    name, world, states_max, without, is_verbose = given
    explored = search_with(name, world, states_max, without)
    if explored.problem is None:
        return f"| {name} | **not found** in {explored.situations} | | {world} |", False
    row = f"| {name} | {explored.situations} | {len(explored.path)} | {world} |"
    if is_verbose:
        row += "\n" + "\n".join(
            [*(f"    {line_of(move)}" for move in explored.path), describe(explored.problem)]
        )
    return row, True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="so many processes")
    parser.add_argument(
        "--only", default="", help="mistakes with one of these in their names, with commas between"
    )
    parser.add_argument("--states", type=int, default=0, help="give up after so many; 0: never")
    parser.add_argument(
        "--without", default="", choices=REDUCTIONS, help="switch this reduction of the search off"
    )
    parser.add_argument("--worlds", default="", help="search these worlds instead, or all")
    parser.add_argument("--verbose", action="store_true", help="print the counterexamples")
    chosen = parser.parse_args(arguments)
    all_worlds = [world.name for world in WORLDS]
    others = all_worlds if chosen.worlds == "all" else [*filter(None, chosen.worlds.split(","))]
    tried = [
        (name, world, chosen.states, chosen.without, chosen.verbose)
        for name, usual in FOUND_IN.items()
        for world in (others or [usual])
        if any(part in name for part in chosen.only.split(","))
    ]
    print("| Mistake | states until it is found | steps | world |")  # noqa: T201
    print("|---|---|---|---|")  # noqa: T201
    missed = 0
    with ProcessPoolExecutor(chosen.jobs, initializer=seldom_collected) as pool:
        for done in as_completed([pool.submit(_row, each) for each in tried]):
            row, is_found = done.result()
            missed += not is_found
            print(row, flush=True)  # noqa: T201
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
