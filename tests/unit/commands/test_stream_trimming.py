"""XTRIM and what MAXLEN, MINID, ``~`` and LIMIT remove (specification §3.2, §3.3)."""

from __future__ import annotations

import pytest

from anabranch.stream.references import References
from anabranch.version import IS_COMPILED
from tests.support.streams import INVALID_ID, NOT_INTEGER, SYNTAX, Streams

NO_STRATEGY = "ERR syntax error, XTRIM must be called with a trimming strategy"
TWO_STRATEGIES = "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
LIMIT_ALONE = "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
LIMIT_EXACT = "ERR syntax error, LIMIT cannot be used without the special ~ option"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XTRIM s LIMIT 5", LIMIT_ALONE),
        ("XTRIM s KEEPREF LIMIT 0", NO_STRATEGY),
        ("XTRIM s LIMIT 0", NO_STRATEGY),
        ("XTRIM s LIMIT -1", "ERR The LIMIT argument must be >= 0."),
        ("XTRIM s KEEPREF DELREF", SYNTAX),
        ("XTRIM s MAXLEN 5 KEEPREF DELREF", SYNTAX),
        ("XTRIM s MAXLEN 5 ACKED ACKED", SYNTAX),
        ("XTRIM s MAXLEN 5 NOMKSTREAM", SYNTAX),
        ("XTRIM s MAXLEN 5 IDMP p i", SYNTAX),
        ("XTRIM s MAXLEN 5 IDMPAUTO p", SYNTAX),
        ("XTRIM s MAXLEN 5 WHAT", SYNTAX),
        ("XTRIM s WHAT 5", SYNTAX),
        ("XTRIM s MAXLEN 5 LIMIT", SYNTAX),
        ("XTRIM s KEEPREF MAXLEN", SYNTAX),
        ("XTRIM s MAXLEN =", NOT_INTEGER),
        ("XTRIM s MAXLEN ~", NOT_INTEGER),
        ("XTRIM s MAXLEN 5 MINID 5", TWO_STRATEGIES),
        ("XTRIM s MAXLEN 5 MAXLEN 5", TWO_STRATEGIES),
        ("XTRIM s MAXLEN -1", "ERR The MAXLEN argument must be >= 0."),
        ("XTRIM s MAXLEN x", NOT_INTEGER),
        ("XTRIM s MINID x", INVALID_ID),
        ("XTRIM s MAXLEN 5 LIMIT 5", LIMIT_EXACT),
        ("XTRIM s MAXLEN = 5 LIMIT 0", LIMIT_EXACT),
        ("XTRIM s MINID ~ 5 LIMIT x", NOT_INTEGER),
        ("XTRIM s MINID ~ 5 LIMIT -1", "ERR The LIMIT argument must be >= 0."),
    ],
)
def test_a_wrong_request_is_refused_even_without_the_key(line: str, error: str) -> None:
    """§3.2."""
    s = Streams()
    assert s.fails(line) == error
    s.run("SET s v")
    assert s.fails(line) == error


def test_options_of_one_request_are_not_those_of_another() -> None:
    """The server keeps the options that it read last, for requests with the same ones."""
    s = Streams()
    for maxlen, length in [(3, 1), (3, 2), (3, 3), (3, 3), (2, 2), (3, 3)]:
        s.run(f"XADD s MAXLEN {maxlen} * f v")
        assert s.run("XLEN s") == length
    s.run("XADD s NOMKSTREAM * MAXLEN 3")
    assert s.run("XLEN s") == 4
    assert "wrong number" in s.fails("XADD s MAXLEN 3 * f")
    assert "wrong number" in s.fails("XADD s MAXLEN 3 *")


def test_the_limit_of_kept_options_follows_the_setting() -> None:
    """Without LIMIT, ``~`` removes a hundred nodes at most."""
    s = Streams()
    s.run("XADD s MAXLEN ~ 10 * f v")
    s.run("CONFIG SET stream-node-max-entries 1")
    for _ in range(300):
        s.run("XADD t * f v")
    s.run("XADD t MAXLEN ~ 10 * f v")
    assert s.run("XLEN t") == 201


def test_options_may_come_in_any_order() -> None:
    """§3.2."""
    s = Streams()
    for line in (
        "KEEPREF MAXLEN ~ 5 LIMIT 0",
        "LIMIT 0 MAXLEN ~ 5 ACKED",
        "MINID ~ 5 DELREF LIMIT 0",
    ):
        assert s.run(f"XTRIM missing {line}") == 0


# -- the probed table -------------------------------------------------------------------------


def _fifty(node_entries: int = 10) -> Streams:
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", node_entries)
    s.count_to("s", 50)
    return s


@pytest.mark.parametrize(
    ("rule", "removed", "first"),
    [
        ("MAXLEN ~ 45", 0, 1),
        ("MAXLEN ~ 41", 0, 1),
        ("MAXLEN ~ 40", 10, 11),
        ("MAXLEN ~ 5", 40, 41),
        ("MAXLEN ~ 0 LIMIT 5", 0, 1),
        ("MAXLEN ~ 0 LIMIT 9", 0, 1),
        ("MAXLEN ~ 0 LIMIT 10", 10, 11),
        ("MAXLEN ~ 0 LIMIT 25", 20, 21),
        ("MAXLEN ~ 0 LIMIT 0", 50, 0),
        ("MAXLEN ~ 0", 50, 0),
        ("MAXLEN ~ 50", 0, 1),
        ("MAXLEN ~ 51", 0, 1),
        ("MAXLEN = 33", 17, 18),
        ("MAXLEN 33", 17, 18),
        ("MAXLEN = 0", 50, 0),
        ("MAXLEN = 50", 0, 1),
        ("MINID ~ 25", 20, 21),
        ("MINID ~ 21", 20, 21),
        ("MINID ~ 20-5", 20, 21),
        ("MINID ~ 20", 10, 11),
        ("MINID ~ 51", 50, 0),
        ("MINID ~ 51 LIMIT 20", 20, 21),
        ("MINID ~ 51 LIMIT 9", 0, 1),
        ("MINID = 25", 24, 25),
        ("MINID 25", 24, 25),
        ("MINID = 24-1", 24, 25),
        ("MINID = 0", 0, 1),
        ("MINID 18446744073709551615-18446744073709551615", 50, 0),
    ],
)
def test_what_a_rule_removes_of_fifty_entries_in_nodes_of_ten(
    rule: str, removed: int, first: int
) -> None:
    """§3.3, the probed table."""
    s = _fifty()
    assert s.run(f"XTRIM s {rule}") == removed
    info = s.info()
    assert info["length"] == 50 - removed
    assert info["recorded-first-entry-id"] == f"{first}-0"
    assert info["entries-added"] == 50
    assert info["max-deleted-entry-id"] == "0-0"
    assert info["radix-tree-keys"] == (50 - removed + 9) // 10
    s.check()


def test_deleted_entries_count_for_the_node_but_not_for_the_length() -> None:
    """§3.3: XDEL 1..5, then MAXLEN ~ 40 drops the node's live five."""
    s = _fifty()
    s.run("XDEL s 1-0 2-0 3-0 4-0 5-0")
    assert s.run("XTRIM s MAXLEN ~ 40") == 5
    assert s.run("XLEN s") == 40


def test_xadd_trims_whole_nodes_too() -> None:
    """§3.3: 21 entries, XADD MAXLEN ~ 5."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 10)
    s.count_to("s", 20)
    s.run("XADD s MAXLEN ~ 5 21-0 f v")
    assert s.ids("s")[0] == "11-0"
    assert s.run("XLEN s") == 11


def test_a_thousand_adds_with_nodes_of_a_hundred_keep_six_hundred() -> None:
    """§3.3: MAXLEN ~ 555, the default node size."""
    s = Streams()
    for _ in range(1000):
        s.do("XADD", "s", "MAXLEN", "~", "555", "*", "f", "v")
    assert s.run("XLEN s") == 600


@pytest.mark.parametrize(("minid", "removed"), [("20-0", 10), ("20-1", 19), ("19-0", 10)])
def test_minid_looks_at_the_last_slot_of_a_node_even_when_that_is_deleted(
    minid: str, removed: int
) -> None:
    """§3.3: drop while the node's last slot ID < minid."""
    s = _fifty()
    s.run("XDEL s 20-0")
    assert s.run(f"XTRIM s MINID ~ {minid}") == removed


def test_approximation_never_removes_what_exactness_keeps() -> None:
    """§3.3."""
    for rule in ("MAXLEN {} 27", "MINID {} 27"):
        exact, rough = _fifty(), _fifty()
        exact.run("XTRIM s " + rule.format("="))
        rough.run("XTRIM s " + rule.format("~"))
        assert set(exact.ids("s")) <= set(rough.ids("s"))


@pytest.mark.parametrize(
    ("node_entries", "entries", "removed"),
    [(2, 500, 200), (0, 500, 500), (5, 1000, 500), (20000, 100, 100)],
)
def test_without_limit_an_approximate_trim_stops_after_a_hundred_nodes(
    node_entries: int, entries: int, removed: int
) -> None:
    """§3.3: n = 100 x node size; 10000 for unlimited nodes."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", node_entries)
    s.do("CONFIG", "SET", "stream-node-max-bytes", 0)
    s.count_to("s", entries)
    assert s.run("XTRIM s MAXLEN ~ 0") == removed


def test_the_default_limit_itself() -> None:
    """§3.3: capped at a million."""
    from anabranch.stream.trimming import limit_default

    assert [limit_default(n) for n in (1, 100, 0, -1, 10_000, 10_001)] == [
        100, 10_000, 10_000, 10_000, 1_000_000, 1_000_000,
    ]  # fmt: skip


# -- nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node_entries", "entries", "nodes"),
    [(10, 10, 1), (10, 11, 2), (1, 5, 5), (0, 500, 1), (100, 100, 1), (100, 101, 2)],
)
def test_a_node_ends_after_so_many_entries(node_entries: int, entries: int, nodes: int) -> None:
    """§3.3: 0 is no limit."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", node_entries)
    s.do("CONFIG", "SET", "stream-node-max-bytes", 0)
    s.count_to("s", entries)
    assert s.info()["radix-tree-keys"] == nodes


def test_deleted_entries_keep_their_place_in_the_node() -> None:
    """§3.3: live plus deleted count."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 4)
    s.count_to("s", 3)
    s.run("XDEL s 2-0 3-0")
    s.fill("s", "4-0", "5-0")
    assert s.info()["radix-tree-keys"] == 2


def test_a_node_without_live_entries_disappears() -> None:
    """§3.3."""
    s = _fifty()
    s.do("XDEL", "s", *(f"{ms}-0" for ms in range(11, 21)))
    assert s.info()["radix-tree-keys"] == 4
    s.do("XDEL", "s", *(f"{ms}-0" for ms in (*range(1, 11), *range(21, 51))))
    assert s.info()["radix-tree-keys"] == 0
    assert s.info()["recorded-first-entry-id"] == "0-0"


def test_a_node_ends_before_its_bytes_reach_the_limit() -> None:
    """§3.3: stream-node-max-bytes, approximately; 0 is no limit."""
    counts = {}
    for limit in (0, 1000, 4096):
        s = Streams()
        s.do("CONFIG", "SET", "stream-node-max-entries", 0)
        s.do("CONFIG", "SET", "stream-node-max-bytes", limit)
        for _ in range(100):
            s.do("XADD", "s", "*", "field", "v" * 100)
        counts[limit] = s.info()["radix-tree-keys"]
    assert counts[0] == 1
    assert 10 <= counts[1000] <= 15
    assert 2 <= counts[4096] <= 4


# -- what trimming leaves alone ---------------------------------------------------------------


@pytest.mark.parametrize("rule", ["MAXLEN 1", "MAXLEN ~ 0", "MINID 50", "MAXLEN 1 KEEPREF"])
def test_trimming_leaves_pending_entries_and_producers_alone(rule: str) -> None:
    """§3.3."""
    s = _fifty()
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 20 STREAMS s >")
    s.run("XIDMPRECORD s p i 1-0", f"XTRIM s {rule}")
    assert s.run("XPENDING s g")[0] == 20
    assert s.info()["iids-tracked"] == 1
    assert s.info()["max-deleted-entry-id"] == "0-0"
    assert s.group()["last-delivered-id"] == "20-0"


def test_trimming_a_missing_key_answers_zero() -> None:
    """§3.2."""
    s = Streams()
    assert s.run("XTRIM s MAXLEN 0") == 0
    assert s.run("EXISTS s") == 0


# -- with a reference policy ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["DELREF", "ACKED"])
@pytest.mark.parametrize(
    ("rule", "removed"),
    [
        ("MAXLEN ~ 45", 5),
        ("MAXLEN ~ 33", 17),
        ("MINID ~ 25", 24),
        ("MAXLEN ~ 45 LIMIT 9", 0),
        ("MAXLEN ~ 45 LIMIT 10", 5),
        ("MAXLEN ~ 0 LIMIT 25", 20),
        ("MINID ~ 40 LIMIT 15", 10),
        ("MAXLEN = 33", 17),
    ],
)
def test_with_a_policy_approximation_loses_its_granularity(
    policy: str, rule: str, removed: int
) -> None:
    """§3.3: one by one as with ``=``, LIMIT per node."""
    s = _fifty()
    assert s.run(f"XTRIM s {rule} {policy}") == removed
    assert s.ids("s")[0] == f"{removed + 1}-0"
    s.check()


def test_trimming_with_delref_purges_every_groups_pending_entries() -> None:
    """§3.4."""
    s = _fifty()
    for group in ("g", "h"):
        s.run(f"XGROUP CREATE s {group} 0", f"XREADGROUP GROUP {group} c COUNT 20 STREAMS s >")
    assert s.run("XTRIM s MAXLEN 40 DELREF") == 10
    assert [s.run(f"XPENDING s {group}")[:2] for group in ("g", "h")] == [[10, "11-0"]] * 2
    assert s.info()["max-deleted-entry-id"] == "0-0"
    s.run("XADD s DELREF MAXLEN 36 51-0 f v")
    assert s.run("XPENDING s g")[:2] == [5, "16-0"]


def test_trimming_with_delref_leaves_the_ghosts_of_ids_deleted_earlier() -> None:
    """§3.4 [Q] (recorded): it looks at live entries only."""
    s = _fifty()
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 20 STREAMS s >", "XDEL s 3-0 12-0")
    assert s.run("XTRIM s MINID 11 DELREF") == 9
    assert s.run("XPENDING s g")[:2] == [11, "3-0"]


def test_trimming_with_acked_passes_over_referenced_entries() -> None:
    """§3.4 [Q]: over all nodes, until the length fits."""
    s = _fifty(node_entries=4)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 20 STREAMS s >")
    s.run("XACK s g 2-0 5-0 6-0 19-0")
    assert s.run("XTRIM s MAXLEN 47 ACKED") == 3
    assert s.ids("s")[:5] == ["1-0", "3-0", "4-0", "7-0", "8-0"]
    assert s.run("XTRIM s MAXLEN 0 ACKED") == 1
    assert s.run("XTRIM s MINID 99 ACKED") == 0
    assert s.run("XLEN s") == 46


@pytest.mark.skipif(IS_COMPILED, reason="machine code calls nothing that can be replaced")
def test_trimming_with_acked_does_not_look_at_what_no_group_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """§3.4: all of it is referenced."""
    s = _fifty(node_entries=4)
    s.run("XGROUP CREATE s g 0", "XGROUP CREATE s ahead 0", "XGROUP CREATE s new $")
    s.run("XREADGROUP GROUP g c COUNT 5 STREAMS s >", "XACK s g 2-0")
    s.run("XREADGROUP GROUP ahead c COUNT 30 NOACK STREAMS s >")
    looked: list[int] = []
    holds = References.holds
    monkeypatch.setattr(
        References, "holds", lambda self, each: looked.append(each) or holds(self, each)
    )
    assert s.run("XADD s MAXLEN 1 ACKED * f v")
    assert s.ids("s")[:3] == ["1-0", "3-0", "4-0"]
    assert len(looked) == 5


def test_trimming_with_acked_without_groups_removes_everything() -> None:
    """§3.4 (since 8.6)."""
    s = _fifty()
    assert s.run("XTRIM s MAXLEN 10 ACKED") == 40
    s.run("XADD s ACKED MAXLEN 0 * f v")
    assert s.run("XLEN s") == 0
