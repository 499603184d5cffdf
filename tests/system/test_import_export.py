"""``anabranch import`` and ``export`` between real servers and real files."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme
from click.testing import CliRunner, Result

from anabranch.cli.group import command
from anabranch.rdb.file import RdbFile
from tests.conftest import require_redis
from tests.support.inspection import info, wait_until
from tests.support.servers import REPOSITORY, AnabranchServer, RedisServer, ServerProcess
from tests.support.terminal import Terminal
from tests.support.wire import Reply, RespClient
from tests.unit.commands.test_bulk import payload

FILES = sorted((REPOSITORY / "tests/unit/rdb/fixtures/files").glob("*.json.gz"))
PAST_REDIS_70 = "active-time", "nacked-count", "inactive"
"""What Redis 7.0 does not have or tell of consumers and groups."""

LIBRARY = "#!lua name=lib\nredis.register_function('f', function() return 1 end)"

pytestmark = pytest.mark.timeout(180)


FOR_REDIS = ("--rdb-version", "10")
"""What redis-server 7.0 reads."""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("ANABRANCH_") or name == "REDISCLI_AUTH":
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def real_server() -> Iterator[AnabranchServer]:
    with AnabranchServer(extra=["--enable-debug-command", "yes"]) as server:
        yield server


@pytest.fixture
def ours(real_server: AnabranchServer) -> AnabranchServer:
    """Our server, empty."""
    with real_server.client() as client:
        client.call("FLUSHALL")
        client.call("CONFIG", "SET", "proto-max-bulk-len", "512mb")
    return real_server


@pytest.fixture
def theirs(redis_server: RedisServer) -> RedisServer:
    """Redis, empty."""
    with redis_server.client() as client:
        client.call("FLUSHALL")
        client.call("FUNCTION", "FLUSH")
    return redis_server


def run(*arguments: object, given: bytes | None = None) -> Result:
    """The command line, in this process."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, words, prog_name="anabranch", input=given)


def told(result: Result, status: int = 0) -> dict[str, Any]:
    """What ``--json`` said."""
    assert result.exit_code == status, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    assert facts["ok"] is (status == 0)
    return facts


def url(server: ServerProcess, db: int | None = None) -> str:
    return f"redis://127.0.0.1:{server.port}" + ("" if db is None else f"/{db}")


def fill(client: RespClient, entries: int) -> None:
    """A stream ``s`` as life leaves it: gaps, groups at different places, pending entries."""
    client.pipeline(
        ("XADD", "s", f"{1_700_000_000_000 + n // 3}-{n % 3 + 1}", "sensor", n % 17, "t", f"e {n}")
        for n in range(entries)
    )
    ids = [f"{1_700_000_000_000 + n // 3}-{n % 3 + 1}" for n in range(entries)]
    steps: list[Sequence[str | int]] = [("XDEL", "s", *ids[5 : entries // 2 : 7])]
    for number, group in enumerate(["alarms", "billing", "empty", "far"]):
        steps.append(("XGROUP", "CREATE", "s", group, ("0", ids[entries // 3], "$", "0")[number]))
    for group, consumer, share in (
        ("alarms", "a", 5),
        ("alarms", "b", 20),
        ("billing", "a", 4),
        ("far", "z", 1),
    ):
        steps.append(
            ("XREADGROUP", "GROUP", group, consumer, "COUNT", entries // share, "STREAMS", "s", ">")
        )
    steps += [
        ("XACK", "s", "alarms", *ids[: entries // 9 : 2]),
        ("XCLAIM", "s", "far", "y", "0", *ids[10:20], "RETRYCOUNT", "7", "TIME", "1600000000000"),
        ("XGROUP", "CREATECONSUMER", "s", "empty", "idle"),
        ("XDEL", "s", *ids[11:15]),
        ("XTRIM", "s", "MINID", ids[entries // 50]),
    ]
    for reply in client.pipeline(steps):
        assert reply[0] != "-", reply


def ask(server: ServerProcess, *words: str | int) -> Any:
    """A reply as plain values; redis-py reads long ones in no time."""
    with redis.Redis(port=server.port, protocol=2, socket_timeout=60) as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def as_dict(reply: Any) -> Any:
    """Maps of a RESP2 reply, recognised by their first name, as dictionaries."""
    if not isinstance(reply, list):
        return reply
    if reply and reply[0] in (b"length", b"name"):
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return {name.decode(): as_dict(value) for name, value in pairs}
    return [as_dict(one) for one in reply]


def full(server: ServerProcess, key: str) -> dict[str, Any]:
    """``XINFO STREAM key FULL COUNT 0``, as Redis 7.0 would tell it."""
    view = as_dict(ask(server, "XINFO", "STREAM", key, "FULL", "COUNT", 0))
    assert isinstance(view, dict)
    view = {name: value for name, value in view.items() if not name.startswith(("i", "pids"))}
    del view["radix-tree-nodes"]  # how keys share their beginnings: not told the same by both
    for group in view["groups"]:
        for one in (group, *group["consumers"]):
            for name in PAST_REDIS_70:
                one.pop(name, None)
    return view


def digest(client: RespClient, *keys: str) -> Reply:
    return client.call("DEBUG", "DIGEST-VALUE", *keys)


def saved(server: RedisServer) -> Path:
    """The file Redis writes, as soon as no process of its own still serves a replica that left."""
    with server.client(timeout=60) as client:
        wait_until(
            lambda: info(client, "persistence")["rdb_bgsave_in_progress"] == "0", "no other save"
        )
        assert client.call("SAVE") == ("+", b"OK")
    return server.directory / "dump.rdb"


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("entries_there", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_entries_there_and_back(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path, entries_there: int
) -> None:
    with theirs.client(timeout=60) as there, ours.client(timeout=60) as here:
        fill(there, entries_there)
        before = full(theirs, "s")
        entries = ask(theirs, "XRANGE", "s", "-", "+")
        facts = told(run("import", saved(theirs), "-p", ours.port, "--json"))
        pending = sum(group["pel-count"] for group in before["groups"])
        assert pending > entries_there
        assert facts["imported"] == {
            "stream": {
                "keys": 1,
                "entries": before["length"],
                "groups": 4,
                "pending": pending,
            }
        }
        assert full(ours, "s") == before
        assert ask(ours, "XRANGE", "s", "-", "+") == entries
        proof = digest(here, "s")

        out = tmp_path / "out.rdb"
        facts = told(run("export", out, "-p", ours.port, *FOR_REDIS, "--json"))
        assert facts["exported"]["stream"]["entries"] == before["length"]
        with RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded:
            assert full(loaded, "s") == before
            assert ask(loaded, "XRANGE", "s", "-", "+") == entries
            here.call("FLUSHALL")
            told(run("import", url(loaded), "-p", ours.port, "--json"))
        assert full(ours, "s") == before
        assert digest(here, "s") == proof


AGES = {"XPENDING": 2}
"""Where an age stands in each row of a reply."""


def comparable(words: list[str], reply: Any) -> Any:
    """A recorded reply, or ours in the same form, without ages and without what differs."""

    def without(value: Any, names: tuple[str, ...]) -> Any:
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
            return value
        items = value[1]
        kept = []
        skip = False
        for index, item in enumerate(items):
            if skip:
                skip = False
            elif index % 2 == 0 and item[0] == "$" and item[1] in names:
                skip = True
            else:
                kept.append(without(item, names))
        return [value[0], kept]

    if words[:2] == ["XINFO", "CONSUMERS"]:
        return [reply[0], [without(row, ("idle", "inactive")) for row in reply[1]]]
    if words[0] == "XINFO":
        return without(reply, ("radix-tree-nodes",))
    if words[0] == "XPENDING" and len(words) > 3:
        return [reply[0], [[row[0], [*row[1][:2], *row[1][3:]]] for row in reply[1]]]
    if words[0] in ("SMEMBERS", "KEYS"):
        return [reply[0], sorted(reply[1])]
    return reply


def in_latin(reply: Reply) -> Any:
    """One of our replies as recordings are written."""
    kind, value = reply
    if isinstance(value, list):
        return [kind, [in_latin(one) for one in value]]
    return [kind, value.decode("latin-1") if isinstance(value, bytes) else value]


@pytest.mark.parametrize("path", FILES, ids=[path.name.split(".json")[0] for path in FILES])
def test_recorded_files_come_to_the_same_as_in_the_newest_server(
    ours: AnabranchServer, path: Path, tmp_path: Path
) -> None:
    record = json.loads(gzip.decompress(path.read_bytes()))
    dump = tmp_path / "dump.rdb"
    dump.write_bytes(base64.b64decode(record["rdb_base64"]))
    facts = told(run("import", dump, "-p", ours.port, "--json"))
    kinds = [
        (facts_of["type"], key)
        for keys in record["databases"].values()
        for key, facts_of in keys.items()
        if key != "expired-at-load"
    ]
    for kind in ("stream", "string", "list", "set"):
        assert facts["imported"][kind]["keys"] == sum(one == kind for one, _ in kinds)
    for kind in ("hash", "zset"):
        assert facts["not_imported"][kind]["keys"] == sum(one == kind for one, _ in kinds)
    libraries = len(record["functions"])
    assert facts["passed_over"] == ({"function libraries": libraries} if libraries else {})
    compared = 0
    with ours.client() as client:
        for db, keys in record["databases"].items():
            assert client.call("SELECT", db) == ("+", b"OK")
            for key, facts_of in keys.items():
                if facts_of["type"] in ("hash", "zset"):
                    continue
                expires = client.call("PEXPIRETIME", key.encode("latin-1"))
                if key == "expired-at-load":
                    assert expires == (":", -2)
                    continue
                assert expires == (":", facts_of.get("expires_at_ms", -1))
                for step in facts_of.get("read_by_june_2026", facts_of["read"]):
                    words = step[2]
                    reply = in_latin(client.call(*(word.encode("latin-1") for word in words)))
                    assert comparable(words, reply) == comparable(words, step[3]), words
                    compared += 1
    assert compared > 50


def test_values_databases_and_deadlines(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    soon = int(time.time() * 1000) + 3_600_000
    with theirs.client() as there, ours.client() as here:
        there.pipeline(
            [
                ("SET", "text", "x" * 3000),
                ("SET", "number", "-77"),
                ("RPUSH", "list", *range(3000)),
                ("SADD", "set", *(f"m{n}" for n in range(900))),
                ("SADD", "intset", *range(50)),
                ("HSET", "hash", "f", "v"),
                ("ZADD", "zset", "1", "m"),
                ("XADD", "s", "1-1", "f", "v"),
                ("PEXPIREAT", "text", soon),
                ("SELECT", 9),
                ("XADD", "s", "9-9", "f", "v"),
                ("PEXPIREAT", "s", soon + 1),
                (
                    "FUNCTION",
                    "LOAD",
                    LIBRARY,
                ),
            ]
        )
        for way in (saved(theirs), url(theirs)):
            here.call("FLUSHALL")
            facts = told(run("import", way, "-p", ours.port, "--json"))
            assert facts["imported"] == {
                "stream": {"keys": 2, "entries": 2, "groups": 0, "pending": 0},
                "string": {"keys": 2},
                "list": {"keys": 1},
                "set": {"keys": 2},
            }
            assert facts["not_imported"] == {
                "hash": {"keys": 1, "examples": ["db0 hash"]},
                "zset": {"keys": 1, "examples": ["db0 zset"]},
            }
            # SCAN sees keys alone.
            assert facts["passed_over"] == (
                {"function libraries": 1} if isinstance(way, Path) else {}
            )
            here.call("SELECT", 9)
            assert here.call("KEYS", "*") == ("*", [("$", b"s")])
            assert here.call("PEXPIRETIME", "s") == (":", soon + 1)
            here.call("SELECT", 0)
            assert here.call("PEXPIRETIME", "text") == (":", soon)
            assert here.call("PEXPIRETIME", "number") == (":", -1)
            assert here.call("DBSIZE") == (":", 6)
        keys = ["text", "number", "list", "set", "intset", "s"]
        there.call("FLUSHALL")
        there.call("SELECT", 0)
        told(run("export", url(theirs), "-p", ours.port, "--json"))
        out = tmp_path / "out.rdb"
        told(run("export", out, "-p", ours.port, *FOR_REDIS, "--json"))
        assert oct(out.stat().st_mode & 0o777) == oct(0o666 & ~current_umask())
        assert os.listdir(tmp_path) == ["out.rdb"]
        assert there.call("PEXPIRETIME", "text") == (":", soon)
        with (
            RedisServer(tmp_path, ["--dbfilename", out.name]) as loaded,
            loaded.client() as again,
        ):
            for words in (
                ("GET", "text"),
                ("GET", "number"),
                ("LRANGE", "list", 0, -1),
                ("XRANGE", "s", "-", "+"),
                ("PEXPIRETIME", "text"),
            ):
                assert again.call(*words) == here.call(*words)
            for key in ("set", "intset"):
                ours_and_theirs = [sorted(one.call("SMEMBERS", key)[1]) for one in (here, again)]
                assert ours_and_theirs[0] == ours_and_theirs[1] != []
            again.call("SELECT", 9)
            assert again.call("PEXPIRETIME", "s") == (":", soon + 1)
            before = digest(here, *keys)
            here.call("FLUSHALL")
            told(run("import", out, "-p", ours.port, "--json"))
            assert digest(here, *keys) == before


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_exists_is_refused_or_replaced(ours: AnabranchServer, theirs: RedisServer) -> None:
    with theirs.client() as there, ours.client() as here:
        there.call("XADD", "s", "1-1", "f", "theirs")
        there.call("SET", "text", "theirs")
        here.call("SET", "s", "ours")
        dump = saved(theirs)
        facts = told(run("import", dump, "-p", ours.port, "--dry-run", "--json"), 1)
        assert facts["dry_run"]
        assert here.call("DBSIZE") == (":", 1)
        facts_again = told(run("import", dump, "-p", ours.port, "--json"), 1)
        for each in (facts, facts_again):
            assert each["imported"] == {"string": {"keys": 1}}
            assert each["refused"] == [
                {
                    "reason": "the key exists; --replace overwrites it",
                    "keys": 1,
                    "examples": ["db0 s"],
                }
            ]
        assert here.call("GET", "s") == ("$", b"ours")
        assert here.call("GET", "text") == ("$", b"theirs")
        told(run("import", dump, "-p", ours.port, "--dry-run", "--replace", "--json"))
        assert here.call("GET", "s") == ("$", b"ours")
        told(run("import", dump, "-p", ours.port, "--replace", "--json"))
        assert here.call("XLEN", "s") == (":", 1)


def test_some_databases_and_some_keys(ours: AnabranchServer, theirs: RedisServer) -> None:
    with theirs.client() as there, ours.client() as here:
        for db in (0, 2, 5):
            there.call("SELECT", db)
            for key in ("orders:1", "orders:2", "other"):
                there.call("XADD", key, "1-1", "db", db)
        dump = saved(theirs)
        expected = {0: 0, 2: 2, 5: 2}
        for way in (
            [dump, "--db", 2, "--db", 5],
            [url(theirs), "--db", 2, "--db", 5],
        ):
            here.call("FLUSHALL")
            told(run("import", *way, "--match", "orders:[12]", "-p", ours.port, "--json"))
            for db, size in expected.items():
                here.call("SELECT", db)
                assert here.call("DBSIZE") == (":", size)
        there.call("FLUSHALL")
        told(run("export", url(theirs), "-u", url(ours, 5), "--match", "*1", "--json"))
        there.call("SELECT", 5)
        assert there.call("KEYS", "*") == ("*", [("$", b"orders:1")])
        assert "keyspace" in there.call("INFO", "keyspace")[1].decode().lower()
        there.call("SELECT", 2)
        assert there.call("DBSIZE") == (":", 0)


def test_databases_that_the_target_does_not_have(ours: AnabranchServer, tmp_path: Path) -> None:
    require_redis()
    with RedisServer(tmp_path, ["--databases", "40"]) as many, many.client() as there:
        for db in (33, 1, 34):
            there.call("SELECT", db)
            there.call("SET", "k", "v")
        there.call("SAVE")
        facts = told(run("import", tmp_path / "dump.rdb", "-p", ours.port, "--json"), 1)
    assert facts["imported"] == {"string": {"keys": 1}}
    assert [one["examples"] for one in facts["refused"]] == [["db33 k"], ["db34 k"]]
    assert all("SELECT 3" in one["reason"] for one in facts["refused"])
    assert all("out of range" in one["reason"] for one in facts["refused"])


def test_a_database_that_an_end_lacks_is_an_error(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    for words in (
        ["import", saved(theirs), "--db", 99, "-p", ours.port],
        ["import", url(theirs, 99), "-p", ours.port],
        ["export", tmp_path / "out.rdb", "--db", 99, "-p", ours.port],
        ["export", url(theirs), "--db", 99, "-p", ours.port],
    ):
        result = run(*words)
        assert result.exit_code == 1, result.output
        assert "database 99: DB index is out of range" in result.stderr
        assert "'databases'" in result.stderr
    assert not (tmp_path / "out.rdb").exists()


def test_a_damaged_file_changes_nothing(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    with theirs.client() as there, ours.client() as here:
        fill(there, 500)
        data = saved(theirs).read_bytes()
        broken = tmp_path / "broken.rdb"
        changed = bytearray(data)
        changed[len(data) // 2] ^= 1
        for damaged in (data[: len(data) // 2], bytes(changed), b"", b"REDIS0099" + data[9:]):
            broken.write_bytes(damaged)
            result = run("import", broken, "-p", ours.port)
            assert result.exit_code == 1
            assert result.stdout == ""
            assert f"anabranch: {broken}: byte " in result.stderr
            assert "Traceback" not in result.stderr
        assert here.call("DBSIZE") == (":", 0)
        result = run("import", tmp_path / "nosuch.rdb", "-p", ours.port)
        assert result.exit_code == 2
        assert "No such file" in result.stderr
        assert run("import", tmp_path, "-p", ours.port).exit_code == 1


def test_standard_input(ours: AnabranchServer, theirs: RedisServer) -> None:
    with theirs.client() as there:
        fill(there, 500)
        expected = full(theirs, "s")
        data = saved(theirs).read_bytes()
        facts = told(run("import", "-", "-p", ours.port, "--json", given=data))
        assert facts["source"] == "standard input"
        assert full(ours, "s") == expected
        facts = told(run("import", "-", "-p", ours.port, "--json", "--replace", given=data[:-9]), 1)
        assert "standard input: byte" in facts["error"]
        assert "ends early" in facts["error"]


# -- older versions -------------------------------------------------------------------------------


@pytest.fixture
def newest(ours: AnabranchServer) -> AnabranchServer:
    """Ours, with a stream that older servers cannot hold and one that they can."""
    with ours.client() as client:
        for reply in client.pipeline(
            [
                *(("XADD", "new", f"{n}-1", "f", n) for n in range(1, 6)),
                ("XGROUP", "CREATE", "new", "g", "0"),
                ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "new", ">"),
                ("XNACK", "new", "g", "FAIL", "IDS", "2", "2-1", "4-1"),
                ("XADD", "new", "IDMP", "p", "i", "*", "f", "v"),
                ("XADD", "old", "1-1", "f", "v"),
            ]
        ):
            assert reply[0] != "-", reply
    return ours


def test_what_would_be_lost_is_named_and_nothing_written(
    newest: AnabranchServer, tmp_path: Path
) -> None:
    out = tmp_path / "out.rdb"
    with newest.client() as here:
        here.call("CONFIG", "RESETSTAT")
        result = run("export", out, "-p", newest.port, *FOR_REDIS)
        assert b"cmdstat_dump" not in here.call("INFO", "commandstats")[1], "no value is read"
    assert result.exit_code == 1
    assert "db0 new: 2 NACKed entries, 1 idempotent ID and their counters" in result.stdout
    for way in ("--lossy", "--rdb-version 14", "copy of the server's directory"):
        assert way in result.stdout
    assert "0 keys exported" in result.stdout
    assert result.stderr == f"anabranch: {out} was not written, for it would not be complete\n"
    assert os.listdir(tmp_path) == []
    facts = told(run("export", out, "-p", newest.port, "--rdb-version", 13, "--json"), 1)
    assert facts["would_lose"] == [{"key": "db0 new", "what": ["2 NACKed entries"]}]
    assert os.listdir(tmp_path) == []
    with newest.client() as here:
        before = here.call("XINFO", "STREAM", "new", "FULL", "COUNT", 0)
        told(run("export", out, "-p", newest.port, "--json"))
        here.call("FLUSHALL")
        told(run("import", out, "-p", newest.port, "--json"))
        assert here.call("XINFO", "STREAM", "new", "FULL", "COUNT", 0) == before


def test_lossy_keeps_nacked_entries_pending(
    newest: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    with theirs.client() as there:
        facts = told(run("export", url(theirs), "-p", newest.port, "--json"), 1)
        assert facts["exported"]["stream"]["keys"] == 1, "the other stream can go"
        assert there.call("KEYS", "*") == ("*", [("$", b"old")])
        facts = told(
            run("export", url(theirs), "-p", newest.port, "--json", "--lossy", "--replace")
        )
        assert facts["lost"][0]["key"] == "db0 new"
        assert facts["exported"]["stream"] == {"keys": 2, "entries": 7, "groups": 1, "pending": 5}
        claimed = there.call("XAUTOCLAIM", "new", "g", "other", 60_000, "0", "JUSTID")
        assert claimed[1][1] == ("*", [("$", b"2-1"), ("$", b"4-1")])
    out = tmp_path / "out.rdb"
    told(run("export", out, "-p", newest.port, *FOR_REDIS, "--json", "--lossy"))
    with (
        RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded,
        loaded.client() as there,
    ):
        names = [one["name"] for one in as_dict(ask(loaded, "XINFO", "CONSUMERS", "new", "g"))]
        assert names == [b"c", b"nacked"]


@pytest.mark.parametrize("version", [10, 11, 12, 13, 14])
def test_files_of_each_version(ours: AnabranchServer, tmp_path: Path, version: int) -> None:
    with ours.client() as client:
        fill(client, 300)
        before = full(ours, "s")
        out = tmp_path / "out.rdb"
        told(run("export", out, "-p", ours.port, "--rdb-version", version, "--json"))
        assert out.read_bytes().startswith(b"REDIS%04d" % version)
        client.call("FLUSHALL")
        told(run("import", out, "-p", ours.port, "--json"))
        assert full(ours, "s") == before


def test_a_file_that_exists_stays(ours: AnabranchServer, tmp_path: Path) -> None:
    out = tmp_path / "out.rdb"
    out.write_text("mine")
    with ours.client() as client:
        client.call("SET", "k", "v")
    result = run("export", out, "-p", ours.port)
    assert result.exit_code == 1
    assert "--replace" in result.stderr
    assert out.read_text() == "mine"
    told(run("export", out, "-p", ours.port, "--dry-run", "--replace", "--json"))
    assert out.read_text() == "mine"
    told(run("export", out, "-p", ours.port, "--replace", "--json"))
    assert [one.key for one in RdbFile([out.read_bytes()], value_bytes_max=99)] == [b"k"]
    result = run("export", tmp_path / "no" / "out.rdb", "-p", ours.port)
    assert result.exit_code == 1
    assert "No such file" in result.stderr


# -- running servers ------------------------------------------------------------------------------


def test_a_running_redis_is_read_without_a_synchronisation(
    ours: AnabranchServer, theirs: RedisServer
) -> None:
    with theirs.client() as there:
        fill(there, 20_000)
        expected = full(theirs, "s")
        there.call("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+@all", "-sync")
        try:
            source = f"redis://reader:secret@127.0.0.1:{theirs.port}"
            result = run("import", source, "-p", ours.port, "--json")
        finally:
            there.call("ACL", "DELUSER", "reader")
        told(result)
        assert "secret" not in result.output
        assert full(ours, "s") == expected


def test_redis_cli_fetches_a_snapshot_for_the_import(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    with theirs.client() as there:
        there.call("CONFIG", "SET", "repl-diskless-sync-delay", "0")
        fill(there, 500)
        expected = full(theirs, "s")
    file = tmp_path / "dump.rdb"
    words = ["redis-cli", "-p", str(theirs.port), "--rdb", str(file)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    told(run("import", file, "-p", ours.port, "--json"))
    assert full(ours, "s") == expected


def test_scanning_carries_each_key_once(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    """Many keys, batch after batch, into a file, where a key twice would be fatal for Redis."""
    with ours.client() as client:
        client.pipeline(("XADD", f"stream:{n}", f"{n + 1}-1", "n", n) for n in range(3000))
        client.pipeline(("SET", f"text:{n}", "x" * (n % 7) * 5000) for n in range(2000))
        client.pipeline(("XADD", f"large:{n}", "1-1", "f", "x" * 3_000_000) for n in range(12))
    out = tmp_path / "out.rdb"
    facts = told(run("export", out, "-p", ours.port, *FOR_REDIS, "--json"))
    assert facts["exported"]["stream"]["keys"] == 3012
    assert facts["exported"]["string"]["keys"] == 2000
    with (
        RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded,
        loaded.client(timeout=60) as there,
        ours.client(timeout=60) as here,
    ):
        assert there.call("DBSIZE") == (":", 5012)
        assert there.call("XRANGE", "large:7", "-", "+") == here.call("XRANGE", "large:7", "-", "+")
        assert there.call("STRLEN", "text:6") == (":", 30_000)
        here.call("FLUSHALL")
        told(run("import", out, "-p", ours.port, "--json"))
        assert here.call("DBSIZE") == (":", 5012)


def test_values_that_are_too_large_for_the_target_are_named(
    ours: AnabranchServer, theirs: RedisServer
) -> None:
    with theirs.client() as there, ours.client() as here:
        # What LZF cannot make smaller, or Redis would.
        there.call("SET", "large", os.urandom(2 << 20))
        there.call("SET", "small", os.urandom(1000))
        reply = here.call("CONFIG", "SET", "proto-max-bulk-len", "1mb")
        assert reply == ("+", b"OK"), reply
        for way in (saved(theirs), url(theirs)):
            facts = told(run("import", way, "-p", ours.port, "--json", "--replace"), 1)
            assert facts["imported"] == {"string": {"keys": 1}}
            (refused,) = facts["refused"]
            assert "proto-max-bulk-len" in refused["reason"]
            assert "1,048,576" in refused["reason"]
            assert refused["examples"][0].startswith("db0 large (2,097,1")
        assert here.call("EXISTS", "large", "small") == (":", 1)


def test_servers_that_cannot_be_reached(
    ours: AnabranchServer, theirs: RedisServer, tmp_path: Path
) -> None:
    nobody = AnabranchServer(tmp_path)
    nobody.start()
    nobody.stop()
    dump = saved(theirs)
    for words in (
        ["import", dump, "-p", nobody.port],
        ["import", url(nobody), "-p", ours.port],
        ["export", tmp_path / "out.rdb", "-p", nobody.port],
        ["export", url(nobody), "-p", ours.port],
    ):
        result = run(*words)
        assert result.exit_code == 1, words
        assert "refused" in result.stderr.lower(), words
        assert f"127.0.0.1:{nobody.port}" in result.stderr
        assert result.stderr.count("\n") <= 2
        assert result.stdout == ""


def test_a_target_that_goes_away_meanwhile(theirs: RedisServer, tmp_path: Path) -> None:
    with theirs.client() as there:
        there.pipeline(("SET", f"k{n}", "v") for n in range(600))
    data = saved(theirs).read_bytes()
    read, write = os.pipe()
    with AnabranchServer(tmp_path) as target:
        importing = subprocess.Popen(
            [sys.executable, "-m", "anabranch", "import", "-", "-p", str(target.port)],
            stdin=read,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=target.environment(),
        )
        os.close(read)
        os.write(write, data[: len(data) - 100])
        with target.client() as client:
            deadline = time.monotonic() + 20
            while client.call("DBSIZE") == (":", 0):
                assert time.monotonic() < deadline
        assert target.process is not None
        target.process.send_signal(signal.SIGKILL)
        target.process.wait()
        target.process = None
        os.write(write, data[len(data) - 100 :])
        os.close(write)
        out, err = importing.communicate(timeout=60)
    assert importing.returncode == 1
    assert "Traceback" not in err
    if "500 keys imported" in out:  # the answers to the first batch had come
        assert "500 keys had arrived before" in err
    else:
        assert "up to 500 keys may have arrived that are not counted" in err


def test_passwords_and_users(theirs: RedisServer, tmp_path: Path) -> None:
    with theirs.client() as there:
        there.call("XADD", "s", "1-1", "f", "v")
    dump = saved(theirs)
    with AnabranchServer(tmp_path) as closed:
        with closed.client() as here:
            assert here.call("CONFIG", "SET", "requirepass", "pw") == ("+", b"OK")
        result = run("import", dump, "-p", closed.port)
        assert result.exit_code == 1
        assert "Authentication" in result.stderr or "NOAUTH" in result.stderr
        result = run("import", dump, "-p", closed.port, "-a", "wrong")
        assert result.exit_code == 1
        assert "WRONGPASS" in result.stderr or "invalid" in result.stderr
        told(run("import", dump, "-p", closed.port, "-a", "pw", "--json"))
        refused = run("import", url(closed), "-p", theirs.port).stderr
        assert "put user:password@ into its URL, or set ANABRANCH_OTHER_AUTH" in refused
        target = f"redis://:pw@127.0.0.1:{closed.port}"
        told(run("export", target, "-p", theirs.port, "--replace", "--json"))
        result = CliRunner().invoke(
            command,
            ["export", url(closed), "-p", str(theirs.port), "--replace", "--json"],
            env={"ANABRANCH_OTHER_AUTH": "pw"},
        )
        told(result)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``ca.pem``, ``server.pem`` and ``server.key``."""
    place = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(place / "ca.pem")
    own = authority.issue_cert("localhost", "127.0.0.1")
    own.private_key_pem.write_to_path(place / "server.key")
    for number, part in enumerate(own.cert_chain_pems):
        part.write_to_path(place / "server.pem", append=number > 0)
    return place


def test_tls_on_both_sides(certificates: Path, tmp_path: Path) -> None:
    require_redis()
    files = [
        *("--tls-cert-file", str(certificates / "server.pem")),
        *("--tls-key-file", str(certificates / "server.key")),
        *("--tls-ca-cert-file", str(certificates / "ca.pem"), "--tls-auth-clients", "no"),
    ]
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with (
        RedisServer(first) as plain,
        AnabranchServer(second) as target,
        plain.client() as client,
        target.client() as here,
    ):
        client.call("XADD", "s", "1-1", "f", "v")
        # A second listener beside the one that was asked for a sign of life.
        secure = [secured(client, files), secured(here, files)]
        words = [f"rediss://127.0.0.1:{secure[0]}", "-p", secure[1], "--tls", "--json"]
        trusted = ["--cacert", certificates / "ca.pem"]
        told(run("import", *words, *trusted))
        told(run("import", *words, "--insecure", "--replace"))
        assert here.call("XLEN", "s") == (":", 1)
        facts = told(run("import", *words, "--replace"), 1)
        assert "certificate" in facts["error"].lower()


def secured(client: RespClient, files: list[str]) -> int:
    """Open a TLS port."""
    from tests.support.servers import free_port

    port = free_port()
    words = [word.removeprefix("--") for word in files]
    assert client.call("CONFIG", "SET", *words, "tls-port", port) == ("+", b"OK")
    return port


# -- what is seen meanwhile -----------------------------------------------------------------------


def test_a_bar_on_a_terminal(ours: AnabranchServer, theirs: RedisServer) -> None:
    with theirs.client() as there:
        fill(there, 3000)
    words = ["import", str(saved(theirs)), "-p", str(ours.port)]
    variables = dict(ours.environment())
    with Terminal([sys.executable, "-m", "anabranch", *words], **variables) as terminal:
        terminal.expect(r"checking .*\[#+\].*100%")
        terminal.expect(r"importing .*\[#+\].*100%")
        terminal.expect(r"1 key imported in")
        assert terminal.end() == 0


def test_the_table(ours: AnabranchServer, theirs: RedisServer) -> None:
    with theirs.client() as there:
        there.call("XADD", "s", "1-1", "f", "v")
        there.call("HSET", b"h\x1b[31m\n\xff", "f", "v")
        dump = saved(theirs)
    result = run("import", dump, "-p", ours.port)
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{dump} -> 127.0.0.1:{ours.port}: 1 key imported in ")
    assert lines[1].split() == ["keys", "entries", "groups", "pending"]
    assert lines[2].split() == ["imported", "1", "1", "0", "0", "streams"]
    assert lines[3].endswith(r"type hash: db0 h\x1b[31m\n\xff")
    assert len(lines) == 4
    assert result.stderr == ""


def test_an_interrupted_export_leaves_nothing(ours: AnabranchServer, tmp_path: Path) -> None:
    with ours.client(timeout=60) as client:
        client.pipeline(("XADD", f"k{n}", "1-1", "f", "x" * 100_000) for n in range(600))
    out = tmp_path / "out.rdb"
    exporting = subprocess.Popen(
        [sys.executable, "-m", "anabranch", "export", str(out), "-p", str(ours.port)],
        env=ours.environment(),
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 20
    while not any(path.stat().st_size for path in tmp_path.iterdir()):
        assert time.monotonic() < deadline
    exporting.send_signal(signal.SIGINT)
    _, complaint = exporting.communicate(timeout=60)
    assert exporting.returncode == 130
    assert complaint.endswith(b"anabranch: interrupted\n")
    assert os.listdir(tmp_path) == []


def test_streams_that_leave_their_ledger_behind_are_named(
    ours: AnabranchServer, tmp_path: Path
) -> None:
    with ours.client() as client:
        for producer in ("a", "b"):
            words = ("PRODUCER", producer, "BATCH", 1, "EXPECT", 0, "CRC", 0)
            assert client.call("AB.IMPORT", "s", *words, payload([b"n", b"1"]))[0] == "*"
        client.call("XADD", "t", "*", "n", "1")
        client.call("SET", "k", "v")
    with AnabranchServer() as target:
        for transfer in (
            ("export", tmp_path / "out.rdb", "-p", ours.port),
            ("export", url(target), "-p", ours.port),
            ("import", url(ours), "-p", target.port, "--replace"),
        ):
            facts = told(run(*transfer, "--json"))
            assert facts["ledgers_left"] == [{"key": "db0 s", "records": 2}]
        assert len(ask(ours, "AB.LEDGER", "s")) == 2
        assert ask(target, "AB.LEDGER", "s") == []


@pytest.mark.parametrize(
    "words",
    [
        ["import"],
        ["import", "http://x"],
        ["import", "redis://x:port"],
        ["import", "redis://x/name"],
        ["import", "redis://x/1", "--db", "2"],
        ["import", "dump.rdb", "-u", "redis://x/1"],
        ["import", "dump.rdb", "--db", "-1"],
        ["import", "dump.rdb", "--rdb-version", "15"],
        ["export"],
        ["export", "redis://x/1"],
        ["export", "out.rdb", "--rdb-version", "9"],
    ],
)
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    assert run(*words).exit_code == 2


def test_redis_check_rdb_finds_nothing(ours: AnabranchServer, tmp_path: Path) -> None:
    checker = shutil.which("redis-check-rdb")
    if checker is None:
        pytest.skip("redis-check-rdb is not installed")
    with ours.client() as client:
        fill(client, 1000)
        client.call("SET", "k", "v", "PX", "3600000")
        client.call("RPUSH", "l", "x" * 10_000, *range(2000))
    out = tmp_path / "out.rdb"
    told(run("export", out, "-p", ours.port, *FOR_REDIS, "--json"))
    done = subprocess.run([checker, str(out)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout
    assert "RDB looks OK" in done.stdout
