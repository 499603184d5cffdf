"""XRANGE, XREVRANGE and XREAD (specification §4.1, §4.2)."""

from __future__ import annotations

import random
from typing import Any

import hiredis
import pytest

from tests.support.streams import (
    BOTH_PROTOCOLS,
    INVALID_ID,
    NOT_INTEGER,
    NOW,
    SYNTAX,
    WRONGTYPE,
    Streams,
)

UNBALANCED = (
    "ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be "
    "specified."
)
ONLY_GROUP = "ERR The {} option is only supported by XREADGROUP. You called XREAD instead."
TIMEOUT_BAD = "ERR timeout is not an integer or out of range"


def _ids(reply: list[list[object]] | None) -> list[object]:
    return [] if reply is None else [entry[0] for entry in reply]


# -- XRANGE, XREVRANGE ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("bad bad COUNT bad", INVALID_ID),
        ("- bad COUNT bad", INVALID_ID),
        ("- + COUNT bad", NOT_INTEGER),
        ("- + COUNT", SYNTAX),
        ("- + WHAT 5", SYNTAX),
        ("- + COUNT 5 WHAT", SYNTAX),
        ("- + 5", SYNTAX),
        ("(18446744073709551615-18446744073709551615 bad", "ERR invalid start ID for the interval"),
        ("- (0-0", "ERR invalid end ID for the interval"),
    ],
)
def test_wrong_ranges_are_refused(rest: str, error: str) -> None:
    """§4.1: start, end, COUNT, then the key."""
    s = Streams()
    s.run("SET k v")
    low, high, *count = rest.split()
    for key in ("missing", "k"):
        assert s.fails(f"XRANGE {key} {rest}") == error
        assert s.fails(f"XREVRANGE {key} {high} {low} {' '.join(count)}") == error


@pytest.mark.parametrize(
    ("low", "high", "count", "ascending", "descending"),
    [
        ("-", "+", "", "12345", "54321"),
        ("2-0", "4-0", "", "234", "432"),
        ("(2-0", "(4-0", "", "3", "3"),
        ("2-1", "4", "", "34", "43"),
        ("5", "+", "", "5", "5"),
        ("6", "+", "", "", ""),
        ("-", "0", "", "", ""),
        ("4", "2", "", "", ""),
        ("-", "+", "COUNT 2", "12", "54"),
        ("-", "+", "COUNT 99", "12345", "54321"),
        ("-", "+", "COUNT 2 COUNT 4", "1234", "5432"),
        ("2", "+", "COUNT 1", "2", "5"),
        ("2", "4", "COUNT 2", "23", "43"),
    ],
)
def test_an_interval_in_both_directions(
    low: str, high: str, count: str, ascending: str, descending: str
) -> None:
    """§4.1."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 2)
    s.count_to("s", 5)
    entries = {ms: [f"{ms}-0", ["f", "v"]] for ms in "12345"}
    assert s.run(f"XRANGE s {low} {high} {count}") == [entries[ms] for ms in ascending]
    assert s.run(f"XREVRANGE s {high} {low} {count}") == [entries[ms] for ms in descending]


def test_a_count_below_one_is_null_and_repeated_the_last_wins() -> None:
    """§4.1."""
    s = Streams()
    s.count_to("s", 5)
    assert s.run("XRANGE s - + COUNT 5 COUNT 0") is None
    assert s.run("XREVRANGE s + - COUNT 5 COUNT -1") is None
    assert len(s.run("XRANGE s - + COUNT 0 COUNT 1")) == 1


# -- XREAD: refusals --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rest", "error"),
    [
        ("WHAT 5 STREAMS s 0", SYNTAX),
        ("COUNT 5 STREAMS", SYNTAX),
        ("COUNT 5 BLOCK", SYNTAX),
        ("COUNT 5 COUNT", SYNTAX),
        ("BLOCK 5 MAXCOUNT", SYNTAX),
        ("BLOCK 5 MAXSIZE", SYNTAX),
        ("COUNT 5 BLOCK 5", SYNTAX),
        ("COUNT x STREAMS s 0", NOT_INTEGER),
        ("MAXCOUNT x STREAMS s 0", NOT_INTEGER),
        ("MAXCOUNT 0 STREAMS s 0", "ERR MAXCOUNT must be a positive integer"),
        ("MAXCOUNT -5 STREAMS s 0", "ERR MAXCOUNT must be a positive integer"),
        ("MAXSIZE x STREAMS s 0", NOT_INTEGER),
        ("MAXSIZE 0 STREAMS s 0", "ERR MAXSIZE must be a positive integer"),
        ("MAXSIZE -5 STREAMS s 0", "ERR MAXSIZE must be a positive integer"),
        ("BLOCK x STREAMS s 0", TIMEOUT_BAD),
        ("BLOCK 1.5 STREAMS s 0", TIMEOUT_BAD),
        ("BLOCK -1 STREAMS s 0", "ERR timeout is negative"),
        ("BLOCK 9223372036854775807 STREAMS s 0", "ERR timeout is out of range"),
        ("BLOCK 9223372036854775808 STREAMS s 0", TIMEOUT_BAD),
        ("GROUP g c STREAMS s 0", ONLY_GROUP.format("GROUP")),
        ("NOACK STREAMS s 0", ONLY_GROUP.format("NOACK")),
        ("CLAIM 5 STREAMS s 0", ONLY_GROUP.format("CLAIM")),
        ("STREAMS s", UNBALANCED),
        ("STREAMS s t 0", UNBALANCED),
        ("STREAMS s 0 COUNT", UNBALANCED),
        ("COUNT 6 MAXCOUNT 5 STREAMS s 0", "ERR MAXCOUNT must be greater than or equal to COUNT"),
        (
            "MAXCOUNT 5 COUNT 6 STREAMS bad bad",
            "ERR MAXCOUNT must be greater than or equal to COUNT",
        ),
        ("STREAMS s bad", INVALID_ID),
        ("STREAMS s t 0 bad", INVALID_ID),
        ("STREAMS k bad", WRONGTYPE),
        ("STREAMS s k bad 0", INVALID_ID),
        ("STREAMS k s 0 bad", WRONGTYPE),
    ],
)
def test_a_wrong_xread_is_refused(rest: str, error: str) -> None:
    """§4.2: options left to right, then stream by stream."""
    s = Streams()
    s.fill("s", "1-0")
    s.run("SET k v")
    if len(rest.split()) < 3:
        rest = f"COUNT 5 {rest}"
    assert s.fails(f"XREAD {rest}") == error


def test_options_may_come_in_any_order_and_the_last_of_a_kind_wins() -> None:
    """§4.2."""
    s = Streams()
    s.count_to("s", 5)
    line = "XREAD BLOCK 5 COUNT 1 MAXSIZE 9999 MAXCOUNT 5 COUNT 3 BLOCK 0 STREAMS s 0"
    assert len(s.run(line)[0][1]) == 3


@pytest.mark.parametrize("count", ["0", "-1", "-9223372036854775808", "5", "99"])
def test_a_count_below_one_is_unlimited(count: str) -> None:
    """§4.2."""
    s = Streams()
    s.count_to("s", 5)
    assert len(s.run(f"XREAD COUNT {count} STREAMS s 0")[0][1]) == 5
    assert len(s.run(f"XREAD COUNT {count} MAXCOUNT 99 STREAMS s 0")[0][1]) == 5


# -- XREAD: what is served --------------------------------------------------------------------


@BOTH_PROTOCOLS
@pytest.mark.parametrize("touches", [True, False])
@pytest.mark.parametrize("after", ["0", "2-0", "4-9", "5", "$", "+", "bad", ""])
@pytest.mark.parametrize("count", ["1", "2", "99", "0", "-1", "x"])
def test_the_short_form_is_no_different(resp3: bool, touches: bool, after: str, count: str) -> None:
    """One COUNT and one stream is answered on a way of its own; a repeated COUNT never is."""
    s = Streams(resp3=resp3)
    for ms in range(1, 6):
        s.run(f"XADD s {ms}-0 f v")
    value = s.region.keyspace.databases[0].values[b"s"]
    s.session.no_touch = not touches
    seen = []
    for extra in ("", "COUNT 7 "):
        s.clock.us += 1000
        hits, misses = s.region.stats.keyspace_hits, s.region.stats.keyspace_misses
        reply = s.shows(f"XREAD {extra}COUNT {count} STREAMS s '{after}'")
        figures = s.region.stats.keyspace_hits - hits, s.region.stats.keyspace_misses - misses
        seen.append((reply, figures, value.accessed_ms == s.clock.us // 1000))
    assert seen[0] == seen[1]


def test_only_streams_with_something_are_listed_in_argument_order() -> None:
    """§4.2."""
    s = Streams()
    s.count_to("a", 2)
    s.count_to("b", 2)
    reply = s.run("XREAD STREAMS b none a b 1 0 0 2")
    assert [(key, _ids(entries)) for key, entries in reply] == [
        ("b", ["2-0"]),
        ("a", ["1-0", "2-0"]),
    ]


def test_the_last_live_entry_decides_whether_a_stream_is_served() -> None:
    """§4.2."""
    s = Streams()
    s.count_to("s", 3)
    s.run("XDEL s 3-0")
    assert s.run("XREAD STREAMS s 2") is None
    assert _ids(s.run("XREAD STREAMS s 1")[0][1]) == ["2-0"]


def test_dollar_is_the_last_generated_id() -> None:
    """§4.2: the newest ever, not the newest live."""
    s = Streams()
    s.count_to("s", 3)
    s.run("XDEL s 3-0")
    assert s.run("XREAD STREAMS s $") is None
    reader = s.waits("XREAD BLOCK 0 STREAMS s $")
    s.run("XSETID s 9")
    s.fill("s", "9-1")
    assert s.answer(reader) == "[['s', [['9-1', ['f', 'v']]]]]"


@pytest.mark.parametrize("count", ["", "COUNT 5 ", "COUNT 0 "])
def test_plus_is_the_last_live_entry_alone(count: str) -> None:
    """§4.2: regardless of COUNT; nothing if empty."""
    s = Streams()
    s.count_to("s", 5)
    s.run("XDEL s 5-0")
    assert s.run(f"XREAD {count}STREAMS s +") == [["s", [["4-0", ["f", "v"]]]]]
    s.run("XTRIM s MAXLEN 0")
    assert s.run(f"XREAD {count}STREAMS s +") is None
    assert s.run(f"XREAD {count}STREAMS none +") is None


def test_xread_gives_entries_from_nodes_and_gaps_in_order() -> None:
    """§4.2."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 3)
    s.count_to("s", 20)
    s.run("XDEL s 1-0 4-0 5-0 6-0 12-0 20-0")
    expected = [f"{ms}-0" for ms in range(3, 20) if ms not in (4, 5, 6, 12)]
    assert _ids(s.run("XREAD STREAMS s 2")[0][1]) == expected
    assert _ids(s.run("XREAD COUNT 4 STREAMS s 2-0")[0][1]) == expected[:4]


def test_reading_beyond_the_greatest_id_gives_nothing() -> None:
    """§4.2."""
    top = "18446744073709551615-18446744073709551615"
    s = Streams()
    s.fill("s", top)
    assert s.run(f"XREAD STREAMS s {top}") is None
    assert _ids(s.run("XREAD STREAMS s 5")[0][1]) == [top]


def test_an_expired_stream_is_not_there() -> None:
    """§4.2."""
    s = Streams()
    s.fill("s", "1-0")
    s.run(f"PEXPIREAT s {NOW + 10}")
    s.clock.us += 10_000
    assert s.run("XREAD STREAMS s 0") is None
    assert s.run("XRANGE s - +") == []


@pytest.mark.parametrize("seed", range(20))
def test_many_streams_are_read_as_each_alone(seed: int) -> None:
    s = Streams()
    rng = random.Random(seed)
    for key in ("a", "b", "c", "d"):
        for ms in range(10, 10 + rng.randrange(4)):
            s.do("XADD", key, f"{ms}-1", "f", "v")
        if rng.random() < 0.3:
            s.do("XTRIM", key, "MAXLEN", 0)
    stats = s.region.stats

    def read(*pairs: tuple[str, str]) -> tuple[list[Any], int, int]:
        hits, misses = stats.keyspace_hits, stats.keyspace_misses
        keys, ids = zip(*pairs, strict=True)
        found = s.do("XREAD", "STREAMS", *keys, *ids) or []
        return found, stats.keyspace_hits - hits, stats.keyspace_misses - misses

    keys = [rng.choice(("a", "b", "c", "d", "none", "nobody")) for _ in range(12)]
    pairs = [(key, rng.choice(("0", "10", "11-0", "11-1", "12-1", "$", "+"))) for key in keys]
    alone = [read(pair) for pair in pairs]
    assert read(*pairs) == (
        [row for rows, _, _ in alone for row in rows],
        sum(hits for _, hits, _ in alone),
        sum(misses for _, _, misses in alone),
    )
    for wrong in ("x", ">", "1-x"):
        with pytest.raises(hiredis.ReplyError):
            read(*pairs, ("none", wrong), ("none", wrong))
