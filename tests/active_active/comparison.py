"""Regions beside the formulas: what each shows, and what it has to show.

All of it is asked for with commands, as a client would; only the self-checks of streams look
inside.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, Final

from anabranch.simulator.formulas import NEVER, Key, Shown
from anabranch.stream.stream import Stream
from tests.active_active.readers import GroupReader, token_of
from tests.support.mesh import Mesh, Node

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


def id_of(text: bytes) -> int:
    ms, _, seq = text.partition(b"-")
    return int(ms) << 64 | int(seq)


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def entries_of(reply: list[Any] | None) -> list[tuple[int, bytes]]:
    """``(ID, token)`` of entries."""
    return [(id_of(entry_id), fields[-1] if fields else b"") for entry_id, fields in reply or ()]


class Comparison:
    """A mesh, and what readers of groups were given in each region."""

    def __init__(self, regions: int, mode: str, conflict: str) -> None:
        self.mode = mode
        self.conflict = conflict
        self.mesh = Mesh(regions, xadd_id_uniqueness_mode=mode, idmp_conflict=conflict)
        self.readers: dict[tuple[int, Key, bytes], GroupReader] = {}
        self.reached: Counter[str] = Counter()
        self.is_copied = False
        """Whether entries may be there twice, because RENAME or COPY wrote them again."""

    def node(self, number: int) -> Node:
        return self.mesh.nodes[number]

    def shown(self, node: Node, key: bytes) -> Shown:
        return self.mesh.history.shown((0, key), node.vector)

    def reader(self, node: Node, key: bytes, group: bytes, shown: Shown) -> GroupReader:
        reader = self.readers.setdefault((node.number, (0, key), group), GroupReader())
        reader.look(shown, group)
        return reader

    @staticmethod
    def is_over(node: Node, shown: Shown) -> bool:
        """Whether the deadline has come: the key is hidden, whether or not it was removed."""
        return shown.deadline <= node.clock.us // 1000

    def check(self, node: Node) -> None:
        """Compare a region with the formulas, key by key."""
        for key in KEYS:
            self.check_key(node, key)
        for value in node.region.keyspace.databases[0].values.values():
            if isinstance(value, Stream):
                value.check()

    def check_key(self, node: Node, key: bytes) -> None:
        shown = self.shown(node, key)
        exists = node.do("EXISTS", key)
        if not shown.exists or self.is_over(node, shown):
            assert not exists, f"{key!r} is still there"
            return
        assert exists, f"{key!r} is not there"
        got = entries_of(node.do("XRANGE", key, "-", "+"))
        due = [(entry.entry_id, token_of(entry)) for entry in shown.entries]
        assert sorted(got) == sorted(due), f"{key!r} has {got} instead of {due}"
        assert [i for i, _ in got] == [i for i, _ in due], f"{key!r} is out of order"
        if self.mode == "strict" and not self.is_copied:
            assert len({entry_id for entry_id, _ in got}) == len(got), "one ID twice"
        info = pairs(node.do("XINFO", "STREAM", key))
        assert info[b"length"] == len(due)
        assert id_of(info[b"last-generated-id"]) == shown.last_id, "last-generated-id"
        assert id_of(info[b"max-deleted-entry-id"]) == shown.max_deleted_id, "max-deleted-entry-id"
        assert info[b"entries-added"] == shown.entries_added, (
            f"entries-added {info[b'entries-added']} instead of {shown.entries_added}"
        )
        deadline = node.do("PEXPIRETIME", key)
        assert deadline == (-1 if shown.deadline == NEVER else shown.deadline), "deadline"
        self._check_groups(node, key, shown)

    def _check_groups(self, node: Node, key: bytes, shown: Shown) -> None:
        rows = [pairs(row) for row in node.do("XINFO", "GROUPS", key)]
        names = [row[b"name"] for row in rows]
        assert names == sorted(shown.groups), f"{key!r} has {names}, not {sorted(shown.groups)}"
        for row in rows:
            group = row[b"name"]
            reader = self.reader(node, key, group, shown)
            lag = row[b"lag"]
            lags = [len(reader.deliverable(shown, group, sure=sure)) for sure in (True, False)]
            assert lags[0] <= lag <= lags[1], f"{group!r} of {key!r}: lag {lag} instead of {lags}"
            assert row[b"entries-read"] == shown.entries_added - lag
            consumers = [pairs(each) for each in node.do("XINFO", "CONSUMERS", key, group)]
            total, *_, by_consumer = node.do("XPENDING", key, group)
            held = {name: int(count) for name, count in by_consumer or ()}
            assert sum(held.values()) == total == row[b"pending"]
            assert held == {c[b"name"]: c[b"pending"] for c in consumers if c[b"pending"]}
            self._check_pending(node, key, group, shown, reader)

    def _check_pending(
        self, node: Node, key: bytes, group: bytes, shown: Shown, reader: GroupReader
    ) -> None:
        """Nothing is pending that was acknowledged: by IDs, where those are unique."""
        acknowledged: set[int] = set()
        still_open: set[int] = set()
        for entry in shown.entries:
            done = shown.is_acknowledged(group, entry, reader.ignored)
            done = done and not reader.may_be_open(shown, group, entry)
            (acknowledged if done else still_open).add(entry.entry_id)
        rows = node.do("XPENDING", key, group, "-", "+", 10_000)
        pending = {id_of(row[0]) for row in rows}
        wrong = pending & (acknowledged - still_open)
        assert not wrong, f"pending, though acknowledged: {wrong}"

    def visible(self, node: Node) -> dict[bytes, Any]:
        """Everything that regions with the same effects must show alike."""
        found = {}
        for key in KEYS:
            if not node.do("EXISTS", key):
                continue
            info = pairs(node.do("XINFO", "STREAM", key))
            found[key] = (
                node.do("XRANGE", key, "-", "+"),
                {name: value for name, value in info.items() if name in _SHARED_FIGURES},
                [pairs(row)[b"name"] for row in node.do("XINFO", "GROUPS", key)],
                node.do("PEXPIRETIME", key),
            )
        return found

    def check_equals(self) -> None:
        """Regions that have applied the same effects show the same."""
        nodes = list(self.mesh.nodes.values())
        for node, other in pairwise(nodes):
            if node.vector == other.vector and node.clock.us == other.clock.us:
                one, two = self.visible(node), self.visible(other)
                if node.vector == other.vector:  # looking may have removed what had expired
                    assert one == two, f"regions {node.number} and {other.number} differ"

    def everything(self, node: Node) -> dict[bytes, Any]:
        """All that a region shows of its keys, its own part of groups included."""
        return {
            key: (node.do("XINFO", "STREAM", key, "FULL", "COUNT", 0), node.do("PEXPIRETIME", key))
            for key in KEYS
            if node.do("EXISTS", key)
        }
