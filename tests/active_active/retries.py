"""Producers that retry: ``python -m tests.active_active.retries --seeds 1-1000``, random histories.

Producers send messages and repeat them in other regions, over cuts that outlast every limit of what
is remembered. What must come of it is worked out from the replies alone: of all entries that were
accepted for a message the one with the smallest ID is left, unless somebody deleted it. Regions are
cut off, get effects piece by piece or full syncs, restart, and open new epochs meanwhile. In some
histories a region stays away until the end. Whatever a region has heard of, it shows once, at once:
this is checked after each event, not only when all is healed.

Most histories are small: what breaks a promise takes a few messages, regions and events, and of
small histories many more can be run. One in twenty is large.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.stream.stream import Stream
from tests.support.mesh import Mesh, Node

__all__ = ["RetryHistory", "failures"]

KEYS: Final = (b"a", b"b")

LARGE: Final = 0.05
"""The share of large histories."""

STEPS: Final = 60
"""Events of a large one before everything is healed; of a small one some :data:`FEW`."""

FEW: Final = (8, 20)

AWAY: Final = 0.3
"""The share of histories in which a region stays away until the end."""

_WORDS: Final = {
    "xadd", "xack", "xackdel", "xcfgset", "xdel", "xgroup", "xrange", "xreadgroup", "xtrim",
}  # fmt: skip
_USED: Final = [command for command in COMMANDS if command.name in _WORDS]

Message = tuple[bytes, bytes, bytes]
"""Key, producer, idempotent ID."""


def _id(text: bytes) -> tuple[int, int]:
    ms, _, seq = text.partition(b"-")
    return int(ms), int(seq)


class RetryHistory:
    """The history of a seed. AssertionError if anything is wrong."""

    def __init__(self, seed: int, away: float = AWAY) -> None:
        """With probability ``away`` a region stays away until everything is healed."""
        chance = self.chance = random.Random(seed)
        self.keeps = chance.random() < 0.1
        is_large = chance.random() < LARGE
        self.keys = KEYS if is_large else KEYS[:1]
        self.mesh = Mesh(
            chance.choice([2, 3, 3, 4, 5] if is_large else [2, 3]),
            _USED,
            databases=1,
            stream_idmp_maxsize=chance.choice([1, 2, 3, 5, 100]),
            stream_idmp_duration=chance.choice([1, 2, 100]),
            idmp_conflict="keep" if self.keeps else "collapse",
        )
        self.nodes = list(self.mesh.nodes.values())
        self.accepted: dict[Message, list[tuple[bytes, int, int]]] = {}
        """By message, ``(entry ID, replica_id, number)`` of every acceptance."""
        self.deleted: dict[tuple[bytes, bytes], list[tuple[int, int]]] = {}
        """By key and entry ID, ``(replica_id, number)`` of every deletion."""
        self.processed: set[tuple[bytes, bytes]] = set()
        """Entries that were acknowledged, by key and ID."""
        self.reached: Counter[str] = Counter()
        self._steps = STEPS if is_large else chance.randint(*FEW)
        self._messages = chance.choice([3, 8, 20] if is_large else [1, 3, 5, 8])
        self._deletes = chance.random() < 0.4
        self._groups = chance.random() < 0.6
        self._states = chance.random() < 0.6
        self._restarts = chance.random() < 0.5
        self._limits = chance.random() < 0.2
        self._apart = random.Random(f"{seed}/away")
        self._leaves = self._apart.randrange(self._steps) if self._apart.random() < away else -1
        self._away: Node | None = None

    def run(self) -> None:
        """All of it."""
        chance = self.chance
        if self._groups:
            for key in self.keys:
                self.nodes[0].do("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
            self._settle()
        leaves = self._leaves
        for step in range(self._steps):
            if step == leaves:
                self._leave()
            node = chance.choice(self.nodes)
            self._step(node)
            for each in self.nodes:
                self._check_known(each)
        if self._away is not None:
            self._settle_the_rest()
        self._finish()

    def _leave(self) -> None:
        """From now on nobody hears of one region, which goes on, or stands still."""
        self._away = self._apart.choice(self.nodes)
        if self._apart.random() < 0.5 and len(self.nodes) > 2:  # somebody has heard of it
            self.mesh.send(self._away.number, self._apart.choice(self._others(self._away)))
        self.mesh.away.add(self._away.number)
        if self._apart.random() < 0.3:
            self.nodes.remove(self._away)
        self.reached["away"] += 1

    def _settle_the_rest(self) -> None:
        """All others hear of each other, and show each message once."""
        self.mesh.cut_links.clear()
        others = [number for number in self.mesh.nodes if number not in self.mesh.away]
        self.mesh.settle(others)
        assert len({tuple(sorted(self.mesh.nodes[each].vector.items())) for each in others}) == 1
        for number in others:
            self._check_known(self.mesh.nodes[number])
        self.mesh.away.clear()
        self.nodes = list(self.mesh.nodes.values())

    # -- events -------------------------------------------------------------------------------

    def _step(self, node: Node) -> None:
        chance = self.chance
        dice = chance.random()
        if dice < 0.55:
            self._send(node)
        elif dice < 0.62:
            node.clock.us += chance.choice([1, 50, 900, 1500, 4000]) * 1000
            node.tick()
        elif dice < 0.78:
            self._exchange(node)
        elif dice < 0.82:
            one, other = chance.sample(list(self.mesh.nodes), 2)
            self.mesh.cut_links ^= {frozenset((one, other))}
        elif dice < 0.88:
            node.sync()
            target = chance.choice(self._others(node))
            if not self.mesh.away & {node.number, target}:
                self.mesh.send_row(node.number, target)
        elif dice < 0.92 and self._groups:
            self._read(node)
        elif dice < 0.95 and self._deletes:
            self._delete(node)
        elif dice < 0.98 and self._restarts:
            self._restart(node)
        elif self._limits:
            key = chance.choice(self.keys)
            if self._stream(node, key) is not None:
                node.do("XCFGSET", key, "IDMP-MAXSIZE", chance.choice([1, 2, 4, 50]))

    def _others(self, node: Node) -> list[int]:
        return [number for number in self.mesh.nodes if number != node.number]

    @staticmethod
    def _stream(node: Node, key: bytes) -> Stream | None:
        found: Any = node.region.keyspace.databases[0].values.get(key)
        return found

    def _send(self, node: Node) -> None:
        """Send a message, if this region has not heard of it: else the limits may be over."""
        chance = self.chance
        message = (
            chance.choice(self.keys),
            chance.choice([b"p", b"q"]),
            b"m%d" % chance.randrange(self._messages),
        )
        known = self.accepted.setdefault(message, [])
        if any(node.vector.get(replica_id, 0) >= number for _, replica_id, number in known):
            return
        key, pid, iid = message
        reply = node.do("XADD", key, "IDMP", pid, iid, "*", "m", pid + iid)
        assert not any(reply == each for each, _, _ in known), "answered with an unknown ID"
        known.append((reply, node.replica_id, node.vector[node.replica_id]))
        self.reached["accepted again"] += len(known) > 1

    def _exchange(self, node: Node) -> None:
        chance = self.chance
        other = chance.choice(self._others(node))
        if not self.mesh.is_up(node.number, other):
            return
        target = self.mesh.nodes[other]
        if self._states and chance.random() < 0.3:
            if chance.random() < 0.5:
                for replica_id in list(node.vector):
                    node.forget(replica_id, node.vector[replica_id])
            self.mesh.send_full_sync(node.number, other)
            self.reached["full sync"] += 1
        elif (missing := node.missing(target.vector)) is not None:
            target.receive(*missing[: chance.randint(0, len(missing))])

    def _read(self, node: Node) -> None:
        key = self.chance.choice(self.keys)
        stream = self._stream(node, key)
        if stream is None or b"g" not in stream.groups:
            return
        reply = node.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", key, ">")
        for entry_id, _ in reply[0][1] if reply else ():
            dice = self.chance.random()
            if dice < 0.6:
                if node.do("XACK", key, "g", entry_id):
                    self.processed.add((key, entry_id))
            elif dice < 0.7 and self._deletes:
                words = ("XACKDEL", key, "g", "DELREF", "IDS", 1, entry_id)
                if node.do(*words) == [1]:
                    self.processed.add((key, entry_id))
                    self._note_deleted(node, key, entry_id)

    def _delete(self, node: Node) -> None:
        key = self.chance.choice(self.keys)
        rows = node.do("XRANGE", key, "-", "+")
        if rows:
            entry_id = self.chance.choice(rows)[0]
            if node.do("XDEL", key, entry_id):
                self._note_deleted(node, key, entry_id)

    def _note_deleted(self, node: Node, key: bytes, entry_id: bytes) -> None:
        dot = node.replica_id, node.vector[node.replica_id]
        self.deleted.setdefault((key, entry_id), []).append(dot)

    def _restart(self, node: Node) -> None:
        dice = self.chance.random()
        if dice < 0.3:
            node.snapshot()
        elif dice < 0.8:
            node.sync()
            node.restart()
        else:
            node.sync()
            node.fail()
            self.reached["epoch"] += 1

    # -- what a region has heard of -----------------------------------------------------------

    def _check_known(self, node: Node) -> None:
        """A region shows, and counts, what follows from the acceptances that it has heard of."""

        def knows(replica_id: int, number: int) -> bool:
            return node.vector.get(replica_id, 0) >= number

        due: dict[bytes, list[tuple[int, int]]] = {key: [] for key in self.keys}
        lost = 0
        for (key, _, _), accepted in self.accepted.items():
            known = [each for each in accepted if knows(*each[1:])]
            lost += max(len(known) - 1, 0)
            due[key] += [
                _id(entry_id)
                for entry_id in (self._stay(known) if known else ())
                if not any(knows(*dot) for dot in self.deleted.get((key, entry_id), ()))
            ]
        for key in self.keys:
            found = [_id(entry_id) for entry_id, _ in node.do("XRANGE", key, "-", "+")]
            assert found == sorted(due[key]), (
                f"{key!r} of region {node.number} has {found}, not {due[key]}, before all is healed"
            )
        total = node.replica.conflicts.total
        assert total == lost, f"region {node.number} counts {total} conflicts of {lost} known"
        self.reached["known conflict"] += lost > 0

    # -- the end ------------------------------------------------------------------------------

    def _settle(self) -> None:
        self.mesh.settle()
        self.mesh.settle()

    def _finish(self) -> None:
        self.mesh.cut_links.clear()
        self._settle()
        now_us = max(node.clock.us for node in self.nodes)
        for node in self.nodes:
            node.clock.us = now_us
            node.tick()
        self._settle()
        most = sum(max(len(known) - 1, 0) for known in self.accepted.values())
        for node in self.nodes:
            assert node.replica.conflicts.total == most, (
                f"region {node.number} counts {node.replica.conflicts.total} conflicts of {most}"
            )
            assert not node.replica.conflicts.held, "stable tags are held"
            for key in self.keys:
                self._check_entries(node, key)
        self.reached["conflict"] += most
        self._check_answers()
        if self._groups:
            self._check_groups()

    def _stay(self, known: list[tuple[bytes, int, int]]) -> list[bytes]:
        """The entries for a message that are left."""
        ids = [entry_id for entry_id, _, _ in known]
        return ids if self.keeps else [min(ids, key=_id)]

    def _check_entries(self, node: Node, key: bytes) -> None:
        due = sorted(
            (_id(entry_id), pid + iid)
            for (where, pid, iid), known in self.accepted.items()
            if where == key and known
            for entry_id in self._stay(known)
            if (key, entry_id) not in self.deleted
        )
        rows = node.do("XRANGE", key, "-", "+")
        found = [(_id(entry_id), fields[1]) for entry_id, fields in rows]
        assert found == due, f"{key!r} of region {node.number} has {found}, not {due}"

    def _check_answers(self) -> None:
        """A retry is answered alike everywhere, with the entry that stays."""
        now_ms = self.nodes[0].clock.us // 1000
        for (key, pid, iid), known in self.accepted.items():
            if not known:
                continue
            streams = [self._stream(node, key) for node in self.nodes]
            answers = {
                None if stream is None else stream.producers.find(pid, iid, now_ms)
                for stream in streams
            }
            smallest = min((entry_id for entry_id, _, _ in known), key=_id)
            ms, seq = _id(smallest)
            what = f"{pid!r} {iid!r} of {key!r} is answered with {answers}"
            assert answers <= {None, ms << 64 | seq}, what
            if None in answers:
                # A region forgets by the limits that it knows of.
                assert len(answers) == 1 or self._limits, what
                self.reached["forgotten"] += 1
                continue
            for node in self.nodes:
                assert node.do("XADD", key, "IDMP", pid, iid, "*", "m", "again") == smallest
            self.reached["answered alike"] += len(known) > 1

    def _check_groups(self) -> None:
        """What was acknowledged as an entry that went is not handed out as the one that stays."""
        done = set()
        for (key, _, _), known in self.accepted.items():
            if len(known) > 1 and not self.keeps:
                (stays,) = self._stay(known)
                if any((key, each) in self.processed for each, _, _ in known if each != stays):
                    done.add((key, stays))
        self.reached["processed as what went"] += len(done)
        for node in self.nodes:
            for key in self.keys:
                stream = self._stream(node, key)
                if stream is None or b"g" not in stream.groups:
                    continue
                reply = node.do("XREADGROUP", "GROUP", "g", "z", "STREAMS", key, ">")
                got = {(key, entry_id) for entry_id, _ in (reply[0][1] if reply else ())}
                assert not got & done, f"handed out again: {got & done}"


def failures(seeds: range, away: float = AWAY) -> tuple[dict[int, str], Counter[str]]:
    """What goes wrong in the histories of these seeds, and what they come to."""
    failed: dict[int, str] = {}
    reached: Counter[str] = Counter()
    for seed in seeds:
        history = RetryHistory(seed, away)
        try:
            history.run()
        except Exception as problem:
            failed[seed] = f"{type(problem).__name__}: {problem}"
        reached.update(history.reached)
    return failed, reached


def _failures(job: tuple[range, float]) -> tuple[dict[int, str], Counter[str]]:
    gc.disable()
    return failures(*job)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-1000", help="A-B, both included")
    parser.add_argument("--jobs", type=int, default=1, help="so many processes")
    parser.add_argument("--away", action="store_true", help="a region stays away in each history")
    chosen = parser.parse_args(arguments)
    low, _, high = chosen.seeds.partition("-")
    first, last = int(low), int(high or low)
    ranges = [range(at, min(at + 200, last + 1)) for at in range(first, last + 1, 200)]
    jobs = [(each, 1.0 if chosen.away else AWAY) for each in ranges]
    failed: dict[int, str] = {}
    reached: Counter[str] = Counter()
    done = 0
    started = time.monotonic()
    with multiprocessing.get_context("fork").Pool(chosen.jobs, maxtasksperchild=1) as pool:
        for number, (some, more) in enumerate(pool.imap(_failures, jobs)):
            failed |= some
            reached.update(more)
            done += len(ranges[number])
            for seed, sentence in some.items():
                say(f"seed {seed}: {sentence}")
            if not number % 25:
                say(f"{done} histories, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    for name, times in sorted(reached.items()):
        say(f"{times:8} {name}")
    say(f"{done} histories, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
