"""A disk that is full, gone, forbidden or taken, as a running server and a starting one meet it."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, ServerFailed, server_in
from tests.support.wire import ConnectionLost, RespClient

NOBODY = 65534
MISCONF = b"MISCONF Errors writing to the AOF file: "


def kept(server: AnabranchServer) -> Path:
    """The directory of log and snapshots."""
    return server.directory / "data" / "appendonlydir"


def noise(size: int) -> bytes:
    """A value that no compression makes shorter."""
    return random.Random(size).randbytes(size)


def is_answered(server: AnabranchServer, writer: RespClient) -> bool:
    """Whether a reply to a write comes; it may be late, but not if the write has failed."""
    while True:
        has_failed = "oplog.write_failed" in server.log_text()
        try:
            assert writer.read_reply(0.5)[0] != "-"
        except TimeoutError:
            if has_failed:
                return False
        else:
            return True


def fill(server: AnabranchServer, value: bytes) -> tuple[int, RespClient]:
    """Write until a reply does not come: how many came, and the client that still waits."""
    writer = server.client()
    with server.client() as other:
        for number in range(100_000):
            writer.send("SET", f"k{number}", value)
            if not is_answered(server, writer):
                kind, text = other.call("SET", "other", "v")
                assert kind == "-", "a reply was merely late"
                assert text.startswith(MISCONF)
                return number, writer
    raise AssertionError("the disk takes everything")


def recovers(server: AnabranchServer, count: int, value: bytes) -> None:
    """After a kill and a start, all of these keys are there."""
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("GET", f"k{count - 1}") == ("$", value)
        assert client.call("GET", f"k{count // 2}") == ("$", value)
        assert client.call("SET", "again", "v") == ("+", b"OK")


def goes_on_and_resumes(
    server: AnabranchServer, make_room: Callable[[], object], value: bytes
) -> None:
    """Fill the disk, look around, make room, and see it resume."""
    count, waiting = fill(server, value)
    assert count > 5
    with waiting, server.client() as reader:
        assert reader.call("GET", f"k{count - 1}") == ("$", value)
        assert reader.call("PING") == ("+", b"PONG")
        assert b"aof_last_write_status:err" in reader.call("INFO", "persistence")[1]
        assert reader.call("BGSAVE")[0] == "-"
        assert "oplog.write_failed" in server.log_text()
        make_room()
        assert waiting.read_reply() == ("+", b"OK")
        assert reader.call("SET", "other", "v") == ("+", b"OK")
        assert b"aof_last_write_status:ok" in reader.call("INFO", "persistence")[1]
        assert "oplog.writes_again" in server.log_text()
    recovers(server, count + 1, value)


# -- full -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_a_limit_on_file_sizes_that_is_raised_again(policy: str) -> None:
    """EFBIG, in the middle of a turn."""
    with AnabranchServer(extra=("--appendfsync", policy)) as server:
        assert server.process is not None
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, hard))
        goes_on_and_resumes(
            server,
            lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard)),
            noise(700),
        )


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    """A file system of its own."""
    path.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "anabranch-test", str(path)],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"NO FULL DISK IS TESTED: cannot mount a tmpfs ({done.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can do this")


@needs_root
def test_a_full_disk_that_is_freed_again(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", "2m"),
        AnabranchServer(tmp_path, extra=("--oplog-segment-bytes", "64kb")) as server,
    ):
        ballast = tmp_path / "data" / "ballast"
        ballast.write_bytes(bytes(1_500_000))
        goes_on_and_resumes(server, ballast.unlink, noise(5000))


@needs_root
def test_a_snapshot_for_which_there_is_no_room_is_dropped(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", "2m"),
        AnabranchServer(tmp_path) as server,
        server.client() as client,
    ):
        for number in range(10):
            assert client.call("SET", f"k{number}", noise(100_000)) == ("+", b"OK")
        ballast = tmp_path / "data" / "ballast"
        ballast.write_bytes(bytes(400_000))
        assert client.call("BGSAVE")[0] == "+"
        wait_until(
            lambda: b"rdb_bgsave_in_progress:0" in client.call("INFO", "persistence")[1], "it ends"
        )
        assert b"rdb_last_bgsave_status:err" in client.call("INFO", "persistence")[1]
        assert "snapshot.failed" in server.log_text()
        assert not list(kept(server).glob("snapshot-*"))
        assert client.call("SET", "k10", "v") == ("+", b"OK")
        assert client.call("SAVE") == ("-", b"ERR")
        ballast.unlink()
        assert client.call("SAVE") == ("+", b"OK")
        assert len(list(kept(server).glob("snapshot-*"))) == 1
        recovers(server, 10, noise(100_000))


# -- what readers are told meanwhile --------------------------------------------------------------


def keeps_its_word(server: AnabranchServer, make_room: Callable[[], object]) -> None:
    """Read while the disk takes no more, kill, start: all that was told is there."""
    value = noise(700)
    writer, blocked = server.client(), server.client()
    with writer, blocked, server.client() as reader:
        assert reader.call("SET", "safe", "v") == ("+", b"OK")
        for count in range(100_000):
            blocked.send("XREAD", "BLOCK", 0, "STREAMS", "s", f"{count}-0")
            writer.send("XADD", "s", f"{count + 1}-0", "f", value)
            if not is_answered(server, writer):
                break
            assert blocked.read_reply()[0] == "*"
        assert count > 5
        told = reader.call("XRANGE", "s", "-", "+")
        assert told[0] == "-", told
        assert told[1].startswith(MISCONF)
        assert told[1].endswith(b"this cannot be read until the disk accepts writes")
        for words in (("XLEN", "s"), ("EXISTS", "s"), ("DBSIZE",), ("SCAN", "0")):
            assert reader.call(*words)[1].startswith(MISCONF), words
        assert reader.call("GET", "safe") == ("$", b"v")
        assert b"oplog_unsafe_keys:1\r" in reader.call("INFO", "persistence")[1]
        server.kill()
        with pytest.raises(ConnectionLost):
            blocked.read_reply()
    make_room()
    server.start()
    with server.client() as client:
        assert client.call("XLEN", "s") == (":", count)
        assert client.call("XADD", "s", f"{count + 1}-0", "f", "again")[0] == "$"


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_nobody_is_told_of_what_a_limit_on_file_sizes_kept_out(policy: str) -> None:
    with AnabranchServer(extra=("--appendfsync", policy)) as server:
        assert server.process is not None
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (20_000, hard))
        keeps_its_word(server, lambda: None)  # the limit is the process's


@needs_root
def test_nobody_is_told_of_what_a_full_disk_did_not_take(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "2m"), AnabranchServer(tmp_path) as server:
        ballast = tmp_path / "data" / "ballast"
        ballast.write_bytes(bytes(1_900_000))
        keeps_its_word(server, ballast.unlink)


def test_an_operator_can_save_what_is_only_in_memory(tmp_path: Path) -> None:
    with AnabranchServer() as server, server.client() as writer, server.client() as operator:
        assert server.process is not None
        _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (5_000, hard))
        writer.send("XADD", "s", "1-0", "f", noise(6000))
        wait_until(lambda: "oplog.write_failed" in server.log_text(), "a failed write")
        command = [sys.executable, "-m", "anabranch", "export", str(tmp_path / "saved.rdb")]
        command += ["-p", str(server.port)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert "this cannot be read until the disk accepts writes" in done.stderr
        assert operator.call("CONFIG", "SET", "serve-unsafe-reads", "yes") == ("+", b"OK")
        done = subprocess.run([*command, "--replace"], check=True, capture_output=True, text=True)
        assert "1 key exported" in done.stdout


# -- gone, forbidden, taken -----------------------------------------------------------------------


LOST = b"deleted or replaced below the server"


def refuses_for_loss(server: AnabranchServer) -> None:
    """It notices by itself, refuses writes, and serves readers."""
    wait_until(lambda: "oplog.directory_lost" in server.log_text(), "the loss is noticed")
    with server.client() as client:
        assert client.call("GET", "k") == ("$", b"v")
        kind, text = client.call("SET", "k", "w")
        assert (kind, text[: len(MISCONF)]) == ("-", MISCONF)
        assert LOST in text
        assert b"aof_last_write_status:err" in client.call("INFO", "persistence")[1]
        assert client.call("BGSAVE")[0] == "-"


def test_a_directory_that_is_deleted_below_a_running_server() -> None:
    with AnabranchServer(extra=("--oplog-segment-bytes", "4096")) as server:
        with server.client() as client:
            assert client.call("SET", "k", "v") == ("+", b"OK")
        shutil.rmtree(kept(server))
        refuses_for_loss(server)
        kept(server).mkdir()  # an empty one is not what it was
        refuses_for_loss(server)
        assert not list(kept(server).iterdir())


@pytest.mark.parametrize("name", ["log-00000000000000000000.ablog", "manifest", "lock"])
def test_a_file_in_use_that_is_deleted_below_a_running_server(tmp_path: Path, name: str) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        assert client.call("SET", "k", "v") == ("+", b"OK")
    (kept(server) / name).unlink()
    refuses_for_loss(server)
    server.kill()


def test_a_directory_that_comes_back_is_gone_on_with(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        assert client.call("SET", "k", "v") == ("+", b"OK")
        kept(server).rename(tmp_path / "aside")
        refuses_for_loss(server)
        (tmp_path / "aside").rename(kept(server))
        wait_until(lambda: "oplog.writes_again" in server.log_text(), "it is found again")
        assert client.call("SET", "l", "v") == ("+", b"OK")
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("DBSIZE") == (":", 2)


def test_a_write_that_is_to_be_synced_into_a_deleted_directory_is_not_answered() -> None:
    with (
        AnabranchServer(extra=("--appendfsync", "always", "--hz", "1")) as server,
        server.client() as client,
    ):
        assert client.call("SET", "k", "v") == ("+", b"OK")
        shutil.rmtree(kept(server))
        client.send("SET", "l", "v")  # mostly before it is noticed otherwise
        try:
            kind, text = client.read_reply(2.0)
        except TimeoutError:
            with server.client() as other:
                assert LOST in other.call("SET", "m", "v")[1]
                assert other.call("GET", "l")[0] == "-", "nobody sees it either"
        else:
            assert kind == "-", "nothing is promised that is nowhere"
            assert LOST in text


def refuses_to_start(server: AnabranchServer) -> str:
    """What it says, in one line."""
    with pytest.raises(ServerFailed, match="ended with status 1"):
        server.start()
    (line,) = server.log_text().splitlines()
    assert "Traceback" not in line
    return line


def test_two_servers_on_one_directory(tmp_path: Path) -> None:
    with server_in(tmp_path) as first, first.client() as client:
        assert client.call("SET", "k", "v") == ("+", b"OK")
        assert first.process is not None
        second = server_in(tmp_path)
        second.log_path = tmp_path / "second.log"
        line = refuses_to_start(second)
        assert f"another server (pid {first.process.pid}) is using {kept(first)}" in line
        assert "--dir" in line
        assert client.call("SET", "l", "v") == ("+", b"OK")
        first.kill()
        with server_in(tmp_path) as third, third.client() as again:
            assert again.call("DBSIZE") == (":", 2)


def test_a_directory_of_a_killed_server_is_free_again(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    server.kill()
    with server:
        pass


class AsNobody(AnabranchServer):
    """A server of a user who may do little."""

    def command(self) -> list[str]:
        """The same, without root's rights."""
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return [*(drop if os.geteuid() == 0 else []), *super().command()]


@pytest.fixture
def nobodys() -> Iterator[AsNobody]:
    """Such a server, in a directory that everybody may write."""
    with tempfile.TemporaryDirectory(prefix="anabranch-nobody-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        server = AsNobody(directory)
        if os.geteuid() == 0:
            command = server.command()
            probe = [*command[: command.index("-m")], "-c", "import anabranch"]
            environment = dict(server.environment())
            if subprocess.run(probe, check=False, env=environment, cwd="/").returncode:
                pytest.skip("NOT TESTED: another user cannot run this interpreter")
        (directory / "data").mkdir()
        (directory / "data").chmod(0o777)
        yield server
        server.kill()


def test_a_place_that_cannot_be_written_is_refused_with_the_way_out(nobodys: AsNobody) -> None:
    kept(nobodys).mkdir(mode=0o555)
    line = refuses_to_start(nobodys)
    for word in (str(kept(nobodys)), "Permission denied", "--dir", "--appendonly no"):
        assert word in line
    nobodys.extra = ["--appendonly", "no"]
    kept(nobodys).rmdir()
    nobodys.start()
    with nobodys.client() as client:
        assert client.call("SET", "k", "v") == ("+", b"OK")
        (nobodys.directory / "data").chmod(0o555)
        assert client.call("SAVE")[0] == "-"
        kind, text = client.call("CONFIG", "SET", "appendonly", "yes")
        assert kind == "-"
        assert b"Permission denied" in text
        assert client.call("CONFIG", "GET", "appendonly")[1][1] == ("$", b"no")
        assert client.call("SET", "k", "w") == ("+", b"OK")


def test_a_directory_that_becomes_read_only(nobodys: AsNobody) -> None:
    nobodys.extra = ["--oplog-segment-bytes", "4096"]
    nobodys.start()
    with nobodys.client() as client, nobodys.client() as other:
        assert client.call("SET", "large", noise(5000)) == ("+", b"OK")
        kept(nobodys).chmod(0o555)
        client.send("SET", "k", "v")  # needs a new file
        wait_until(lambda: "oplog.write_failed" in nobodys.log_text(), "a failed write")
        assert b"Permission denied" in other.call("SET", "l", "v")[1]
        kept(nobodys).chmod(0o777)
        assert client.read_reply() == ("+", b"OK")
        assert other.call("SET", "l", "v") == ("+", b"OK")
    nobodys.kill()
    nobodys.start()
    with nobodys.client() as client:
        assert client.call("DBSIZE") == (":", 3)


def test_a_damaged_log_is_named_and_left_alone(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        for number in range(3):
            client.call("SET", f"k{number}", noise(100))
    server.stop()  # and the log says that all of it is on the disk
    (log,) = kept(server).glob("log-*")
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    server.log_path.unlink()
    line = refuses_to_start(server)
    assert f"{log} is damaged at byte 32: checksum" in line
    assert "Nothing was changed" in line
    assert log.read_bytes() == data


def test_a_torn_end_is_cut_and_reported(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.call("SET", "k", "v")
    server.kill()
    (log,) = kept(server).glob("log-*")
    size = log.stat().st_size
    torn = b"half a turn"
    with log.open("ab") as file:
        file.write(torn)
    with server, server.client() as client:
        assert client.call("GET", "k") == ("$", b"v")
        (line,) = [line for line in server.log_text().splitlines() if "oplog.tail_cut" in line]
        assert str(log) in line
        client.call("SET", "other", "v")
        written = log.read_bytes()[size:]
        assert written.startswith(b"AB")
        assert torn not in written
        assert b"recovery_cut_bytes:%d\r" % len(torn) in client.call("INFO", "persistence")[1]
