"""Stopped or killed, and started again: everything is as it was."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.node import persistence
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, server_in
from tests.support.wings import WINGS
from tests.support.wire import RespClient

SECONDS = 60.0

HISTORY = """
XADD s 1-1 f one
XADD s 2-1 f two g more
XADD s 3-1 f three
XADD s 4-1 f four
XADD s 5-1 f five
XADD s 6-1 f six
XDEL s 3-1
XTRIM s MINID 1-2
XGROUP CREATE s known 0
XGROUP CREATE s unknown 2-1
XGROUP CREATE s told 4-1 ENTRIESREAD 4
XREADGROUP GROUP known ann COUNT 3 STREAMS s >
XREADGROUP GROUP known bob COUNT 1 STREAMS s >
XCLAIM s known bob 0 2-1 TIME 1700000000000 RETRYCOUNT 7
XACK s known 4-1
XNACK s known FAIL IDS 1 6-1
XNACK s known FAIL IDS 1 5-1
XGROUP CREATECONSUMER s unknown idle
XCFGSET s IDMP-DURATION 600 IDMP-MAXSIZE 7
XADD s IDMP producer 1 * f once
XADD s IDMP producer 2 * f once
XADD s IDMP producer 1 * f once
XADD s IDMPAUTO other * f auto
PEXPIREAT s 4102444800000
XADD emptied 9-9 f v
XDEL emptied 9-9
XADD t 1-1 f v
XSETID t 5-5 ENTRIESADDED 50 MAXDELETEDID 4-4
SET k v
SET counter 41
INCR counter
RPUSH l 1 2 3
LPOP l
SADD m a b
SELECT 3
XADD s 7-7 in three
EXPIRE s 100000
SELECT 15
SET k fifteen
SELECT 0
ACL SETUSER ann on >secret ~s* +xadd +xlen
ACL SETUSER gone on
ACL DELUSER gone
""".strip().splitlines()
"""One of everything that has to survive."""

QUESTIONS = """
XRANGE s - +
XINFO STREAM s FULL COUNT 0
XINFO GROUPS s
XPENDING s known
XINFO STREAM t
XINFO STREAM emptied
PEXPIRETIME s
GET counter
LRANGE l 0 -1
SMEMBERS m
ACL LIST
DBSIZE
DEBUG DIGEST EXACT
""".strip().splitlines()


def live(client: RespClient) -> None:
    """Do one of everything."""
    for line in HISTORY:
        kind, value = client.call(*line.split())
        assert kind != "-", (line, value)


def seen(server: AnabranchServer) -> dict[str, Any]:
    """What clients see, times included."""
    with server.client() as client:
        answers = {question: client.call(*question.split()) for question in QUESTIONS}
        assert not [question for question, (kind, _) in answers.items() if kind == "-"]
        for database in (3, 15):
            client.call("SELECT", database)
            for question in ("DBSIZE", "PEXPIRETIME s", "XRANGE s - +", "GET k"):
                answers[f"{database} {question}"] = client.call(*question.split())
    return answers


def noise(size: int) -> bytes:
    """A value that no compression makes shorter."""
    return random.Random(size).randbytes(size)


def info(client: RespClient) -> dict[bytes, bytes]:
    """INFO persistence as a dictionary."""
    lines = client.call("INFO", "persistence")[1].splitlines()
    return dict(line.split(b":", 1) for line in lines if b":" in line)


def snapshot_is_over(client: RespClient) -> None:
    """Wait until none is being written."""
    wait_until(lambda: info(client)[b"rdb_bgsave_in_progress"] == b"0", "it is saved")
    wait_until(lambda: info(client)[b"aof_rewrite_in_progress"] == b"0", "it is rewritten")


def files(server: AnabranchServer) -> list[str]:
    """Log and snapshots, in order."""
    return sorted(
        path.name
        for path in (server.directory / "data" / "appendonlydir").iterdir()
        if path.name not in ("lock", "manifest")
    )


# -- everything -----------------------------------------------------------------------------------


def test_everything_survives_a_kill_a_stop_and_a_snapshot(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        live(client)
    before = seen(server)
    server.kill()
    server.start()
    assert seen(server) == before
    server.stop()
    server.start()
    assert seen(server) == before
    with server.client() as client:
        for line in ("DEBUG RELOAD", "DEBUG LOADAOF"):
            assert client.call(*line.split()) == ("+", b"OK")
            assert seen(server) == before
        client.call("BGREWRITEAOF")
        snapshot_is_over(client)
    server.kill()
    server.start()
    assert seen(server) == before
    with server.client() as client:
        producing = ["XADD", "s", "IDMP", "producer", "1", "*", "f", "again"]
        assert client.call(*producing)[1] in str(before["XRANGE s - +"]).encode()
        assert client.call("XLEN", "s") == (":", len(before["XRANGE s - +"][1]))
        reading = "XREADGROUP GROUP known ann COUNT 2 STREAMS s >".split()
        assert client.call(*reading)[0] == "*"
        assert client.call("AUTH", "ann", "secret") == ("+", b"OK")
        assert client.call("XLEN", "s")[0] == ":"
        assert client.call("GET", "k")[0] == "-"
    server.stop()


def test_time_goes_on_while_the_server_is_away(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.call("SET", "short", "v", "PX", "100")
        client.call("SET", "long", "v", "PX", "100000")
        deadline = client.call("PEXPIRETIME", "long")
        expiry = client.call("PEXPIRETIME", "short")[1] / 1000
        assert client.call("GET", "short") == ("$", b"v")
    server.kill()
    wait_until(lambda: time.time() > expiry, "it has expired")
    server.start()
    with server.client() as client:
        assert client.call("GET", "short") == ("$", None)
        assert client.call("PEXPIRETIME", "long") == deadline
    server.stop()


@pytest.mark.parametrize("how", ["SAVE", "SHUTDOWN SAVE", "save points"])
def test_a_snapshot_alone_brings_everything_back(tmp_path: Path, how: str) -> None:
    points = ("--save", "1 1") if how == "save points" else ()
    server = server_in(tmp_path, "--appendonly", "no", *points).start()
    with server.client() as client:
        live(client)
        before = seen(server)
        if how == "save points":
            wait_until(lambda: info(client)[b"rdb_changes_since_last_save"] == b"0", "all saved")
            snapshot_is_over(client)
        elif how == "SAVE":
            assert client.call("SAVE") == ("+", b"OK")
        if how == "SHUTDOWN SAVE":
            client.send(*how.split())
            assert server.process is not None
            assert server.process.wait(SECONDS) == 0
    server.kill()
    assert [name.partition("-")[0] for name in files(server)] == ["snapshot", "users"]
    server.start()
    assert seen(server) == before
    server.stop()


def test_what_was_never_saved_is_gone_without_a_log(tmp_path: Path) -> None:
    server = server_in(tmp_path, "--appendonly", "no").start()
    with server.client() as client:
        client.call("SET", "saved", "1")
        client.call("SAVE")
        client.call("SET", "lost", "1")
        client.send("SHUTDOWN", "NOSAVE")
        assert server.process is not None
        assert server.process.wait(SECONDS) == 0
    server.start()
    with server.client() as client:
        assert client.call("KEYS", "*") == ("*", [("$", b"saved")])
    server.stop()


def test_nothing_is_written_when_nothing_is_to_be_kept(tmp_path: Path) -> None:
    with server_in(tmp_path, "--appendonly", "no") as server, server.client() as client:
        client.call("SET", "k", "v")
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize("how", ["SHUTDOWN", "SIGTERM"])
def test_save_points_save_at_a_stop(tmp_path: Path, how: str) -> None:
    server = server_in(tmp_path, "--appendonly", "no", "--save", "3600 1000").start()
    with server.client() as client:
        client.call("SET", "k", "v")
        process = server.process
        assert process is not None
        if how == "SHUTDOWN":
            client.send("SHUTDOWN")
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    with server_in(tmp_path, "--appendonly", "no") as again, again.client() as client:
        assert client.call("GET", "k") == ("$", b"v")


def test_a_signal_does_not_stop_a_server_that_must_save_and_cannot(tmp_path: Path) -> None:
    server = server_in(tmp_path, "--appendonly", "no", "--save", "3600 1000").start()
    process = server.process
    assert process is not None
    data, away = tmp_path / "data", tmp_path / "away"
    with server.client() as client:
        client.call("SET", "k", "v")
        data.rename(away)
        data.write_bytes(b"")  # a file where the directory must be
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "server.stop_refused" in server.log_text(), "the stop is refused")
        assert client.call("GET", "k") == ("$", b"v")
        data.unlink()
        away.rename(data)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    with server_in(tmp_path, "--appendonly", "no") as again, again.client() as client:
        assert client.call("GET", "k") == ("$", b"v")


# -- users ----------------------------------------------------------------------------------------


def test_configured_users_count_more_than_kept_ones(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.call("ACL", "SETUSER", "ann", "on", ">kept", "+@all", "~*")
        client.call("ACL", "SETUSER", "bob", "on", ">kept", "+@all", "~*")
    server.kill()
    server.extra = [*server.extra, "--user", "bob on >configured +@all ~*"]
    server.start()
    with server.client() as client:
        assert client.call("AUTH", "ann", "kept") == ("+", b"OK")
        assert client.call("AUTH", "bob", "configured") == ("+", b"OK")
    server.stop()


# -- the log on and off ---------------------------------------------------------------------------


def test_a_log_turned_on_keeps_what_was_there_and_what_comes(tmp_path: Path) -> None:
    server = server_in(tmp_path, "--appendonly", "no").start()
    with server.client() as client:
        live(client)
        assert client.call("CONFIG", "SET", "appendonly", "yes") == ("+", b"OK")
        assert info(client)[b"aof_enabled"] == b"1"
        client.call("XADD", "t", "6-6", "after", "it")
    before = seen(server)
    server.kill()
    server.start()
    assert seen(server) == before
    server.stop()


def test_a_log_turned_off_keeps_what_it_had(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.call("SET", "logged", "1")
        assert client.call("CONFIG", "SET", "appendonly", "no") == ("+", b"OK")
        client.call("SET", "lost", "1")
        assert info(client)[b"aof_enabled"] == b"0"
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("KEYS", "*") == ("*", [("$", b"logged")])
        assert client.call("CONFIG", "SET", "appendonly", "no") == ("+", b"OK")
        client.call("SET", "kept", "1")
        assert client.call("CONFIG", "SET", "appendonly", "yes") == ("+", b"OK")
        client.call("SET", "also", "1")
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("DBSIZE") == (":", 3)
    server.stop()


# -- snapshots and what they say ------------------------------------------------------------------


def test_a_rewrite_drops_what_it_makes_superfluous(tmp_path: Path) -> None:
    server = server_in(tmp_path, "--oplog-segment-bytes", "4096").start()
    with server.client() as client:
        for number in range(50):
            client.call("SET", "k", b"%d " % number + noise(1000))
        size = int(info(client)[b"aof_current_size"])
        assert int(info(client)[b"oplog_segments"]) == len(files(server)) > 5
        assert client.call("BGREWRITEAOF")[1].endswith(b"started")
        snapshot_is_over(client)
        facts = info(client)
        assert len(files(server)) == 2
        assert int(facts[b"oplog_segments"]) == 1
        assert int(facts[b"aof_current_size"]) < size / 10
        assert facts[b"aof_last_bgrewrite_status"] == b"ok"
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("GET", "k")[1].startswith(b"49 ")
    server.stop()


def test_a_log_that_has_grown_is_rewritten_by_itself(tmp_path: Path) -> None:
    with (
        server_in(
            tmp_path, "--auto-aof-rewrite-min-size", "20kb", "--oplog-segment-bytes", "4096"
        ) as server,
        server.client() as client,
    ):
        for number in range(60):
            client.call("SET", "k", b"%d " % number + noise(1000))
        wait_until(lambda: "snapshot.finished" in server.log_text(), "a snapshot")
        wait_until(lambda: int(info(client)[b"oplog_segments"]) < 15, "segments go")


def test_writing_during_a_snapshot_is_in_the_log_behind_it(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.pipeline(
            [("XADD", f"s{n % 50}", f"{n + 1}-0", "f", "v" * 50) for n in range(60_000)]
        )
        # In one piece: the server reads all of it before it goes on with the snapshot.
        writes = [("XADD", f"s{n % 50}", f"{70_000 + n}-0", "f", "during") for n in range(100)]
        replies = client.pipeline([("BGSAVE",), *writes, ("INFO", "persistence")])
        assert b"rdb_bgsave_in_progress:1" in replies[-1][1]
        during = 100
        while info(client)[b"rdb_bgsave_in_progress"] == b"1":
            client.call("XADD", f"s{during % 50}", f"{70_000 + during}-0", "f", "during")
            during += 1
        digest = client.call("DEBUG", "DIGEST", "EXACT")
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("DEBUG", "DIGEST", "EXACT") == digest
    server.stop()


def test_figures_about_saving_tell_the_truth(tmp_path: Path) -> None:
    with server_in(tmp_path, "--appendfsync", "no") as server, server.client() as client:
        began = client.call("LASTSAVE")[1]
        assert info(client)[b"rdb_changes_since_last_save"] == b"0"
        for number in range(3):
            client.call("XADD", "s", f"{number + 1}-1", "f", "v")
        facts = info(client)
        assert facts[b"rdb_changes_since_last_save"] == b"3"
        assert facts[b"rdb_saves"] == b"0"
        position = int(facts[b"oplog_position"])
        assert position > 100
        assert client.call("SAVE") == ("+", b"OK")
        facts = info(client)
        assert facts[b"rdb_changes_since_last_save"] == b"0"
        assert facts[b"rdb_saves"] == b"1"
        assert facts[b"rdb_last_bgsave_status"] == b"ok"
        assert client.call("LASTSAVE")[1] >= began
        assert int(facts[b"rdb_last_save_time"]) == client.call("LASTSAVE")[1]
        client.call("XADD", "s", "9-1", "f", "v")
        assert info(client)[b"rdb_changes_since_last_save"] == b"1"
        saved = client.call("LASTSAVE")
        server.kill()
        server.start()
        with server.client() as again:
            assert again.call("LASTSAVE") == saved
            facts = info(again)
            assert facts[b"recovery_effects"] == b"1"
            assert int(facts[b"oplog_position"]) > position


def test_waitaof_waits_until_it_is_on_the_disk(tmp_path: Path) -> None:
    with server_in(tmp_path) as server, server.client() as client:
        client.call("SET", "k", "v")
        assert client.call("WAITAOF", 1, 0, 0) == ("*", [(":", 1), (":", 0)])
        facts = info(client)
        assert facts[b"oplog_unsynced_bytes"] == b"0"
        assert facts[b"oplog_synced_position"] == facts[b"oplog_position"]
        client.call("CONFIG", "SET", "appendonly", "no")
        assert client.call("WAITAOF", 1, 0, 0)[0] == "-"


# -- reloading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["DEBUG RELOAD", "DEBUG LOADAOF"])
def test_waiting_and_watching_clients_outlive_a_reload(tmp_path: Path, line: str) -> None:
    with (
        server_in(tmp_path) as server,
        server.client() as client,
        server.client() as blocked,
        server.client() as watching,
    ):
        client.call("XADD", "s", "1-1", "f", "v")
        client.call("XGROUP", "CREATE", "s", "g", "$")
        blocked.send(*"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split())
        wait_until(lambda: b"blocked_clients:1" in client.call("INFO", "clients")[1], "it blocks")
        watching.call("WATCH", "s")
        assert client.call(*line.split()) == ("+", b"OK")
        client.call("XADD", "s", "2-1", "f", "v")
        assert b"2-1" in str(blocked.read_reply()).encode()
        watching.call("MULTI")
        watching.call("PING")
        assert watching.call("EXEC") == ("*", None)


# -- starting -------------------------------------------------------------------------------------


async def test_a_long_recovery_reports_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from anabranch.config.settings import Settings
    from anabranch.server.app import Server, Surroundings
    from anabranch.simulator.disk import MemoryPlace, MemoryStorage
    from tests.support.logged_server import LoggedServer

    life = LoggedServer(segment_bytes=500)
    for number in range(50):
        life.run(f"SET k {number}")
    monkeypatch.setattr(persistence, "PROGRESS_S", 0.0)
    caplog.set_level("INFO", "anabranch")
    assert isinstance(life.storage, MemoryStorage)
    server = Server(
        Settings(port=0, dir=str(tmp_path)),
        WINGS,
        surroundings=Surroundings(place=MemoryPlace(life.storage)),
    )
    server.persistence.start()
    server.persistence.close()
    reports = [
        record.fields["percent"]  # type: ignore[attr-defined]
        for record in caplog.records
        if record.getMessage() == "recovery.progress"
    ]
    assert len(reports) > 10
    assert reports == sorted(reports)
    assert reports[-1] == 100
    (done,) = [r for r in caplog.records if r.getMessage() == "recovery.done"]
    assert done.fields["effects"] == 50  # type: ignore[attr-defined]
