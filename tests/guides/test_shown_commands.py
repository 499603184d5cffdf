"""The commands of the reference pages do what the pages show: transfers, files, TLS, metrics."""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from anabranch.cli import group
from anabranch.testing import Cluster, Server
from tests.conftest import require_redis
from tests.guides.reader import Reader, same
from tests.house.markdown import fences, pages
from tests.support.inspection import wait_until
from tests.support.servers import RedisServer, free_port
from tests.unit.commands.test_bulk import payload

Names = dict[str, str]
"""What a page shows, and what it is called here: addresses, files."""


def blocks(page: str, language: str) -> Iterator[str]:
    """The blocks of a page, each command on a line of its own."""
    for each in fences(pages()[page], language):
        yield each.body.replace("\\\n", " ")


def block(page: str, language: str, containing: str) -> str:
    """The only one that contains this."""
    (found,) = [each for each in blocks(page, language) if containing in each]
    return found


def run(line: str, names: Names, given: bytes | None = None) -> tuple[int, str]:
    """The exit code of a command, and what it prints, with the names of the page."""
    for shown, real in names.items():
        line = line.replace(shown, real)
    words = shlex.split(line, comments=True)
    assert words[0] == "anabranch", line
    result = CliRunner().invoke(group.command, words[1:], input=given)
    printed = result.output
    for shown, real in names.items():
        printed = printed.replace(real, shown)
    return result.exit_code, printed


def comparable(printed: str) -> list[str]:
    """Lines without times, progress, the place of damage, and order: that of keys varies."""
    printed = re.sub(r"(?<=: byte )\d+", "...", printed)
    printed = re.sub(r"^anabranch: asking .*\n", "", printed, flags=re.MULTILINE)
    lists = re.compile(r"db\d [^\s,]+(?:, db\d [^\s,]+)+")
    ordered = lists.sub(lambda each: ", ".join(sorted(each[0].split(", "))), printed)
    return sorted(same(ordered).splitlines())


def play(transcript: str, names: Names) -> None:
    """Each command of a transcript prints what stands below it."""
    for each in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, _, expected = each.partition("\n")
        assert comparable(run(command, names)[1]) == comparable(expected), command


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- import and export --------------------------------------------------------------------------

TRANSFERS = "docs/import-export.md"
REGIONS = "docs/active-active-operating.md"


@pytest.fixture
def theirs(here: Path) -> Iterator[redis.Redis]:
    """A Redis with what the page shows, and its file."""
    require_redis()
    extra = ("--repl-diskless-sync-delay", "0", "--rdbcompression", "no")
    with RedisServer(here, extra) as process, redis.Redis(port=process.port) as client:
        client.xadd("orders:eu", {"item": "book"}, id="1-1")
        client.xadd("orders:eu", {"item": "pen"}, id="1-2")
        client.xgroup_create("orders:eu", "billing", id="0")
        client.xreadgroup("billing", "w", {"orders:eu": ">"}, count=1)
        client.xadd("orders:us", {"item": "lamp"}, id="1-3")
        client.set("note", "kept")
        client.hset("settings", mapping={"colour": "green"})
        client.zadd("scores", {"ann": 1})
        client.save()
        yield client


def test_transfers_print_what_the_page_shows(theirs: redis.Redis, here: Path) -> None:
    whole = (here / "dump.rdb").read_bytes()
    (here / "cut.rdb").write_bytes(whole[: whole.index(b"colour") + 3])
    (here / "dump.rdb.gz").write_bytes(gzip.compress(whole))
    from_address = str(theirs.connection_pool.connection_kwargs["port"])
    shown = [each for each in blocks(TRANSFERS, "text") if "7001" not in each]
    with Server() as server, redis.Redis(port=server.port) as ours:
        names = {"127.0.0.1:6379": f"127.0.0.1:{from_address}", "6380": str(server.port)}
        for transcript in shown[:-1]:
            play(transcript, names)
        packed, _, line = block(TRANSFERS, "sh", "gzip").partition(" | ")
        content = gzip.decompress((here / packed.split()[-1]).read_bytes())
        assert run(line, names, content)[0] == 0
        assert ours.xlen("orders:eu") == 2
        with RedisServer(here, shlex.split(block(TRANSFERS, "sh", "redis-server"))[1:]) as loaded:
            assert redis.Redis(port=loaded.port).xlen("orders:eu") == 2
        ours.xreadgroup("billing", "w", {"orders:eu": ">"})
        ours.execute_command("XNACK", "orders:eu", "billing", "FAIL", "IDS", 1, "1-2")
        play(shown[-1], names)


def test_the_four_directions_of_the_page(theirs: redis.Redis, here: Path) -> None:
    port = theirs.connection_pool.connection_kwargs["port"]
    dumped = (here / "dump.rdb").read_bytes()
    for line in block(TRANSFERS, "sh", "anabranch export redis:").splitlines():
        with Server() as server:
            if "import" in line:
                (here / "dump.rdb").write_bytes(dumped)
            else:
                (here / "dump.rdb").unlink(missing_ok=True)
                server.execute("XADD", "exported", "*", "f", "v")
            at = f" -p {server.port} #"
            code, printed = run(line.replace("#", at), {"10.0.0.5:6379": f"127.0.0.1:{port}"})
            assert code == 0, printed
            assert "import" in line or "dump.rdb" in line or theirs.xlen("exported") == 1
            assert "export" in line or server.execute("XLEN", "orders:eu") == 2


def test_exports_of_a_region_print_what_the_page_shows(here: Path) -> None:
    late, renumbered, ledger = (each for each in blocks(TRANSFERS, "text") if "7001" in each)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster("eu", "us", xadd_id_uniqueness_mode="liberal"))
        eu, us = (
            stack.enter_context(redis.Redis(port=each.port)) for each in cluster.regions.values()
        )
        names = {"7001": str(cluster.eu.port)}
        eu.xgroup_create("orders", "billing", id="0", mkstream=True)
        cluster.settle()
        cluster.isolate("us")
        us.xadd("orders", {"f": "v"}, id="2-0")
        for number in (1, 3, 4, 5):
            eu.xadd("orders", {"f": "v"}, id=f"{number}-0")
        eu.xreadgroup("billing", "w", {"orders": ">"})
        eu.xack("orders", "billing", "1-0", "3-0", "4-0")
        cluster.heal()
        cluster.settle()
        play(late, names)
        (here / "out.rdb").unlink()
        eu.xdel("orders", "2-0", "4-0")
        eu.xreadgroup("billing", "w", {"orders": ">"})
        cluster.isolate("us")
        us.xadd("orders", {"f": "v"}, id="6-0")
        eu.xadd("orders", {"f": "v"}, id="6-0")
        eu.xreadgroup("billing", "w", {"orders": ">"})
        cluster.heal()
        cluster.settle()
        eu.xreadgroup("billing", "w", {"orders": ">"})
        eu.xack("orders", "billing", "5-0")
        play(renumbered, names)
        (here / "out.rdb").unlink()
        eu.delete("orders")
        words = ("PRODUCER", "p", "BATCH", 1, "EXPECT", 0, "CRC", 0)
        eu.execute_command("AB.IMPORT", "cents", *words, payload(*[[b"n", b"1"]] * 100))
        play(ledger, names)


# -- files --------------------------------------------------------------------------------------

FILES = "docs/persistence.md"


def test_files_are_inspected_copied_and_restored(here: Path) -> None:
    with Server(persist=here / "live") as server:
        for number in range(1, 4):
            server.execute("XADD", "orders", f"{number}-0", "item", "book")
        server.execute("SAVE")
        with redis.Redis(port=server.port) as client:  # whose reply waits until it is in the log
            client.xadd("orders", {"item": "pen"}, id="1800000000000-0")
        (snapshot,) = (here / "live").rglob("*.absnap")
        directory = snapshot.parent
        names = {"DIR": str(directory), "FILE": str(snapshot)}
        printed = {}
        for line in block(FILES, "sh", "inspect FILE").splitlines():
            code, printed[line] = run(line, names)
            assert code == 0, (line, printed[line])
        assert all("orders" in each for each in list(printed.values())[1:]), printed
        copy, inspect = block(FILES, "sh", "cp -r").splitlines()
        words = shlex.split(copy, comments=True)
        assert words[:2] == ["cp", "-r"]
        shutil.copytree(directory, words[3])
        assert run(inspect, {})[0] == 0
    moved = here / "moved"
    shutil.copytree(here / "backup", moved / directory.name)
    (line,) = block(FILES, "sh", "anabranch restore").splitlines()
    code, said = run(line, {"/var/lib/anabranch/appendonlydir": str(moved / directory.name)})
    assert code == 0, said
    with Server(persist=moved) as server:
        assert server.execute("XLEN", "orders") == 4


# -- ports --------------------------------------------------------------------------------------


@pytest.fixture
def reader(here: Path) -> Iterator[Reader]:
    for program in ("openssl", "redis-cli", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: THE COMMANDS OF SOME PAGES ARE NOT RUN")
    one = Reader(here)
    try:
        yield one
    finally:
        one.close()


def test_a_server_with_tls_answers(reader: Reader) -> None:
    reader.ports["6390"] = free_port()
    printed = reader.shell(block("docs/operations.md", "sh", "openssl"))
    assert printed.splitlines()[-1] == "PONG"


def test_metrics_show_the_lag_of_a_group_and_the_server_is_healthy(reader: Reader) -> None:
    pytest.importorskip("starlette", reason="anabranch[web] is not installed: NO METRICS ARE READ")
    reader.ports["8080"] = free_port()
    reader.shell(block("docs/metrics.md", "sh", "serve --http-port"))
    printed = reader.shell(block("docs/metrics.md", "sh", "curl"))
    assert printed.endswith(block("docs/metrics.md", "text", "group_lag"))
    (health,) = block("docs/operations.md", "sh", "anabranch health").splitlines()
    assert reader.shell(health)


def test_two_regions_on_two_machines_find_each_other(reader: Reader, here: Path) -> None:
    eu_file, us_file = (each for each in blocks(REGIONS, "") if "gossip-announce" in each)
    (here / "us").mkdir()
    us = Reader(here / "us")
    ports = {"eu.example:16379": f"127.0.0.1:{(gossip := free_port())}", "SECRET": "0" * 64}
    ports |= {"eu.example": "127.0.0.1", "us.example": "127.0.0.1", "/var/lib/anabranch": "."}
    try:
        for one, text, gossip_port in ((reader, eu_file, gossip), (us, us_file, free_port())):
            for shown, real in ports.items():
                text = text.replace(shown, real)
            (one.directory / "my.conf").write_text(text)
            own = f"--gossip-port {gossip_port} --bind 127.0.0.1 --gossip-bind 127.0.0.1"
            one.serve(f"anabranch serve my.conf {own}")
        port = us.ports["6379"]
        with redis.Redis(port=port, password="a-long-password", decode_responses=True) as client:
            wait_until(lambda: len(client.execute_command("AB.REGION", "LIST")) == 2, "both")
    finally:
        us.close()
