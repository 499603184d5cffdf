"""A mesh to which events happen, compared with the formulas after each of them.

Events are plain tuples, so that a history can be written down, repeated and reduced:

=======================================  ==========================================================
``("do", region, word, ...)``            a command
``("unit", region, (word, ...), ...)``   commands between MULTI and EXEC
``("carry", a, key, b, other)``          b restores the payload of a key of a under another name
``("read", region, reader)``             a wandering reader asks AB.READ, see :class:`Wanderer`
``("send", a, b, seed)``                 some effects of a reach b; the seed says which
``("full sync", a, b)``                  b joins a full sync of a
``("begin", a, b)``                      a full sync from a to b begins
``("more", b, records)``                 more of it arrives; it is joined when it is whole
``("abandon", b)``                       an unfinished full sync to b ends without effect
``("row", a, b)``                        a syncs its disk, and sends b its status row
``("unsynced row", a, b)``               a sends b its status row without a sync
``("sync", a)``                          a syncs its disk
``("fail", a)``                          power failure of a: unsynced data is lost; then a start
``("forget", a, seed)``                  a cannot send some of its effects any more
``("keep", a)``                          the data of a is kept: a newcomer joins it in the end
``("cut", a, b)``                        the link between a and b goes down, or up again
``("pass", a, ms)``                      time passes in a region
``("snapshot", a)``                      a takes a snapshot, for its next start
``("restart", a)``                       a region stops and starts again
=======================================  ==========================================================
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import hiredis

from anabranch.effects import kinds
from anabranch.keyspace.replica import region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.simulator import looking
from anabranch.simulator.facts import Added, Dot, Key, Vector
from anabranch.simulator.formulas import Shown
from anabranch.simulator.looking import difference
from anabranch.simulator.reader_checks import Reader
from anabranch.stream.stream import Stream
from tests.active_active.comparison import KEYS, Comparison, entries_of, id_of, pairs
from tests.active_active.moves import goes_on, standings
from tests.active_active.newcomer import joined, state_of
from tests.active_active.readers import GroupReader, token_of
from tests.support.mesh import Node

__all__ = ["CheckedCluster", "Event", "Wanderer"]

Event = tuple[Any, ...]
_Group = tuple[bytes, bytes]  # key and name


@dataclass
class Wanderer(Reader):
    """One in regions that lose power."""

    is_misled: bool = False
    """Whether it was answered with what was lost then: what removed an entry, maybe."""


class CheckedCluster(Comparison):
    """A mesh, who reads from it, and what has happened."""

    def __init__(self, regions: int, mode: str, conflict: str = "collapse") -> None:
        super().__init__(regions, mode, conflict)
        self.wanderers = [Wanderer(KEYS[0], 1), Wanderer(KEYS[0], 3), Wanderer(KEYS[1], 2)]
        self.settled: dict[tuple[Key, bytes, Dot], set[Dot]] = {}
        """Under which creations an entry was settled by whoever had it."""
        self.alone: set[tuple[bytes, int]] = set()
        """Keys, and IDs of pending entries that were copied there without their entry."""
        self.tells_all = False
        """Whether a region has set ``acks all`` for all groups."""
        self.commands = 0
        """How many were executed, those of units included."""
        self._looked: dict[int, int] = {}
        """How many effects each region had applied when its readers last looked."""
        self._seen: dict[tuple[int, bytes], Shown] = {}
        """What they last saw of each key."""
        self._synced: dict[int, dict[tuple[bytes, bytes], GroupReader]] = {}
        """What the readers of each region knew when its disk was synced."""
        self._hasty: dict[int, list[Wanderer]] = {}
        """Who was answered by each region since then."""
        self._kept: list[tuple[Vector, bytes]] = []
        """What regions had at some time, and its version vector."""

    # -- events -------------------------------------------------------------------------------

    def run(self, event: Event) -> Any:
        """Let it happen; AssertionError if something comes out that must not."""
        return getattr(self, f"_{event[0].replace(' ', '_')}")(*event[1:])

    def _pass(self, number: int, ms: int) -> None:
        node = self.node(number)
        node.clock.us += ms * 1000
        node.tick()

    def _cut(self, one: int, other: int) -> None:
        self.mesh.cut_links ^= {frozenset((one, other))}

    def _leave(self, number: int) -> None:
        """From now on until the end nobody hears of a region, and it hears of nobody."""
        self.mesh.away.add(number)
        self.reached["region away"] += 1

    def _settle_the_rest(self) -> None:
        """Regions that hear of each other show the same, whoever is away."""
        others = [number for number in self.mesh.nodes if number not in self.mesh.away]
        self.mesh.settle(others)
        self._look_everywhere()
        self.glance_all()
        vectors = [self.mesh.nodes[number].vector for number in others]
        assert all(vector == vectors[0] for vector in vectors), "effects are missing"
        self.mesh.away.clear()

    def _send(self, source: int, target: int, seed: int) -> None:
        if not self.mesh.is_up(source, target):
            return
        sender, receiver = self.node(source), self.node(target)
        missing = sender.missing(receiver.vector)
        if missing is None:
            self._full_sync(source, target)
            return
        chance = random.Random(seed)
        by_replica_id: dict[int, list[Any]] = {}
        for unit in missing:
            by_replica_id.setdefault(unit.replica_id, []).append(unit)
        chosen = []
        for _ in range(chance.randint(1, max(len(missing), 1)) if missing else 0):
            replica_id = chance.choice(sorted(by_replica_id))
            unit = by_replica_id[replica_id].pop(0)
            if not by_replica_id[replica_id]:
                del by_replica_id[replica_id]
            dice = chance.random()
            chosen += [unit] * (0 if dice < 0.05 else 1 if dice < 0.95 else 2)  # lost, or repeated
        receiver.receive(*chosen)
        self.reached["held batch"] += bool(receiver.waiting)
        self.reached["relayed"] += any(unit.replica_id not in (source, target) for unit in chosen)
        self.reached["effects fetched back"] += any(
            region_of(u.replica_id) == target for u in chosen
        )
        self._look(receiver)

    def _full_sync(self, source: int, target: int) -> None:
        if not self.mesh.is_up(source, target):
            return
        self._note_join(self.node(source).vector, self.node(target))
        self.mesh.send_full_sync(source, target)
        self._look(self.node(target))

    def _note_join(self, vector: Vector, receiver: Node) -> None:
        both = any(receiver.vector.get(o, 0) > n for o, n in vector.items()) or any(
            o not in vector for o in receiver.vector
        )
        self.reached["join"] += 1
        self.reached["join both ways at once"] += both

    def _begin(self, source: int, target: int) -> None:
        if self.mesh.is_up(source, target):
            self._abandon(target)
            self.mesh.begin_full_sync(source, target)

    def _more(self, target: int, records: int) -> None:
        full_sync = self.mesh.full_syncs.get(target)
        if full_sync is None:
            return
        receiver = self.node(target)
        if not self.mesh.is_up(full_sync.sender.number, target):
            self._abandon(target)
            return
        before = dict(receiver.vector)
        if self.mesh.go_on(target, records):
            self.reached["full sync of data that has changed since"] += (
                full_sync.sender.vector != full_sync.vector
            )
            self.reached["join"] += 1
            self.reached["join of what is here by now"] += receiver.vector == before
            self._look(receiver)

    def _abandon(self, target: int) -> None:
        self.reached["join interrupted"] += target in self.mesh.full_syncs
        self.mesh.abandon(target)

    def _row(self, source: int, target: int) -> None:
        self._sync(source)
        self._unsynced_row(source, target)

    def _count_interrupted(self, number: int) -> None:
        self.reached["join interrupted"] += any(
            number in (target, full_sync.sender.number)
            for target, full_sync in self.mesh.full_syncs.items()
        )

    def _unsynced_row(self, source: int, target: int) -> None:
        if self.mesh.is_up(source, target):
            self.mesh.send_row(source, target)

    def _sync(self, number: int) -> None:
        self.node(number).sync()
        self._synced[number] = _copied(self.readers[number])
        self._hasty.pop(number, None)

    def _fail(self, number: int) -> None:
        node = self.node(number)
        self._count_interrupted(number)
        former, count = node.replica_id, node.vector.get(node.replica_id, 0)
        node.fail()
        self.readers[number] = _copied(self._synced.get(number, {}))
        self.touched.update((number, key) for key in KEYS)
        self._looked.pop(number, None)
        for key in KEYS:
            self._seen.pop((number, key), None)
        self.reached["power failure"] += 1
        self.reached["epoch opened"] += 1
        lost = count - node.vector.get(former, 0)
        self.reached["own effects lost"] += lost > 0
        for reader in self._hasty.pop(number, ()):
            reader.is_misled = True
        self._look(node)

    def _forget(self, number: int, seed: int) -> None:
        node = self.node(number)
        chance = random.Random(seed)
        if node.vector:
            replica_id = chance.choice(sorted(node.vector))
            node.forget(replica_id, chance.randint(0, node.vector[replica_id]))

    def _snapshot(self, number: int) -> None:
        self._sync(number)
        self.node(number).snapshot()

    def _restart(self, number: int) -> None:
        node = self.node(number)
        self._count_interrupted(number)
        before = _unseen(self.everything(node))
        node.restart()
        self._sync(number)
        self.reached["restart"] += 1
        after = _unseen(self.everything(node))
        assert after == before, f"after a restart {after} instead of {before}"

    def _read(self, number: int, which: int) -> int:
        node, reader = self.node(number), self.wanderers[which]
        if self.shown(node, reader.key).is_small:
            return 0
        words = ["AB.READ", "COUNT", reader.count, "STREAMS", reader.key, reader.cursor]
        ((_, cursor, entries),) = node.do(*words)
        got = entries_of(entries)
        assert len(got) <= reader.count, "AB.READ returned more than COUNT"
        assert [entry_id for entry_id, _ in got] == sorted(entry_id for entry_id, _ in got)
        if not self.is_copied:
            again = [each for each in got if reader.got[each]]
            assert not again, f"AB.READ returned entries twice: {again}"
        reader.got.update(got)
        reader.cursor = cursor
        self._hasty.setdefault(number, []).append(reader)
        return len(got)

    def _unit(self, number: int, *commands: tuple[Any, ...]) -> None:
        node = self.node(number)
        before = sum(node.vector.values())
        replies = node.ask(("MULTI",), *commands, ("EXEC",))[-1]
        for words in commands:
            self._note(number, words)
        assert len(replies) == len(commands)
        self.reached["unit"] += sum(node.vector.values()) > before + 1
        self._look(node)

    def _do(self, number: int, *words: Any) -> Any:
        node = self.node(number)
        checks = {
            "XADD": self._xadd,
            "XREADGROUP": self._xreadgroup,
            "XACK": self._xack,
            "XACKDEL": self._xack,
            "XGROUP": self._xgroup,
            "XCLAIM": self._xclaim,
            "COPY": self._copy,
        }
        self._note(number, words)
        try:
            reply = checks.get(words[0], _plainly)(node, words)
        except hiredis.ReplyError as problem:
            reply = problem
        self._look(node)
        return reply

    def _note(self, number: int, words: tuple[Any, ...]) -> None:
        self.commands += 1
        self.tells_all |= words[0] == "AB.POLICY"
        self.reached[words[0]] += 1
        self.touched.update([(number, key) for key in KEYS if key in words])
        if words[0] in ("RENAME", "RENAMENX", "COPY"):
            self.is_copied = True

    def _notice_states(self) -> None:
        """Let the readers of regions that joined a full sync notice that."""
        for number in self.mesh.joined:
            for reader in self.readers[number].values():
                if reader.ignored:
                    reader.is_vague = True
        self.mesh.joined.clear()

    def _look(self, node: Node) -> None:
        """Let the readers of a region notice what became of their groups."""
        self._notice_states()
        applied = sum(node.vector.values())
        if applied == self._looked.get(node.number):
            return
        self._looked[node.number] = applied
        steps, node.steps = node.steps, []
        looks: dict[bytes, Shown | None] = {}  # None: the same as before
        for (key, group), reader in self.readers[node.number].items():
            if key not in looks:
                shown = self.shown(node, key)
                is_same = shown is self._seen.get((node.number, key))
                looks[key] = None if is_same else shown
                self._seen[node.number, key] = shown
            if (shown := looks[key]) is None:
                continue
            if reader.seems_another(shown, group):
                for vector in steps:  # whether it ever was, while several units arrived
                    reader.look(self.mesh.history.shown((0, key), vector), group)
            reader.look(shown, group)

    # -- commands whose outcome is known ------------------------------------------------------

    def _xadd(self, node: Node, words: tuple[Any, ...]) -> Any:
        key = words[1]
        before = self.shown(node, key)
        length = len(self.mesh.history.facts[0, key])
        reply = node.do(*words)
        if "IDMP" in words:
            at = words.index("IDMP")
            tag = tuple(str(word).encode() for word in words[at + 1 : at + 3])
            known = [] if self.is_over(node, before) else before.tags.get(tag, [])  # type: ignore[arg-type]
            if known:
                added = self.mesh.history.facts[0, key][length:]
                assert id_of(reply) == before.answer(known), "another entry's ID"
                assert not any(isinstance(fact.effect, kinds.Add) for fact in added), "added again"
                self.reached["duplicate refused"] += 1
                return reply
        if not self.is_over(node, before):
            assert id_of(reply) > before.last_id, "an ID not above all that was seen"
        if self.mode == "strict" or "*" in words:
            assert id_of(reply) & 0xFF == node.number, "an ID of another region's class"
            self.reached["ID of a later epoch"] += bool(id_of(reply) >> 32 & 0xFFFFFFFF)
        return reply

    def _xreadgroup(self, node: Node, words: tuple[Any, ...]) -> Any:
        group, key = words[2], words[-2]
        shown = self.shown(node, key)
        reply = node.do(*words)
        if words[-1] != ">":
            return reply
        reader = self.reader(node, key, group, shown)
        count = int(words[words.index("COUNT") + 1]) if "COUNT" in words else None
        due = reader.deliverable(shown, group)
        got = entries_of(reply[0][1]) if reply else []
        if reader.is_vague:
            due = _subsequence(due, got)
        due = due[:count]
        assert got == [(entry.effect.entry_id, token_of(entry)) for entry in due], (
            f"group {group!r} of {key!r} must get "
            f"{[(entry.effect.entry_id, token_of(entry)) for entry in due]}, not {got}"
        )
        reader.delivered |= {entry.dot for entry in due}
        if "NOACK" in words:
            for entry in due:
                self._settle(key, group, entry.dot, reader)
            self._check_told(node, key, group, {entry.dot for entry in due})
        return reply

    def _settle(self, key: bytes, group: bytes, dot: Dot, reader: GroupReader) -> None:
        self.settled.setdefault(((0, key), group, dot), set()).update(reader.creations)

    def _xack(self, node: Node, words: tuple[Any, ...]) -> Any:
        key, group = words[1:3]
        given = words[3:] if words[0] == "XACK" else words[words.index("IDS") + 2 :]
        shown = self.shown(node, key)
        issued = len(node.issued)
        stream = node.region.keyspace.databases[0].values.get(key)
        pending = []
        if isinstance(stream, Stream) and group in stream.groups:
            holder: Any = stream.groups[group]
            pending = [
                (replica_id, entry.number)
                for entry_id in {id_of(each) for each in given}
                for replica_id, entry in holder.pending.with_id(entry_id)
            ]
        reply = node.do(*words)
        if pending:
            reader = self.reader(node, key, group, shown)
            for dot in pending:
                self._settle(key, group, dot, reader)
            travels = len(node.issued) > issued
            self.reached["ack that travels" if travels else "ack held back"] += 1
            self._check_told(node, key, group, reader.delivered.intersection(pending))
        return reply

    def _check_told(self, node: Node, key: bytes, group: bytes, done: Collection[Dot]) -> None:
        """With ``acks all`` whatever is acknowledged counts so everywhere, once effects arrive."""
        stream = node.region.keyspace.databases[0].values.get(key)
        policed = stream.groups[group].policed if isinstance(stream, Stream) else None
        if policed is None or not policed.policy.acks_all:
            return
        shown = self.shown(node, key)
        self.reached["ack told"] += bool(done)
        for entry in shown.entries:
            assert entry.dot not in done or shown.is_acknowledged(group, entry), (
                f"{entry.dot} in {group!r} is done, and other regions are not told"
            )

    def _xgroup(self, node: Node, words: tuple[Any, ...]) -> Any:
        verb, key, group = words[1:4]
        shown = self.shown(node, key)
        reply = node.do(*words)
        read = int(words[words.index("ENTRIESREAD") + 1]) if "ENTRIESREAD" in words else None
        if read is not None and verb in ("CREATE", "SETID"):
            (row,) = [
                row for row in map(pairs, node.do("XINFO", "GROUPS", key)) if row[b"name"] == group
            ]
            added = pairs(node.do("XINFO", "STREAM", key))[b"entries-added"]
            assert row[b"entries-read"] == min(read, added), "ENTRIESREAD does not count"
            self.reached["ENTRIESREAD"] += 1
        if verb == "SETID":
            start = None if words[4] == "$" else id_of(str(words[4]).encode() + b"-0")
            reader = self.reader(node, key, group, shown)
            reader.move(shown, group, node.vector, start)
            reader.offset = 0, 0
            if read is not None:
                reader.offset = reader.offset_of(shown, group, min(read, added), row[b"lag"])
            self.reached["SETID forward" if start is None else "SETID to an ID"] += 1
        elif verb == "DELCONSUMER" and reply:
            self.reader(node, key, group, shown).is_plain = False
            self.reached["discarded pending"] += 1
        return reply

    def _xclaim(self, node: Node, words: tuple[Any, ...]) -> Any:
        key, group = words[1:3]
        shown = self.shown(node, key)
        rows = node.do("XINFO", "GROUPS", key) if "LASTID" in words else ()
        before = {row[b"name"]: row for row in map(pairs, rows)}
        reply = node.do(*words)
        if rows:
            start = id_of(words[words.index("LASTID") + 1])
            if start > id_of(before[group][b"last-delivered-id"]):
                self.reader(node, key, group, shown).jump(shown, start)
        return reply

    def _copy(self, node: Node, words: tuple[Any, ...]) -> Any:
        key, target = words[1:3]
        before = standings(self, node, key)
        reply = node.do(*words)
        if reply == 1:
            goes_on(self, node, target, before, is_payload=False)
        return reply

    def _carry(self, source: int, key: bytes, target: int, other: bytes) -> None:
        sender, receiver = self.node(source), self.node(target)
        before = standings(self, sender, key)
        payload = sender.do("DUMP", key)
        self._look(sender)
        if payload is None:
            return
        self._note(source, ("DUMP", key))
        self._note(target, ("RESTORE", other))
        self.is_copied = True
        receiver.do("RESTORE", other, 0, payload, "REPLACE")
        goes_on(self, receiver, other, before, is_payload=True)
        self._look(receiver)

    def _keep(self, number: int) -> None:
        node = self.node(number)
        self._kept.append((dict(node.vector), state_of(node)))

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """Heal everything, and check what must hold when nothing is on its way any more."""
        nodes = list(self.mesh.nodes.values())
        self.mesh.cut_links.clear()
        for target in list(self.mesh.full_syncs):
            self._more(target, 1_000_000)
        if self.mesh.away:
            self._settle_the_rest()
        self._settle_all()
        now_us = max(node.clock.us for node in nodes)
        for node in nodes:
            node.clock.us = now_us + 6_001_000
            node.tick()
        self._settle_all()
        for node in nodes:
            node.region.keyspace.sweep()
            assert node.vector == nodes[0].vector, "effects are missing"
            assert not node.waiting, "effects wait for a cause that has come"
            marked = node.region.keyspace.marked_keys
            assert not marked, f"marks of {marked} keys are left"
            assert not node.replica.flushes, "a mark of FLUSHALL is left"
            assert not node.replica.unstable_tombstones, "a mark that is gone is remembered"
            assert not node.replica.conflicts.held, "stable tags are held"
            assert not node.replica.conflicts.due, "a conflict is not resolved"
        self.check_all()
        self._join_kept(nodes[0])
        for node in nodes:
            for key in KEYS:
                shown = self.shown(node, key)
                self._check_tags(node, key, shown)
                self._check_acknowledgements(key, shown)
                self._drain(node, key)
        self._drain_wanderers()
        self._acknowledge_the_rest()

    def _join_kept(self, node: Node) -> None:
        """A newcomer joins what was kept, and what a region has now; both orders lead there."""
        now, shown = state_of(node), looking.visible(node.region.keyspace)
        for vector, kept in self._kept:
            if covers(node.vector, vector):  # otherwise it has what was lost since
                for states in ((kept, now), (now, kept)):
                    found = looking.visible(joined(*states))
                    assert found == shown, difference(found, shown)
                self.reached["old data joined"] += 1

    def _settle_all(self) -> None:
        self.mesh.settle()
        self._look_everywhere()

    def _exchange_all(self) -> None:
        self.mesh.exchange()
        self._look_everywhere()

    def _look_everywhere(self) -> None:
        for node in self.mesh.nodes.values():
            self._look(node)

    def _check_tags(self, node: Node, key: bytes, shown: Shown) -> None:
        """A producer's repetition is answered alike everywhere, and made one entry at most."""
        live = [(entry.replica_id, entry.effect.entry_id) for entry in shown.entries]
        for (pid, iid), facts in shown.tags.items():
            tagged = [
                each for each in live if each in {(f.replica_id, f.effect.entry_id) for f in facts}
            ]
            self.reached["both regions accepted"] += len(facts) > 1
            if len(facts) > 1 and all(fact.effect.yields for fact in facts) and not self.is_copied:
                assert len(tagged) <= 1, f"{pid!r} {iid!r} made {tagged}"
                self.reached["collapse"] += 1
            if shown.is_small:
                continue
            reply = node.do("XADD", key, "IDMP", pid, iid, "*", "f", "again")
            assert id_of(reply) == shown.answer(facts), (
                f"{pid!r} {iid!r} is answered with another ID"
            )

    def _check_acknowledgements(self, key: bytes, shown: Shown) -> None:
        """What is acknowledged was settled by somebody, for a creation that lives."""
        for group, creations in shown.groups.items():
            alive = {fact.dot for fact in creations}
            for entry in shown.done(group):
                settled = self.settled.get(((0, key), group, entry.dot), set())
                for dot in self._duplicates(key, entry.dot):
                    settled = settled | self.settled.get(((0, key), group, dot), set())
                assert settled & alive, f"{entry.dot} in {group!r}: nobody settled it"

    def _duplicates(self, key: bytes, dot: Dot) -> list[Dot]:
        """Entries of the same message as one: where one was processed, so were the others."""
        return [
            (effect.goes[0], effect.goes[1])
            for node in self.mesh.nodes.values()
            for effect in node.issued
            if isinstance(effect, kinds.ResolveConflict)
            and effect.key == key
            and tuple(effect.stays) == dot
        ]

    def _drain(self, node: Node, key: bytes) -> None:
        """Whatever is left is handed out, and then nothing is left."""
        shown = self.shown(node, key)
        if not shown.exists:
            return
        for group in shown.groups:
            self._do(node.number, "XREADGROUP", "GROUP", group, "z", "STREAMS", key, ">")
        if shown.groups:
            for row in map(pairs, node.do("XINFO", "GROUPS", key)):
                assert row[b"lag"] == 0, f"{row} was read to its end"

    def _drain_wanderers(self) -> None:
        chance = random.Random(1)
        for which, reader in enumerate(self.wanderers):
            shown = self.shown(self.node(1), reader.key)
            due = Counter((entry.effect.entry_id, token_of(entry)) for entry in shown.entries)
            numbers = list(self.mesh.nodes)
            while self._read(chance.choice(numbers), which):
                pass
            missed = due - reader.got
            assert reader.is_misled or not missed, f"AB.READ never returned {list(missed)}"

    def _acknowledge_the_rest(self) -> None:
        """Once nothing is open where it was handed out, everybody knows that it is done."""
        for node in self.mesh.nodes.values():
            for key in KEYS:
                for group in self.shown(node, key).groups:
                    rows = node.do("XPENDING", key, group, "-", "+", 10_000)
                    ids = [row[0] for row in rows]
                    if ids:
                        self._do(node.number, "XACK", key, group, *ids)
        self._exchange_all()
        if self.tells_all:
            assert not self._known_to_nobody(), f"{self._known_to_nobody()} are held back"
        if self._known_to_nobody():
            self.reached["ack held back until the next delivery"] += 1
            for key in KEYS:
                if self.shown(self.node(1), key).groups:
                    self._do(1, "XADD", key, "*", "f", "next")
            self._exchange_all()
            for number in self.mesh.nodes:
                for key in KEYS:
                    for group in self.shown(self.node(1), key).groups:
                        words = ("GROUP", group, "z", "NOACK", "STREAMS", key, ">")
                        self._do(number, "XREADGROUP", *words)
            self._exchange_all()
        untold = self._known_to_nobody()
        assert not untold, f"{untold} are done, and not everybody knows"
        self.glance_all()

    def _known_to_nobody(self) -> list[tuple[bytes, bytes, Dot]]:
        """Entries that were handed out and are not open anywhere, and not acknowledged.

        Where another region has settled what held an acknowledgement back, nobody has reason to
        look again until the group is next read or acknowledged in.
        """
        found = []
        for readers in self.readers.values():
            for (key, group), reader in readers.items():
                shown = self.shown(self.node(1), key)
                if reader.is_plain and group in shown.groups:
                    found += [
                        (key, group, entry.dot)
                        for entry in shown.entries
                        if entry.dot in reader.delivered and not shown.is_acknowledged(group, entry)
                    ]
        return found


def _unseen(shown: Any) -> Any:
    """The same without the times at which consumers were seen, which a restart may forget."""
    if isinstance(shown, dict):
        return {key: _unseen(value) for key, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [
            None if at and shown[at - 1] == b"seen-time" else _unseen(value)
            for at, value in enumerate(shown)
        ]
    return shown


def _copied(readers: dict[_Group, GroupReader]) -> dict[_Group, GroupReader]:
    return {group: reader.copy() for group, reader in readers.items()}


def _subsequence(due: list[Added], got: list[tuple[int, bytes]]) -> list[Added]:
    """Those of the entries that were got, in order."""
    rest = iter(due)
    found = (
        next((entry for entry in rest if (entry.effect.entry_id, token_of(entry)) == each), None)
        for each in got
    )
    return [entry for entry in found if entry is not None]


def _plainly(node: Node, words: tuple[Any, ...]) -> Any:
    return node.do(*words)
