"""The faults of a run. Each kind has its own random numbers, so that one kind can be left out.

A run has some of the requested kinds, each with its own rate. Faults end with the first part of a
run; then :func:`heal` ends all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch.simulator.disk import DiskFault
from anabranch.simulator.impostor import impersonate
from anabranch.simulator.machine import Machine, Process
from anabranch.simulator.network import Line
from anabranch.simulator.simulation import FaultPlan, Outcome, Simulation

SHARE: Final = 0.6
"""The probability that a requested kind of fault is part of a run."""


def planned(seed: int, asked_for: Iterable[str]) -> FaultPlan:
    """What happens in the run of a seed, of the kinds that were asked for."""

    def begin(run: Simulation, name: str) -> None:
        FAULTS[name](run, run.chance(name))

    return FaultPlan(drawn(seed, asked_for), begin, heal)


def drawn(seed: int, asked_for: Iterable[str]) -> tuple[str, ...]:
    """The kinds of faults in the run of a seed."""
    return tuple(
        name
        for name in FAULTS
        if name in set(asked_for) and random.Random(f"{seed}/{name}/drawn").random() < SHARE
    )


def _again(
    run: Simulation, chance: random.Random, mean_ms: float, action: Callable[[], None]
) -> None:
    """Call ``action`` again and again, until the faults end."""

    def happen() -> None:
        if run.is_breaking:
            action()
            wait()

    def wait() -> None:
        run.timeline.after(chance.expovariate(1 / mean_ms), happen)

    wait()


def _every(run: Simulation, chance: random.Random) -> float:
    """A mean interval for this run: from a few occurrences to many."""
    return run.breaking_ms / chance.choice([2, 4, 8, 16])


def _snapshots(run: Simulation, chance: random.Random, mean_ms: float) -> None:
    """Regions write snapshots."""

    def snapshot() -> None:
        machine = chance.choice(run.machines)
        if machine.process is not None:
            machine.process.happen(machine.process.begin_snapshot)

    _again(run, chance, mean_ms, snapshot)


# -- network --------------------------------------------------------------------------------------


def _partition(run: Simulation, chance: random.Random) -> None:
    """Lines are cut in one or both directions, between two regions or around one; some flap."""

    def cut() -> None:
        one, other = chance.sample([machine.number for machine in run.machines], 2)
        pairs = [(one, other), (other, one)]
        dice = chance.random()
        if dice < 0.25:
            pairs = pairs[:1]
        elif dice < 0.5:
            pairs = [
                pair
                for machine in run.machines
                if machine.number != one
                for pair in ((one, machine.number), (machine.number, one))
            ]
        times = chance.choice([1, 1, 1, 5])
        length = chance.choice([200, 1000, 3000, 8000, 20_000]) * chance.random() / times

        def toggle(left: int, to_cut: bool) -> None:
            for pair in pairs:
                if to_cut and run.is_breaking:
                    run.network.line(*pair).cut = True
                elif not to_cut:
                    run.network.mend(*pair)
            run.record.say("net", f"{'cut' if to_cut else 'mended'} {pairs}")
            run.record.reached["partition"] += to_cut
            if left:
                run.timeline.after(length, lambda: toggle(left - 1, not to_cut))

        toggle(2 * times - 1, True)

    _again(run, chance, _every(run, chance), cut)


def _delay(run: Simulation, chance: random.Random) -> None:
    """Lines have delays that vary; processes stand still for a while."""

    def change() -> None:
        source, target = chance.sample([machine.number for machine in run.machines], 2)
        line = run.network.line(source, target)
        line.delay_ms = chance.choice([1, 10, 50, 200])
        line.jitter_ms = chance.choice([1, 20, 200])
        line.tail = chance.choice([0, 0.01, 0.1])
        line.tail_ms = chance.choice([200, 1000])
        line.rate = chance.choice([0, 0, 0, 1, 10])
        run.record.say("net", f"{source} to {target}: {line}")

    for _ in range(2 * len(run.machines)):
        change()
    _again(run, chance, _every(run, chance), change)
    if chance.random() < 0.5:
        longest = chance.choice([300, 3000, 10_000, 60_000])
        _again(
            run, chance, _every(run, chance),
            lambda: chance.choice(run.machines).pause(chance.random() * longest),
        )  # fmt: skip


def _loss(run: Simulation, chance: random.Random) -> None:
    """Connections break; some bits are flipped."""
    for one in run.machines:
        for other in run.machines:
            line = run.network.line(one.number, other.number)
            line.loss = chance.choice([0, 0.001, 0.01, 0.03])
            line.half_open = chance.choice([0, 0.3])
            line.flip = chance.choice([0, 0, 0.001, 0.005])


def _duplicate(run: Simulation, chance: random.Random) -> None:
    """Deliver batches twice for some time."""
    for one in run.machines:
        for other in run.machines:
            run.network.line(one.number, other.number).twice = chance.choice([0, 0.01, 0.2, 1])


# -- processes and machines -----------------------------------------------------------------------


def _crash(run: Simulation, chance: random.Random) -> None:
    """Processes are killed or stopped, and start again."""

    def crash() -> None:
        machine = chance.choice(run.machines)
        if machine.process is None:
            return
        if chance.random() < 0.3:
            machine.stop()
        else:
            machine.kill()
        run.timeline.after(chance.choice([10, 300, 2000, 6000]), machine.start)

    _again(run, chance, _every(run, chance), crash)
    _snapshots(run, chance, _every(run, chance))


def _power(run: Simulation, chance: random.Random) -> None:
    """Machines lose what was not synced; sometimes several at once."""

    def fail() -> None:
        for machine in chance.sample(run.machines, chance.choice([1, 1, 1, 2])):
            if machine.process is not None:
                machine.lose_power()
                run.timeline.after(chance.choice([10, 300, 2000, 6000]), machine.start)

    def remember() -> None:
        machine = chance.choice(run.machines)
        if machine.process is not None and run.is_breaking:
            machine.record_position(machine.process)

    _again(run, chance, _every(run, chance), fail)
    _again(run, chance, 100, remember)


def _blackout(run: Simulation, chance: random.Random) -> None:
    """All machines but one fail, while that one waits for causes that may be lost."""

    def look() -> None:
        waiting = [
            machine
            for machine in run.machines
            if machine.process is not None and len(machine.process.replicator.receiver.buffer)
        ]
        if not waiting or chance.random() < 0.5:
            return
        survivor = chance.choice(waiting)
        for machine in run.machines:
            if machine is not survivor and machine.process is not None:
                machine.lose_power()
                run.timeline.after(chance.choice([10, 300, 2000]), machine.start)
        run.record.reached["blackout"] += 1

    _again(run, chance, run.breaking_ms / 60, look)


def _skew(run: Simulation, chance: random.Random) -> None:
    """Clocks are wrong, and are set again."""
    run.checks.configured = True
    for machine in run.machines:
        machine.clock.offset_ms = (
            chance.choice([0, -2000, 3000, -600_000, 600_000]) * chance.random()
        )
        machine.clock.drift = chance.choice([0, 0.001, -0.001, -1.0])  # the last one stands still

    def jump() -> None:
        machine = chance.choice(run.machines)
        machine.clock.offset_ms += chance.choice([-5000, -200, 200, 5000, -60_000])
        run.record.reached["clock jumped"] += 1
        run.record.say(
            machine.number, f"has a clock that is off by {machine.clock.offset_ms:.0f} ms"
        )

    _again(run, chance, _every(run, chance), jump)


def _disk(run: Simulation, chance: random.Random) -> None:
    """Disks are full, or fail for a moment."""

    def fail() -> None:
        machine = chance.choice(run.machines)
        dice = chance.random()
        if dice < 0.5:
            machine.disk.free = chance.randint(0, 300)
            run.record.say(machine.number, f"has {machine.disk.free} bytes of disk left")
            run.record.reached["disk full"] += 1
            run.timeline.after(chance.random() * 5000, lambda: _free_disk(machine))
        elif dice < 0.85:
            machine.disk.faults.append(
                DiskFault("write", times=chance.randint(1, 4), keep=chance.randint(0, 30))
            )
            run.record.say(machine.number, "fails to write")
            run.record.reached["write error"] += 1
        else:
            machine.disk.faults.append(DiskFault("sync"))
            run.record.say(machine.number, "fails to sync")
            run.record.reached["sync error"] += 1
            run.timeline.after(3000, lambda: _replace(run, machine))

    def slow_down() -> None:
        """Syncs take longer than a policy of everysec allows for."""
        process = slowness.choice(run.machines).process
        if process is not None:
            process.driver.least_work_ms = 3500.0
            run.timeline.after(5000, lambda: _hurry(process))

    slowness = run.chance("slow disk")
    _again(run, chance, _every(run, chance), fail)
    _again(run, slowness, _every(run, slowness), slow_down)


def _hurry(process: Process) -> None:
    process.driver.least_work_ms = 0.0


def _memory(run: Simulation, chance: random.Random) -> None:
    """Machines have no memory for effects of other regions."""

    def fill() -> None:
        machine = chance.choice(run.machines)
        machine.is_full = True
        run.record.say(machine.number, "has no memory left")
        run.record.reached["memory full"] += 1
        run.timeline.after(chance.random() * 5000, lambda: _free_memory(machine))

    _again(run, chance, _every(run, chance), fill)


def _free_memory(machine: Machine) -> None:
    machine.is_full = False


def _rot(run: Simulation, chance: random.Random) -> None:
    """One bit of a log flips on a disk, and one or two of the last bits after kills."""
    end_chance = run.chance("rot at the end")

    def rot() -> None:
        machines = [machine for machine in run.machines if _can_be_wiped(run, machine)]
        if run.is_breaking and not (machines and chance.choice(machines).rot()):
            run.timeline.after(100, rot)

    def rot_end() -> None:
        """Flip one of the last bits: a start must not take this damage for a torn end."""
        machines = [machine for machine in run.machines if _can_be_wiped(run, machine)]
        if not run.is_breaking:
            return
        if not machines:
            run.timeline.after(100, rot_end)
            return
        machine = end_chance.choice(machines)
        machine.kill()
        run.record.reached["end of the log damaged after a kill"] += machine.rot_end()
        run.timeline.after(end_chance.choice([10, 300]), machine.start)

    run.timeline.after(chance.random() * run.breaking_ms, rot)
    for _ in range(end_chance.choice([1, 2])):
        run.timeline.after(end_chance.random() * run.breaking_ms, rot_end)


def _free_disk(machine: Machine) -> None:
    machine.disk.free = None


def _replace(run: Simulation, machine: Machine) -> None:
    """An operator restarts processes that do not write any more."""
    if machine.process is not None and machine.process.durability.broken:
        machine.kill()
        run.timeline.after(100, machine.start)


# -- cluster --------------------------------------------------------------------------------------


def _membership(run: Simulation, chance: random.Random) -> None:
    """A region joins late; one loses its disk; one is removed."""
    absence = run.chance("absence")
    last = run.machines[-1]
    if len(run.machines) > 2 and chance.random() < 0.5:
        last.stop()
        last.lose_disk()
        run.timeline.after(chance.random() * run.breaking_ms / 2, last.start)

    def lose() -> None:
        machine = chance.choice(run.machines)
        if run.is_breaking and _can_be_wiped(run, machine):
            run.lose_disk(machine)
            run.timeline.after(chance.choice([10, 2000]), machine.start)

    def lose_before_one_that_knows_less() -> None:
        """A region loses its disk while the only other region that is up was down before."""
        if len(members := run.members()) < 3 or not run.is_breaking:
            return
        loser, late, keeper = absence.sample(members, 3)
        if len(_running_members(run)) == len(members) and _can_be_wiped(run, loser):
            late.kill()
            run.timeline.after(absence.choice([500, 1500]), lambda: lose_both(loser, late, keeper))
        else:
            run.timeline.after(100, lose_before_one_that_knows_less)

    def lose_both(loser: Machine, late: Machine, keeper: Machine) -> None:
        late.start()
        # Other faults have happened since: a keeper that does not come back loses everything.
        if keeper.process is not None and not keeper.is_rotten and _can_be_wiped(run, loser):
            run.lose_disk(loser)
            keeper.kill()
            run.timeline.after(10, loser.start)
            run.timeline.after(absence.choice([300, 3000, 15_000]), keeper.start)
            run.record.reached["disk lost before one that knows less"] += 1

    def remove() -> None:
        machine, by = chance.sample(run.machines, 2)
        # The remaining regions must know the cluster, or there is none any more.
        if len(_running_members(run)) == len(run.members()) > 2 and run.is_breaking:
            run.remove(machine, by)
        elif run.is_breaking:
            run.timeline.after(100, remove)

    if chance.random() < 0.5:
        run.timeline.after(chance.random() * run.breaking_ms / 2, lose)
    if chance.random() < 0.6:
        run.timeline.after(chance.random() * run.breaking_ms / 2, remove)
    if len(run.machines) > 2 and absence.random() < 0.6:
        run.timeline.after(absence.random() * run.breaking_ms / 2, lose_before_one_that_knows_less)


def _interruption(run: Simulation, chance: random.Random) -> None:
    """Some full syncs are interrupted: the link ends, or the process, or the power fails.

    Most full syncs begin when the other faults are over, so this goes on until all regions agree.
    """
    left = chance.choice([1, 2, 4])

    def look() -> None:
        nonlocal left
        if not left or run.has_agreed:
            return
        for machine in run.machines:
            if left and machine.process is not None and chance.random() < 0.5:
                left -= interrupt(machine, machine.process)
        run.timeline.after(chance.expovariate(1 / 20), look)

    def interrupt(machine: Machine, process: Process) -> bool:
        incoming = process.replicator.receiver.joiner.incoming
        end = None if incoming is None else process.wire.ends.get(incoming.session.link)
        if end is not None and chance.random() < 0.5:
            run.network.lose(end)
        elif incoming is not None:
            machine.kill()
        elif process.has_unsynced_join:
            machine.lose_power()
        else:
            return False
        run.timeline.after(10, machine.start)
        return True

    look()


def _impostor(run: Simulation, chance: random.Random) -> None:
    """A second server asks to join under a number that is in use."""

    def appear() -> None:
        if not run.is_breaking:
            return
        members = _running_members(run)
        owner, asked = chance.sample(run.machines, 2)
        if len(members) < len(run.members()) or owner.is_removed or asked.is_removed:
            run.timeline.after(100, appear)
        else:
            impersonate(run, owner, asked)

    for _ in range(8):
        run.timeline.after(chance.random() * run.breaking_ms, appear)


def _can_be_wiped(run: Simulation, machine: Machine) -> bool:
    """Whether all others know the epoch of a region, and one of them has a disk that can be read.

    The one that it asks must know the epoch. A start from a damaged log may be refused, so a region
    with one counts as lost.
    """
    if machine.process is None:
        return False
    own = machine.process.replica.own
    others = [each for each in _running_members(run) if each is not machine]
    return (
        any(not each.is_rotten for each in others)
        and not machine.is_removed
        and all(each.process is not None and own in each.process.replica.vector for each in others)
    )


def _running_members(run: Simulation) -> list[Machine]:
    """Members that run and belong to the cluster."""
    return [
        each
        for each in run.members()
        if each.process is not None and each.process.replica.cluster_id
    ]


def _limits(run: Simulation, chance: random.Random) -> None:
    """Limits are small: :class:`Simulation` sets them when it makes the regions."""
    _snapshots(run, chance, run.breaking_ms / 12)


def _slices(run: Simulation, chance: random.Random) -> None:
    """The scheduler cuts work by the clock: see :class:`Simulation`, which makes the regions so."""
    del run, chance


def _retries(run: Simulation, chance: random.Random) -> None:
    """Producers get no answers, and repeat their last messages in any region."""
    del chance
    run.work.repeat()


FAULTS: Final[dict[str, Callable[[Simulation, random.Random], None]]] = {
    "partition": _partition,
    "delay": _delay,
    "loss": _loss,
    "duplicate": _duplicate,
    "crash": _crash,
    "power": _power,
    "blackout": _blackout,
    "skew": _skew,
    "disk": _disk,
    "memory": _memory,
    "rot": _rot,
    "membership": _membership,
    "interruption": _interruption,
    "impostor": _impostor,
    "limits": _limits,
    "slices": _slices,
    "retries": _retries,
}


def heal(run: Simulation) -> None:
    """End all faults: links, disks and processes are sound again."""
    for pair, line in list(run.network.lines.items()):
        if line.cut:
            run.network.mend(*pair)
        run.network.lines[pair] = Line()
    run.network.hurry()
    for machine in run.machines:
        machine.wake()
        machine.clock.offset_ms = machine.clock.drift = 0.0
        machine.disk.faults.clear()
        machine.disk.free = None
        machine.is_full = False
        if machine.process is not None:
            _hurry(machine.process)
            if machine.process.durability.broken:
                machine.kill()
        machine.start()


# -- whole runs from a seed -----------------------------------------------------------------------


def prepared(
    seed: int, *, regions: int = 3, minutes: float = 5, faults: Iterable[str] = FAULTS
) -> Simulation:
    """The run of a seed, before it begins; of the faults those happen that the seed draws."""
    return Simulation(seed, regions=regions, minutes=minutes, plan=planned(seed, faults))


def simulate(
    seed: int,
    *,
    regions: int = 3,
    minutes: float = 5,
    faults: Iterable[str] = FAULTS,
    on_progress: Callable[[Simulation], None] | None = None,
) -> Outcome:
    """Run a cluster from a seed; the result says whether all checks held."""
    run = prepared(seed, regions=regions, minutes=minutes, faults=faults)
    if on_progress is not None:
        run.on_progress = on_progress
    return run.run()


def smallest(outcome: Outcome, *, regions: int, minutes: float) -> Outcome:
    """Reduce a failed run to the fewest kinds of faults with which it fails in the same way."""
    best = outcome
    left: Sequence[str] = outcome.faults
    for name in outcome.faults:
        fewer = [each for each in left if each != name]
        found = simulate(outcome.seed, regions=regions, minutes=minutes, faults=fewer)
        if found.problem is not None and found.is_like(outcome):
            best, left = found, fewer
    return best
