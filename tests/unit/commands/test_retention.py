"""Retention by the server: what max-age, max-length and max-bytes remove, and what keep keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch.stream.stream import Stream
from tests.support.streams import Streams, as_map

NODE = 10


class Kept(Streams):
    """A stream ``s`` with nodes of ten entries and some policies."""

    def __init__(self, policies: str = "") -> None:
        super().__init__(stream_node_max_entries=NODE)
        if policies:
            self.run(f"AB.POLICY SET s {policies}")

    def works(self) -> None:
        """The server has time for its work."""
        for _ in range(4):
            self.advance(100)
        for database in self.region.keyspace.databases:
            database.check()
            for value in database.values.values():
                if type(value) is Stream:
                    value.check()

    def left(self) -> list[int]:
        """What is left of ``count_to``."""
        return [int(each.partition("-")[0]) for each in self.ids("s")]

    def trimmed(self) -> int:
        return self.region.stats.policy_trimmed


# -- limits -----------------------------------------------------------------------------------


def test_whole_nodes_go_and_never_more_than_the_limit_allows() -> None:
    s = Kept("max-length 25")
    s.count_to("s", 57)
    s.works()
    assert s.left() == list(range(31, 58))
    assert s.trimmed() == 30
    assert "policy_trimmed:30" in s.run("INFO policies")


def test_exact_holds_to_the_entry() -> None:
    s = Kept("max-length 25 exact yes")
    for last in (57, 58, 61):
        s.count_to("s", last, s.left()[-1] + 1 if last > 57 else 1)
        s.works()
        assert s.left() == list(range(last - 24, last + 1))


def test_a_limit_that_is_set_later_and_one_that_is_deleted() -> None:
    s = Kept()
    s.count_to("s", 57)
    s.works()
    assert len(s.left()) == 57
    s.run("AB.POLICY SET PATTERN s* max-length 25 exact yes")
    s.works()
    assert len(s.left()) == 25
    s.run("AB.POLICY DEL PATTERN s*")
    s.count_to("s", 200, 100)
    s.works()
    assert len(s.left()) == 126


@pytest.mark.parametrize(("exact", "left"), [("no", 21), ("yes", 16)])
def test_entries_go_when_they_come_of_age(exact: str, left: int) -> None:
    s = Kept(f"max-age 10s exact {exact}")
    for _ in range(30):
        s.run("XADD s * f v")
        s.advance(1000)
    s.works()
    assert len(s.left()) <= left
    assert len(s.left()) >= 9
    before = len(s.left())
    s.advance(2000)
    s.works()
    assert (len(s.left()) < before) is (exact == "yes")
    s.advance(20_000)
    s.works()
    assert s.left() == []
    assert s.run("EXISTS s") == 1
    assert s.trimmed() == 30


def test_bytes_are_those_of_names_and_values() -> None:
    s = Kept("max-bytes 4kb")
    for ms in range(1, 101):
        s.run(f"XADD s {ms}-0 field {'v' * 95}")
    s.works()
    used = sum(len(name) + len(value) for _, (name, value) in s.run("XRANGE s - +"))
    assert 4096 - NODE * 100 < used < 4096 + NODE * 110
    log = s.region.keyspace.databases[0].values[b"s"].local  # type: ignore[union-attr]
    assert 4096 <= sum(block.weight for block in log.blocks) < 4096 + log.blocks[0].weight


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_those_of_the_blocks_however_these_go(seed: int) -> None:
    rng = random.Random(seed)
    s = Kept("max-bytes 1gb")
    last = 0
    for _ in range(300):
        match rng.randrange(5):
            case 0 | 1:
                s.count_to("s", last + 7, last + 1)
                last += 7
            case 2:
                s.run(f"XTRIM s MAXLEN {rng.randrange(100)}")
            case 3:
                s.do("XDEL", "s", *(f"{rng.randint(0, last)}-0" for _ in range(9)))
            case _:
                first = rng.randint(0, last)
                s.do("XDEL", "s", *(f"{first + n}-0" for n in range(25)))
        stream = s.region.keyspace.databases[0].values.get(b"s")
        if stream is not None and rng.random() < 0.5:
            blocks = stream.local.blocks  # type: ignore[union-attr]
            weight = sum(block.weight for block in blocks)
            assert stream.retained.weight(stream.logs) == weight  # type: ignore[union-attr]


def test_much_is_removed_in_slices() -> None:
    s = Kept("max-length 1")
    s.count_to("s", 5000)
    s.works()
    assert s.left() == list(range(4991, 5001))


@pytest.mark.parametrize("reason", ["the disk", "a pause"])
def test_nothing_is_removed_while_nothing_may_be_written(reason: str) -> None:
    s = Kept("max-length 25")
    s.count_to("s", 57)
    if reason == "a pause":
        s.run("CLIENT PAUSE 1000 WRITE")
    else:
        s.region.dispatcher.refuse_writes("disk", "MISCONF")
    s.works()
    assert s.trimmed() == 0
    s.region.dispatcher.allow_writes("disk")
    s.advance(1000)
    s.works()
    assert s.trimmed() == 30


def test_a_stream_without_limits_is_not_looked_at() -> None:
    s = Kept()
    s.run("AB.POLICY SET other max-length 5")
    s.count_to("s", 57)
    s.works()
    database = s.region.keyspace.databases[0]
    assert database.values[b"s"].retained is None  # type: ignore[union-attr]
    assert dict(database.policies.retention) == {}
    assert s.trimmed() == 0


def test_a_stream_at_rest_is_not_looked_at() -> None:
    s = Kept("max-length 5 max-age 1d")
    s.run("XADD s * f v")
    s.works()
    (due_ms,) = s.region.keyspace.databases[0].policies.retention.values()
    assert due_ms > s.region.context.now_ms + 80_000_000


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["RENAME s t", "COPY s t", "MOVE s 1"])
def test_a_name_has_its_limits_and_a_value_has_those_of_its_name(line: str) -> None:
    s = Kept()
    s.run("AB.POLICY SET t max-length 5 exact yes")
    s.count_to("s", 30)
    s.run(line)
    s.works()
    if line.startswith("MOVE"):
        s.run("SELECT 1", "AB.POLICY SET s max-length 5 exact yes")
        s.works()
        assert len(s.ids("s")) == 5
    else:
        assert len(s.ids("t")) == 5


def test_limits_go_with_a_swapped_database() -> None:
    s = Kept("max-length 5 exact yes")
    s.count_to("s", 5)
    s.works()
    s.run("SWAPDB 0 1", "SELECT 1")
    s.count_to("s", 9, 6)
    s.works()
    assert s.left() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("line", ["DEL s", "FLUSHALL", "MSET s x", "SET s x"])
def test_what_is_gone_is_not_looked_at_any_more(line: str) -> None:
    s = Kept("max-age 1h")
    s.run("XADD s * f v")
    s.works()
    s.run(line)
    s.advance(3_700_000)
    s.works()
    assert dict(s.region.keyspace.databases[0].policies.retention) == {}


# -- what groups need -------------------------------------------------------------------------


def take(s: Streams, count: int, group: str = "g") -> None:
    s.run(f"XREADGROUP GROUP {group} c COUNT {count} STREAMS s >")


def ack(s: Streams, *numbers: int, group: str = "g") -> None:
    s.do("XACK", "s", group, *(f"{n}-0" for n in numbers))


@pytest.fixture
def g() -> Kept:
    s = Kept("max-length 5 exact yes keep unacked")
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    s.count_to("s", 40)
    return s


def test_what_a_group_has_not_acknowledged_stays(g: Kept) -> None:
    g.works()
    assert len(g.left()) == 40
    take(g, 30)
    g.works()
    assert len(g.left()) == 40
    ack(g, *range(1, 18), 20)
    g.works()
    assert g.left() == list(range(18, 41))
    ack(g, 18, 19)
    g.works()
    assert g.left() == list(range(21, 41))
    ack(g, *range(21, 31))
    take(g, 10)
    ack(g, *range(31, 41))
    g.works()
    assert g.left() == [36, 37, 38, 39, 40]


def retention(s: Streams) -> dict[str, Any]:
    """What AB.INFO shows of the stream."""
    return as_map(as_map(s.run("AB.INFO s"))["retention"])


def test_ab_info_shows_which_group_holds_back_what(g: Kept) -> None:
    g.run("XGROUP CREATE s audit 0")
    take(g, 20)
    ack(g, *range(1, 13))
    g.works()
    shown = retention(g)
    assert as_map(shown["policies"]) == {"max-length": "5", "exact": "yes", "keep": "unacked"}
    assert (shown["held-back"], shown["needed-by"]) == (30, [["audit", "1-0"], ["g", "13-0"]])
    take(g, 40, "audit")
    ack(g, *range(1, 41), group="audit")
    g.works()
    shown = retention(g)
    assert (shown["held-back"], shown["needed-by"]) == (18, [["g", "13-0"]])
    g.run("AB.POLICY SET s keep none")
    assert retention(g)["needed-by"] == []
    g.run("AB.POLICY DEL s")
    assert retention(g) == {}


def test_ab_info_leaves_out_groups_that_nobody_uses(g: Kept) -> None:
    g.run("AB.POLICY SET s ignore-groups-idle 1h", "XGROUP CREATE s audit 0")
    g.works()
    g.advance(3_600_000 // 2)
    take(g, 1, "audit")
    g.works()
    g.advance(3_600_000 // 2)
    assert retention(g)["needed-by"] == [["audit", "1-0"]]


def test_what_a_group_was_given_goes_with_keep_unread(g: Kept) -> None:
    g.run("AB.POLICY SET s keep unread")
    take(g, 30)
    g.works()
    assert g.left() == list(range(31, 41))
    take(g, 8)
    g.works()
    assert g.left() == list(range(36, 41))


def test_released_entries_are_needed(g: Kept) -> None:
    take(g, 40)
    ack(g, *range(1, 10), *range(11, 41))
    g.run("XNACK s g FAIL IDS 1 10-0")
    g.works()
    assert g.left() == list(range(10, 41))


def test_every_group_counts_and_deleted_ones_do_not(g: Kept) -> None:
    g.run("XGROUP CREATE s h 0")
    take(g, 40)
    ack(g, *range(1, 41))
    g.works()
    assert len(g.left()) == 40
    g.run("XGROUP DESTROY s h")
    g.works()
    assert g.left() == [36, 37, 38, 39, 40]


def test_what_was_deleted_before_it_was_acknowledged_holds_nothing_back(g: Kept) -> None:
    take(g, 40)
    ack(g, *range(2, 41))
    g.run("XDEL s 1-0")
    g.works()
    assert g.left() == [36, 37, 38, 39, 40]


@pytest.mark.parametrize("exact", ["yes", "no"])
def test_unacked_without_limits_removes_what_is_acknowledged(g: Kept, exact: str) -> None:
    g.run("AB.POLICY DEL s max-length exact", f"AB.POLICY SET s exact {exact}")
    g.works()
    take(g, 25)
    ack(g, *range(1, 26))
    g.works()
    assert g.left() == list(range(26 if exact == "yes" else 21, 41))
    take(g, 25)
    ack(g, *range(26, 41))
    g.works()
    assert g.left() == []


@pytest.mark.parametrize("keep", ["unacked", "unread"])
def test_nothing_goes_without_limits_while_there_is_no_group(keep: str) -> None:
    s = Kept(f"keep {keep}")
    s.count_to("s", 40)
    s.works()
    assert len(s.left()) == 40


def test_keep_limit_of_bytes_ends_the_patience() -> None:
    s = Kept("max-length 5 exact yes keep unacked keep-limit 1kb")
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    for ms in range(1, 101):
        s.run(f"XADD s {ms}-0 field {'v' * 95}")
    s.works()
    assert 5 < len(s.left()) <= 20
    assert s.left()[-1] == 100


def test_keep_limit_of_age_ends_the_patience() -> None:
    s = Kept("max-length 5 exact yes keep unread keep-limit 1h")
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    for _ in range(40):
        s.run("XADD s * f v")
    s.advance(3_599_000)
    s.works()
    assert len(s.left()) == 40
    s.advance(1000)
    s.works()
    assert s.left() == []


def test_groups_that_nobody_uses_are_left_out(g: Kept) -> None:
    g.run("AB.POLICY SET s ignore-groups-idle 10s", "XGROUP CREATE s h 0")
    g.works()
    for _ in range(20):
        g.advance(1000)
        take(g, 1)
    g.works()
    assert g.left() == list(range(1, 41))
    ack(g, *range(1, 21))
    g.works()
    assert g.left() == list(range(21, 41))  # h counts no more
    g.advance(10_001)
    g.works()
    assert g.left() == list(range(36, 41))


def test_a_group_that_comes_back_counts_again(g: Kept) -> None:
    g.run("AB.POLICY SET s ignore-groups-idle 10s max-length 30")
    g.works()
    g.advance(10_001)
    g.works()
    assert g.left() == list(range(11, 41))
    take(g, 1)
    g.count_to("s", 60, 41)
    g.works()
    assert g.left() == list(range(11, 61))


@pytest.mark.parametrize("seed", range(20))
def test_it_never_removes_what_keep_protects(seed: int) -> None:
    """Against a model: what a group was not given, or has not acknowledged, is there."""
    rng = random.Random(seed)
    keep = rng.choice(["unread", "unacked"])
    s = Kept(f"keep {keep} exact {rng.choice(['yes', 'no'])}")
    if keep == "unread" or rng.random() < 0.7:
        s.run(f"AB.POLICY SET s max-length {rng.choice([1, 5, 20])}")
    unread: dict[str, list[int]] = {"g": [], "h": []}
    unacked: dict[str, set[int]] = {"g": set(), "h": set()}
    for name in unread:
        s.run(f"XGROUP CREATE s {name} 0 MKSTREAM")
    last = 0
    for _ in range(150):
        group = rng.choice(list(unread))
        match rng.randrange(4):
            case 0:
                count = rng.randint(1, 15)
                s.count_to("s", last + count, last + 1)
                for each in unread.values():
                    each += range(last + 1, last + count + 1)
                last += count
            case 1:
                count = rng.randint(1, 20)
                take(s, count, group)
                unacked[group] |= set(unread[group][:count])
                del unread[group][:count]
            case 2:
                some = [n for n in unacked[group] if rng.random() < 0.8]
                if some:
                    ack(s, *some, group=group)
                    unacked[group] -= set(some)
            case _:
                s.works()
                left = set(s.left())
                assert left.issuperset(set().union(*unread.values()))
                assert keep == "unread" or left.issuperset(set().union(*unacked.values()))
    for name in unread:
        take(s, 10_000, name)
        ack(s, *range(1, last + 1), group=name)
    s.works()
    assert len(s.left()) < 20 + 2 * NODE


# -- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "value", "error"),
    [("max-age", "soon", "a duration is a number with ms, s, m, h or d"),
     ("max-length", "-1", "argument must be between 0 and"),
     ("max-bytes", "10", None),
     ("max-bytes", "10mb", None),
     ("keep", "all", "argument(s) must be one of the following: none, unread, unacked"),
     ("keep-limit", "10", "it is none, bytes with b, k, kb, mb, g or gb, or an age with"),
     ("keep-limit", "5m", None), ("keep-limit", "5mb", None), ("keep-limit", "5b", None),
     ("exact", "perhaps", "argument must be 'yes' or 'no'"),
     ("ignore-groups-idle", "1d", None)],
)  # fmt: skip
def test_values(policy: str, value: str, error: str | None) -> None:
    s = Kept()
    if error is None:
        s.run(f"AB.POLICY SET s {policy} {value}")
        rows = [as_map(each) for each in s.run("AB.POLICY GET s")]
        (shown,) = [each["value"] for each in rows if each["policy"] == policy]
        s.run(f"AB.POLICY SET t {policy} {shown}")
    else:
        assert error in s.fails(f"AB.POLICY SET s {policy} {value}")
