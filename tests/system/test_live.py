"""``anabranch tail``, ``top``, ``groups``, ``pending`` and ``load``, on a terminal and off it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from anabranch.cli.address import Address
from anabranch.cli.group import command
from anabranch.cli.live.tail import _Follower
from anabranch.cli.transfer.client import connect
from anabranch.testing import Cluster, Server
from tests.support.inspection import wait_until
from tests.support.terminal import Terminal

PROGRAM = (sys.executable, "-m", "anabranch")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("eu", "us") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def alone() -> Iterator[Server]:
    """A server on its own: it takes explicit IDs."""
    with Server() as server:
        yield server


def client_of(region: Server) -> redis.Redis:
    return redis.Redis(port=region.port, decode_responses=True, protocol=2)


def run(region: Server, *words: str) -> Result:
    result = CliRunner().invoke(command, [*words, "-p", str(region.port)])
    assert result.exit_code == 0, result.output
    return result


def facts(region: Server, *words: str) -> Any:
    return json.loads(run(region, *words, "--json").stdout)


def test_tail_shows_late_entries_of_other_regions(cluster: Cluster) -> None:
    with client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        first = us.xadd("tailed", {"n": "1", "hostile": "\x1b[2J\n"})
        cluster.settle()
        words = [*PROGRAM, "tail", "tailed", "--from", "-5", "-p", str(cluster.us.port)]
        with Terminal(words) as terminal:
            terminal.expect(rf"us tailed {first} n=1 hostile=\\x1b\[2J\\n")
            cluster.isolate("eu")
            late = eu.xadd("tailed", {"n": "2"})
            newer = us.xadd("tailed", {"n": "3"})
            terminal.expect(rf"us tailed {newer} n=3")
            cluster.heal()
            terminal.expect(rf"eu tailed {late} n=2")
            assert terminal.text.count(str(late)) == 1
            drawn = terminal._raw.decode("utf-8", "replace")
            colours = dict(re.findall(r"\x1b\[([\d;]+)m\x1b\[1m(eu|us)\x1b\[0m ", drawn))
            assert sorted(colours.values()) == ["eu", "us"], "each has a colour of its own"
            terminal.interrupt()
            assert terminal.end() == 0
    cluster.settle()
    lines = run(cluster.eu, "tail", "tailed", "--from", "0", "--count", "3", "--json").stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [(row["region"], row["fields"][0]) for row in sorted(rows, key=lambda r: r["id"])] == [
        ("us", ["n", "1"]),
        ("eu", ["n", "2"]),
        ("us", ["n", "3"]),
    ]


def test_tail_goes_on_when_the_server_is_back(cluster: Cluster) -> None:
    with Terminal([*PROGRAM, "tail", "again", "-p", str(cluster.us.port)]) as terminal:
        with client_of(cluster.us) as us:
            wait_until(lambda: us.info("clients")["blocked_clients"] == 1, "tail waits")
            us.client_kill_filter(skipme=True)
            terminal.expect("trying again")
            entry_id = us.xadd("again", {"f": "v"})
        terminal.expect(rf"again {entry_id} f=v")


def test_tail_leaves_nothing_out_when_the_server_lost_data(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its positions begin again, so that the cursor covers entries that are new."""
    with (
        Server() as server,
        client_of(server) as client,
        connect(Address(port=server.port), 0) as own,
    ):
        entries = _Follower(own, [b"lossy"]).entries(9)
        for first in (1, 6, 12):
            ids = [client.xadd("lossy", {"n": str(n)}) for n in range(first, first + 6)]
            assert [next(entries)[1].decode() for _ in ids] == ids
            server.crash()
            server.restart()
        assert "lost entries" not in capsys.readouterr().err
        client.xadd("lossy", {"f": "v"}, id="1-1")
        assert next(entries)[1] == b"1-1"
        assert "lossy: the server has lost entries" in capsys.readouterr().err


def test_tail_counts_all_that_it_prints(alone: Server) -> None:
    with client_of(alone) as client:
        for entry_id in ("1-1", "2-1", "3-1"):
            client.xadd("counted", {"f": "v"}, id=entry_id)
        words = ("tail", "counted", "--from", "-3", "--count", "2")
        lines = run(alone, *words).stdout.splitlines()
        assert [line.split()[2] for line in lines] == ["1-1", "2-1"]
        with connect(Address(port=alone.port), 0) as own:
            entries = _Follower(own, [b"counted"]).entries(1)
            assert next(entries)[1] == b"3-1"
            client.delete("counted")
            client.xadd("counted", {"f": "v"}, id="3-1")
            assert next(entries)[1] == b"3-1", "another entry of the same ID"


def test_keys_that_are_no_text_and_times_that_no_calendar_has(alone: Server) -> None:
    odd = "odd\udcff"  # as the command line passes bytes that are not UTF-8
    with redis.Redis(port=alone.port) as client:
        client.xadd(b"odd\xff", {"f": "v"}, id="18446744073709551615-1")
        client.xgroup_create(b"odd\xff", "g", id="0")
        client.xreadgroup("g", "w", {b"odd\xff": ">"})
    told = run(alone, "tail", odd, "--from", "0", "--count", "1").stdout
    assert told == "--:--:--.--- odd\\xff 18446744073709551615-1 f=v\n"
    assert len(facts(alone, "groups", odd)["groups"]) == 1
    assert facts(alone, "pending", odd, "g", "--dead-letter", odd + "2", "--yes")["moved"] == 1
    assert facts(alone, "load", odd + "3", "--seconds", "0.1")["sent"] > 0


def test_groups_and_pending_show_release_and_bury(cluster: Cluster) -> None:
    with client_of(cluster.eu) as eu:
        ids = [str(eu.xadd("jobs", {"n": str(number)})) for number in range(5)]
        eu.xgroup_create("jobs", "work", id="0")
        eu.xreadgroup("work", "w1", {"jobs": ">"}, count=3)
        (row,) = facts(cluster.eu, "groups", "jobs")["groups"]
        assert (row["lag"], row["pending"], row["consumers"]) == (2, 3, 1)
        assert row["oldest_idle_ms"] >= 0
        lines = run(cluster.eu, "groups").stdout.splitlines()
        assert lines[0].split("\t")[:3] == ["key", "group", "consumers"]
        assert any(line.startswith("jobs\twork\t1\t2\t3\t") for line in lines)

        found = facts(cluster.eu, "pending", "jobs", "work")["pending"]
        assert [(each["id"], each["consumer"], each["deliveries"]) for each in found] == [
            (entry_id, "w1", 1) for entry_id in ids[:3]
        ]
        result = CliRunner().invoke(
            command,
            ["pending", "jobs", "work", "--release", "--count", "1", "-p", str(cluster.eu.port)],
            input="n\n",
        )
        assert "release: this entry?" in result.stderr
        assert "1 of 3; --count shows more" in result.stderr
        result = run(cluster.eu, "pending", "jobs", "work", "--min-deliveries", "2")
        assert result.stderr == "0 of 3\n"
        assert run(cluster.eu, "pending", "jobs", "work", "--consumer", "w1").stderr == ""
        assert facts(cluster.eu, "pending", "jobs", "work")["pending"] == [
            {**each, "idle_ms": pytest.approx(each["idle_ms"], abs=60_000)} for each in found
        ]
        words = ("pending", "jobs", "work", "--count", "1", "--yes")
        assert facts(cluster.eu, *words, "--release")["released"] == 1
        assert facts(cluster.eu, *words, "--dead-letter", "dead")["moved"] == 1
        ((_, fields),) = eu.xrange("dead")
        assert fields["n"] == "0"
        assert (fields["origin-key"], fields["origin-id"]) == ("jobs", ids[0])
        left = facts(cluster.eu, "pending", "jobs", "work")["pending"]
        assert [each["id"] for each in left] == ids[1:3]


def deliver(client: redis.Redis, key: str, *ids: str, **fields: str) -> None:
    """A new stream whose entries are pending for the consumer w of group g."""
    client.delete(key)
    for entry_id in ids:
        client.xadd(key, {"f": "v", **fields}, id=entry_id)  # type: ignore[arg-type]
    client.xgroup_create(key, "g", id="0")
    client.xreadgroup("g", "w", {key: ">"})


def test_what_cannot_be_moved_stays_pending(alone: Server) -> None:
    with client_of(alone) as client:
        deliver(client, "stuck", "1-1")
        client.set("no-stream", "v")
        words = ["pending", "stuck", "g", "--dead-letter", "no-stream", "--yes"]
        result = CliRunner().invoke(command, [*words, "-p", str(alone.port)])
        assert result.exit_code == 1
        assert "WRONGTYPE" in result.stderr
        assert client.xpending("stuck", "g")["pending"] == 1


def test_another_entry_of_the_same_id_is_moved_too(alone: Server) -> None:
    with client_of(alone) as client:
        for n in ("first", "second", "second"):
            deliver(client, "remade", "1-1", n=n)
            words = ("pending", "remade", "g", "--dead-letter", "remade-dead", "--yes")
            assert facts(alone, *words)["moved"] == 1
        assert [fields["n"] for _, fields in client.xrange("remade-dead")] == ["first", "second"]


@pytest.mark.parametrize("act", [["--release"], ["--dead-letter", "changed-dead"]])
def test_what_changed_while_the_question_waited_is_left_alone(
    alone: Server, act: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_of(alone) as client:
        deliver(client, "changed", "1-1", "2-1", "3-1")

        def answer(_question: str, **_: object) -> bool:
            client.xclaim("changed", "g", "other", 0, ["1-1"])
            client.xack("changed", "g", "2-1")
            return True

        monkeypatch.setattr("click.confirm", answer)
        lines = run(alone, "pending", "changed", "g", *act).stdout.splitlines()
        done = "released" if act == ["--release"] else "moved"
        assert lines[-1] == f"1 {done}, 2 left alone: they changed meanwhile"
        ids = [fields["origin-id"] for _, fields in client.xrange("changed-dead")]
        assert ids == ([] if done == "released" else ["3-1"])
        first = client.xpending_range("changed", "g", "1-1", "1-1", 1)
        assert [row["consumer"] for row in first] == ["other"]


def test_load_measures_and_finds_no_duplicates(cluster: Cluster) -> None:
    told = facts(
        cluster.eu,
        *("load", "loaded", "--seconds", "0.5", "--rate", "200", "--producers", "2"),
        *("--retries", "100", "--consumers", "1"),
    )
    with client_of(cluster.eu) as eu:
        assert told["sent"] == eu.xlen("loaded") > 0
        assert told["retried"] > 0
        assert told["duplicates"] == 0
        assert 0 < told["p50_ms"] <= told["p99_ms"] <= told["max_ms"]
        assert eu.xinfo_groups("loaded")[0]["name"] == "load"


def test_top_on_a_terminal_and_off_it(cluster: Cluster) -> None:
    with client_of(cluster.eu) as eu:
        eu.xadd("topped", {"f": "v"})
        cluster.settle()
        words = [*PROGRAM, "top", "-p", str(cluster.eu.port), "--interval", "0.2"]
        with Terminal(words) as terminal:
            terminal.expect(r"eu \(port \d+\): [\d,]+ commands/s")
            terminal.expect(r"us +in_sync")
            terminal.expect(r"topped +1 ")
            terminal.press("q")
            assert terminal.end() == 0
        lines = run(cluster.eu, "top", "--count", "1").stdout.splitlines()
        assert lines[1].split("\t") == [
            "region",
            "state",
            "missing there",
            "missing here",
            "round trip",
        ]
        assert lines[2].startswith("us\tin_sync\t0\t0\t"), lines
        assert lines[3].split("\t")[:3] == ["stream", "entries", "added/s"]
        assert "topped\t1\t0.0\t0\t0\t0\t-" in lines[4:], lines
        look = facts(cluster.eu, "top", "--count", "1", "--limit", "200")
        assert {row["name"]: row["state"] for row in look["peers"]} == {"us": "in_sync"}
        assert "topped" in [row["key"] for row in look["streams"]]


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_top_leaves_the_terminal_as_it_was(alone: Server, number: int) -> None:
    with Terminal([*PROGRAM, "top", "-p", str(alone.port)]) as terminal:
        terminal.expect(r"server \(port \d+\)")
        terminal.process.send_signal(number)
        assert terminal.end() == 0
        shown = terminal._raw
    for begin, end in ((b"\x1b[?1049h", b"\x1b[?1049l"), (b"\x1b[?25l", b"\x1b[?25h")):
        assert 0 <= shown.rfind(begin) < shown.rfind(end), "screen and cursor are back"


def test_load_reports_what_it_measured_when_it_is_interrupted(alone: Server) -> None:
    words = [*PROGRAM, "load", "broken-off", "--rate", "50", "--json", "-p", str(alone.port)]
    load = subprocess.Popen([*words, "--seconds", "600"], stdout=subprocess.PIPE, text=True)
    try:
        with client_of(alone) as client:
            wait_until(lambda: client.xlen("broken-off") > 2, "it sends")
            load.send_signal(signal.SIGINT)
            told = json.loads(load.communicate(timeout=60)[0])
            assert told["sent"] == client.xlen("broken-off")
    finally:
        load.kill()
        load.wait()
    assert load.returncode == 0


@pytest.mark.parametrize("name", ["tail", "top", "groups", "load"])
def test_nobody_there_is_one_line(name: str, unused_tcp_port: int) -> None:
    words = [name, *(["k"] if name == "tail" else []), "-p", str(unused_tcp_port)]
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"anabranch: 127.0.0.1:{unused_tcp_port}: ")
    assert len(result.stderr.splitlines()) == 1
    assert "cannot connect: Connection refused: no server listens there" in result.stderr


def test_a_reader_that_has_gone_is_no_error(cluster: Cluster) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [*PROGRAM, "top", "--count", "1", "-p", str(cluster.eu.port)],
            check=False,
            stdout=writing,
            stderr=subprocess.PIPE,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize("name", ["tail", "top", "groups", "pending", "load"])
def test_who_may_not_is_told_why_on_one_line(name: str) -> None:
    words = {
        "tail": ["tail", "k", "--count", "1"],
        "top": ["top", "--count", "1"],
        "pending": ["pending", "k", "g"],
        "load": ["load", "--seconds", "0.1"],
    }.get(name, [name])
    with Server() as server, client_of(server) as client:
        client.acl_setuser("ann", enabled=True, passwords=["+pw"], commands=["+ping"])
        client.config_set("requirepass", "secret")
        for options, why in (
            ([], "Authentication required: give -a PASSWORD"),
            (["-a", "wrong"], "invalid username-password pair"),
            (["--user", "ann", "-a", "pw"], "ann has no permissions to run the"),
        ):
            result = CliRunner().invoke(command, [*words, "-p", str(server.port), *options])
            assert result.exit_code == 1, options
            assert why in result.stderr
            assert len(result.stderr.splitlines()) == 1


def test_top_fits_into_a_narrow_terminal(cluster: Cluster) -> None:
    with client_of(cluster.eu) as eu:
        eu.xadd("a-stream-with-a-long-name", {"f": "v"})
        words = [*PROGRAM, "top", "-p", str(cluster.eu.port), "--count", "1"]
        with Terminal(words, COLUMNS="40") as terminal:
            terminal.expect(r"\na-stream-with-a")
            shown = terminal.text
            assert terminal.end() == 0
    (headings,) = re.findall(r"stream +[^\n]+", shown)
    assert "added/s" in headings
    assert "oldest" not in headings
    assert "in_sync" in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown, "nothing is cut short"


def test_names_that_the_terminal_cannot_show_are_escaped(alone: Server) -> None:
    alone.execute("XGROUP", "CREATE", "schl\u00fcssel", "gr\u00fcn", "0", "MKSTREAM")
    done = subprocess.run(
        [*PROGRAM, "groups", "schl\u00fcssel", "-p", str(alone.port)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.splitlines()[1].startswith(rb"schl\xfcssel" + b"\t" + rb"gr\xfcn")


def test_a_dumb_terminal_gets_plain_lines(alone: Server) -> None:
    words = [*PROGRAM, "top", "--count", "1", "-p", str(alone.port)]
    with Terminal(words, TERM="dumb") as terminal:
        terminal.expect("commands/s")


def test_policies_and_what_they_have_done_are_shown() -> None:
    with Server() as server, client_of(server) as client:
        done, scheduled = run(server, "policies").stdout.splitlines()[-2:]
        assert done.startswith("since the start: 0 rel")
        assert scheduled.startswith("scheduled: 0 entries")
        assert json.loads(run(server, "top", "--count", "1", "--json").stdout)["policies"] == ""
        client.execute_command("AB.POLICY", "SET", "s", "dead-letter", "dead", "lease", "time:5m")
        client.execute_command(
            "AB.POLICY", "SET", "PATTERN", "t*", "GROUP", "g", "max-deliveries", "3"
        )
        client.xadd("s", {"f": "v"}, id="1-0")
        client.xgroup_create("s", "g", "0")
        client.xreadgroup("g", "c", {"s": ">"})
        client.execute_command("XNACK", "s", "g", "FATAL", "IDS", 1, "1-0")
        lines = run(server, "policies").stdout.splitlines()
        assert [line.split() for line in lines[1:3]] == [
            ["s", "key", "all", "dead-letter", "dead,", "lease", "time:5m"],
            ["t*", "pattern", "g", "max-deliveries", "3"],
        ]
        found = facts(server, "policies", "t*")
        assert [rule["name"] for rule in found["policies"]] == ["t*"]
        assert found["done"]["dead_lettered"] == 1
        assert (
            "policies: 0 released, 0 redelivered, 1 dead-lettered"
            in run(server, "top", "--count", "1").stdout
        )
