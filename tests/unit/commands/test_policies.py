"""AB.POLICY SET, GET, DEL, LIST, and what becomes of rules when keys come, go and move."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.config.policies import POLICIES
from anabranch.effects import kinds
from anabranch.keyspace import policies as policies_module
from anabranch.keyspace.policies import Subject
from anabranch.region import leases
from tests.support.region_harness import Harness
from tests.support.streams import BOTH_PROTOCOLS, Streams, as_map


@pytest.fixture
def s() -> Streams:
    return Streams()


def row(s: Streams, line: str, name: str = "redeliver") -> dict[str, Any]:
    rows = [as_map(each) for each in s.run(line)]
    return next(each for each in rows if each["policy"] == name)


def in_force(s: Streams, key: str = "s", group: str = "g", db: int = 0) -> dict[str, str]:
    """What a group holds."""
    stream = s.region.keyspace.databases[db].values[key.encode()]
    policed = stream.groups[group.encode()].policed  # type: ignore[union-attr]
    return {} if policed is None else policed.policy.texts


# -- the commands -----------------------------------------------------------------------------


def test_every_policy_has_a_value_and_a_source(s: Streams) -> None:
    rows = [as_map(each) for each in s.run("AB.POLICY GET s GROUP g")]
    names = [name for name, row in POLICIES.items() if row.scope == "group"]
    assert [each["policy"] for each in rows] == names
    rows = [as_map(each) for each in s.run("AB.POLICY GET s")]
    assert [each["policy"] for each in rows] == list(POLICIES)
    assert {each["source"] for each in rows} == {"default"}
    s.run("AB.POLICY SET PATTERN s* redeliver first")
    assert row(s, "AB.POLICY GET s GROUP g")["source"] == "pattern s*"
    s.run("AB.POLICY SET s redeliver claim")
    assert row(s, "AB.POLICY GET s GROUP g")["source"] == "key"
    s.run("AB.POLICY SET s GROUP g redeliver first")
    found = row(s, "AB.POLICY GET s GROUP g")
    assert (found["value"], found["source"]) == ("first", "key group g")
    assert row(s, "AB.POLICY GET s GROUP h")["value"] == "claim"
    assert row(s, "AB.POLICY GET s")["value"] == "claim"


@BOTH_PROTOCOLS
def test_the_shape_of_the_replies(resp3: bool) -> None:
    s = Streams(resp3=resp3)
    s.run("AB.POLICY SET PATTERN o* GROUP w* redeliver first", "AB.POLICY SET s redeliver claim")
    rows = s.run("AB.POLICY LIST")
    if not resp3:
        rows = [as_map(each) for each in rows]
        rows = [{**each, "policies": as_map(each["policies"])} for each in rows]
    assert rows == [
        {"type": "key", "name": "s", "group": None, "policies": {"redeliver": "claim"}},
        {"type": "pattern", "name": "o*", "group": "w*", "policies": {"redeliver": "first"}},
    ]
    assert len(s.run("AB.POLICY LIST o*")) == 1
    assert s.run("AB.POLICY LIST x*") == []


def test_a_deleted_policy_leaves_the_next_one_in_force(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first", "AB.POLICY SET s GROUP g redeliver claim")
    assert s.run("AB.POLICY DEL s GROUP g nonsense") == 0
    assert s.run("AB.POLICY DEL s GROUP g redeliver") == 1
    assert row(s, "AB.POLICY GET s GROUP g")["value"] == "first"
    assert s.run("AB.POLICY DEL s") == 1
    assert s.run("AB.POLICY DEL s") == 0
    assert s.run("AB.POLICY LIST") == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("SET s redelivr first", "ERR unknown policy 'redelivr': did you mean 'redeliver'?"),
        (
            "SET s redeliver second",
            "ERR policy 'redeliver' cannot be 'second': argument(s) must be one of the following: "
            "claim, first",
        ),
        ("SET s redeliver first redeliver claim", "ERR policy 'redeliver' is given twice"),
        ("SET s redeliver first claim", "ERR syntax error, each policy needs a name and a value"),
        ("SET s GROUP g redeliver", "ERR syntax error, each policy needs a name and a value"),
        ("SET PATTERN s* GROUP g", "ERR syntax error, each policy needs a name and a value"),
        ("DEL PATTERN", "ERR syntax error, PATTERN needs a pattern of keys"),
        ("DEL s GROUP", "ERR syntax error, GROUP needs the name of a group"),
        ("GET s redeliver", "ERR syntax error"),
        ("LIST a b", "ERR syntax error"),
    ],
)
def test_a_mistake_gets_an_error_that_says_what_is_allowed(
    s: Streams, line: str, error: str
) -> None:
    assert s.fails(f"AB.POLICY {line}") == error
    assert s.run("AB.POLICY LIST") == []


def test_names_and_words_have_any_case_and_values_their_usual_form(s: Streams) -> None:
    s.run("ab.policy set s group g Redeliver FIRST")
    assert row(s, "AB.POLICY GET s group g")["value"] == "first"


def test_who_sets_a_policy_needs_the_key_and_the_category(s: Streams) -> None:
    s.run("ACL SETUSER ann on nopass ~mine:* +@all", "ACL SETUSER bob on nopass ~* +@stream")
    s.run("ACL SETUSER eve on nopass ~* +@all -@admin")
    ann, eve = s.connect(), s.connect()
    s.run("AUTH ann x", session=ann)
    s.run("AUTH eve x", session=eve)
    s.run("AB.POLICY SET mine:1 redeliver first", session=ann)
    s.run("AB.POLICY SET PATTERN mine:* redeliver first", session=ann)
    s.run("AB.POLICY GET mine:1", session=ann)
    for line in ("SET yours redeliver first", "SET PATTERN * redeliver first", "GET yours"):
        assert s.fails(f"AB.POLICY {line}", session=ann).startswith("NOPERM")
    for line in ("SET s redeliver first", "DEL s", "LIST"):
        assert s.fails(f"AB.POLICY {line}", session=eve).startswith("NOPERM")
    s.run("AB.POLICY GET s", session=eve)


@pytest.mark.parametrize(
    ("rule", "pattern", "is_allowed"),
    [
        ("~a:?:z", "a:*:z", False),  # the text of the pattern is a key that the rule matches
        ("~a:[!-~]", "a:*", False),
        ("~a:*:z", "a:*", False),
        ("~a:[*]", "a:*", False),
        ("%R~a:*", "a:*", False),
        ("~?*", "*", False),
        ("~a:?:z", "a:?:z", True),
        ("~a:*", "a:?:z", True),
        ("~a:*", "a:", True),
        ("~b ~a:*", "a:*", True),
    ],
)
def test_who_sets_policies_of_a_pattern_may_write_all_keys_that_it_matches(
    s: Streams, rule: str, pattern: str, is_allowed: bool
) -> None:
    s.run(f"ACL SETUSER ann on nopass {rule} +@all")
    ann = s.connect()
    s.run("AUTH ann x", session=ann)
    for line in (f"SET PATTERN {pattern} max-length 1", f"DEL PATTERN {pattern}"):
        if is_allowed:
            s.run(f"AB.POLICY {line}", session=ann)
        else:
            assert s.fails(f"AB.POLICY {line}", session=ann).startswith("NOPERM")


def test_a_policy_is_set_in_the_selected_database(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first", "SELECT 1")
    assert row(s, "AB.POLICY GET s")["value"] == "claim"
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    assert in_force(s, db=1) == {}


# -- names that keys get and lose -------------------------------------------------------------

FIRST = {"redeliver": "first"}


def test_a_group_has_the_policy_that_was_there_before_it(s: Streams) -> None:
    s.run("AB.POLICY SET PATTERN s* redeliver first", "XGROUP CREATE s g 0 MKSTREAM")
    assert in_force(s) == FIRST


def test_a_group_gets_the_policy_that_comes_after_it_and_loses_it(s: Streams) -> None:
    s.run("XGROUP CREATE s g 0 MKSTREAM", "AB.POLICY SET s GROUP g redeliver first")
    assert in_force(s) == FIRST
    s.run("AB.POLICY SET PATTERN s redeliver first", "AB.POLICY DEL s GROUP g")
    assert in_force(s) == FIRST
    s.run("AB.POLICY DEL PATTERN s")
    assert in_force(s) == {}


def test_a_deleted_key_keeps_its_policy_and_so_does_a_flushed_one(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first")
    for line in ("DEL s", "FLUSHDB", "FLUSHALL"):
        s.run("XGROUP CREATE s g 0 MKSTREAM")
        assert in_force(s) == FIRST
        s.run(line)
    assert len(s.run("AB.POLICY LIST")) == 1


@pytest.mark.parametrize("line", ["RENAME s t", "COPY s t", "RENAMENX s t"])
def test_a_value_under_another_name_has_the_policies_of_that_name(s: Streams, line: str) -> None:
    s.run("AB.POLICY SET s redeliver first", "XGROUP CREATE s g 0 MKSTREAM", line)
    assert in_force(s, "t") == {}
    s.run("DEL s", "RENAME t s")
    assert in_force(s) == FIRST


def test_a_value_that_is_moved_to_another_database_leaves_its_policies_behind(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first", "XGROUP CREATE s g 0 MKSTREAM", "MOVE s 1")
    assert in_force(s, db=1) == {}


def test_a_restored_value_has_the_policies_of_its_name(s: Streams) -> None:
    s.run("XGROUP CREATE t g 0 MKSTREAM", "AB.POLICY SET s redeliver first")
    s.do("RESTORE", "s", 0, s.do("DUMP", "t"))
    assert in_force(s) == FIRST


def test_swapped_databases_take_their_policies_along(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first", "XGROUP CREATE s g 0 MKSTREAM", "SWAPDB 0 1")
    assert s.run("AB.POLICY LIST") == []
    assert in_force(s, db=1) == FIRST


def test_a_pattern_reaches_many_keys_in_slices() -> None:
    s = Streams()
    for number in range(1000):
        s.run(f"XGROUP CREATE s{number} g 0 MKSTREAM")
    s.run("AB.POLICY SET PATTERN s* redeliver first")
    some = sum(in_force(s, f"s{number}") == FIRST for number in range(1000))
    assert 0 < some < 1000
    s.region.tick()
    assert all(in_force(s, f"s{number}") == FIRST for number in range(1000))


def test_a_save_and_a_reload_keep_the_policies() -> None:
    s = Streams(enable_debug_command="yes")
    s.run("AB.POLICY SET PATTERN s* redeliver first", "XGROUP CREATE s g 0 MKSTREAM")
    s.run("DEBUG RELOAD")
    assert in_force(s) == FIRST
    assert len(s.run("AB.POLICY LIST")) == 1
    s.region.keyspace.databases[0].check()


# -- what this server does not know -----------------------------------------------------------


def test_a_policy_of_a_newer_region_is_kept_and_shown(s: Streams) -> None:
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    rows: list[tuple[bytes, bytes | None]] = [(b"shape", b"round"), (b"redeliver", b"never")]
    s.region.effects.emit(kinds.SetPolicies(0, b"s", False, None, rows, 5))
    assert in_force(s) == {}
    shape = row(s, "AB.POLICY GET s", "shape")
    assert (shape["value"], shape["source"]) == ("round", "key")
    assert "does not know the policy" in shape["note"]
    assert "does not know the value" in row(s, "AB.POLICY GET s")["note"]
    assert "policy_unknown_settings:1" in s.run("INFO policies")
    assert s.run("AB.POLICY DEL s shape") == 1


class Members:
    """Two regions of which one is older."""

    def __init__(self, level: int) -> None:
        self.level = level

    def feature_levels(self) -> dict[int, int]:
        return {1: 2, 2: self.level}


@pytest.mark.parametrize("level", [1, 2])
def test_policies_wait_until_every_region_knows_them(level: int) -> None:
    s = Streams()
    s.region.keyspace.replica.feature_levels = Members(level).feature_levels
    if level == 2:
        s.run("AB.POLICY SET s redeliver first")
    else:
        assert "region 2 does not know policies" in s.fails("AB.POLICY SET s redeliver first")


# -- where it is shown ------------------------------------------------------------------------


def test_info_counts_rules_and_settings(s: Streams) -> None:
    s.run("AB.POLICY SET s redeliver first", "AB.POLICY SET PATTERN o* redeliver claim")
    lines = s.run("INFO policies").split()
    assert {"policy_rules:2", "policy_settings:2", "policy_unknown_settings:0"} <= set(lines)


def test_ab_info_shows_what_a_group_has(s: Streams) -> None:
    s.run("XGROUP CREATE s g 0 MKSTREAM", "AB.POLICY SET s redeliver first")
    (group,) = as_map(s.run("AB.INFO s"))["groups"]
    assert as_map(as_map(group)["policies"]) == FIRST


def test_the_rules_count_as_memory(s: Harness) -> None:
    before = s.region.holdings.measured["settings"]()
    s.do("AB.POLICY", "SET", "s" * 1000, "redeliver", "first")
    assert s.region.holdings.measured["settings"]() > before + 1000


def test_a_subject_is_what_the_rule_says(s: Streams) -> None:
    s.run("AB.POLICY SET PATTERN PATTERN redeliver first")
    assert list(s.region.keyspace.databases[0].policies.rules) == [Subject(True, b"PATTERN", None)]


# -- redeliver first --------------------------------------------------------------------------


@pytest.fixture
def r(s: Streams) -> Streams:
    """A group with six entries, of which a consumer has taken three."""
    s.run("AB.POLICY SET s redeliver first", "XGROUP CREATE s g 0 MKSTREAM")
    s.count_to("s", 6)
    s.run("XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    return s


def read(s: Streams, options: str = "", consumer: str = "d") -> list[str]:
    reply = s.run(f"XREADGROUP GROUP g {consumer} {options} STREAMS s >")
    return [entry[0] for _, entries in reply or [] for entry in entries]


def test_a_plain_read_gets_released_entries_in_the_order_of_release(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 2 3-0 1-0")
    assert read(r) == ["3-0", "1-0", "4-0", "5-0", "6-0"]
    assert [(each[0], each[1], each[3]) for each in r.pending()][:3] == [
        ("1-0", "d", 2),
        ("2-0", "c", 1),
        ("3-0", "d", 2),
    ]


def test_at_most_half_of_a_count_is_taken_by_released_entries(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 3 1-0 2-0 3-0")
    assert read(r, "COUNT 2") == ["1-0", "4-0"]
    assert read(r, "COUNT 1") == ["2-0"]
    assert read(r, "COUNT 1") == ["5-0"]  # the other one of two
    assert read(r, "COUNT 4") == ["3-0", "6-0"]


def test_released_entries_have_all_of_a_count_that_new_ones_do_not_fill(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 3 1-0 2-0 3-0", "XTRIM s MAXLEN 4")
    r.run("XREADGROUP GROUP g e COUNT 2 STREAMS s >")  # a released one and a new one
    r.run("XNACK s g FAIL IDS 1 4-0")
    assert len(read(r, "COUNT 4")) == 4 - 1  # 3-0 and 4-0, and the last new one


def test_a_reader_that_waits_is_given_what_is_released(r: Streams) -> None:
    read(r)
    waiting = r.waits("XREADGROUP GROUP g e BLOCK 0 STREAMS s >")
    r.run("XNACK s g FAIL IDS 1 2-0")
    assert r.answer(waiting) == "[['s', [['2-0', ['f', 'v']]]]]"


def test_a_read_of_many_streams_gets_released_entries(r: Streams) -> None:
    r.run("XGROUP CREATE t g 0 MKSTREAM", "XREADGROUP GROUP g d STREAMS s t > >")
    r.run("XNACK s g FAIL IDS 1 2-0")
    assert r.shows("XREADGROUP GROUP g d STREAMS s t > >") == "[['s', [['2-0', ['f', 'v']]]]]"


def test_a_read_without_acknowledgement_ends_the_pending_of_released_entries(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 1 2-0")
    assert read(r, "NOACK COUNT 2")[0] == "2-0"
    assert [each[0] for each in r.pending()] == ["1-0", "3-0"]


def test_a_limit_of_the_reply_holds_for_released_entries_too(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 3 1-0 2-0 3-0")
    assert read(r, "MAXCOUNT 2") == ["1-0", "4-0"]


def test_released_entries_that_were_deleted_are_passed_over(r: Streams) -> None:
    r.run("XNACK s g FAIL IDS 3 1-0 2-0 3-0", "XDEL s 1-0 3-0")
    assert read(r) == ["2-0", "4-0", "5-0", "6-0"]


def test_without_the_policy_only_claim_sees_released_entries(s: Streams) -> None:
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    s.count_to("s", 2)
    s.run("XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XNACK s g FAIL IDS 1 1-0")
    assert read(s) == ["2-0"]
    assert read(s) == []


# -- in steps ---------------------------------------------------------------------------------


def with_groups(count: int) -> Streams:
    s = Streams()
    s.run(*[f"XGROUP CREATE s g{number} 0 MKSTREAM" for number in range(count)])
    return s


def bound(s: Streams, key: str = "s") -> list[str]:
    """The groups of a stream that hold a policy."""
    groups = s.region.keyspace.databases[0].values[key.encode()].groups  # type: ignore[union-attr]
    return [name.decode() for name, group in groups.items() if group.policed is not None]


def steps_left(s: Streams) -> int:
    """Finish what rules have begun; how many steps that took."""
    policies, steps = s.region.keyspace.databases[0].policies, 0
    while policies.is_rebinding:
        policies.go_on()
        steps += 1
    return steps


def test_a_key_with_many_groups_gives_them_their_policies_in_steps(
    s: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies_module, "_NAMES", 10)
    s = with_groups(35)
    s.run("AB.POLICY SET s max-deliveries 3")
    assert bound(s) == [f"g{number}" for number in range(10)]
    s.run("XADD s 1-0 f v", "XREADGROUP GROUP g34 ann STREAMS s >")
    assert bound(s)[10:] == ["g34"]  # who delivers a group binds it before
    s.run("XGROUP DESTROY s g20")
    assert steps_left(s) == 3
    assert len(bound(s)) == 34


def test_a_stream_that_gets_another_name_meanwhile_has_the_policies_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies_module, "_NAMES", 10)
    s = with_groups(35)
    s.run("AB.POLICY SET s max-deliveries 3", "RENAME s t")
    policies = s.region.keyspace.databases[0].policies
    while policies.go_on():
        assert bound(s, "t") == []
    s.run("RENAME t s", "AB.POLICY DEL s", "RENAME s t", "AB.POLICY SET t max-deliveries 3")
    s.run("XADD t 1-0 f v", "XREADGROUP GROUP g34 ann STREAMS t >")
    while policies.go_on():
        assert bound(s, "t")[-1] == "g34"


def test_a_pattern_goes_through_keys_and_groups_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies_module, "_NAMES", 10)
    s = with_groups(30)
    s.run(*[f"XADD k{number} 1-0 f v" for number in range(30)])
    s.run("AB.POLICY SET PATTERN * max-deliveries 3")
    assert 3 + 2 <= steps_left(s) <= 3 + 3 + 2  # the keys, the groups, and the ends of both
    assert len(bound(s)) == 30


def test_where_there_are_many_patterns_a_step_has_fewer_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policies_module, "_NAMES", 10)
    s = Streams()
    s.run(*[f"XADD k{number} 1-0 f v" for number in range(30)])
    s.run(*[f"AB.POLICY SET PATTERN a{number} max-deliveries 3" for number in range(100)])
    assert steps_left(s) >= 29


def test_groups_that_got_policies_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_CONSUMERS", 10)
    s = with_groups(35)
    s.run("AB.POLICY SET s lease connection")
    leasing = s.region._maintenance._leasing
    looks = []
    while leasing._expect_some():
        looks.append(len(s.region.leases.deadlines))
    assert looks == [10, 20, 30, 35]
