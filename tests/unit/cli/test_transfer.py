"""The way of keys from a source to a target, with both ends in memory, and what is told of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
import redis
from click.testing import CliRunner

from anabranch.cli.address import Address
from anabranch.cli.failures import Failed, message
from anabranch.cli.group import command
from anabranch.cli.terminal import shown
from anabranch.cli.transfer.carry import carry, select
from anabranch.cli.transfer.client import rdb_version_of
from anabranch.cli.transfer.record import Item, KeyRecord, Selection
from anabranch.cli.transfer.summary import Summary, shown_key
from anabranch.rdb.payload import decode_body, encode_body
from anabranch.stream.image import ConsumerImage, GroupImage, NodeImage, PendingImage, StreamImage

ALL = Selection(frozenset(), None, None)
FUTURE = 1 << 42


class Source:
    """Some records."""

    unit = "keys"

    def __init__(self, *records: KeyRecord) -> None:
        self.done = 0
        self.total: int | None = None
        self._records = records

    def records(self, value_bytes_max: int) -> Iterator[KeyRecord]:
        for record in self._records:
            self.done += 1
            yield record

    def passed_over(self) -> dict[str, int]:
        return {"function libraries": 2}

    def close(self) -> None:
        pass


class Target:
    """Takes what it gets."""

    def __init__(self, rdb_version: int = 14, value_bytes_max: int = 1000) -> None:
        self.rdb_version = rdb_version
        self.value_bytes_max = value_bytes_max
        self.items: list[Item] = []
        self.complete: bool | None = None

    def put(self, item: Item) -> None:
        self.items.append(item)

    def finish(self, *, complete: bool) -> None:
        self.complete = complete


def counts(entries: int, groups: int, pending: int) -> dict[str, int]:
    return {"keys": 1, "entries": entries, "groups": groups, "pending": pending}


def summary() -> Summary:
    return Summary("imported", "here", "there", dry_run=False)


def record(key: bytes = b"k", value: object = b"v", db: int = 0, **changes: object) -> KeyRecord:
    assert isinstance(value, bytes | list | set | StreamImage)
    kind = {bytes: "string", list: "list", set: "set"}.get(type(value), "stream")
    body = encode_body(value, rdb_version=14)
    fields = {"expire_at_ms": None, "body": body, "rdb_version": 14, "size": len(body)}
    return KeyRecord(db, key, **{"kind": kind, **fields, **changes})  # type: ignore[arg-type]


def stream(nacked: bool) -> StreamImage:
    owner = None if nacked else b"c"
    group = GroupImage(b"g", 1, 1, [PendingImage(1, 5, 1, owner)], [ConsumerImage(b"c", 5, 5)])
    group.nacked = [1] if nacked else []
    image = StreamImage([NodeImage([(1, [b"f", b"v"]), (2, [b"f", b"w"])], 2)], 2, 2, 1)
    image.entries_added = 2
    image.groups = [group]
    image.check()
    return image


def carried(
    *records: KeyRecord,
    target: Target | None = None,
    lossy: bool = False,
    selection: Selection = ALL,
) -> tuple[Target, dict[str, object]]:
    target = target or Target()
    told = summary()
    carry(Source(*records), target, selection, told, lossy=lossy)
    assert target.complete is told.succeeded
    return target, told.as_json()


def test_bodies_that_the_target_knows_go_as_they_are() -> None:
    one = record(value=stream(nacked=True), expire_at_ms=FUTURE)
    target, _ = carried(one, record(b"s", b"text", db=3))
    assert target.items == [
        Item(0, b"k", "stream", FUTURE, one.body or b"", counts(2, 1, 1)),
        Item(3, b"s", "string", None, b"\x00\x04text", {"keys": 1}),
    ]


@pytest.mark.parametrize(("version", "type_byte"), [(10, 19), (11, 21), (12, 21), (13, 26)])
def test_bodies_for_older_targets_are_written_anew(version: int, type_byte: int) -> None:
    target, told = carried(record(value=stream(nacked=False)), target=Target(version))
    (item,) = target.items
    assert item.body[0] == type_byte
    assert decode_body(item.body) != b""
    assert told["ok"]


def test_streams_that_would_lose_something_stay_unless_it_may_be() -> None:
    one = record(value=stream(nacked=True))
    target, told = carried(one, record(b"s"), target=Target(13))
    assert [item.key for item in target.items] == [b"s"]
    assert told["would_lose"] == [{"key": "db0 k", "what": ["1 NACKed entry"]}]
    assert not told["ok"]
    target, told = carried(one, target=Target(13), lossy=True)
    (item,) = target.items
    image = decode_body(item.body)
    assert isinstance(image, StreamImage)
    assert image.groups[0].pending[0].consumer == b"nacked"
    assert told["lost"] == [{"key": "db0 k", "what": ["1 NACKed entry"]}]
    assert told["ok"]


def test_what_cannot_be_kept_is_counted_and_named() -> None:
    others = [record(b"h%d" % n, kind="hash", body=None) for n in range(5)]
    target, told = carried(*others, record(b"z", kind="zset", body=None))
    assert target.items == []
    assert told["not_imported"] == {
        "hash": {"keys": 5, "examples": ["db0 h0", "db0 h1", "db0 h2"]},
        "zset": {"keys": 1, "examples": ["db0 z"]},
    }
    assert told["passed_over"] == {"function libraries": 2}
    assert told["ok"], "nothing that could be kept stayed behind"


def test_keys_whose_time_has_passed_are_left_out() -> None:
    target, told = carried(record(expire_at_ms=1), record(b"l", expire_at_ms=-5))
    assert target.items == []
    assert told["expired"] == 2
    assert told["ok"]


@pytest.mark.parametrize(
    ("bad", "reason", "example"),
    [
        (record(body=None, size=5000), "larger than the 1,000 bytes", "db0 k (5,010 bytes)"),
        (record(value=b"x" * 990), "larger than the 1,000 bytes", "db0 k (1,003 bytes)"),
        (record(body=b"\x00\x05cut"), "its value is damaged: cut short", "db0 k"),
        (record(body=b"\x00\x01vv"), "its value is damaged: bytes left", "db0 k"),
        (record(body=None, problem="NOPERM no\nway"), r"NOPERM no\nway", "db0 k"),
    ],
)
def test_keys_that_cannot_come_are_refused_with_a_reason(
    bad: KeyRecord, reason: str, example: str
) -> None:
    target, told = carried(bad, record(b"good"))
    assert [item.key for item in target.items] == [b"good"]
    assert not told["ok"]
    (refused,) = told["refused"]  # type: ignore[misc]
    assert refused["reason"].startswith(reason)
    assert refused["examples"] == [example]


def test_selections() -> None:
    records = [record(key, db=db) for db in (0, 1, 2) for key in (b"a:1", b"a:22", b"b")]
    target, _ = carried(*records, selection=select((0, 2), "a:?", None))
    assert [(item.db, item.key) for item in target.items] == [(0, b"a:1"), (2, b"a:1")]
    target, _ = carried(*records, selection=select((), None, 1))
    assert [item.db for item in target.items] == [1, 1, 1]
    with pytest.raises(click.UsageError):
        select((1,), None, 1)


# -- telling ----------------------------------------------------------------------------------


def test_late_entries_are_no_loss_and_are_counted() -> None:
    late = stream(nacked=True)
    late.groups[0].pending[0].delivery_count = 0
    for version, consumer in ((14, None), (13, b"nacked"), (10, b"nacked")):
        target, told = carried(record(value=late), target=Target(version))
        image = decode_body(target.items[0].body)
        assert isinstance(image, StreamImage)
        assert image.groups[0].pending[0].consumer == consumer
        assert told["ok"]
        assert told["late"] == [{"key": "db0 k", "group": "g", "entries": 1}]


def test_another_server_is_named_as_the_reason() -> None:
    told = message(redis.ResponseError("unknown command 'AB.LAG', with args beginning with: 's'"))
    assert "this is another server" in told


def test_names_cannot_disturb_a_terminal() -> None:
    assert shown("plain ü") == "plain ü"
    assert shown("a\x1b[31m\r\n\x00") == r"a\x1b[31m\r\n\x00"
    assert shown_key(7, b"\xff\x1b") == r"db7 \xff\x1b"
    assert len(shown_key(0, b"x" * 500)) == 64


def test_the_table() -> None:
    told = summary()
    told.arrived(Item(0, b"s", "stream", None, b"", counts(1234, 2, 3)))
    told.arrived(Item(0, b"t", "stream", None, b"", counts(1, 0, 0)))
    told.arrived(Item(0, b"l", "list", None, b"", {"keys": 1}))
    for number in range(4):
        told.unsupported("hash", 0, b"h%d" % number)
    told.refused("because", 1, b"r")
    told.loses(2, b"n", ["1 NACKed entry", "IDMP settings"], lossy=False)
    told.note("late", 0, b"s", group="g\x1b", entries=1200)
    told.note("late", 3, b"s", group="h", entries=1)
    told.note("renumbered", 0, b"s", entries=2)
    told.note("ledgers_left", 0, b"s", records=1)
    told.expired = 1
    told.passed_over = {"function libraries": 1}
    told.seconds = 1.26
    assert told.as_text().splitlines() == [
        "here -> there: 3 keys imported in 1.3 s",
        "                keys  entries  groups  pending",
        "  imported         2    1,235       2        3  streams",
        "  imported         1                            lists",
        "  not imported     4                            type hash: db0 h0, db0 h1, db0 h2, ...",
        "  expired          1                            their time has passed",
        "  refused          1                            because: db1 r",
        "  refused          1                            the target has no place for a part of it, "
        "see below: db2 n",
        "  left out         1                            function libraries",
        "would be lost:",
        "  db2 n: 1 NACKed entry, IDMP settings",
        "late (pending; XAUTOCLAIM hands them out, another region may have, too):",
        r"  db0 s: 1,200 entries of group g\x1b",
        "  db3 s: 1 entry of group h",
        "renumbered (regions had several entries with one ID):",
        "  db0 s: 2 entries",
        "left behind (ledger: a batch that is repeated there is written again):",
        "  db0 s: 1 record",
    ]
    assert told.as_json()["ledgers_left"] == [{"key": "db0 s", "records": 1}]
    assert told.as_json()["late"] == [
        {"key": "db0 s", "group": r"g\x1b", "entries": 1200},
        {"key": "db3 s", "group": "h", "entries": 1},
    ]
    assert told.as_json()["renumbered"] == [{"key": "db0 s", "entries": 2}]
    json.dumps(told.as_json())
    assert not told.succeeded


def test_long_lists_of_losses_are_cut() -> None:
    told = summary()
    for number in range(30):
        told.loses(0, b"k%d" % number, ["IDMP settings"], lossy=True)
    lines = told.as_text().splitlines()
    assert lines[-1] == "  and 10 more streams"
    assert told.succeeded


class Informed:
    """A client of a server that claims a version."""

    def __init__(self, version: str) -> None:
        self.version = version

    def info(self, section: str) -> dict[str, str]:
        return {"redis_version": self.version} if section == "server" else {}


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("7.0.0", 10),
        ("7.0.15", 10),
        ("7.2.4", 11),
        ("7.4.1", 12),
        ("8.0.0", 12),
        ("8.4.2", 12),
        ("8.6.0", 13),
        ("8.8.0", 14),
        ("8.10.0", 14),
        ("10.0.1", 14),
        ("255.255.255", 14),
    ],
)
def test_what_versions_of_redis_read(release: str, version: int) -> None:
    assert rdb_version_of(Informed(release), Address()) == version


@pytest.mark.parametrize("release", ["6.2.14", "5.0.0", "unknown"])
def test_servers_that_are_too_old(release: str) -> None:
    with pytest.raises(Failed, match="or newer is needed"):
        rdb_version_of(Informed(release), Address())


# -- the command line -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["import", "export"])
def test_help_is_listed_and_there(name: str) -> None:
    listed = CliRunner().invoke(command, ["--help"], prog_name="anabranch")
    assert f"  {name} " in listed.stdout
    result = CliRunner().invoke(command, [name, "--help"], prog_name="anabranch")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: anabranch {name} [OPTIONS]")
    for option in ("-h", "-p", "--tls", "--db", "--match", "--replace", "--dry-run", "--lossy"):
        assert f"  {option} " in result.stdout


@pytest.mark.parametrize("module", ["main", "serve", "health"])
def test_others_do_not_pay_for_the_redis_client(module: str) -> None:
    code = f"import sys, anabranch.cli.{module}; print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"
