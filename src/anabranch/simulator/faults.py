"""What goes wrong in a run: each sort of fault has chance of its own, so that one can be left out.

A run has some of the sorts that were asked for, each with a rate of its own. Faults end with the
first part of a run; :func:`heal` then puts everything right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from anabranch.simulator.disk import Fault
from anabranch.simulator.impostor import impersonate
from anabranch.simulator.network import Line
from anabranch.simulator.node import Node

if TYPE_CHECKING:
    from anabranch.simulator.simulation import Simulation

__all__ = ["FAULTS", "drawn", "heal"]

SHARE: Final = 0.6
"""How likely a sort of fault that was asked for is part of a run."""


def drawn(seed: int, asked_for: Iterable[str]) -> tuple[str, ...]:
    """The sorts of faults in the run of a seed."""
    return tuple(
        name
        for name in FAULTS
        if name in set(asked_for) and random.Random(f"{seed}/{name}/drawn").random() < SHARE
    )


def _again(
    run: Simulation, chance: random.Random, mean_ms: float, action: Callable[[], None]
) -> None:
    """Have something happen now and then, as long as things go wrong."""

    def happen() -> None:
        if run.is_breaking:
            action()
            wait()

    def wait() -> None:
        run.timeline.after(chance.expovariate(1 / mean_ms), happen)

    wait()


def _every(run: Simulation, chance: random.Random) -> float:
    """A mean distance for this run: from a few times in it to often."""
    return run.breaking_ms / chance.choice([2, 4, 8, 16])


# -- network --------------------------------------------------------------------------------------


def _partition(run: Simulation, chance: random.Random) -> None:
    """Lines are cut: one way or both, between two regions or around one; some flap."""

    def cut() -> None:
        one, other = chance.sample([node.number for node in run.nodes], 2)
        pairs = [(one, other), (other, one)]
        dice = chance.random()
        if dice < 0.25:
            pairs = pairs[:1]
        elif dice < 0.5:
            pairs = [
                pair
                for node in run.nodes
                if node.number != one
                for pair in ((one, node.number), (node.number, one))
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
    """Lines are slow, unevenly, and change; processes stand still."""

    def change() -> None:
        source, target = chance.sample([node.number for node in run.nodes], 2)
        line = run.network.line(source, target)
        line.delay_ms = chance.choice([1, 10, 50, 200])
        line.jitter_ms = chance.choice([1, 20, 200])
        line.tail = chance.choice([0, 0.01, 0.1])
        line.tail_ms = chance.choice([200, 1000])
        line.rate = chance.choice([0, 0, 0, 1, 10])
        run.record.say("net", f"{source} to {target}: {line}")

    for _ in range(2 * len(run.nodes)):
        change()
    _again(run, chance, _every(run, chance), change)
    if chance.random() < 0.5:
        longest = chance.choice([300, 3000, 10_000, 60_000])
        _again(
            run, chance, _every(run, chance),
            lambda: chance.choice(run.nodes).pause(chance.random() * longest),
        )  # fmt: skip


def _loss(run: Simulation, chance: random.Random) -> None:
    """Connections break; some bits are turned over."""
    for one in run.nodes:
        for other in run.nodes:
            line = run.network.line(one.number, other.number)
            line.loss = chance.choice([0, 0.001, 0.01, 0.03])
            line.half_open = chance.choice([0, 0.3])
            line.flip = chance.choice([0, 0, 0.001, 0.005])


def _duplicate(run: Simulation, chance: random.Random) -> None:
    """Batches arrive twice."""
    for one in run.nodes:
        for other in run.nodes:
            run.network.line(one.number, other.number).twice = chance.choice([0, 0.01, 0.2, 1])


# -- processes and machines -----------------------------------------------------------------------


def _crash(run: Simulation, chance: random.Random) -> None:
    """Processes are killed or stopped, and start again."""

    def crash() -> None:
        node = chance.choice(run.nodes)
        if node.process is None:
            return
        if chance.random() < 0.3:
            node.stop()
        else:
            node.kill()
        run.timeline.after(chance.choice([10, 300, 2000, 6000]), node.start)

    def snapshot() -> None:
        node = chance.choice(run.nodes)
        if node.process is not None:
            node.process.happen(node.process.begin_snapshot)

    _again(run, chance, _every(run, chance), crash)
    _again(run, chance, _every(run, chance), snapshot)


def _power(run: Simulation, chance: random.Random) -> None:
    """Machines lose what was not synced; sometimes several at once, or one again soon."""

    def fail() -> None:
        for node in chance.sample(run.nodes, chance.choice([1, 1, 1, 2])):
            if node.process is not None:
                node.lose_power()
                run.timeline.after(chance.choice([10, 300, 2000, 6000]), node.start)
                if chance.random() < 0.3:
                    run.timeline.after(6000 + chance.random() * 1500, lambda node=node: again(node))  # type: ignore[misc]

    def again(node: Node) -> None:
        if run.is_breaking and node.process is not None:
            node.lose_power()
            run.timeline.after(10, node.start)

    def remember() -> None:
        node = chance.choice(run.nodes)
        if node.process is not None and run.is_breaking:
            node.note_position(node.process)

    _again(run, chance, _every(run, chance), fail)
    _again(run, chance, 100, remember)


def _blackout(run: Simulation, chance: random.Random) -> None:
    """All machines but one fail, while that one waits for causes that it may have to do without."""

    def look() -> None:
        waiting = [
            node
            for node in run.nodes
            if node.process is not None and len(node.process.replicator._receiver.buffer)  # noqa: SLF001
        ]
        if not waiting or chance.random() < 0.5:
            return
        survivor = chance.choice(waiting)
        for node in run.nodes:
            if node is not survivor and node.process is not None:
                node.lose_power()
                run.timeline.after(chance.choice([10, 300, 2000]), node.start)
        run.record.reached["blackout"] += 1

    _again(run, chance, run.breaking_ms / 60, look)


def _skew(run: Simulation, chance: random.Random) -> None:
    """Clocks are wrong, and are set."""
    run.checks.configured = True
    for node in run.nodes:
        node.clock.offset_ms = chance.choice([0, -2000, 3000, -600_000, 600_000]) * chance.random()
        node.clock.drift = chance.choice([0, 0.001, -0.001, -1.0])  # the last one stands still

    def jump() -> None:
        node = chance.choice(run.nodes)
        node.clock.offset_ms += chance.choice([-5000, -200, 200, 5000, -60_000])
        run.record.reached["clock jumped"] += 1
        run.record.say(node.number, f"has a clock that is off by {node.clock.offset_ms:.0f} ms")

    _again(run, chance, _every(run, chance), jump)


def _disk(run: Simulation, chance: random.Random) -> None:
    """Disks are full, or fail for a moment."""

    def fail() -> None:
        node = chance.choice(run.nodes)
        dice = chance.random()
        if dice < 0.5:
            node.disk.free = chance.randint(0, 300)
            run.record.say(node.number, f"has {node.disk.free} bytes of disk left")
            run.record.reached["disk full"] += 1
            run.timeline.after(chance.random() * 5000, lambda: _empty(node))
        elif dice < 0.85:
            node.disk.faults.append(
                Fault("write", times=chance.randint(1, 4), keep=chance.randint(0, 30))
            )
            run.record.say(node.number, "fails to write")
            run.record.reached["write error"] += 1
        else:
            node.disk.faults.append(Fault("sync"))
            run.record.say(node.number, "fails to sync")
            run.record.reached["sync error"] += 1
            run.timeline.after(3000, lambda: _replace(run, node))

    _again(run, chance, _every(run, chance), fail)


def _memory(run: Simulation, chance: random.Random) -> None:
    """Machines have no memory for what others send."""

    def fill() -> None:
        node = chance.choice(run.nodes)
        node.is_full = True
        run.record.say(node.number, "has no memory left")
        run.record.reached["memory full"] += 1
        run.timeline.after(chance.random() * 5000, lambda: _make_room(node))

    _again(run, chance, _every(run, chance), fill)


def _make_room(node: Node) -> None:
    node.is_full = False


def _rot(run: Simulation, chance: random.Random) -> None:
    """A disk forgets a bit of a log, once."""

    def rot() -> None:
        nodes = [node for node in run.nodes if _can_be_wiped(run, node)]
        if run.is_breaking and not (nodes and chance.choice(nodes).rot()):
            run.timeline.after(100, rot)

    run.timeline.after(chance.random() * run.breaking_ms, rot)


def _empty(node: Node) -> None:
    node.disk.free = None


def _replace(run: Simulation, node: Node) -> None:
    """An operator restarts what does not write any more."""
    if node.process is not None and node.process.journal.broken:
        node.kill()
        run.timeline.after(100, node.start)


# -- cluster --------------------------------------------------------------------------------------


def _membership(run: Simulation, chance: random.Random) -> None:
    """A region comes late; one loses its disk; one is removed."""
    last = run.nodes[-1]
    if len(run.nodes) > 2 and chance.random() < 0.5:
        last.stop()
        last.lose_disk()
        run.timeline.after(chance.random() * run.breaking_ms, last.start)

    def lose() -> None:
        node = chance.choice(run.nodes)
        if run.is_breaking and _can_be_wiped(run, node):
            run.lose_disk(node)
            run.timeline.after(chance.choice([10, 2000]), node.start)

    def remove() -> None:
        node, by = chance.sample(run.nodes, 2)
        # Whoever is left must know the cluster, or there is none any more.
        if run.is_breaking and len(_settled(run)) == len(run.members()) > 2:
            run.remove(node, by)

    if chance.random() < 0.5:
        run.timeline.after(chance.random() * run.breaking_ms, lose)
    if chance.random() < 0.4:
        run.timeline.after(chance.random() * run.breaking_ms, remove)


def _impostor(run: Simulation, chance: random.Random) -> None:
    """A second server asks to join under a number that is in use."""

    def appear() -> None:
        if not run.is_breaking:
            return
        members = _settled(run)
        owner, asked = chance.sample(run.nodes, 2)
        if len(members) < len(run.members()) or owner.is_removed or asked.is_removed:
            run.timeline.after(100, appear)
        else:
            impersonate(run, owner, asked)

    for _ in range(8):
        run.timeline.after(chance.random() * run.breaking_ms, appear)


def _can_be_wiped(run: Simulation, node: Node) -> bool:
    """Whether all others know the life of a region: it has to hear of it from whom it asks."""
    if node.process is None:
        return False
    own = node.process.replica.own
    others = [each for each in _settled(run) if each is not node]
    return (
        bool(others)
        and not node.is_removed
        and all(each.process is not None and own in each.process.replica.vector for each in others)
    )


def _settled(run: Simulation) -> list[Node]:
    """Members that run and belong to the cluster."""
    return [each for each in run.members() if each.process is not None and each.process.cluster_id]


def _limits(run: Simulation, chance: random.Random) -> None:
    """Nothing has room: settled when the regions were made, see :class:`Simulation`."""

    def snapshot() -> None:
        node = chance.choice(run.nodes)
        if node.process is not None:
            node.process.happen(node.process.begin_snapshot)

    _again(run, chance, run.breaking_ms / 12, snapshot)


def _retries(run: Simulation, chance: random.Random) -> None:
    """Producers get no answers, and repeat in any region what they sent lately."""
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
    "impostor": _impostor,
    "limits": _limits,
    "retries": _retries,
}


def heal(run: Simulation) -> None:
    """Put everything right."""
    for pair, line in list(run.network.lines.items()):
        if line.cut:
            run.network.mend(*pair)
        run.network.lines[pair] = Line()
    run.network.hurry()
    for node in run.nodes:
        node.wake()
        node.clock.offset_ms = node.clock.drift = 0.0
        node.disk.faults.clear()
        node.disk.free = None
        node.is_full = False
        if node.process is not None and node.process.journal.broken:
            node.kill()
        node.start()
