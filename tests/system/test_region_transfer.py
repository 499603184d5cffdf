"""``anabranch import`` into regions and ``export`` from them, with a real Redis on either side."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from anabranch.cli.group import command
from anabranch.rdb.file import RdbFile
from anabranch.rdb.payload import decode_body
from anabranch.rdb.values import Value
from anabranch.stream.image import StreamImage
from tests.support.grouped import GROUPS, grouped
from tests.support.images import comparable
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import REPOSITORY, RedisServer, ServerProcess

pytestmark = pytest.mark.timeout(180)

STREAMS = 40
FOR_REDIS_7 = ("--rdb-version", 10)
FILES = sorted((REPOSITORY / "tests/unit/rdb/fixtures/files").glob("*-1.json.gz"))
"""Written by Redis 7.0.15 and by builds of October 2024 and June 2026."""
SETTLE_S = 60.0


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegionProcesses]:
    directory = tmp_path_factory.mktemp("regions")
    mode = ("--xadd-id-uniqueness-mode", "liberal")
    with RegionProcesses(directory, ("eu", "us"), *mode) as processes:
        yield processes


@pytest.fixture
def theirs(redis_server: RedisServer) -> RedisServer:
    """Redis, empty."""
    ask(redis_server, "FLUSHALL")
    ask(redis_server, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
    # Other tests use this server, too, and leave other settings behind.
    ask(redis_server, "CONFIG", "SET", "stream-node-max-entries", "100")
    ask(redis_server, "CONFIG", "SET", "stream-node-max-bytes", "4096")
    return redis_server


@cache
def connected(port: int) -> redis.Redis:
    client = redis.Redis(port=port, protocol=2, socket_timeout=60)
    client.response_callbacks.clear()
    return client


def ask(server: ServerProcess, *words: object) -> Any:
    """A reply as it comes."""
    client = connected(getattr(server, "fixed_port", server.port))
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def run(*arguments: object, status: int = 0) -> Result:
    """The command line, in this process."""
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(command, words, prog_name="anabranch")
    assert result.exit_code == status, result.output
    return result


def url(server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{server.port}"


def link(regions: RegionProcesses, verb: str) -> None:
    """Pause or resume what the two send each other."""
    eu, us = regions.servers
    ask(eu, "AB.LINK", "us", verb)
    ask(us, "AB.LINK", "eu", verb)


def settle(regions: RegionProcesses) -> None:
    wait_until(regions.converged, "both regions have applied the same", SETTLE_S)


def begin(regions: RegionProcesses) -> None:
    """Nothing is there, and all are linked."""
    link(regions, "RESUME")
    for server in regions.servers:
        ask(server, "FLUSHALL")
    settle(regions)


def shown(server: ServerProcess, key: str) -> dict[str, Any]:
    """All that Redis 7.0 shows of a stream, and the summaries of its groups' pending entries."""
    info = pairs(ask(server, "XINFO", "STREAM", key, "FULL", "COUNT", 0))
    del info["radix-tree-nodes"]  # it depends on how the keys of the tree came in
    info["groups"] = list(map(pairs, info["groups"]))
    info["pending"] = [ask(server, "XPENDING", key, group) for group in GROUPS]
    return info


def pairs(flat: list[Any]) -> dict[str, Any]:
    names = [name.decode() for name in flat[::2]]
    return dict(zip(names, flat[1::2], strict=True))


def forget_unknown(found: dict[str, Any], before: dict[str, Any]) -> None:
    """What Redis did not know of a group every region knows."""
    for group, known in zip(found["groups"], before["groups"], strict=True):
        for name in ("entries-read", "lag"):
            if known["entries-read"] is None:
                group[name] = known[name]


def due(server: ServerProcess, key: str, group: str) -> list[Any]:
    """What a group still delivers."""
    words = ("XREADGROUP", "GROUP", group, "z", "STREAMS", key, ">")
    reply = ask(server, *words)
    return [entry[0] for entry in reply[0][1]] if reply else []


def claimed(server: ServerProcess, key: str, group: str) -> list[Any]:
    """What XAUTOCLAIM hands out of whatever is pending: live entries, and those that are gone."""
    _, live, gone = ask(server, "XAUTOCLAIM", key, group, "z", 0, 0, "COUNT", 1000, "JUSTID")
    return [live, gone]


@pytest.mark.parametrize("is_cut", [False, True], ids=["linked", "cut"])
def test_streams_of_redis_go_into_a_region_and_come_back_as_they_were(
    regions: RegionProcesses, theirs: RedisServer, tmp_path: Path, is_cut: bool
) -> None:
    begin(regions)
    eu, us = regions.servers
    keys = [f"s{seed}" for seed in range(STREAMS)]
    for seed, key in enumerate(keys):
        for words in grouped(random.Random(f"{seed}/{is_cut}"), key):
            ask(theirs, *words)
    before = {key: shown(theirs, key) for key in keys}
    if is_cut:
        link(regions, "PAUSE")
    facts = json.loads(run("import", url(theirs), "-p", eu.fixed_port, "--json").stdout)
    assert facts["imported"]["stream"]["keys"] == STREAMS
    assert facts["late"] == []
    out = tmp_path / "out.rdb"
    run("export", out, "-p", eu.fixed_port, *FOR_REDIS_7)
    with RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded:
        for key in keys:
            found = shown(loaded, key)
            forget_unknown(found, before[key])
            assert found == before[key]
        link(regions, "RESUME")
        settle(regions)
        for key in keys:
            assert ask(us, "XINFO", "STREAM", key)[:2] == ask(eu, "XINFO", "STREAM", key)[:2]
            for group in GROUPS:
                new = due(theirs, key, group)
                assert due(eu, key, group) == due(loaded, key, group) == new
                pending = claimed(theirs, key, group)
                assert claimed(eu, key, group) == claimed(loaded, key, group) == pending
                # In the other region whatever is not acknowledged: pending entries, too.
                assert set(due(us, key, group)) == {*new, *pending[0]}


def values_in(path: Path) -> dict[tuple[int, bytes], Value]:
    """All values of a file but those whose time has passed."""
    kinds = {"stream", "string", "list", "set"}
    file = RdbFile([path.read_bytes()], kinds=kinds, value_bytes_max=1 << 30)
    return {
        (key.db, key.key): decode_body(key.body)
        for key in file
        if key.kind in kinds and key.body is not None and key.expire_at_ms is None
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".json")[0])
def test_files_of_redis_go_into_a_region_and_come_out_as_they_were(
    regions: RegionProcesses, tmp_path: Path, path: Path
) -> None:
    begin(regions)
    eu = regions.servers[0]
    dump, out = tmp_path / "dump.rdb", tmp_path / "out.rdb"
    record = json.loads(gzip.decompress(path.read_bytes()))
    dump.write_bytes(base64.b64decode(record["rdb_base64"]))
    link(regions, "PAUSE")
    run("import", dump, "-p", eu.fixed_port)
    run("export", out, "-p", eu.fixed_port, "--rdb-version", 14)
    before, after = values_in(dump), values_in(out)
    assert len(before) > 5
    assert set(after) == set(before)
    for place, value in before.items():
        if not isinstance(value, StreamImage):
            assert after[place] == value
            continue
        due, found = comparable(value), comparable(after[place], value)
        due.producers = found.producers  # what is past its age is left out, as anywhere
        assert found == due


@pytest.mark.parametrize("target", ["file", "server"])
def test_entries_with_one_id_are_renumbered_for_redis(
    regions: RegionProcesses, theirs: RedisServer, tmp_path: Path, target: str
) -> None:
    begin(regions)
    eu, us = regions.servers
    ask(eu, "XGROUP", "CREATE", "x", "g", "0", "MKSTREAM")
    settle(regions)
    link(regions, "PAUSE")
    for entry_id, server in (("1-1", eu), ("2-1", eu), ("2-1", us), ("2-2", us), ("3-1", eu)):
        ask(server, "XADD", "x", entry_id, "f", server.region)
    link(regions, "RESUME")
    settle(regions)
    assert len(ask(eu, "XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", "x", ">")) == 1
    out = tmp_path / "out.rdb"
    where = [out, *FOR_REDIS_7] if target == "file" else [url(theirs)]
    facts = json.loads(run("export", *where, "-p", eu.fixed_port, "--json").stdout)
    assert facts["renumbered"] == [{"key": "db0 x", "entries": 2}]
    with RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded:
        redis_ = loaded if target == "file" else theirs
        found = ask(redis_, "XRANGE", "x", "-", "+")
        assert found == [
            [b"1-1", [b"f", b"eu"]],
            [b"2-1", [b"f", b"eu"]],
            [b"2-2", [b"f", b"us"]],
            [b"2-3", [b"f", b"us"]],
            [b"3-1", [b"f", b"eu"]],
        ]
        pending = ask(redis_, "XPENDING", "x", "g", "-", "+", 9)
        assert [row[0] for row in pending] == [b"1-1", b"2-1", b"2-2"]
        assert due(redis_, "x", "g") == [b"2-3", b"3-1"]


@pytest.mark.parametrize("target", ["file", "server"])
def test_a_late_entry_is_delivered_by_the_redis_that_gets_it(
    regions: RegionProcesses, theirs: RedisServer, tmp_path: Path, target: str
) -> None:
    begin(regions)
    eu, us = regions.servers
    ask(eu, "XGROUP", "CREATE", "x", "g", "0", "MKSTREAM")
    settle(regions)
    link(regions, "PAUSE")
    for ms, server in ((110, eu), (120, us), (130, eu), (140, eu)):
        ask(server, "XADD", "x", f"{ms}-0", "f", "v")
    assert due(eu, "x", "g") == [b"110-0", b"130-0", b"140-0"]
    ask(eu, "XADD", "x", "150-0", "f", "v")
    ask(eu, "XACK", "x", "g", "110-0", "140-0")
    link(regions, "RESUME")
    settle(regions)
    assert [row[-1] for row in ask(eu, "XINFO", "GROUPS", "x")] == [2], "120 and 150"

    if target == "server":
        result = run("export", url(theirs), "-p", eu.fixed_port)
        check_late(theirs)
    else:
        out = tmp_path / "out.rdb"
        result = run("export", out, "-p", eu.fixed_port, *FOR_REDIS_7)
        with RedisServer(tmp_path, ["--dbfilename", "out.rdb"]) as loaded:
            check_late(loaded)
    lines = result.stdout.splitlines()
    assert lines[-2].startswith("late (")
    assert lines[-1] == "  db0 x: 1 entry of group g"
    again = run("export", tmp_path / "b.rdb", "-p", eu.fixed_port, "--json", *FOR_REDIS_7)
    facts = json.loads(again.stdout)
    assert facts["late"] == [{"key": "db0 x", "group": "g", "entries": 1}]
    # A region that gets a newer file has it released, as a Redis 8.8 has.
    run("export", tmp_path / "c.rdb", "-p", eu.fixed_port, "--rdb-version", 14)
    ask(us, "FLUSHALL")
    settle(regions)
    run("import", tmp_path / "c.rdb", "-p", us.fixed_port)
    assert [row[:2] for row in ask(us, "XPENDING", "x", "g", "-", "+", 9)] == [
        [b"120-0", b""],
        [b"130-0", b"z"],
    ]


def check_late(server: ServerProcess) -> None:
    """The cursor is where it was, and the late entry is handed out before what was pending."""
    rows = ask(server, "XPENDING", "x", "g", "-", "+", 9)
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (b"120-0", b"nacked", 0),
        (b"130-0", b"z", 1),
    ]
    words = ("XAUTOCLAIM", "x", "g", "w", 3_600_000, 0)
    assert ask(server, *words)[1] == [[b"120-0", [b"f", b"v"]]]
    assert due(server, "x", "g") == [b"150-0"]
