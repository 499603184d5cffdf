"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.servers import REPOSITORY

SUITE = """
import pytest
from anabranch.testing.plugin import anabranch_client, anabranch_proc

small = anabranch_proc(maxmemory="1mb")
small_client = anabranch_client("small", decode_responses=True)


def test_one(anabranch, anabranch_url):
    anabranch.xadd("s", {"f": "v"})
    assert anabranch.xlen("s") == 1
    assert anabranch_url.startswith("redis://127.0.0.1:")


def test_two_finds_nothing_of_one(anabranch, anabranch_server):
    assert anabranch.xlen("s") == 0
    anabranch_server.fail_next("XADD", "ERR left behind")


def test_three_finds_no_faults_of_two(anabranch):
    anabranch.xadd("s", {"f": "v"})


def test_settings(small_client):
    assert small_client.config_get("maxmemory") == {"maxmemory": "1048576"}
    assert small_client.config_get("stream-node-max-entries") == {"stream-node-max-entries": "7"}


def test_settings_of_the_command_line(anabranch):
    assert anabranch.config_get("hz") == {"hz": "42"}


def test_asynchronous(anabranch_async):
    import asyncio

    async def use():
        async with anabranch_async as client:
            await client.set("k", "v")
            return await client.get("k")

    assert asyncio.run(use()) == b"v"


def test_regions(anabranch_cluster):
    anabranch_cluster.eu.execute("XADD", "s", "*", "f", "v")
    anabranch_cluster.settle()
    assert anabranch_cluster.ap.execute("XLEN", "s") == 1
"""

FAILING = """
def test_it_fails(anabranch):
    anabranch.xadd("orders", {"total": "17"}, id="1-1")
    assert anabranch.xlen("orders") == 2
"""

FAILING_BESIDE_OTHERS = """
import pytest
from anabranch.testing import Server
from anabranch.testing.plugin import anabranch_client, anabranch_proc

other_server = anabranch_proc()
other_client = anabranch_client("other_server")


@pytest.fixture
def ours(anabranch_server):
    return anabranch_server


def test_that_passes(anabranch, other_client):
    anabranch.set("earlier", 1)
    other_client.set("elsewhere", 1)


def test_it_fails(ours):
    ours.execute("SET", "not-of-a-client", 1)
    own = Server().start()
    own.execute("SET", "own", 1)
    assert False


def test_it_fails_without_a_server():
    assert False
"""

FAILING_WITH_MUCH_DATA = """
def test_it_fails(anabranch):
    anabranch.set("large", "v" * 1_000_000)
    anabranch.rpush("many", *range(1000))
    for number in range(100):
        anabranch.xadd("s", {"f": number}, id=f"{number + 1}-1")
    assert False
"""

FAILING_WITH_FAULTS = """
def test_it_fails(anabranch_server):
    anabranch_server.fail_next("INFO", "ERR not now")
    assert not anabranch_server.is_running
"""


ALONE = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p xdist -p anabranch.testing.plugin",
}
"""Without the other plugins of this environment, whose import takes each process a second."""


def environment(**more: str) -> dict[str, str]:
    outside = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return {**outside, **more}


def run(directory: Path, text: str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_suite.py").write_text(text)
    settings = "[pytest]\nanabranch_settings =\n    stream-node-max-entries 7\n"
    (directory / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command,
        cwd=directory,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_fixture_works_where_pytest_finds_the_plugin(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE, "--anabranch-set", "hz=42")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_a_report_has_the_servers_of_the_test_and_its_commands(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING_BESIDE_OTHERS, **ALONE)
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    first, _, second = done.stdout.partition("test_it_fails_without_a_server _")
    sections = re.findall(r"- anabranch redis://127.0.0.1:\d+ -", first)
    assert len(sections) == 2, "the server of its fixture, and the one that it has started"
    assert "'own': '1'" in first
    assert "'not-of-a-client': '1'" in first
    assert '"SET" "earlier"' not in first, "a command of the test before"
    assert "elsewhere" not in first
    assert "anabranch redis://" not in second


def test_pytest_describes_the_fixtures(tmp_path: Path) -> None:
    done = run(tmp_path, "", "--fixtures", **ALONE)
    _, _, shown = done.stdout.partition("fixtures defined from anabranch.testing.plugin")
    for name in ("anabranch", "anabranch_async", "anabranch_cluster", "anabranch_server", "_url"):
        assert re.search(rf"^\S*{name}( \[session scope\])? --.*\n    \w", shown, re.MULTILINE), (
            name
        )
    assert "pytest-asyncio" in shown
    assert "no docstring available" not in shown.partition("fixtures defined from")[0]


def test_the_import_of_the_kit_leaves_the_server_out() -> None:
    """Counted, not timed: pytest imports the kit in every run."""
    code = (
        "import sys; before = set(sys.modules); "
        "from anabranch.testing import Clock, Cluster, Disk, Server; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.split()
    assert len(imported) < 200
    assert not {"hiredis", "msgspec", "pyzstd", "redis"} & set(imported)
    ours = [name for name in imported if name.startswith("anabranch.")]
    assert all(
        name.startswith(("anabranch.testing", "anabranch.server.clock"))
        for name in ours
        if name not in {"anabranch.version", "anabranch.server", "anabranch.compiling"}
    ), ours


def test_the_report_of_much_data_is_short(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING_WITH_MUCH_DATA, **ALONE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "(1000000 characters)" in done.stdout
    assert "more lines" in done.stdout
    assert len(done.stdout) < 20_000


def test_every_fixture_works_in_several_processes(tmp_path: Path) -> None:
    done = run(tmp_path, SUITE, "-n", "2", "--anabranch-set", "hz=42", **ALONE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_without_redis_py_clients_are_skipped_and_servers_serve(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['redis'] = None\n")
    text = "\n\ndef test_it_serves(anabranch_server):\n    anabranch_server.execute('PING')\n"
    done = run(tmp_path, FAILING + text, **ALONE)
    assert "1 passed, 1 skipped" in done.stdout, done.stdout
    assert "the client fixtures need redis-py" in done.stdout


def test_a_test_that_fails_shows_data_commands_and_seed(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING, **ALONE)
    assert done.returncode == 1
    assert re.search(r"<anabranch.testing.Server redis://127.0.0.1:\d+, seed \d+>", done.stdout)
    assert '"XADD" "orders" "1-1" "total" "17"' in done.stdout
    assert "{'orders': {'entries': {'1-1': {'total': '17'}}, 'groups': {}}}" in done.stdout


def test_data_that_cannot_be_shown_hides_no_failure(tmp_path: Path) -> None:
    done = run(tmp_path, FAILING_WITH_FAULTS, **ALONE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "assert not True" in done.stdout
    assert re.search(r"cannot be shown: CommandFailedError.*INFO.*not now", done.stdout)


def test_the_example_passes_in_four_processes(tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "orders"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "4"]
    done = subprocess.run(
        command,
        cwd=example,
        env=environment(**ALONE),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tutorial_shows_the_code_of_the_example() -> None:
    page = (REPOSITORY / "docs" / "testing-your-application.md").read_text()
    example = (REPOSITORY / "examples" / "orders" / "tests" / "test_orders.py").read_text()
    blocks = re.findall(r"```python\n(def test_.*?)\n```", page, re.DOTALL)
    shown = [block for block in blocks if "orders." in block]
    assert len(shown) == 3
    assert all(block in example for block in shown)
