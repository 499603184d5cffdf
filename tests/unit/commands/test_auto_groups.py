"""auto-create-group: XREADGROUP makes the group that is missing."""

from __future__ import annotations

import pytest

from tests.support.streams import WRONGTYPE, Streams

NOGROUP = "NOGROUP No such key '{}' or consumer group '{}' in XREADGROUP with GROUP option"


@pytest.fixture
def s() -> Streams:
    streams = Streams()
    streams.run("AB.POLICY SET PATTERN jobs* auto-create-group workers:0")
    return streams


def test_a_reader_makes_the_group_and_gets_what_is_there(s: Streams) -> None:
    s.count_to("jobs", 2)
    reply = s.run("XREADGROUP GROUP workers ann STREAMS jobs >")
    assert [entry[0] for entry in reply[0][1]] == ["1-0", "2-0"]
    assert s.group("jobs", "workers")["pending"] == 2
    assert "policy_created_groups:1" in s.run("INFO policies")


def test_a_reader_makes_the_stream_and_waits(s: Streams) -> None:
    waiting = s.waits("XREADGROUP GROUP workers ann BLOCK 0 STREAMS jobs >")
    assert s.run("XLEN jobs") == 0
    s.run("XADD jobs 1-0 f v")
    assert s.answer(waiting) == "[['jobs', [['1-0', ['f', 'v']]]]]"


def test_with_a_dollar_the_group_begins_at_the_end(s: Streams) -> None:
    s.run("AB.POLICY SET jobs auto-create-group workers:$")
    s.count_to("jobs", 2)
    assert s.run("XREADGROUP GROUP workers ann STREAMS jobs >") is None
    s.run("XADD jobs 3-0 f v")
    assert s.run("XREADGROUP GROUP workers ann STREAMS jobs >") == [["jobs", [["3-0", ["f", "v"]]]]]


@pytest.mark.parametrize("removal", ["DEL jobs", "FLUSHALL", "XGROUP DESTROY jobs workers"])
def test_a_reader_that_waits_makes_it_again(s: Streams, removal: str) -> None:
    waiting = s.waits("XREADGROUP GROUP workers ann BLOCK 0 STREAMS jobs >")
    s.run(removal)
    assert s.answer(waiting) == ""
    s.run("XADD jobs 1-0 f v")
    assert s.answer(waiting) == "[['jobs', [['1-0', ['f', 'v']]]]]"


@pytest.mark.parametrize(
    ("value", "group", "is_made"),
    [("workers:0", "workers", True), ("workers:0", "others", False), ("a:b:0", "a:b", True),
     ("*:0", "others", True), ("w*:$", "workers", True), ("w*:$", "others", False),
     ("none", "workers", False)],
)  # fmt: skip
def test_only_groups_of_that_name(s: Streams, value: str, group: str, is_made: bool) -> None:
    s.run(f"AB.POLICY SET jobs auto-create-group {value}")
    line = f"XREADGROUP GROUP {group} ann STREAMS jobs >"
    if is_made:
        assert s.run(line) is None
        assert s.group("jobs", group)["consumers"] == 1
    else:
        assert s.fails(line) == NOGROUP.format("jobs", group)
        assert s.run("EXISTS jobs") == 0


@pytest.mark.parametrize(
    ("line", "error"),
    [("STREAMS jobs other > >", NOGROUP.format("other", "workers")),
     ("STREAMS jobs text > >", WRONGTYPE),
     ("STREAMS jobs $", "ERR The $ ID is meaningless"),
     ("STREAMS jobs x", "ERR Invalid stream ID")],
)  # fmt: skip
def test_a_command_that_fails_makes_nothing(s: Streams, line: str, error: str) -> None:
    s.run("SET text t")
    assert s.fails(f"XREADGROUP GROUP workers ann {line}").startswith(error)
    assert s.run("EXISTS jobs") == 0


def test_several_streams_of_which_some_are_missing(s: Streams) -> None:
    s.run("XADD jobs:2 1-0 f v", "XGROUP CREATE jobs:1 workers $ MKSTREAM", "XADD jobs:1 2-0 f v")
    reply = s.run("XREADGROUP GROUP workers ann STREAMS jobs:3 jobs:2 jobs:1 jobs:3 > > > >")
    assert reply == [["jobs:2", [["1-0", ["f", "v"]]]], ["jobs:1", [["2-0", ["f", "v"]]]]]
    assert [s.group(f"jobs:{n}", "workers")["consumers"] for n in (1, 2, 3)] == [1, 1, 1]


def test_the_history_of_a_new_group_is_empty(s: Streams) -> None:
    s.count_to("jobs", 2)
    assert s.run("XREADGROUP GROUP workers ann STREAMS jobs 0") == [["jobs", []]]
    assert s.group("jobs", "workers")["lag"] == 2


def test_in_transactions_and_scripts(s: Streams) -> None:
    s.count_to("jobs", 1)
    s.run("MULTI", "XREADGROUP GROUP workers ann BLOCK 0 STREAMS jobs jobs:2 > >")
    assert s.run("EXEC") == [[["jobs", [["1-0", ["f", "v"]]]]]]
    script = "return redis.call('XREADGROUP','GROUP','workers','ann','STREAMS',KEYS[1],'>')"
    assert s.run(f'EVAL "{script}" 1 jobs:3') is None
    assert s.run("EXISTS jobs:2 jobs:3") == 2


@pytest.mark.parametrize("line", ["XPENDING jobs workers", "XAUTOCLAIM jobs workers a 0 0",
                                  "XGROUP CREATECONSUMER jobs workers a"])  # fmt: skip
def test_other_commands_make_none(s: Streams, line: str) -> None:
    s.count_to("jobs", 1)
    assert s.fails(line).startswith("NOGROUP")


@pytest.mark.parametrize("value", ["workers", "workers:", ":0", "workers:5", "workers:0-0", ""])
def test_other_values_are_refused(s: Streams, value: str) -> None:
    error = s.fails(f"AB.POLICY SET jobs auto-create-group '{value}'")
    assert error == (
        f"ERR policy 'auto-create-group' cannot be '{value}': "
        "it is none, name:0 or name:$, where the name may be a pattern"
    )


def test_it_concerns_the_stream_and_no_group(s: Streams) -> None:
    error = s.fails("AB.POLICY SET jobs GROUP workers auto-create-group workers:0")
    assert "concerns the stream as a whole: leave out GROUP" in error
    rows = {row[1]: row[3] for row in s.run("AB.POLICY GET jobs")}
    assert rows["auto-create-group"] == "workers:0"
