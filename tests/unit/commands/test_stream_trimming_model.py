"""Trimming against the specification's rules written down naively (§3.3, §3.4).

The model keeps nodes as lists of ``[ID, alive]`` slots, and one group with its pending IDs.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.stream import block as block_module
from tests.support.streams import Streams


class _Model:
    def __init__(self, node_entries: int) -> None:
        self.node_entries = node_entries
        self.nodes: list[list[list[int]]] = []  # slots [ID, 1 or 0]
        self.last = 0
        self.delivered = 0
        self.pending: set[int] = set()

    def live(self) -> list[int]:
        return [entry for node in self.nodes for entry, alive in node if alive]

    def add(self) -> None:
        self.last += 1
        if not self.nodes or len(self.nodes[-1]) >= self.node_entries:
            self.nodes.append([])
        self.nodes[-1].append([self.last, 1])

    def remove(self, entry: int) -> bool:
        """Delete one entry; a node without live entries goes."""
        for node in self.nodes:
            for slot in node:
                if slot == [entry, 1]:
                    slot[1] = 0
                    if not any(alive for _, alive in node):
                        self.nodes.remove(node)
                    return True
        return False

    def trim(self, by: str, value: int, rough: bool, limit: int, policy: str) -> int:
        before = len(self.live())
        if not rough and policy == "KEEPREF":
            self._exactly(by, value)
        elif policy == "KEEPREF":
            self._by_nodes(by, value, limit)
        else:
            self._one_by_one(by, value, limit if rough else 0, policy)
        return before - len(self.live())

    def _exactly(self, by: str, value: int) -> None:
        live = self.live()
        doomed = (
            live[: max(len(live) - value, 0)] if by == "MAXLEN" else [e for e in live if e < value]
        )
        for entry in doomed:
            self.remove(entry)

    def _by_nodes(self, by: str, value: int, limit: int) -> None:
        removed = 0
        while self.nodes:
            node = self.nodes[0]
            live = sum(alive for _, alive in node)
            if by == "MAXLEN":
                qualifies = len(self.live()) - live >= value
            else:
                qualifies = node[-1][0] < value
            if not qualifies or (limit and removed + live > limit):
                return
            removed += live
            del self.nodes[0]

    def _one_by_one(self, by: str, value: int, limit: int, policy: str) -> None:
        removed = 0
        for node in list(self.nodes):
            live = [entry for entry, alive in node if alive]
            if limit and removed + len(live) > limit:
                return
            for entry in live:
                if by == "MAXLEN" and len(self.live()) <= value:
                    return
                if by == "MINID" and entry >= value:
                    return
                if policy == "ACKED" and (entry > self.delivered or entry in self.pending):
                    continue
                self.remove(entry)
                removed += 1
                self.pending.discard(entry)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.integers(0, 60)),
        st.tuples(st.just("read"), st.integers(1, 8)),
        st.tuples(st.just("ack"), st.integers(0, 60)),
        st.tuples(
            st.just("trim"),
            st.sampled_from(["MAXLEN", "MINID"]),
            st.integers(0, 40),
            st.sampled_from(["=", "~"]),
            st.one_of(st.none(), st.integers(0, 12)),
            st.sampled_from(["KEEPREF", "KEEPREF", "DELREF", "ACKED"]),
        ),
    ),
    min_size=8,
    max_size=40,
)


DELETED_AT_THE_END = [("delete", 4), ("delete", 5), ("delete", 3)]
"""Of the first node of five."""


@settings(max_examples=300, deadline=None)
@example(
    rewrite_min=1,
    node_entries=5,
    steps=[*DELETED_AT_THE_END, ("trim", "MINID", 4, "~", None, "KEEPREF")],
)
@given(rewrite_min=st.sampled_from([1, 2, 64]), node_entries=st.integers(1, 5), steps=STEPS)
def test_trimming_follows_the_rules(
    rewrite_min: int, node_entries: int, steps: list[tuple[object, ...]]
) -> None:
    """Also where the bytes of deleted entries are removed from nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_module, "_REWRITE_DEAD_MIN", rewrite_min)
        _follow(node_entries, steps)


def _follow(node_entries: int, steps: list[tuple[object, ...]]) -> None:
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", node_entries)
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    model = _Model(node_entries)
    for _ in range(12):
        model.add()
        s.fill("s", f"{model.last}-0")
    for act, *rest in steps:
        _step(s, model, str(act), rest)
        assert s.ids("s") == [f"{entry}-0" for entry in model.live()]
        assert s.info()["radix-tree-keys"] == len(model.nodes)
        assert {int(row[0].split("-")[0]) for row in s.pending()} == model.pending
    s.check()


def _step(s: Streams, model: _Model, act: str, rest: list[object]) -> None:
    if act == "trim":
        by, value, sign, limit, policy = rest
        words = f"{by} {sign} {value} {policy}"
        if sign == "~" and limit is not None:
            words += f" LIMIT {limit}"
        if limit is None:
            limit = 100 * model.node_entries
        assert isinstance(value, int)
        assert isinstance(limit, int)
        removed = model.trim(str(by), value, sign == "~", limit, str(policy))
        assert s.run(f"XTRIM s {words}") == removed
        return
    [value] = rest
    assert isinstance(value, int)
    if act == "add":
        for _ in range(value):
            model.add()
            s.fill("s", f"{model.last}-0")
    elif act == "delete":
        assert s.run(f"XDEL s {value}-0") == model.remove(value)
    elif act == "read":
        new = [entry for entry in model.live() if entry > model.delivered][:value]
        model.pending |= set(new)
        model.delivered = max([model.delivered, *new])
        s.run(f"XREADGROUP GROUP g c COUNT {value} STREAMS s >")
    else:
        s.run(f"XACK s g {value}-0")
        model.pending.discard(value)
