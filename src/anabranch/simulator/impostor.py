"""A second server that asks a member to admit it under a number that is in use."""

from __future__ import annotations

from typing import Final

from anabranch.config.settings import Settings
from anabranch.simulator.machine import HOST, Machine, Process
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.simulation import Simulation

PLACE: Final = 100
"""The distance of its place in the network from the place of the region with that number."""

ASKS_MS: Final = 1500.0

LOOK_MS: Final = 5.0

HEARD_MS: Final = 2000.0
"""A region that was heard of within this time must be known to be alive."""


def impersonate(run: Simulation, owner: Machine, asked: Machine) -> None:
    """Ask for a while. While all members know the first region to be alive, they must refuse."""
    impostor = Machine(
        Settings(region_id=owner.number, **run.settings),
        run.timeline,
        run.network,
        RunRecord(run.timeline),
        run.chance(f"impostor of {owner.number}"),
        lambda _process: None,
    )
    impostor.place = owner.number + PLACE
    impostor.seeds = [(HOST, run.network.port(asked.number))]
    running = [machine.process for machine in run.members()]
    until_ms = run.timeline.now_ms + ASKS_MS
    run.record.say(impostor.place, f"asks {asked.number} for the number {owner.number}")

    def look() -> None:
        process = impostor.process
        if process is None:
            return
        if process.replica.cluster_id:
            raise Violation(
                23, f"another server was taken in as region {owner.number}, which is alive"
            )
        is_known = running == [machine.process for machine in run.members()] and all(
            each is not None and _has_heard_of(each, owner) for each in running
        )
        if is_known and run.timeline.now_ms < until_ms:
            run.timeline.after(LOOK_MS, look)
            return
        refusal = "is taken by another server"
        run.record.reached["number in use refused"] += any(
            refusal in line for line in impostor.record.lines
        )
        impostor.kill()

    impostor.start()
    look()


def _has_heard_of(process: Process, machine: Machine) -> bool:
    """Whether a region knows that another one is alive."""
    if process is machine.process:
        return True
    heard_ms = process.replicator.links.rows.heard_ms.get(machine.number)
    return heard_ms is not None and process.machine.timeline.now_ms - heard_ms < HEARD_MS
