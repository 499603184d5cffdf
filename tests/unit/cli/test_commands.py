"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli import serve
from anabranch.cli.group import command
from anabranch.config.settings import ROWS
from anabranch.simulator.cases import CASES, RARE_CASES, meaning
from anabranch.version import REDIS_VERSION, __version__
from tests.unit.cli.test_address import answering


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANABRANCH_AUTH", "REDISCLI_AUTH", "ANABRANCH_PORT", "ANABRANCH_REQUIREPASS"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, prog_name="anabranch")


def test_help_lists_the_sub_commands() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("serve", "config", "health", "version"):
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("group", ["", "cluster", "region", "spark"])
def test_help_has_a_whole_sentence_for_each_command(group: str) -> None:
    _, _, listed = run(*group.split(), "--help").stdout.partition("Commands:\n")
    rows = re.findall(r"^  (\w+) +(.+)$", listed.partition("\n\n")[0], re.MULTILINE)
    assert rows
    assert [name for name, sentence in rows if not re.search(r"[^.]\.$", sentence)] == []


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("anabranch pe", {"plain,pending"}),
        ("anabranch top --js", {"plain,--json"}),
        ("anabranch serve --appendf", {"plain,--appendfilename", "plain,--appendfsync"}),
        ("anabranch config --http-b", {"plain,--http-bind"}),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, found: set[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(
        [Path(sys.executable).with_name("anabranch")],
        env=os.environ | words | {"_ANABRANCH_COMPLETE": "bash_complete"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == found


def test_a_shell_completes_options_of_the_server_and_starts_none() -> None:
    words = {"COMP_WORDS": "anabranch-server --appendf", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", "from anabranch.cli.main import server_main; server_main()"],
        env=os.environ | words | {"_ANABRANCH_SERVER_COMPLETE": "bash_complete"},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert set(done.stdout.split()) == {"plain,--appendfilename", "plain,--appendfsync"}


@pytest.mark.parametrize("name", ["serve", "config"])
def test_the_whole_help_describes_every_directive(name: str) -> None:
    result = run(name, "--help-all")
    assert result.exit_code == 0
    words = result.stdout.replace("--", " ").replace(",", " ").split()
    assert [name for name in ROWS if name not in words] == []
    assert "ANABRANCH_DIRECTIVE" in result.stdout or name == "config"


def test_help_of_serve_fits_on_a_screen_and_names_the_rest() -> None:
    result = run("serve", "--help")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 60
    assert "--port" in result.stdout
    assert "--help-all" in result.stdout
    assert run("-h").stdout == run("--help").stdout


def test_the_server_program_says_its_version_as_redis_server_does() -> None:
    result = CliRunner().invoke(serve.command, ["--version"], prog_name=serve.SERVER)
    found = re.fullmatch(
        r"Redis server v=(\S+) sha=\S+ malloc=\S+ bits=64 build=(\S+)\n", result.stdout
    )
    assert found is not None
    assert found.groups() == (REDIS_VERSION, f"anabranch-{__version__}")


def test_version_is_said_the_same_way_everywhere() -> None:
    assert run("--version").stdout == f"anabranch, version {__version__}\n"
    assert run("serve", "--version").stdout == f"anabranch {__version__}\n"
    facts = json.loads(run("version", "--json").stdout)
    assert facts["anabranch"] == __version__
    assert facts["core"] in {"compiled", "interpreted"}


def test_wrong_usage_ends_with_2() -> None:
    assert run("nosuch").exit_code == 2
    assert run("health", "--nosuch").exit_code == 2
    assert run("health", "-u", "http://x").exit_code == 2


def test_config_shows_values_and_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "my.conf"
    path.write_text("hz 20\nrequirepass hush\n")
    result = run("config", str(path), "--port", "7000", "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["hz"] == {"value": "20", "source": f"{path}:1"}
    assert shown["port"] == {"value": "7000", "source": "command line"}
    assert shown["timeout"] == {"value": "0", "source": "default"}
    assert "hush" not in result.stdout
    changed = run("config", str(path), "--changed").stdout.splitlines()
    assert [line.split()[0] for line in changed] == ["hz", "requirepass"]


def test_a_mistake_on_the_command_line_ends_with_2_everywhere(tmp_path: Path) -> None:
    """Unknown words, bad values and files that are not there; what a file says ends with 1."""
    for words in (
        ("config", "--prot", "1"),
        ("config", "--port", "x"),
        ("config", "nosuch.conf"),
        ("serve", "--prot", "1"),
        ("serve", "--port"),
        ("serve", "nosuch.conf"),
        ("import", "nosuch.rdb"),
        ("restore", "nosuch"),
        ("top", "--nosuch"),
        ("toop",),
    ):
        assert run(*words).exit_code == 2, words
    (tmp_path / "my.conf").write_text("prot 1\n")
    assert run("config", str(tmp_path / "my.conf")).exit_code == 1


def test_one_word_too_many_is_named() -> None:
    result = run("serve", "--dir", "data", "foo")
    assert "dir: takes one value, 'foo' is one too many" in result.stderr
    assert "'foo' stands before any --directive" in run("serve", "my.conf", "foo").stderr


@pytest.mark.parametrize(
    ("typed", "nearest"), [("toop", "top"), ("pendng", "pending"), ("expor", "export")]
)
def test_an_unknown_command_is_answered_with_the_nearest(typed: str, nearest: str) -> None:
    assert f"No such command '{typed}'. Did you mean '{nearest}'?" in run(typed).stderr
    assert "The help lists all" in run("xyzzy").stderr
    for words, nearest_one in (
        (("cluster", "restat"), "restart"),
        (("region", "salvag"), "salvage"),
        (("spark", "arkive"), "archive"),
    ):
        assert f"Did you mean '{nearest_one}'?" in run(*words).stderr


@pytest.mark.parametrize(
    "words", ["top", "serve", "spark audit", "cluster up", "", "export out.rdb"]
)
def test_h_as_the_last_word_asks_for_help(words: str) -> None:
    """``-h HOST`` names the host, as in redis-cli."""
    program = [sys.executable, "-m", "anabranch", *words.split(), "-h"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("Usage: anabranch")


def test_config_says_which_start_would_be_refused() -> None:
    result = run("config", "--prot", "1")
    assert "did you mean 'port'?" in result.stderr
    assert result.stdout == ""


def test_health_says_why_not(unused_port: int) -> None:
    result = run("health", "-p", str(unused_port))
    assert result.exit_code == 1
    assert result.stderr == (
        f"anabranch: 127.0.0.1:{unused_port}: Connection refused: no server listens there, "
        "-h and -p name another one\n"
    )
    result = run("health", "-p", str(unused_port), "--json")
    assert json.loads(result.stdout)["healthy"] is False


def test_health_tells_a_server_of_another_protocol() -> None:
    with answering([b"HTTP/1.1 400 Bad Request\r\n"]) as (port, _):
        result = run("health", "-p", str(port))
    assert result.exit_code == 1
    assert "does not speak the Redis protocol: HTTP/1.1 400 Bad Request" in result.stderr


def test_simulate_explains_what_it_counted() -> None:
    words = ("simulate", "--seed", "7", "--regions", "2", "--minutes", "0.01")
    result = run(*words, "--faults", "none")
    assert result.exit_code == 0, result.output
    assert "0 means that the checks of that situation have proved nothing" in result.stdout
    assert re.search(r"^ +\d+  relay used +effects of a region arr", result.stdout, re.MULTILINE)
    told = json.loads(run(*words, "--json").stdout)
    assert [each["held"] for each in told["runs"]] == [True]
    assert [each["name"] for each in told["reached"] if not each["meaning"]] == []
    assert all(meaning(name) for name in (*CASES, *RARE_CASES))


def test_simulate_explores_and_replays_small_worlds(tmp_path: Path) -> None:
    result = run("simulate", "--exhaustive", "claims")
    assert result.exit_code == 0, result.output
    assert re.match(r"claims: all held \(2 regions, \d+ states, \d+ transitions,", result.stdout)
    told = json.loads(run("simulate", "--exhaustive", "claims", "--json").stdout)
    assert [(each["world"], each["problem"]) for each in told["worlds"]] == [("claims", "")]
    assert "entries (small): 2 regions. XADD," in run("simulate", "--exhaustive", "list").stdout
    transcript = tmp_path / "transcript.txt"
    transcript.write_text("world entries\nus> DEL k\nus -> eu\nsettle\n")
    result = run("simulate", "--replay", str(transcript))
    assert result.exit_code == 0, result.output
    assert re.search(r"^us> DEL k +# -> 1$", result.stdout, re.MULTILINE)
    assert result.stdout.endswith("all held\n")
    transcript.write_text("world entries\nus > DEL k\n")
    result = run("simulate", "--replay", str(transcript))
    assert result.exit_code == 1
    assert f"{transcript}: line 2: 'us > DEL k' is no step" in result.stderr
    transcript.write_text("world entries\nus -> eu\n")
    result = run("simulate", "--replay", str(transcript))
    possible = "`eu> XADD k * f b`, `us> DEL k`, `us> XADD k * f d`, `settle`"
    why = f"`us -> eu` is not possible at this place in entries; possible are {possible}"
    assert why in result.stderr
    for data, why in ((b"\xff\xfe", "is no text in UTF-8"), (b"\n", "it is empty; the first")):
        transcript.write_bytes(data)
        result = run("simulate", "--replay", str(transcript))
        assert (result.exit_code, why in result.stderr) == (1, True), result.output


@pytest.mark.parametrize("module", ["anabranch", "anabranch.cli.group", "anabranch.cli.serve"])
def test_importing_the_command_line_loads_no_server(module: str) -> None:
    heavy = "{'asyncio', 'uvloop', 'ssl'}"
    code = f"import sys, {module}; print(sorted({heavy}.intersection(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["simulate", "--seeds", "5-1"], "the second number is below the first one: 1-5?"),
        (["simulate", "--seeds", "5-x"], "two numbers with a dash between"),
        (["simulate"], "give one of --seed, --seeds, --exhaustive"),
        (["simulate", "--exhaustive", "--seeds", "1-5"], "give one of --seed, --seeds"),
        (["simulate", "--exhaustive", "claims", "--minutes", "1"], "--minutes is only for --seed"),
        (["simulate", "--replay", __file__, "--verbose"], "--verbose is only for --seed or"),
        (["simulate", "--seed", "1", "--jobs", "1"], "--jobs is only for --exhaustive"),
        (["simulate", "--seed", "1", "--minutes", "nan"], "no finite number"),
        (["simulate", "--seed", "1", "--minutes", "inf"], "no finite number"),
        (["simulate", "--seed", "1", "--exhaustive"], "give one of --seed, --seeds, --exhaustive"),
        (["simulate", "--exhaustive", "seas"], "there is no world 'seas'; there are entries,"),
        (["load", "--seconds", "nan"], "no finite number"),
        (["pending", "k", "g", "--min-idle", "inf"], "no finite number"),
        (["health", "--timeout", "nan"], "no finite number"),
        (["health", "--timeout", "-1"], "0<x<=1000000"),
        (["health", "-h", "h" * 300], "is no host name"),
        (["health", "-u", f"redis://{'h' * 300}"], "is no host name"),
        (["health", "--cacert", "/nonexistent"], "'/nonexistent' does not exist"),
        (["export", "-"], "does not go to standard output"),
        (["export", "10.0.0.5:6379"], "redis://10.0.0.5:6379 is that server"),
        (["import", "localhost:6379"], "redis://localhost:6379 is that server"),
        (["cluster", "up", "--regions", "5"], "names, with commas"),
        (["tail", "k", "--from", "-²"], "--from takes"),
        (["tail", "k", "--from", f"-{'9' * 5000}"], "--from takes"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: list[str], why: str) -> None:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert why in " ".join(result.stderr.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("name", ["config", "version"])
def test_output_that_cannot_be_written_is_one_line(name: str) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "anabranch", name]
        done = subprocess.run(words, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "anabranch: [Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    "text",
    [
        '{"regions": []}',
        '{"regions": [{"number": 1, "name": "eu", "port": "x", "gossip_port": 2}]}',
    ],
)
def test_a_damaged_cluster_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    for name in ("up", "status"):
        result = run("cluster", name, "--dir", str(tmp_path))
        assert result.exit_code == 1
        assert f"cannot read {tmp_path / 'cluster.json'}" in result.stderr
