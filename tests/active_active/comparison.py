"""Regions beside the formulas: what each shows, and what it has to show.

There are two looks at a region. :meth:`Comparison.check` asks for everything with commands, as a
client would. :meth:`Comparison.glance` reads the keyspace, which costs a fraction, and only the
keys that may have changed since the last look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.simulator import looking
from anabranch.simulator.facts import NEVER, Vector
from anabranch.simulator.formulas import Shown
from anabranch.simulator.looking import difference, due_of
from anabranch.stream.image import StreamImage
from anabranch.stream.stream import Stream
from tests.active_active.readers import GroupReader, token_of
from tests.support.mesh import Mesh, Node
from tests.support.payloads import decode_payload

__all__ = ["GROUPS", "KEYS", "Comparison", "entries_of", "id_of", "pairs"]

KEYS: Final = (b"a", b"b", b"c")
GROUPS: Final = (b"g", b"h")

_SHARED_FIGURES: Final = {
    b"length",
    b"last-generated-id",
    b"max-deleted-entry-id",
    b"entries-added",
    b"recorded-first-entry-id",
    b"groups",
    b"pids-tracked",
    b"iids-tracked",
    b"idmp-duration",
    b"idmp-maxsize",
}


_USED: Final = [
    command
    for command in COMMANDS
    if command.name
    in {
        "ab.count", "ab.digest", "ab.equalids", "ab.lag", "ab.policy", "ab.read", "copy", "del",
        "dump", "exec",
        "exists", "flushall", "multi", "persist", "pexpire", "pexpiretime", "rename", "renamenx",
        "restore", "xack", "xackdel", "xadd", "xautoclaim", "xcfgset", "xclaim", "xdel", "xdelex",
        "xgroup", "xinfo", "xnack", "xpending", "xrange", "xreadgroup", "xsetid", "xtrim",
        "append", "decrby", "get", "getdel", "getex", "incr", "incrby", "incrbyfloat", "mset",
        "set", "setrange",
        "lindex", "linsert", "llen", "lmove", "lpop", "lpush", "lrange", "lrem", "lset", "ltrim",
        "rpop", "rpush", "sadd", "scard", "smembers", "smove", "spop", "srandmember", "srem",
        "type",
    }
]  # fmt: skip
"""A table of few commands is quickly made, and there is one for each region of each history."""


def id_of(text: bytes) -> int:
    ms, _, seq = text.partition(b"-")
    return int(ms) << 64 | int(seq)


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def entries_of(reply: list[Any] | None) -> list[tuple[int, bytes]]:
    """``(ID, token)`` of entries."""
    return [(id_of(entry_id), fields[-1] if fields else b"") for entry_id, fields in reply or ()]


def _small_value(node: Node, key: bytes, kind: str | bytes) -> Any:
    """A string, a set or a list as clients read it, some commands having to agree."""
    if kind in ("string", b"string"):
        return node.do("GET", key)
    if kind in ("set", b"set"):
        members = node.do("SMEMBERS", key)
        assert node.do("SCARD", key) == len(set(members)) == len(members)
        return set(members)
    items = node.do("LRANGE", key, 0, -1)
    assert node.do("LLEN", key) == len(items)
    assert node.do("LINDEX", key, -1) == items[-1]
    return items


class Comparison:
    """A mesh, and what readers of groups were given in each region."""

    def __init__(self, regions: int, mode: str, conflict: str) -> None:
        self.mode = mode
        self.conflict = conflict
        self.mesh = Mesh(
            regions,
            _USED,
            databases=1,
            xadd_id_uniqueness_mode=mode,
            idmp_conflict=conflict,
        )
        self.readers: dict[int, dict[tuple[bytes, bytes], GroupReader]] = {
            number: {} for number in self.mesh.nodes
        }
        """By region, key and group."""
        self.reached: Counter[str] = Counter()
        self.is_copied = False
        """Whether entries may be there twice, because RENAME or COPY wrote them again."""
        self.touched: set[tuple[int, bytes]] = set()
        """Regions and keys where commands may have changed what only their region knows."""
        self._shown: dict[tuple[int, bytes], tuple[Vector, int, Shown]] = {}
        self._glanced: dict[tuple[int, bytes], Shown] = {}
        """What a region's key was last compared with."""
        self._glanced_at: dict[int, int] = {}
        """Where the logs of regions ended then: what is not written there has not changed."""
        self._due: dict[Shown, dict[str, Any]] = {}

    def node(self, number: int) -> Node:
        return self.mesh.nodes[number]

    def shown(self, node: Node, key: bytes) -> Shown:
        """What a region has to show of a key; worked out when it has applied something."""
        vector = node.vector
        applied = sum(vector.values())
        of, then, shown = self._shown.get((node.number, key), (None, 0, None))
        if of is not vector or then != applied:  # each process has a vector of its own
            shown = self.mesh.history.shown((0, key), vector)
            self._shown[node.number, key] = vector, applied, shown
        return shown

    def reader(self, node: Node, key: bytes, group: bytes, shown: Shown) -> GroupReader:
        readers = self.readers[node.number]
        reader = readers.get((key, group))
        if reader is None:
            reader = readers[key, group] = GroupReader()
        reader.look(shown, group)
        return reader

    @staticmethod
    def is_over(node: Node, shown: Shown) -> bool:
        """Whether the deadline has come: the key is hidden, whether or not it was removed."""
        return shown.deadline <= node.clock.us // 1000

    def glance_all(self) -> None:
        """At every region."""
        for node in self.mesh.nodes.values():
            self.glance(node)

    def glance(self, node: Node) -> None:
        """Compare with the formulas what may have changed in a region since it was last seen."""
        written = node.log.end
        if written == self._glanced_at.get(node.number) and not self.touched:
            return
        self._glanced_at[node.number] = written
        streams: Any = node.region.keyspace.databases[0].values
        for key in KEYS:
            place = node.number, key
            shown = self.shown(node, key)
            if shown is self._glanced.get(place) and place not in self.touched:
                continue
            self._glanced[place] = shown
            self.touched.discard(place)
            stream = streams.get(key)
            found = None if stream is None else looking.visible_value(stream)
            due = self._due.get(shown)
            if due is None and shown.exists:
                due = self._due[shown] = due_of(shown)
            assert found == due, f"{key!r} in region {node.number}: {difference(found, due)}"
            if self.mode == "strict" and not self.is_copied:
                ids = {entry.effect.entry_id for entry in shown.entries}
                assert len(ids) == len(shown.entries), f"one ID twice in {key!r}"
            if type(stream) is Stream and shown.groups:
                self._glance_at_groups(node, key, stream, shown)

    def _glance_at_groups(self, node: Node, key: bytes, stream: Stream, shown: Shown) -> None:
        for name, group in looking.groups(stream):
            reader = self.reader(node, key, name, shown)
            lag = sum(group.progress.exact_lag(stream.logs).values())
            self._check_lag(shown, name, reader, lag)
            pending = {
                (replica_id, entry.number)
                for replica_id, each in group.pending.lists.items()
                for entry in each.entries.values()
            }
            for entry in shown.entries:
                assert entry.dot not in pending or not (
                    shown.is_acknowledged(name, entry, reader.ignored)
                    and not reader.may_be_open(shown, name, entry)
                ), f"{entry.dot} in {name!r} of {key!r} is pending, though acknowledged"

    @staticmethod
    def _check_lag(shown: Shown, group: bytes, reader: GroupReader, lag: int) -> None:
        most = len(reader.deliverable(shown, group))
        least = len(reader.deliverable(shown, group, sure=True)) if reader.is_vague else most
        assert least <= lag <= most, f"{group!r}: lag {lag} instead of {least} to {most}"

    def check(self, node: Node) -> dict[bytes, Any]:
        """Ask a region for everything, and compare it with the formulas, key by key.

        What it returns must be the same of every region with the same effects.
        """
        found = {key: self.check_key(node, key) for key in KEYS}
        for value in node.region.keyspace.databases[0].values.values():
            if isinstance(value, Stream):
                value.check()
        return found

    def check_key(self, node: Node, key: bytes) -> Any:
        """The same of one key."""
        shown = self.shown(node, key)
        exists, entries, figures, deadline, groups = node.ask(
            ("EXISTS", key),
            ("XRANGE", key, "-", "+"),
            ("XINFO", "STREAM", key),
            ("PEXPIRETIME", key),
            ("XINFO", "GROUPS", key),
        )
        if not shown.exists or self.is_over(node, shown):
            assert not exists, f"{key!r} is still there"
            return None
        assert exists, f"{key!r} is not there"
        if shown.is_small:
            kind = shown.small_kinds[0]
            got = _small_value(node, key, kind)
            assert got == shown.small, f"{key!r} has {got} instead of {shown.small}"
            assert deadline == (-1 if shown.deadline == NEVER else shown.deadline), "deadline"
            self.reached[kind] += 1
            self.reached["hidden value"] += len(shown.small_kinds) > 1
            return shown.small, deadline, node.do("AB.DIGEST", key)
        got = entries_of(entries)
        due = [(entry.effect.entry_id, token_of(entry)) for entry in shown.entries]
        assert sorted(got) == sorted(due), f"{key!r} has {got} instead of {due}"
        assert [i for i, _ in got] == [i for i, _ in due], f"{key!r} is out of order"
        if self.mode == "strict" and not self.is_copied:
            assert len({entry_id for entry_id, _ in got}) == len(got), "one ID twice"
        if len({entry_id for entry_id, _ in got}) < len(got):
            self._check_renumbered(node, key, got)
        info = pairs(figures)
        assert info[b"length"] == len(due)
        assert id_of(info[b"last-generated-id"]) == shown.last_id, "last-generated-id"
        assert id_of(info[b"max-deleted-entry-id"]) == shown.max_deleted_id, "max-deleted-entry-id"
        assert info[b"entries-added"] == shown.entries_added, (
            f"entries-added {info[b'entries-added']} instead of {shown.entries_added}"
        )
        assert deadline == (-1 if shown.deadline == NEVER else shown.deadline), "deadline"
        rows = [pairs(row) for row in groups]
        self._check_groups(node, key, shown, rows)
        shared = {name: value for name, value in info.items() if name in _SHARED_FIGURES}
        return entries, shared, [row[b"name"] for row in rows], deadline

    def _check_renumbered(self, node: Node, key: bytes, got: list[tuple[int, bytes]]) -> None:
        """In a payload each ID is there once, and everything else as it is."""
        due, last = [], 0
        for entry_id, token in got:
            last = max(entry_id, last + 1)
            due.append((last, token))
        count, payload = node.ask(("AB.EQUALIDS", key), ("DUMP", key))
        image = decode_payload(payload)
        assert isinstance(image, StreamImage)
        found = [(each, fields[-1]) for part in image.nodes for each, fields in part.entries]
        assert found == due, f"the payload of {key!r} has {found} instead of {due}"
        assert count == sum(one != other for one, other in zip(got, due, strict=True))
        self.reached["equal IDs"] += 1

    def _check_groups(
        self, node: Node, key: bytes, shown: Shown, rows: list[dict[bytes, Any]]
    ) -> None:
        names = [row[b"name"] for row in rows]
        assert names == sorted(shown.groups), f"{key!r} has {names}, not {sorted(shown.groups)}"
        for row in rows:
            group = row[b"name"]
            reader = self.reader(node, key, group, shown)
            lag = row[b"lag"]
            self._check_lag(shown, group, reader, lag)
            least, most = reader.read(shown, group, lag)
            read = row[b"entries-read"]
            assert least <= read <= most, f"{group!r}: read {read}, not {least} to {most}"
            consumers, (total, *_, by_consumer), open_entries = node.ask(
                ("XINFO", "CONSUMERS", key, group),
                ("XPENDING", key, group),
                ("XPENDING", key, group, "-", "+", 10_000),
            )
            ids = [row[0] for row in open_entries]
            if len(set(ids)) < len(ids):
                assert list(self._walked(node, key, group)) == ids, "a walk misses entries"
            held = {name: int(count) for name, count in by_consumer or ()}
            released = sum(not owner for _, owner, *_ in open_entries)
            assert sum(held.values()) + released == total == row[b"pending"] == len(open_entries)
            holders = {c[b"name"]: c[b"pending"] for c in map(pairs, consumers)}
            assert held == {name: count for name, count in holders.items() if count}
            if self.mode == "strict" and not self.is_copied:  # an ID names one entry, dead or alive
                pending = {id_of(row[0]) for row in open_entries}
                self._check_pending(group, shown, reader, pending)

    @staticmethod
    def _walked(node: Node, key: bytes, group: bytes) -> Iterator[bytes]:
        """IDs of pending entries, one page after the other."""
        start = b"-"
        while page := node.do("XPENDING", key, group, start, "+", 1):
            yield from [row[0] for row in page]
            start = b"(" + page[-1][0]

    @staticmethod
    def _check_pending(group: bytes, shown: Shown, reader: GroupReader, pending: set[int]) -> None:
        """Nothing is pending that was acknowledged."""
        acknowledged: set[int] = set()
        still_open: set[int] = set()
        for entry in shown.entries:
            done = shown.is_acknowledged(group, entry, reader.ignored)
            done = done and not reader.may_be_open(shown, group, entry)
            (acknowledged if done else still_open).add(entry.effect.entry_id)
        wrong = pending & (acknowledged - still_open)
        assert not wrong, f"pending, though acknowledged: {wrong}"

    def check_all(self) -> None:
        """Ask all regions, and compare those that have applied the same effects."""
        nodes = list(self.mesh.nodes.values())
        found = {node.number: self.check(node) for node in nodes}
        for node, other in pairwise(nodes):
            if node.vector == other.vector and node.clock.us == other.clock.us:
                one, two = found[node.number], found[other.number]
                assert one == two, f"regions {node.number} and {other.number} differ"

    def everything(self, node: Node) -> dict[bytes, Any]:
        """All that a region shows of its keys, its own part of groups included."""
        return {
            key: (self._all_of(node, key), node.do("PEXPIRETIME", key))
            for key in KEYS
            if node.do("EXISTS", key)
        }

    @staticmethod
    def _all_of(node: Node, key: bytes) -> Any:
        if type(node.region.keyspace.databases[0].values[key]) is Stream:
            return node.do("XINFO", "STREAM", key, "FULL", "COUNT", 0)
        return _small_value(node, key, node.do("TYPE", key)), node.do("AB.DIGEST", key)
