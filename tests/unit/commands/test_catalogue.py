"""COMMAND, and the rows of the table against facts about Redis's commands."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.region_harness import Harness

# Redis's answers to COMMAND INFO, one command a line.
ROWS = Path(__file__).with_name("fixtures") / "redis_rows.jsonl"
FACTS = [json.loads(line) for line in ROWS.read_text("ascii").splitlines()]
NOT_HERE = {"script|debug"}


@pytest.fixture(scope="module")
def harness() -> Harness:
    return Harness()


def pairs(reply: list[Any]) -> dict[str, Any]:
    return {key.decode(): value for key, value in zip(reply[::2], reply[1::2], strict=True)}


def words(reply: list[bytes]) -> list[str]:
    return sorted(word.decode() for word in reply)


def key_spec(reply: list[Any]) -> dict[str, Any]:
    fields = pairs(reply)
    begin, find = pairs(fields["begin_search"]), pairs(fields["find_keys"])
    where, span = pairs(begin["spec"]), pairs(find["spec"])
    if find["type"] == b"keynum":
        assert (where, span) == ({"index": 2}, {"keynumidx": 0, "firstkey": 1, "keystep": 1})
        return {"flags": words(fields["flags"]), "find": "keynum"}
    if begin["type"] == b"index":
        first = where["index"]
    else:
        first = [where["keyword"].decode(), where["startfrom"]]
    return {
        "flags": words(fields["flags"]),
        "begin": first,
        "last": span["lastkey"],
        "step": span["keystep"],
        "limit": span["limit"],
    }


@pytest.mark.parametrize("fact", FACTS, ids=[fact["name"] for fact in FACTS])
def test_a_row_equals_that_of_redis(harness: Harness, fact: dict[str, Any]) -> None:
    (row,) = harness.do("COMMAND", "INFO", fact["name"])
    if fact["name"] in NOT_HERE:
        assert row is None
        return
    name, arity, flags, first, last, step, categories, tips, specs, _ = row
    described = {
        "name": name.decode(),
        "arity": arity,
        "flags": words(flags),
        "categories": [each.removeprefix("@") for each in words(categories)],
        "range": [first, last, step],
        "tips": words(tips),
        "keys": [key_spec(each) for each in specs],
    }
    assert described == {
        **fact,
        "flags": sorted(fact["flags"]),
        "keys": [{**each, "flags": sorted(each["flags"])} for each in fact["keys"]],
    }


def test_every_row_is_described(harness: Harness) -> None:
    rows = harness.do("COMMAND")
    assert len(rows) == harness.do("COMMAND", "COUNT") == len(harness.do("COMMAND", "INFO"))
    docs = pairs(harness.do("COMMAND", "DOCS"))
    assert sorted(docs) == words([row[0] for row in rows])
    for name, described in docs.items():
        fields = pairs(described)
        for field in ("summary", "since", "group"):
            assert fields[field], f"{name} has no {field}"
        assert ("complexity" in fields) is (name not in {"monitor", "psync", "sync"})


def test_types_in_resp3(harness: Harness) -> None:
    third = harness.connect(resp3=True)
    assert harness.raw("COMMAND", "INFO", "XLEN", "nosuch", session=third) == (
        b"*2\r\n*10\r\n$4\r\nxlen\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
        b"~3\r\n+@read\r\n+@stream\r\n+@fast\r\n~0\r\n"
        b"~1\r\n%3\r\n$5\r\nflags\r\n~1\r\n+RO\r\n"
        b"$12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$5\r\nindex\r\n"
        b"$4\r\nspec\r\n%1\r\n$5\r\nindex\r\n:1\r\n"
        b"$9\r\nfind_keys\r\n%2\r\n$4\r\ntype\r\n$5\r\nrange\r\n"
        b"$4\r\nspec\r\n%3\r\n$7\r\nlastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n"
        b"~0\r\n_\r\n"
    )
    assert harness.raw("COMMAND", "DOCS", "nosuch", session=third) == b"%0\r\n"


def test_a_container_holds_its_subcommands(harness: Harness) -> None:
    (row,) = harness.do("COMMAND", "INFO", "xgroup")
    assert words([sub[0] for sub in row[9]]) == [
        f"xgroup|{word}"
        for word in ("create", "createconsumer", "delconsumer", "destroy", "help", "setid")
    ]


def test_list(harness: Harness) -> None:
    everything = harness.do("COMMAND", "LIST")
    assert {b"xadd", b"xgroup", b"xgroup|create"} <= set(everything)
    by = ("COMMAND", "LIST", "FILTERBY")
    assert words(harness.do(*by, "PATTERN", "XGROUP|CREATE*")) == [
        "xgroup|create",
        "xgroup|createconsumer",
    ]
    assert sorted(harness.do(*by, "aclcat", "STREAM")) == sorted(harness.do("ACL", "CAT", "stream"))
    assert harness.do(*by, "ACLCAT", "nosuch") == harness.do(*by, "MODULE", "x") == []
    for wrong in (("FILTERBY",), ("FILTERBY", "BAD", "x"), ("BAD",), ("BAD", "PATTERN", "x")):
        assert harness.error("COMMAND", "LIST", *wrong) == "ERR syntax error"


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("XADD s * f v", [b"s"]),
        ("XREADGROUP GROUP STREAMS c STREAMS a b > >", [b"a", b"b"]),
        ("XGROUP CREATE s g 0", [b"s"]),
        ("DEL a b c", [b"a", b"b", b"c"]),
        ("RENAME a b", [b"a", b"b"]),
        ("BLPOP a b 0", [b"a", b"b"]),
        ("EVALSHA x 2 a b c", [b"a", b"b"]),
        ("EVALSHA x 0", []),
    ],
)
def test_getkeys(harness: Harness, line: str, keys: list[bytes]) -> None:
    assert harness.do("COMMAND", "GETKEYS", *line.split()) == keys


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("NOSUCH", "ERR Invalid command specified"),
        ("XGROUP NOSUCH s", "ERR Invalid command specified"),
        ("PING", "ERR The command has no key arguments"),
        ("SPUBLISH channel x", "ERR The command has no key arguments"),
        ("XGROUP", "ERR The command has no key arguments"),
        ("XGROUP HELP", "ERR The command has no key arguments"),
        ("XADD s", "ERR Invalid number of arguments specified for command"),
        ("XREAD COUNT 5 a 0", "ERR Invalid arguments specified for command"),
    ],
)
def test_getkeys_refuses(harness: Harness, line: str, error: str) -> None:
    for question in ("GETKEYS", "GETKEYSANDFLAGS"):
        assert harness.error("COMMAND", question, *line.split()) == error


def test_getkeysandflags(harness: Harness) -> None:
    assert harness.do("COMMAND", "GETKEYSANDFLAGS", "COPY", "a", "b") == [
        [b"a", [b"RO", b"access"]],
        [b"b", [b"OW", b"update"]],
    ]
    request = ("AB.POLICY", "SET", "PATTERN", "a*", "retention-entries", "5")
    assert harness.do("COMMAND", "GETKEYSANDFLAGS", *request) == [[b"a*", [b"RW", b"update"]]]


def test_docs(harness: Harness) -> None:
    docs = pairs(harness.do("COMMAND", "DOCS", "XGROUP|CREATE", "nosuch", "xinfo"))
    assert sorted(docs) == ["xgroup|create", "xinfo"]
    assert "xinfo|stream" in pairs(pairs(docs["xinfo"])["subcommands"])
    arguments = [pairs(each) for each in pairs(docs["xgroup|create"])["arguments"]]
    assert arguments[0] == {
        "name": b"key",
        "type": b"key",
        "display_text": b"key",
        "key_spec_index": 0,
    }
    assert arguments[-1] == {
        "name": b"entries-read",
        "type": b"integer",
        "display_text": b"entries-read",
        "token": b"ENTRIESREAD",
        "flags": [b"optional"],
    }


@pytest.mark.parametrize("resp3", [False, True])
def test_docs_of_a_name_are_made_once(resp3: bool) -> None:
    """Made each time, they hold up all other clients for seconds."""
    harness = Harness(resp3=resp3)
    one, few = (harness.raw("COMMAND", "DOCS", *["xadd"] * count) for count in (1, 3))
    assert few.count(one[4:]) == 3
    started = time.process_time()
    many = harness.raw("COMMAND", "DOCS", *["xadd", "nope"] * 10_000)
    assert time.process_time() - started < 1
    assert many == (b"%10000\r\n" if resp3 else b"*20000\r\n") + one[4:] * 10_000


def test_unknown_subcommand_and_help(harness: Harness) -> None:
    assert harness.error("COMMAND", "BAD") == "ERR unknown subcommand 'BAD'. Try COMMAND HELP."
    assert harness.do("COMMAND", "HELP")
    assert harness.error("COMMAND", "COUNT", "x") == (
        "ERR wrong number of arguments for 'command|count' command"
    )
