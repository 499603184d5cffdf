"""The counters of streams and groups, and lag: every rule and example of the counters page.

Each worked example (§6) is a walk: lines to run, and after each the values that must be shown.
``R`` is entries-read, ``lag`` the lag; None is null. The page's algorithm is implemented here once
more, naively, and held against the server on random walks (§1-§5).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.streams import Streams

READ = "XREADGROUP GROUP g c COUNT 1 STREAMS s >"
READ_ALL = "XREADGROUP GROUP g c STREAMS s >"
EMPTY: list[str] = []
FIVE = [f"XADD s {ms}-0 f v" for ms in range(1, 6)]


def _create(rest: str) -> str:
    return f"XGROUP CREATE s g {rest}"


# (section, lines before, [(line, R, lag), ...])
Walk = tuple[str, list[str], list[tuple[str, int | None, int | None]]]

WALKS: list[Walk] = [
    # 6.1 creation point
    ("6.1 empty", EMPTY, [
        (_create("$ MKSTREAM"), None, 0), ("XADD s 1-0 f v", None, 1), (READ, 1, 0)]),
    ("6.1 at 0", FIVE, [
        (_create("0"), None, 5), (READ, 1, 4), (READ, 2, 3), (READ_ALL, 5, 0)]),
    ("6.1 at the first", FIVE, [
        (_create("1-0"), None, 4), (READ, None, None), (READ, None, None), (READ_ALL, 5, 0)]),
    ("6.1 in the middle", FIVE, [
        (_create("3-0"), None, None), (READ, None, None), (READ, 5, 0)]),
    ("6.1 at the last", FIVE, [(_create("5-0"), None, 0)]),
    ("6.1 at $", FIVE, [(_create("$"), None, 0)]),
    ("6.1 in the future", FIVE, [(_create("9-9"), None, None)]),
    ("6.1 middle, read 3", FIVE, [
        (_create("3-0 ENTRIESREAD 3"), 3, 2), (READ, 4, 1), (READ, 5, 0)]),
    ("6.1 at 0, read 0", FIVE, [(_create("0 ENTRIESREAD 0"), 0, 5), (READ, 1, 4)]),
    ("6.1 at $, read too much", FIVE, [(_create("$ ENTRIESREAD 9999"), 5, 0)]),
    ("6.1 read -1", FIVE, [(_create("0 ENTRIESREAD -1"), None, 5)]),
    # 6.2 SETID, everything read before
    *(
        (f"6.2 {rest}", [*FIVE, _create("0"), READ_ALL], [
            ("XLEN s", 5, 0), (f"XGROUP SETID s g {rest}", read, lag)])
        for rest, read, lag in [
            ("2-0", None, None), ("2-0 ENTRIESREAD 2", 2, 3), ("0", None, 5), ("$", None, 0),
            ("9-9", None, None)]
    ),
    # 6.3 to 6.11 deletions and trims
    ("6.3 XDEL ahead", [*FIVE, _create("0")], [
        (READ, 1, 4), ("XDEL s 3-0", 1, None), (READ, None, None), (READ, None, None),
        (READ, 5, 0)]),
    ("6.4 XDEL behind", [*FIVE, _create("0"), READ, READ], [
        (READ, 3, 2), ("XDEL s 2-0", 3, 2), (READ, 4, 1)]),
    ("6.5 XDEL exactly at the group", [*FIVE, _create("0"), READ, READ], [
        (READ, 3, 2), ("XDEL s 3-0", 3, None), (READ, None, None), (READ, 5, 0)]),
    ("6.6 XDEL the first", [*FIVE, _create("0")], [("XDEL s 1-0", None, 4), (READ, 2, 3)]),
    ("6.7 XDEL the last", [*FIVE, _create("0"), READ], [
        (READ, 2, 3), ("XDEL s 5-0", 2, None), (READ, None, None), (READ, None, None),
        ("XADD s 6-0 f v", None, None), (READ, 6, 0)]),
    ("6.8 trim past the group", [*FIVE, _create("0")], [
        (READ, 1, 4), ("XTRIM s MAXLEN 2", 1, 2), (READ, 4, 1), (READ, 5, 0)]),
    ("6.9 trim to empty", [*FIVE, _create("0")], [
        (READ, 1, 4), ("XTRIM s MAXLEN 0", 1, 0), ("XADD s 6-0 f v", 1, 1), (READ, 6, 0)]),
    ("6.10 all before the tombstone goes", [_create("$ MKSTREAM"), "XADD s 1-0 f v"], [
        (READ, 1, 0), ("XADD s 2-0 f v", 1, 1), ("XADD s 3-0 f v", 1, 2), ("XDEL s 2-0", 1, None),
        ("XDEL s 1-0", 1, 1), (READ, 3, 0)]),
    ("6.11 delete everything", [*FIVE, _create("0"), READ], [
        (READ, 2, 3), ("XDEL s 1-0 2-0 3-0 4-0 5-0", 2, 0), ("XADD s 6-0 f v", 2, 1),
        (READ, 6, 0)]),
    # 6.12 other
    ("6.12 NOACK", [*FIVE, _create("0")], [
        ("XREADGROUP GROUP g c COUNT 2 NOACK STREAMS s >", 2, 3)]),
    ("6.12 LASTID", [*FIVE, _create("0"), READ], [
        (READ, 2, 3), ("XCLAIM s g c 0 1-0 LASTID 3-0", 2, 3)]),
    ("6.12 XSETID entries-added 100", [*FIVE, _create("0"), READ, READ, READ], [
        (READ, 4, 1), ("XSETID s 9-0 ENTRIESADDED 100", 4, 96)]),
    ("6.12 XSETID with a tombstone", [*FIVE, _create("0"), READ, READ, READ], [
        (READ, 4, 1), ("XSETID s 9-0 ENTRIESADDED 5 MAXDELETEDID 8-0", 4, None)]),
    ("6.12 XSETID clamps", [
        *(f"XADD s {ms}-0 f v" for ms in range(1, 11)), _create("0"), READ_ALL,
        "XTRIM s MAXLEN 2"], [("XSETID s 10-0 ENTRIESADDED 2", 2, 0)]),
    # §2: what leaves entries-read alone
    ("2 unchanged", [*FIVE, _create("0"), READ], [
        (READ, 2, 3), ("XREADGROUP GROUP g c STREAMS s 0", 2, 3),
        ("XACK s g 1-0", 2, 3), ("XNACK s g FAIL IDS 1 2-0", 2, 3), ("XPENDING s g", 2, 3),
        ("XREADGROUP GROUP g c COUNT 1 CLAIM 0 STREAMS s >", 2, 3), ("XAUTOCLAIM s g c 0 -", 2, 3),
        ("XCLAIM s g d 0 2-0", 2, 3), ("XTRIM s MAXLEN 4", 2, 3), ("XDEL s 2-0", 2, 3),
        ("XREADGROUP GROUP g c STREAMS s 0", 2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize("walk", WALKS, ids=[walk[0] for walk in WALKS])
def test_the_worked_examples(walk: Walk) -> None:
    """§6.1-§6.12 and §2."""
    _, before, steps = walk
    s = Streams()
    s.run(*before)
    for line, entries_read, lag in steps:
        s.run(line)
        for group in (s.group(), s.full_group()):
            assert (line, group["entries-read"], group["lag"]) == (line, entries_read, lag)
        s.check()


@pytest.mark.parametrize(
    ("line", "deleted", "first"),
    [
        ("XDEL s 3-0", "3-0", "1-0"),
        ("XDEL s 1-0", "1-0", "2-0"),
        ("XTRIM s MAXLEN 2", "0-0", "4-0"),
        ("XTRIM s MAXLEN 0", "0-0", "0-0"),
    ],
)
def test_max_deleted_and_first_id_of_the_examples(line: str, deleted: str, first: str) -> None:
    """§6.3, §6.6, §6.8: the columns D and F."""
    s = Streams()
    s.run(*FIVE, line)
    info = s.info()
    assert (info["max-deleted-entry-id"], info["recorded-first-entry-id"]) == (deleted, first)
    assert info["entries-added"] == 5


def test_a_stream_begins_with_all_counters_at_zero() -> None:
    """§1."""
    s = Streams()
    s.run(_create("$ MKSTREAM"))
    info = s.info()
    assert [info[name] for name in (
        "length", "entries-added", "last-generated-id", "max-deleted-entry-id",
        "recorded-first-entry-id")] == [0, 0, "0-0", "0-0", "0-0"]  # fmt: skip


def test_a_duplicate_does_not_count_as_added() -> None:
    """§1."""
    s = Streams()
    s.run("XADD s IDMP p i * f v", "XADD s IDMP p i * f v")
    assert s.info()["entries-added"] == 1


@pytest.mark.parametrize(
    "lines", [["RENAME s t"], ["COPY s t"], ["MOVE s 4", "SELECT 4", "RENAME s t"]]
)
def test_the_counters_move_with_the_stream(lines: list[str]) -> None:
    """§1, §8."""
    s = Streams()
    s.run(*FIVE, _create("2-0 ENTRIESREAD 2"), "XGROUP CREATE s u 3-0", READ, "XDEL s 1-0 4-0")
    s.advance(50)
    before = s.run("XINFO STREAM s FULL")
    s.run(*lines)
    assert s.run("XINFO STREAM t FULL") == before


def test_dump_and_restore_keep_the_counters() -> None:
    """§8: "unknown" included."""
    s = Streams()
    s.run(*FIVE, _create("2-0 ENTRIESREAD 2"), "XGROUP CREATE s u 3-0", READ, "XDEL s 1-0 4-0")
    s.run("XNACK s g FAIL IDS 1 3-0", "XGROUP CREATECONSUMER s g idle")
    s.do("RESTORE", "t", 0, s.do("DUMP", "s"))
    assert s.run("XINFO STREAM t FULL") == s.run("XINFO STREAM s FULL")


def test_del_forgets_the_counters() -> None:
    """§1."""
    s = Streams()
    s.run(*FIVE, "DEL s", "XADD s 1-0 f v")
    assert s.info()["entries-added"] == 1
    assert s.info()["last-generated-id"] == "1-0"


# -- the page's algorithm, once more ----------------------------------------------------------


class _Model:
    """A stream and one group in the page's letters; IDs are whole milliseconds."""

    def __init__(self) -> None:
        self.live: list[int] = []
        self.added = self.last = self.deleted = 0  # A, L, D
        self.cursor = 0  # G
        self.read: int | None = None  # R

    @property
    def first(self) -> int:
        return self.live[0] if self.live else 0

    def estimate(self, entry: int) -> int | None:
        """§3."""
        clean = self.deleted == 0 or self.deleted < self.first
        if self.added == 0:
            return 0
        if not self.live and entry <= self.last:
            return self.added
        if entry != 0 and entry < self.deleted:
            return None
        if entry == self.last:
            return self.added
        if entry > self.last:
            return None
        if clean and entry < self.first:
            return self.added - len(self.live)
        if clean and entry == self.first:
            return self.added - len(self.live) + 1
        return None

    def tombstones_from(self, entry: int) -> bool:
        """§4."""
        return bool(self.live) and self.deleted != 0 and entry <= self.deleted

    def deliver(self, count: int) -> list[int]:
        """§4."""
        new = [entry for entry in self.live if entry > self.cursor][:count]
        for entry in new:
            if (
                self.read is not None
                and self.cursor >= self.first
                and not self.tombstones_from(self.cursor)
            ):
                self.read = min(self.read + 1, self.added)
            elif self.added > 0:
                self.read = self.estimate(entry)
            self.cursor = entry
        return new

    def lag(self) -> int | None:
        """§5."""
        if self.added == 0 or not self.live:
            return 0
        if self.cursor < self.first and self.deleted < self.first:
            return len(self.live)
        if self.read is not None and not self.tombstones_from(self.cursor):
            return self.added - self.read
        position = self.estimate(self.cursor)
        return None if position is None else self.added - position


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("delete first"), st.just(0), st.just(0)),
        st.tuples(st.just("trim"), st.integers(0, 10), st.just(0)),
        st.tuples(st.just("setid"), st.integers(0, 30), st.integers(-1, 30)),
        st.tuples(st.just("lastid"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("xsetid"), st.integers(0, 30), st.integers(-1, 40)),
        st.tuples(st.just("maxdeleted"), st.integers(0, 30), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=250, deadline=None)
@given(node_entries=st.integers(1, 4), steps=_STEPS)
@example(  # entries-added is lowered below what the group has still to read
    node_entries=1,
    steps=[
        ("add", 1, 0),
        ("add", 1, 0),
        ("xsetid", 0, 3),
        ("read", 1, 0),
        ("xsetid", 0, 0),
        ("read", 1, 0),
    ],
)
def test_random_walks_agree_with_the_page(
    node_entries: int, steps: list[tuple[str, int, int]]
) -> None:
    """§1-§5."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", node_entries)
    s.run(_create("0 MKSTREAM"))
    model = _Model()
    for step in steps:
        _walk(s, model, step)
        info, group = s.info(), s.group()
        assert _shown(info, group) == {
            "length": len(model.live), "entries-added": model.added,
            "last-generated-id": f"{model.last}-0", "max-deleted-entry-id": f"{model.deleted}-0",
            "recorded-first-entry-id": f"{model.first}-0",
            "last-delivered-id": f"{model.cursor}-0",
            "entries-read": model.read, "lag": model.lag(),
        }  # fmt: skip
    s.check()


def _shown(info: dict[str, Any], group: dict[str, Any]) -> dict[str, Any]:
    names = ("length", "entries-added", "last-generated-id", "max-deleted-entry-id",
             "recorded-first-entry-id")  # fmt: skip
    mine = ("last-delivered-id", "entries-read", "lag")
    return {name: info[name] for name in names} | {name: group[name] for name in mine}


def _walk(s: Streams, model: _Model, step: tuple[str, int, int]) -> None:
    """One step for both."""
    act, value, more = step
    if act == "add":
        entry = model.last + value
        s.fill("s", f"{entry}-0")
        model.live.append(entry)
        model.last = entry
        model.added += 1
    elif act == "read":
        reply = s.run(f"XREADGROUP GROUP g c COUNT {value} STREAMS s >")
        ids = [entry[0] for entry in reply[0][1]] if reply else []
        assert ids == [f"{entry}-0" for entry in model.deliver(value)]
    elif act in ("delete", "delete first"):
        entry = model.first if act == "delete first" else value
        if s.run(f"XDEL s {entry}-0"):
            model.live.remove(entry)
            model.deleted = max(model.deleted, entry)
    elif act == "trim":
        s.run(f"XTRIM s MAXLEN {value}")
        model.live = model.live[-value:] if value else []
    elif act == "setid":
        s.run(f"XGROUP SETID s g {value}-0 ENTRIESREAD {more}")
        model.cursor = value
        model.read = None if more == -1 else min(more, model.added)
    elif act == "lastid":
        s.run(f"XCLAIM s g c 0 JUSTID LASTID {value}-0")
        model.cursor = max(model.cursor, value)
    else:
        _set_counters(s, model, step)


def _set_counters(s: Streams, model: _Model, step: tuple[str, int, int]) -> None:
    """XSETID, where it is allowed."""
    act, value, more = step
    last = max(value, model.deleted, *model.live[-1:], 0)
    if act == "maxdeleted":
        last = max(last, value)
        s.run(f"XSETID s {last}-0 MAXDELETEDID {value}-0")
        model.deleted = value or model.deleted
    elif more < 0:
        s.run(f"XSETID s {last}-0")
    else:
        added = max(more, len(model.live))
        s.run(f"XSETID s {last}-0 ENTRIESADDED {added}")
        model.added = added
        model.read = None if model.read is None else min(model.read, added)
    model.last = last
