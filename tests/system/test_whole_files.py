"""Whole files that are missing, cut, exchanged or too old: all there is, or a refusal by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anabranch.cli.group import command
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.errors import LogError
from anabranch.oplog.inspection import Survey
from anabranch.oplog.manifest import MANIFEST, read_manifest
from anabranch.oplog.recovery import recover
from anabranch.oplog.segment import first_position_of
from anabranch.oplog.snapshot import position_of
from anabranch.server.disk import Directory
from anabranch.simulator.disk import MemoryStorage
from tests.support.inspection import info, wait_until
from tests.support.recorder import everything_in
from tests.support.servers import (
    AnabranchServer,
    ServerFailed,
    free_port,
    kill_servers_in_directories,
    server_in,
)
from tests.support.whole_files import Fault, faults
from tests.support.wire import RespClient

NOTED = "noted in the manifest"


def kept(server: AnabranchServer) -> Path:
    return server.directory / "data" / "appendonlydir"


def data_files(folder: Path) -> dict[str, bytes]:
    """What a recovery reads."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if first_position_of(path.name) is not None
        or position_of(path.name) is not None
        or path.name == MANIFEST
    }


def wait_until_noted(server: AnabranchServer, client: RespClient) -> None:
    """Until the manifest knows of all that was written and synced."""
    position = int(info(client, "persistence")["oplog_position"])

    def is_noted() -> bool:
        return read_manifest(Directory(kept(server)))[0].synced >= position

    wait_until(is_noted, NOTED)


def write(client: RespClient, start: int, count: int) -> None:
    for number in range(start, start + count):
        assert client.call("XADD", "s", "*", "n", str(number))[0] == "$"
        assert client.call("XADD", f"k{number}", "*", "v", "v" * 40)[0] == "$"
    assert client.call("XGROUP", "CREATE", "s", f"g{start}", "0")[0] == "+"
    client.call("XREADGROUP", "GROUP", f"g{start}", "c", "COUNT", "3", "STREAMS", "s", ">")


@dataclass
class Life:
    """A directory whose server was killed, and what there was."""

    files: dict[str, bytes]
    older: dict[str, bytes]
    boot: str
    region: int
    whole: Any

    def keyspace(self) -> Keyspace:
        return Keyspace(16, Replica(self.region, lambda: (100, 100)) if self.region else None)

    def found(self, storage: MemoryStorage) -> tuple[Any, str]:
        """What a start brings back, or why it is refused."""
        keyspace = self.keyspace()
        try:
            for _ in recover(storage, keyspace):
                pass
        except LogError as problem:
            return None, str(problem)
        vector = keyspace.replica.vector
        return (everything_in(keyspace), vector), ""


def lived(directory: Path, region: int) -> Life:
    """Some files of a log, a snapshot amid them, a killed server."""
    words = ["--oplog-segment-bytes", "4096", "--appendfsync", "always"]
    if region:
        words += ["--region-id", str(region), "--gossip-port", str(free_port())]
        words += ["--cluster-create", "yes"]
    directory.mkdir()
    server = server_in(directory, *words).start()
    with server.client() as client:
        write(client, 1, 30)
        assert client.call("SAVE") == ("+", b"OK")
        write(client, 31, 60)
        wait_until_noted(server, client)
        older = data_files(kept(server))
        write(client, 91, 5)
        wait_until_noted(server, client)
    server.kill()
    files = data_files(kept(server))
    boot = read_manifest(MemoryStorage(files))[0].boot
    life = Life(files, older, boot, region, None)
    assert boot == Directory(kept(server)).boot != ""
    assert len(files) >= 5
    life.whole, refusal = life.found(MemoryStorage(files, boot))
    assert not refusal
    return life


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Life]:
    """A server on its own, and a region."""
    folder = tmp_path_factory.mktemp("lives")
    try:
        return {"alone": lived(folder / "alone", 0), "region": lived(folder / "region", 3)}
    finally:
        kill_servers_in_directories()


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    kill_servers_in_directories()


def is_named(fault: Fault, message: str) -> bool:
    """Whether a refusal says which file it is; a gap is named by what lies behind it."""
    return any(name in message for name in fault.names) or "just before this file" in message


def befall(life: Life, others: Life, *, everywhere: bool) -> dict[str, int]:
    """Try everything, in the same life of the machine and in the next one; how often what came."""
    seen = {"whole": 0, "refused": 0}
    every = faults(life.files, older=life.older, others=others.files, everywhere=everywhere)
    for number, fault in enumerate(every):
        for boot in (life.boot, "another") if everywhere or not number % 4 else (life.boot,):
            storage = MemoryStorage(fault.files, boot)
            survey = Survey(storage)
            for _ in survey.walk():
                pass
            foretold = survey.refused is not None or survey.absence is not None
            case = f"{fault.what}: {', '.join(fault.names)}, {boot}"
            found, refusal = life.found(storage)
            assert foretold == bool(refusal), (case, refusal)
            if refusal:
                assert is_named(fault, refusal), (case, refusal)
                assert storage.files() == fault.files, "a refusal has changed files"
                seen["refused"] += 1
            else:
                assert found == life.whole, f"silent loss: {case}"
                seen["whole"] += 1
    return seen


@pytest.mark.parametrize("which", ["alone", "region"])
@pytest.mark.parametrize(
    "everywhere", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_whatever_befalls_a_file_is_harmless_or_refused(
    lives: dict[str, Life], which: str, everywhere: bool
) -> None:
    other = lives["region" if which == "alone" else "alone"]
    seen = befall(lives[which], other, everywhere=everywhere)
    assert seen["refused"] > seen["whole"] > 0


# -- real starts ----------------------------------------------------------------------------------


def newest(folder: Path, pattern: str = "log-*.ablog") -> Path:
    return max(folder.glob(pattern))


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


REAL: dict[str, Callable[[Path], Path]] = {}
"""By name what befalls a directory; each returns the file that must be named."""


def real(function: Callable[[Path], Path]) -> Callable[[Path], Path]:
    REAL[function.__name__] = function
    return function


@real
def newest_log_deleted(folder: Path) -> Path:
    path = newest(folder)
    path.unlink()
    return path


@real
def newest_log_emptied(folder: Path) -> Path:
    path = newest(folder)
    cut(path, 0)
    return path


@real
def newest_log_cut(folder: Path) -> Path:
    path = newest(folder)
    cut(path, path.stat().st_size // 2)
    return path


@real
def snapshot_deleted(folder: Path) -> Path:
    path = newest(folder, "snapshot-*")
    path.unlink()
    return path


@real
def manifest_deleted(folder: Path) -> Path:
    (folder / MANIFEST).unlink()
    return folder / MANIFEST


@real
def lock_exchanged(folder: Path) -> Path:
    path, lock = newest(folder), folder / "lock"
    lock.touch()
    path.rename(folder / "aside")
    lock.rename(path)
    (folder / "aside").rename(lock)
    return lock


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Path]]:
    """Directories of a server that was stopped, and of one that was killed."""
    found = {}
    for clean in (True, False):
        server = server_in(tmp_path_factory.mktemp("kept"), "--oplog-segment-bytes", "4096").start()
        with server.client() as client:
            write(client, 1, 30)
            assert client.call("SAVE") == ("+", b"OK")
            write(client, 31, 60)
            wait_until_noted(server, client)
        if clean:
            server.stop()
        else:
            server.kill()
        found[clean] = server.directory
    yield found
    kill_servers_in_directories()


CASES = [(name, bool(at % 2)) for at, name in enumerate(REAL)]


def copied(original: Path, directory: Path, *words: str) -> AnabranchServer:
    """A server with a copy of what another one has kept."""
    server = server_in(directory, *words)
    kept(server).mkdir(parents=True)
    for path in (original / "data" / "appendonlydir").iterdir():
        (kept(server) / path.name).write_bytes(path.read_bytes())
    return server


def refusal(server: AnabranchServer) -> str:
    """Start it in vain; what it says. No file is another then."""
    before = contents(server)
    with pytest.raises(ServerFailed, match="ended with status 1"):
        server.start()
    (line,) = server.log_text().splitlines()
    server.log_path.unlink()
    assert "Traceback" not in line
    assert contents(server) == before
    return line


def contents(server: AnabranchServer) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in kept(server).iterdir() if path.name != "lock"}


@pytest.mark.parametrize(("name", "clean"), CASES)
def test_a_start_is_refused_by_name(
    stopped: dict[bool, Path], tmp_path: Path, name: str, clean: bool
) -> None:
    server = copied(stopped[clean], tmp_path)
    named = REAL[name](kept(server))
    assert named.name in refusal(server)


def test_a_file_that_is_put_back_is_gone_on_with(stopped: dict[bool, Path], tmp_path: Path) -> None:
    server = copied(stopped[False], tmp_path)
    path = newest(kept(server))
    path.rename(tmp_path / "aside")
    assert f"{path} is missing, and manifest names it" in refusal(server)
    (tmp_path / "aside").rename(path)
    server.start()
    with server.client() as client:
        assert client.call("DBSIZE") == (":", 91)
        assert client.call("XLEN", "s") == (":", 90)


def command_line(*words: str) -> tuple[int, str]:
    """What ``anabranch`` answers."""
    result = CliRunner().invoke(command, list(words))
    return result.exit_code, result.output


def test_a_region_goes_on_without_what_is_missing_in_a_new_epoch(tmp_path: Path) -> None:
    words = ("--region-id", "7", "--gossip-port", str(free_port()), "--cluster-create", "yes")
    server = server_in(tmp_path, *words, "--oplog-segment-bytes", "4096").start()
    with server.client() as client:
        write(client, 1, 30)
        wait_until_noted(server, client)
    server.stop()
    path = newest(kept(server))
    begin = first_position_of(path.name)
    path.unlink()
    server.log_path.unlink()
    assert path.name in refusal(server)
    status, report = command_line("inspect", str(kept(server)))
    assert status == 1
    assert f"is refused because {path.name} is missing, and manifest names it" in report
    status, report = command_line("inspect", str(kept(server)), "--write", "--yes")
    assert f"kept is what is here, up to position {begin}" in report
    assert status == 0
    server.start()
    with server.client() as client:
        assert int(info(client, "replication")["epoch"]) > 0
        assert 0 < client.call("XLEN", "s")[1] <= 30
        write(client, 100, 3)
    server.stop()
    server.start()
    server.stop()


def test_a_copy_with_a_newer_manifest_is_accepted_by_restore(
    stopped: dict[bool, Path], tmp_path: Path
) -> None:
    server = copied(stopped[False], tmp_path)
    path = newest(kept(server))
    cut(path, path.stat().st_size // 2)  # it was copied first, and the manifest last
    assert f"{path} ends at position" in refusal(server)
    status, report = command_line("restore", str(kept(server)))
    assert (status, report) == (0, f"{kept(server)}: a start takes it as it is\n")
    server.start()
    with server.client() as client:
        assert 60 < client.call("DBSIZE")[1] <= 91
        write(client, 200, 5)
    server.kill()
    server.start()
    with server.client() as client:
        assert client.call("EXISTS", "k204") == (":", 1)
