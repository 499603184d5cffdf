"""XINFO (specification §6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.streams import (
    BOTH_PROTOCOLS,
    NO_SUCH_KEY,
    NOT_INTEGER,
    NOW,
    Streams,
    as_map,
)

SUMMARY = (
    "length radix-tree-keys radix-tree-nodes last-generated-id max-deleted-entry-id entries-added "
    "recorded-first-entry-id idmp-duration idmp-maxsize pids-tracked iids-tracked iids-added "
    "iids-duplicates groups first-entry last-entry"
).split()
FULL = [*SUMMARY[:13], "entries", "groups"]
GROUP = "name last-delivered-id entries-read lag pel-count nacked-count pending consumers".split()
CONSUMER = "name seen-time active-time pel-count pending".split()


def _wrong_form(word: str) -> str:
    return f"ERR unknown subcommand or wrong number of arguments for '{word}'. Try XINFO HELP."


def _stream(last: int = 15) -> Streams:
    """Two groups; b has everything pending for y and z, a nothing."""
    s = Streams()
    s.count_to("s", last)
    s.run("XGROUP CREATE s b 0", "XGROUP CREATE s a $")
    s.run(f"XREADGROUP GROUP b z COUNT {last - 2} STREAMS s >", "XREADGROUP GROUP b y STREAMS s >")
    return s


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("XINFO STREAM none", NO_SUCH_KEY),
        ("XINFO STREAM none FULL", NO_SUCH_KEY),
        ("XINFO STREAM none WHAT", NO_SUCH_KEY),
        ("XINFO GROUPS none", NO_SUCH_KEY),
        ("XINFO CONSUMERS none b", NO_SUCH_KEY),
        ("XINFO CONSUMERS s nobody",
         "NOGROUP No such consumer group 'nobody' for key name 's'"),
        ("XINFO STREAM s WHAT", _wrong_form("STREAM")),
        ("xinfo stream s full what 5", _wrong_form("stream")),
        ("XINFO STREAM s FULL COUNT", _wrong_form("STREAM")),
        ("XINFO STREAM s FULL 5", _wrong_form("STREAM")),
        ("XINFO STREAM s FULL COUNT 5 6", _wrong_form("STREAM")),
        ("XINFO STREAM s COUNT 5", _wrong_form("STREAM")),
        ("XINFO STREAM s FULL COUNT x", NOT_INTEGER),
    ],
)  # fmt: skip
def test_a_wrong_xinfo_is_refused(line: str, error: str) -> None:
    """§6."""
    assert _stream().fails(line) == error


def test_the_fields_of_the_summary_stand_in_their_order() -> None:
    """§6: some monitoring tools read positions."""
    s = _stream()
    reply = s.run("XINFO STREAM s")
    assert reply[::2] == SUMMARY
    assert as_map(reply) == {
        "length": 15, "radix-tree-keys": 1, "radix-tree-nodes": 2, "last-generated-id": "15-0",
        "max-deleted-entry-id": "0-0", "entries-added": 15, "recorded-first-entry-id": "1-0",
        "idmp-duration": 100, "idmp-maxsize": 100, "pids-tracked": 0, "iids-tracked": 0,
        "iids-added": 0, "iids-duplicates": 0, "groups": 2,
        "first-entry": ["1-0", ["f", "v"]], "last-entry": ["15-0", ["f", "v"]],
    }  # fmt: skip


def test_an_empty_stream_has_no_first_and_last_entry() -> None:
    """§2.4, §6."""
    s = Streams()
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    info = s.info()
    assert (info["first-entry"], info["last-entry"]) == (None, None)
    assert info["recorded-first-entry-id"] == "0-0"
    assert (info["radix-tree-keys"], info["radix-tree-nodes"]) == (0, 1)


def test_first_and_last_entry_are_the_live_ones() -> None:
    """§6."""
    s = _stream(5)
    s.run("XDEL s 1-0 5-0")
    info = s.info()
    assert (info["first-entry"][0], info["last-entry"][0]) == ("2-0", "4-0")
    assert info["recorded-first-entry-id"] == "2-0"
    assert info["last-generated-id"] == "5-0"


def test_tree_nodes_grow_with_tree_keys() -> None:
    """§6: a monotone function, 1 for the empty stream, 2 for one node."""
    s = Streams()
    s.do("CONFIG", "SET", "stream-node-max-entries", 2)
    s.run("XGROUP CREATE s g 0 MKSTREAM")
    seen = []
    for ms in range(1, 20):
        seen.append((s.info()["radix-tree-keys"], s.info()["radix-tree-nodes"]))
        s.fill("s", f"{ms}-0")
    assert seen[:2] == [(0, 1), (1, 2)]
    assert seen == sorted(seen)


def test_the_fields_of_the_full_form_stand_in_their_order() -> None:
    """§6."""
    s = _stream()
    full = s.run("XINFO STREAM s FULL")
    assert full[::2] == FULL
    assert full[1:26] == s.run("XINFO STREAM s")[1:26]
    groups = as_map(full)["groups"]
    assert [group[::2] for group in groups] == [GROUP, GROUP]
    assert [as_map(group)["name"] for group in groups] == ["a", "b"]
    consumers = as_map(groups[1])["consumers"]
    assert [consumer[::2] for consumer in consumers] == [CONSUMER, CONSUMER]
    assert [as_map(consumer)["name"] for consumer in consumers] == ["y", "z"]


def _lengths(full: list[Any]) -> list[int]:
    """Entries, group b's pending entries, z's pending entries."""
    stream = as_map(full)
    group = as_map(stream["groups"][1])
    return [
        len(stream["entries"]),
        len(group["pending"]),
        len(as_map(group["consumers"][1])["pending"]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "lengths"),
    [
        ("", [10, 10, 10]), (" COUNT 10", [10, 10, 10]), (" COUNT 0", [15, 15, 13]),
        (" COUNT 1", [1, 1, 1]), (" COUNT 14", [14, 14, 13]), (" COUNT -1", [10, 10, 10]),
        (" COUNT -9223372036854775808", [10, 10, 10]), (" COUNT 999", [15, 15, 13]),
    ],
)  # fmt: skip
def test_count_bounds_each_list_on_its_own(count: str, lengths: list[int]) -> None:
    """§6: default 10, 0 all, negative 10."""
    assert _lengths(_stream().run(f"XINFO STREAM s FULL{count}")) == lengths


def test_counts_are_of_all_even_where_lists_are_cut() -> None:
    """§6."""
    group = as_map(as_map(_stream().run("XINFO STREAM s FULL COUNT 1"))["groups"][1])
    assert group["pel-count"] == 15
    assert as_map(group["consumers"][1])["pel-count"] == 13


def test_what_the_full_form_says_of_a_group() -> None:
    """§6: times are absolute."""
    s = Streams()
    s.count_to("s", 4)
    s.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 3 STREAMS s >")
    s.run("XGROUP CREATECONSUMER s g idle", "XNACK s g FAIL IDS 1 2-0")
    s.advance(10)
    assert s.shows("XINFO STREAM s FULL").partition("'groups', ")[2] == (
        "[['name', 'g', 'last-delivered-id', '3-0', 'entries-read', 3, 'lag', 1, "
        "'pel-count', 3, 'nacked-count', 1, "
        f"'pending', [['1-0', 'c', {NOW}, 1], ['2-0', '', 0, 1], ['3-0', 'c', {NOW}, 1]], "
        "'consumers', ["
        f"['name', 'c', 'seen-time', {NOW}, 'active-time', {NOW}, 'pel-count', 2, "
        f"'pending', [['1-0', {NOW}, 1], ['3-0', {NOW}, 1]]], "
        f"['name', 'idle', 'seen-time', {NOW}, 'active-time', -1, 'pel-count', 0, 'pending', []]"
        "]]]]"
    )


@BOTH_PROTOCOLS
def test_everything_with_names_is_a_map_in_resp3(resp3: bool) -> None:
    """§2.5: in the full form the groups and consumers inside, too."""
    s = _stream(3)
    session = s.connect(resp3=resp3)
    opening, inner = ("{'length': 3", "[{'name': '") if resp3 else ("['length', 3", "[['name', '")
    assert s.shows("XINFO STREAM s", session).startswith(opening)
    full = s.shows("XINFO STREAM s FULL", session)
    assert full.startswith(opening)
    assert full.count(inner) == 2  # the groups, and b's consumers
    assert s.shows("XINFO GROUPS s", session).startswith(inner)
    assert s.shows("XINFO CONSUMERS s b", session).startswith(inner)


def test_groups_are_listed_by_name_without_the_released_count() -> None:
    """§6."""
    s = _stream(3)
    s.run("XNACK s b FAIL IDS 1 1-0")
    assert s.run("XINFO GROUPS s") == [
        ["name", "a", "consumers", 0, "pending", 0, "last-delivered-id", "3-0",
         "entries-read", None, "lag", 0],
        ["name", "b", "consumers", 2, "pending", 3, "last-delivered-id", "3-0",
         "entries-read", 3, "lag", 0],
    ]  # fmt: skip


def test_without_groups_or_consumers_the_lists_are_empty() -> None:
    """§6."""
    s = Streams()
    s.fill("s", "1-0")
    assert s.run("XINFO GROUPS s") == []
    s.run("XGROUP CREATE s g 0")
    assert s.run("XINFO CONSUMERS s g") == []


def test_an_unknown_lag_is_null() -> None:
    """§2.4."""
    s = Streams()
    s.count_to("s", 5)
    s.run("XGROUP CREATE s g 3-0")
    assert s.shows("XINFO GROUPS s").endswith("'entries-read', $-1, 'lag', $-1]]")
    assert s.shows("XINFO GROUPS s", s.connect(resp3=True)).endswith("'lag': _}]")
