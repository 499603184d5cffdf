"""The real disk, in a directory of the test."""

from __future__ import annotations

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.server.disk import Directory, lock_directory
from tests.support.logged_server import LoggedServer, recovered
from tests.support.recorder import everything_in


def test_a_file_is_written_at_its_end_and_cut(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    file = disk.create("log")
    file.write(b"one two three")
    file.truncate(8)
    file.write(b"four")
    file.sync()
    file.close()
    again = disk.append("log")
    again.write(b" five")
    again.close()
    with disk.open("log") as read:
        assert read.read() == b"one two four five"
    assert disk.size("log") == 17
    disk.create("log").close()
    assert disk.size("log") == 0


def test_files_get_other_names_and_go(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    (tmp_path / "directory").mkdir()
    disk.create("a").write(b"new")
    disk.create("b").write(b"old")
    disk.rename("a", "b")
    assert disk.names() == ["b"]
    assert (tmp_path / "b").read_bytes() == b"new"
    disk.sync()
    disk.remove("b")
    assert disk.names() == []
    with pytest.raises(FileNotFoundError):
        disk.append("b")
    assert disk.shown("b") == str(tmp_path / "b")


def test_a_sync_of_names_needs_no_further_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Directory(tmp_path)
    disk.sync()

    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refused)
    disk.sync()
    monkeypatch.undo()
    disk.close()
    disk.sync()
    disk.close()


def test_the_contents_of_a_removed_file_are_freed_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Directory(tmp_path)
    disk.create("log").close()
    close = os.close
    closed: list[tuple[int, str]] = []

    def observed(handle: int) -> None:
        closed.append((threading.get_ident(), os.readlink(f"/proc/self/fd/{handle}")))
        close(handle)

    monkeypatch.setattr(os, "close", observed)
    disk.remove("log")
    assert disk.names() == [], "the name is gone at once"
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.name == "remove":
            thread.join()
    (found,) = closed
    assert found[0] != threading.get_ident()
    assert found[1] == f"{tmp_path / 'log'} (deleted)"


@pytest.mark.parametrize("lacking", ["files", "threads"])
def test_a_file_is_removed_where_files_or_threads_are_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    disk = Directory(tmp_path)
    disk.create("log").close()
    before = len(os.listdir("/proc/self/fd"))

    def refuse(*_args: object) -> None:
        raise (
            OSError(24, "Too many open files") if lacking == "files" else RuntimeError("no thread")
        )

    with monkeypatch.context() as patched:
        patched.setattr(
            *((os, "open") if lacking == "files" else (threading.Thread, "start")), refuse
        )
        disk.remove("log")
    assert disk.names() == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_life_on_the_real_disk_comes_back(tmp_path: Path) -> None:
    life = LoggedServer(Directory(tmp_path), segment_bytes=200)
    for number in range(10):
        life.run(f"XADD s {number + 1}-0 f v", f"SET k {number}")
    life.sync()
    life.snapshot()
    life.run("SET k last")
    keyspace, report = recovered(Directory(tmp_path))
    assert everything_in(keyspace) == life.everything()
    assert report.snapshot is not None


def test_a_directory_belongs_to_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "made" / "for it"
    lock = lock_directory(path)
    with pytest.raises(ConfigError, match=rf"another server \(pid {os.getpid()}\) is using"):
        lock_directory(path)
    lock.close()
    lock_directory(path).close()


def test_the_name_of_a_new_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(os, "fsync", fsync)
    lock_directory(tmp_path / "new").close()
    assert synced == [str(tmp_path)]


def test_a_place_that_cannot_be_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="Not a directory") as refusal:
        lock_directory(tmp_path / "file" / "below")
    for word in ("--dir", "--appendonly no"):
        assert word in str(refusal.value)


def test_a_full_disk_does_not_prevent_that_a_directory_is_unlocked(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        lock_directory(tmp_path).close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    lock_directory(tmp_path).close()


@pytest.mark.parametrize("size", [1, 32, 33, 4096, 1 << 20])
def test_a_lock_of_zeros_is_an_empty_lock(tmp_path: Path, size: int) -> None:
    (tmp_path / "lock").write_bytes(bytes(size))
    lock_directory(tmp_path).close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("data", [b"text", bytes(4096) + b"x", b"1\n" + bytes(1 << 20) + b"x"])
def test_what_is_no_lock_stays_as_it_is(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "lock").write_bytes(data)
    with pytest.raises(ConfigError, match="not the lock of a server"):
        lock_directory(tmp_path)
    assert (tmp_path / "lock").read_bytes() == data
