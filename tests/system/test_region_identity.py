"""A directory knows which region it belongs to: a restart needs no more than it."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.group import command
from tests.support.inspection import info, wait_until
from tests.support.servers import AnabranchServer, ServerFailed, free_port, regions_in, server_in
from tests.support.wire import Reply


def facts(server: AnabranchServer) -> list[bytes]:
    with server.client() as client:
        return [
            client.call("CONFIG", "GET", name)[1][1][1]
            for name in ("region-id", "region-name", "gossip-port")
        ]


def test_a_restart_needs_only_the_directory(tmp_path: Path) -> None:
    port = free_port()
    words = ("--region-id", "7", "--region-name", "eu", "--gossip-port", str(port))
    server = server_in(tmp_path, *words, "--cluster-create", "yes").start()
    with server.client() as client:
        entry_id = client.call("XADD", "s", "*", "f", "v")[1]
    assert entry_id.endswith(b"-7")
    server.stop()
    again = server_in(tmp_path).start()
    assert facts(again) == [b"7", b"eu", b"%d" % port]
    with again.client() as client:
        assert client.call("XADD", "s", "5-*", "f", "v")[0] == "-"
        assert client.call("XADD", "s", "*", "f", "v")[1].endswith(b"-7")
        assert client.call("XLEN", "s") == (":", 2)
    again.stop()
    # The same words are welcome.
    same = server_in(tmp_path, *words).start()
    assert facts(same) == [b"7", b"eu", b"%d" % port]
    same.stop()


@pytest.mark.parametrize(
    ("name", "value"), [("region-id", "8"), ("region-id", "0"), ("region-name", "us"),
                        ("gossip-port", "1234")],
)  # fmt: skip
def test_words_that_name_another_region_are_refused(tmp_path: Path, name: str, value: str) -> None:
    port = free_port()
    words = ("--region-id", "7", "--region-name", "eu", "--gossip-port", str(port))
    server_in(tmp_path, *words, "--cluster-create", "yes").start().stop()
    other = server_in(tmp_path, f"--{name}", value)
    with pytest.raises(ServerFailed) as failure:
        other.start()
    noted = {"region-id": "7", "region-name": "eu", "gossip-port": str(port)}[name]
    assert f"belongs to the region with {name} {noted}, and {name} {value} was given" in str(
        failure.value
    )
    assert "(command line)" in str(failure.value)


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    port = free_port()
    words = ("--region-id", "7", "--gossip-port", str(port), "--cluster-create", "yes")
    server_in(tmp_path, *words).start().stop()
    note = tmp_path / "data" / "appendonlydir" / "region"
    note.write_text('{"region-id": 7')
    with pytest.raises(ServerFailed, match=r"cannot read .*appendonlydir/region"):
        server_in(tmp_path).start()
    note.unlink()
    with pytest.raises(ServerFailed, match="region"):
        server_in(tmp_path).start()
    server_in(tmp_path, *words).start().stop()
    assert note.exists()


@pytest.mark.parametrize("name", ["region", "set-back"])
@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"reason": "x"}'])
def test_a_damaged_note_is_refused_by_a_start_and_by_salvage(
    tmp_path: Path, name: str, data: bytes
) -> None:
    words = ("--region-id", "7", "--gossip-port", str(free_port()), "--cluster-create", "yes")
    server_in(tmp_path, *words).start().stop()
    folder = tmp_path / "data" / "appendonlydir"
    (folder / name).write_bytes(data)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    why = rf"anabranch: cannot read {folder / name}: .*\. Nothing was changed; "
    server = server_in(tmp_path)
    with pytest.raises(ServerFailed, match=why):
        server.start()
    assert "Traceback" not in server.log_text()
    result = CliRunner().invoke(command, ["region", "salvage", "--dir", str(folder), "--dry-run"])
    assert result.exit_code == 1
    assert re.match(why, result.output)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {**after, "lock": b""} == {**before, "lock": b""}


@pytest.mark.parametrize("contents", ["log", "snapshot", "snapshot and log"])
@pytest.mark.parametrize("is_noted", [True, False])
def test_files_of_another_region_than_is_noted_or_given_are_refused_unchanged(
    tmp_path: Path, contents: str, is_noted: bool
) -> None:
    words = ("--gossip-port", str(free_port()))
    server = server_in(tmp_path, *words, "--region-id", "7", "--cluster-create", "yes").start()
    with server.client() as client:
        client.call("XADD", "s", "*", "f", "v")
        if "snapshot" in contents:
            client.call("SAVE")
        if "and log" in contents:
            client.call("XADD", "s", "*", "f", "v")
        length = client.call("XLEN", "s")
    server.stop()
    folder = tmp_path / "data" / "appendonlydir"
    note = folder / "region"
    if is_noted:
        note.write_text(note.read_text().replace('"region-id": 7', '"region-id": 3'))
        other = server_in(tmp_path)
    else:
        note.unlink()
        other = server_in(tmp_path, *words, "--region-id", "3", "--cluster-create", "yes")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ServerFailed) as failure:
        other.start()
    (why,) = [line for line in str(failure.value).splitlines() if line.startswith("anabranch: ")]
    assert " belongs to region 7, and this server was started as region 3, by " in why
    assert f"set region-id to 7 in {note}; " in why
    assert "damaged" not in why
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {**after, "lock": b""} == {**before, "lock": b""}
    if is_noted:
        result = CliRunner().invoke(
            command, ["region", "salvage", "--dir", str(folder), "--dry-run"]
        )
        assert (result.exit_code, " belongs to region 7, and " in result.output) == (1, True)
        note.write_text(note.read_text().replace('"region-id": 3', '"region-id": 7'))
        again = server_in(tmp_path).start()
    else:
        again = server_in(tmp_path, *words, "--region-id", "7").start()
    with again.client() as client:
        assert client.call("XLEN", "s") == length


# -- whether it may go on with its numbers --------------------------------------------------------


def life(server: AnabranchServer) -> dict[str, str]:
    """What the directory says of an end."""
    text = (server.directory / "data" / "appendonlydir" / "lifetime").read_text()
    noted: dict[str, str] = json.loads(text)
    return noted


def epoch(server: AnabranchServer) -> int:
    with server.client() as client:
        return int(info(client, "replication")["epoch"])


def test_an_end_means_what_appendfsync_is_now(tmp_path: Path) -> None:
    words = ("--region-id", "7", "--gossip-port", str(free_port()), "--cluster-create", "yes")
    server = server_in(tmp_path, *words, "--appendfsync", "always").start()
    assert life(server)["ended"] == "always"
    with server.client() as client:
        for policy in ("everysec", "no", "always"):
            client.call("XADD", "s", "*", "f", "v")
            assert client.call("CONFIG", "SET", "appendfsync", policy) == ("+", b"OK")
            assert life(server)["ended"] == policy
            fields = info(client, "persistence")
            assert fields["oplog_unsynced_bytes"] == "0"
    server.stop()
    assert life(server)["ended"] == "clean"


def test_a_region_that_was_set_back_uses_no_number_again(tmp_path: Path) -> None:
    servers = regions_in(tmp_path, "eu", "us")
    eu, us = servers
    with eu.client() as here, us.client() as there:
        here.call("XADD", "s", "*", "f", "kept")
        wait_until(lambda: there.call("XLEN", "s") == (":", 1), "the first has arrived")
        files = eu.directory / "data" / "appendonlydir"
        backup = tmp_path / "backup"
        shutil.copytree(files, backup)
        for number in range(5):
            here.call("XADD", "s", "*", "f", f"later {number}")
        wait_until(lambda: there.call("XLEN", "s") == (":", 6), "all has arrived")
    epochs = {0}
    for count in (11, 16):  # the same backup may be restored twice
        eu.kill()
        shutil.rmtree(files)
        shutil.copytree(backup, files)
        result = CliRunner().invoke(command, ["restore", str(files)])
        assert result.output == f"{files}: a region that starts from it begins a new epoch\n"
        with us.client() as there:
            there.call("AB.LINK", "1", "DELAY", "500")  # it writes before it hears of the others
        eu.start()
        assert epoch(eu) not in epochs
        epochs.add(epoch(eu))
        with eu.client() as here, us.client() as there:
            for number in range(5):
                here.call("XADD", "s", "*", "f", f"new {number}")
            there.call("AB.LINK", "1", "DELAY", "0")
            for client in (here, there):
                wait_until(
                    lambda client=client, count=count: client.call("XLEN", "s") == (":", count),
                    "all is everywhere",
                )
            assert here.call("AB.DIGEST", "s") == there.call("AB.DIGEST", "s")


def test_a_region_that_was_set_back_unnoticed_and_written_to_is_stopped_and_salvaged(
    tmp_path: Path,
) -> None:
    eu, us = regions_in(tmp_path, "eu", "us")
    with eu.client() as here, us.client() as there:
        here.call("XADD", "s", "*", "f", "kept")
        gone = here.call("XADD", "s", "*", "f", "deleted later")[1]
        wait_until(lambda: there.call("XLEN", "s") == (":", 2), "the first have arrived")
        wait_until(lambda: info(here, "active-active")["unstable_effects"] == "0", "all have both")
    eu.stop()
    files = eu.directory / "data" / "appendonlydir"
    shutil.copytree(files, tmp_path / "backup")
    eu.start()
    with eu.client() as here, us.client() as there:
        for number in range(5):
            here.call("XADD", "s", "*", "f", f"later {number}")
        wait_until(lambda: there.call("XLEN", "s") == (":", 7), "all has arrived")
        assert there.call("XDEL", "s", gone) == (":", 1)
    eu.stop()
    shutil.rmtree(files)
    shutil.copytree(tmp_path / "backup", files)
    us.process.send_signal(signal.SIGSTOP)  # it meets nobody
    try:
        eu.start()
        assert epoch(eu) == 0
        with eu.client() as here:
            for number in range(7):
                assert here.call("XADD", "s", "*", "f", f"new {number}")[0] == "$"
    finally:
        us.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "region.set_back" in eu.log_text(), "it finds out")
    for _ in range(2):
        with eu.client() as here:
            kind, text = here.call("XADD", "s", "*", "f", "v")
            assert (kind, text[:39]) == ("-", b"READONLY This region was set back to an")
            assert here.call("XLEN", "s") == (":", 9)
        eu.stop()
        eu.start()
    with us.client() as there:
        assert there.call("XLEN", "s") == (":", 6)
        assert there.call("AB.REGION", "REMOVE", "1", "FORCE") == ("+", b"OK")
        eu.stop()
        words = ["region", "salvage", "--dir", str(eu.directory / "data")]
        result = CliRunner().invoke(command, [*words, "--to", f"redis://127.0.0.1:{us.port}"])
        assert "7 entries were added" in result.output, result.output
        assert there.call("XLEN", "s") == (":", 13)


def test_what_restore_answers_where_there_is_nothing_to_mark(tmp_path: Path) -> None:
    server = server_in(tmp_path).start()
    with server.client() as client:
        client.call("XADD", "s", "*", "f", "v")
    folder = tmp_path / "data"
    result = CliRunner().invoke(command, ["restore", str(folder)])
    assert result.exit_code == 1
    assert result.output.endswith("data/appendonlydir. Stop that server first\n")
    server.stop()
    result = CliRunner().invoke(command, ["restore", str(folder)])
    assert result.output.endswith("a start takes it as it is\n")
    result = CliRunner().invoke(command, ["restore", str(folder), "--json"])
    assert json.loads(result.stdout)["new_epoch"] is False
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(command, ["restore", str(tmp_path / "empty")])
    assert (result.exit_code, "holds no log" in result.output) == (1, True)


def test_a_log_that_was_cut_by_hand_begins_a_new_epoch(tmp_path: Path) -> None:
    words = ("--region-id", "7", "--gossip-port", str(free_port()), "--cluster-create", "yes")
    server = server_in(tmp_path, *words).start()
    with server.client() as client:
        for _ in range(10):
            client.call("XADD", "s", "*", "f", "v")
    server.stop()
    (log,) = (tmp_path / "data" / "appendonlydir").glob("*.ablog")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    folder = str(log.parent)
    result = CliRunner().invoke(command, ["inspect", folder, "--write", "--yes"])
    assert result.exit_code == 0, result.output
    assert not (log.parent / "lifetime").exists()
    assert epoch(server.start()) > 0


# -- whether it may write yet ---------------------------------------------------------------------


def test_a_new_region_takes_writes_when_it_has_what_the_others_have(tmp_path: Path) -> None:
    (tmp_path / "ap").mkdir()
    eu, us = regions_in(tmp_path, "eu", "us")
    with us.client() as client:
        wait_until(
            lambda: client.call("XADD", "s", "9999999999999-*", "f", "v")[0] == "$", "a write"
        )
    known = "127.0.0.1:" + facts(eu)[2].decode()
    words = ("--region-id", "3", "--region-name", "ap", "--gossip-port", str(free_port()))
    eu.process.send_signal(signal.SIGSTOP)
    try:
        # Nobody answers: neither before nor after a restart does it know enough to write.
        for _ in range(2):
            ap = server_in(tmp_path / "ap", *words, "--join", known).start()
            with ap.client() as client:
                kind, text = client.call("XADD", "s", "*", "f", "v")
                assert (kind, text.split()[:1]) == ("-", [b"READONLY"])
                assert client.call("XLEN", "s") == (":", 0)
            ap.kill()
    finally:
        eu.process.send_signal(signal.SIGCONT)
    ap = server_in(tmp_path / "ap", *words, "--join", known).start()
    with ap.client() as client:
        replies: list[Reply] = []

        def is_accepted() -> bool:
            replies.append(client.call("XADD", "s", "*", "f", "v"))
            return replies[-1][0] == "$"

        wait_until(is_accepted, "it takes writes")
        assert replies[-1][1].startswith(b"9999999999999-")
    assert "region.takes_writes" in ap.log_text()
    # From now on it does whoever is there.
    for server in (eu, us, ap):
        server.kill()
    ap = server_in(tmp_path / "ap").start()
    with ap.client() as client:
        assert client.call("XADD", "s", "*", "f", "v")[0] == "$"
