"""MAXCOUNT and MAXSIZE of XREAD and XREADGROUP (specification §4.2, Redis 8.10)."""

from __future__ import annotations

import pytest

from tests.support.streams import BOTH_PROTOCOLS, Streams


def _two_streams(last: int = 5) -> Streams:
    s = Streams()
    for key in ("a", "b", "c"):
        s.count_to(key, last)
        s.run(f"XGROUP CREATE {key} g 0")
    return s


def _sizes(reply: list[list[list[object]]] | None) -> dict[str, int]:
    """How many entries each stream of a reply has."""
    return {str(key): len(entries) for key, entries in reply or []}


READERS = pytest.mark.parametrize(
    ("begin", "new"),
    [("XREAD", "0"), ("XREADGROUP GROUP g me", ">"), ("XREADGROUP GROUP g me NOACK", ">"),
     ("XREADGROUP GROUP g me CLAIM 0", ">")],
    ids=["XREAD", "XREADGROUP", "NOACK", "CLAIM"],
)  # fmt: skip


# -- MAXCOUNT ---------------------------------------------------------------------------------


@READERS
@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ("MAXCOUNT 1", {"a": 1}),
        ("MAXCOUNT 5", {"a": 5}),
        ("MAXCOUNT 6", {"a": 5, "b": 1}),
        ("MAXCOUNT 15", {"a": 5, "b": 5, "c": 5}),
        ("MAXCOUNT 99", {"a": 5, "b": 5, "c": 5}),
        ("COUNT 2 MAXCOUNT 3", {"a": 2, "b": 1}),
        ("COUNT 2 MAXCOUNT 2", {"a": 2}),
        ("COUNT 2 MAXCOUNT 5", {"a": 2, "b": 2, "c": 1}),
        ("COUNT 0 MAXCOUNT 7", {"a": 5, "b": 2}),
    ],
)
def test_maxcount_caps_all_streams_together(
    begin: str, new: str, options: str, sizes: dict[str, int]
) -> None:
    """§4.2: in argument order."""
    s = _two_streams()
    reply = s.run(f"{begin} {options} STREAMS a b c {new} {new} {new}")
    assert _sizes(reply) == sizes


def test_maxcount_counts_across_nodes_and_gaps() -> None:
    """§4.2."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 3)
    s.count_to("s", 20)
    s.run("XDEL s 2-0 5-0 6-0 11-0")
    left = [f"{ms}-0" for ms in range(1, 21) if ms not in (2, 5, 6, 11)]
    for limit in range(1, 20):
        [[_, entries]] = s.run(f"XREAD MAXCOUNT {limit} STREAMS s 0")
        assert [entry[0] for entry in entries] == left[:limit]


def test_streams_after_the_cap_are_not_touched_at_all() -> None:
    """§4.2: no consumer, no seen-time."""
    s = _two_streams()
    s.run("XGROUP CREATECONSUMER c g me")
    s.advance(100)
    s.run("XREADGROUP GROUP g me MAXCOUNT 5 STREAMS a b c > > >")
    assert s.group("b")["consumers"] == 0
    assert s.run("XINFO CONSUMERS c g")[0][5] == 100
    assert s.group("b")["last-delivered-id"] == "0-0"


def test_but_their_errors_are_found_beforehand() -> None:
    """§4.2: any failing stream fails the whole command."""
    s = _two_streams()
    assert s.fails("XREADGROUP GROUP g me MAXCOUNT 1 STREAMS a none > >").startswith("NOGROUP")
    assert s.group("a")["last-delivered-id"] == "0-0"


def test_maxcount_covers_claimed_entries_and_histories() -> None:
    """§4.2: new + claimed + history."""
    s = _two_streams()
    s.run("XREADGROUP GROUP g x COUNT 2 STREAMS a b > >")
    reply = s.run("XREADGROUP GROUP g me CLAIM 0 MAXCOUNT 6 STREAMS a b > >")
    assert _sizes(reply) == {"a": 5, "b": 1}
    assert [row[1] for row in s.pending("b")] == ["me", "x"]
    assert _sizes(s.run("XREADGROUP GROUP g me MAXCOUNT 3 STREAMS a b 0 0")) == {"a": 3}
    assert _sizes(s.run("XREADGROUP GROUP g me MAXCOUNT 6 STREAMS a b 0 0")) == {"a": 5, "b": 1}


def test_plus_counts_as_one() -> None:
    """§4.2."""
    s = _two_streams()
    reply = s.run("XREAD MAXCOUNT 2 STREAMS a b c + + 0")
    assert reply == [["a", [["5-0", ["f", "v"]]]], ["b", [["5-0", ["f", "v"]]]]]


# -- MAXSIZE ----------------------------------------------------------------------------------


@READERS
def test_an_entry_larger_than_maxsize_is_still_delivered(begin: str, new: str) -> None:
    """§4.2: the very first one, and no more."""
    s = _two_streams()
    reply = s.run(f"{begin} MAXSIZE 1 STREAMS a b c {new} {new} {new}")
    assert _sizes(reply) == {"a": 1}


@READERS
def test_a_large_maxsize_does_not_limit(begin: str, new: str) -> None:
    """§4.2."""
    s = _two_streams()
    reply = s.run(f"{begin} MAXSIZE 9223372036854775807 STREAMS a b c {new} {new} {new}")
    assert _sizes(reply) == {"a": 5, "b": 5, "c": 5}


@READERS
@BOTH_PROTOCOLS
@pytest.mark.parametrize("maxsize", range(50, 4000, 333))
def test_maxsize_stops_before_the_entry_that_follows_the_limit(
    begin: str, new: str, resp3: bool, maxsize: int
) -> None:
    """§4.2: soft; within one entry of the limit, counting the bytes of the whole reply."""
    s = Streams()
    entry = 150
    for key in ("a", "b" * 40, "c"):
        for ms in range(1, 11):
            s.do("XADD", key, f"{ms}-0", "f", "v" * 100)
        s.run(f"XGROUP CREATE {key} g 0")
    line = f"{begin} MAXSIZE {maxsize} STREAMS a {'b' * 40} c {new} {new} {new}"
    reply = s.raw(*line.split(), session=s.connect(resp3=resp3))
    assert maxsize - 40 <= len(reply) <= maxsize + entry + 80


def test_maxsize_is_reached_by_the_byte() -> None:
    """§4.2: an entry of 31 bytes, and 17 for the name ``a`` and what frames it."""
    s = _two_streams(1)
    sizes = [_sizes(s.run(f"XREAD MAXSIZE {size} STREAMS a b 0 0")) for size in (48, 49)]
    assert sizes == [{"a": 1}, {"a": 1, "b": 1}]


def test_an_entry_that_is_not_given_is_not_delivered() -> None:
    """§4.2: the next read has it."""
    s = _two_streams()
    seen: list[object] = []
    while reply := s.run("XREADGROUP GROUP g me MAXSIZE 60 STREAMS a b > >"):
        seen += [(key, entry[0]) for key, entries in reply for entry in entries]
        assert sum(len(s.pending(key)) for key in ("a", "b")) == len(seen)
    assert seen == [(key, f"{ms}-0") for key in ("a", "b") for ms in range(1, 6)]


def test_an_entry_that_is_not_given_is_not_claimed() -> None:
    """§4.2."""
    s = _two_streams()
    s.run("XREADGROUP GROUP g x STREAMS a >")
    reply = s.run("XREADGROUP GROUP g me CLAIM 0 MAXSIZE 70 STREAMS a >")
    given = len(reply[0][1])
    assert 1 <= given < 5
    assert [row[1] for row in s.pending("a")] == ["me"] * given + ["x"] * (5 - given)


def test_maxsize_covers_histories() -> None:
    """§4.2; deleted entries count too, as what is sent of them."""
    s = _two_streams(200)
    s.run("XREADGROUP GROUP g me STREAMS a b > >", "XDEL a 1-0 2-0 3-0")
    [[key, entries]] = s.run("XREADGROUP GROUP g me MAXSIZE 200 STREAMS a b 0 0")
    assert key == "a"
    assert 5 <= len(entries) <= 12
    assert entries[0] == ["1-0", None]
    assert s.pending("a")[len(entries)][3] == 1


def test_the_smaller_of_two_limits_wins() -> None:
    """§4.2."""
    s = _two_streams()
    assert _sizes(s.run("XREAD MAXCOUNT 2 MAXSIZE 9999 STREAMS a 0")) == {"a": 2}
    assert _sizes(s.run("XREAD MAXCOUNT 4 MAXSIZE 1 STREAMS a 0")) == {"a": 1}


def test_in_a_transaction_the_budget_is_per_command() -> None:
    """§4.2."""
    s = _two_streams()
    s.run("MULTI", "XREAD MAXSIZE 1 STREAMS a b 0 0", "XREAD MAXSIZE 1 STREAMS b a 0 0")
    assert [_sizes(reply) for reply in s.run("EXEC")] == [{"a": 1}, {"b": 1}]


def test_the_limits_hold_when_a_blocked_reader_is_served() -> None:
    """§4.2, §4.3."""
    s = Streams()
    reader = s.waits("XREAD MAXCOUNT 2 BLOCK 0 STREAMS a b 0 0")
    s.run("MULTI")
    s.count_to("a", 5)
    s.run("EXEC")
    assert s.answer(reader) == "[['a', [['1-0', ['f', 'v']], ['2-0', ['f', 'v']]]]]"
