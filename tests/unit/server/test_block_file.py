"""The temporary file of offloaded blocks on a real disk, and on one that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anabranch.server.block_file import DiskBlockFile
from anabranch.stream.offloading import BlockLostError


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path, reasons: list[str]) -> DiskBlockFile:
    return DiskBlockFile(str(tmp_path), reasons.append)


def test_bytes_come_back_and_no_file_is_seen(file: DiskBlockFile, tmp_path: Path) -> None:
    blocks = [os.urandom(size) for size in (1, 100, 5000)]
    places = [file.write(block) for block in blocks]
    assert [place.read() for place in places if place is not None] == blocks
    assert file.held == 5101
    assert list(tmp_path.iterdir()) == []
    file.close()


def test_room_is_used_again_and_an_empty_file_is_cut(file: DiskBlockFile) -> None:
    places = [file.write(bytes(1000)) for _ in range(100)]
    size = file.size
    del places[:50]
    more = [file.write(bytes(1000)) for _ in range(50)]
    assert file.size == size
    del places, more
    file.collect()
    assert file.size == file.held == 0
    assert file._file is not None
    assert os.fstat(file._file.fileno()).st_size == 0
    file.close()


def test_a_free_end_is_cut_a_part_at_a_time(
    file: DiskBlockFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.server.block_file._CUT_BYTES", 30_000)
    places = [file.write(os.urandom(1000)) for _ in range(100)]
    size = file.size
    del places[1:]
    assert file._file is not None
    sizes = []
    while file.size > 2000:
        file.collect()
        sizes.append(os.fstat(file._file.fileno()).st_size)
        assert file.size == sizes[-1]
    assert sizes[0] == size - 30_000
    assert len(sizes) == 5 - 1
    assert places[0] is not None
    assert len(places[0].read()) == 1000
    file.close()


def test_damage_is_noticed(file: DiskBlockFile, reasons: list[str]) -> None:
    place = file.write(b"some entries" * 10)
    assert place is not None
    assert file._file is not None
    os.pwrite(file._file.fileno(), b"x", place.offset + 20)
    with pytest.raises(BlockLostError, match="not as it was written"):
        place.read()
    os.ftruncate(file._file.fileno(), 3)
    with pytest.raises(BlockLostError, match="not as it was written"):
        place.read()
    assert len(reasons) == 2
    file.close()


def test_a_full_disk_takes_nothing(file: DiskBlockFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        assert file.write(b"entries") is None
    assert file.held == 0
    place = file.write(b"entries")
    assert place is not None
    assert place.read() == b"entries"
    file.close()


def test_writes_may_take_several_calls(
    file: DiskBlockFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:7], offset))
    data = os.urandom(100)
    place = file.write(data)
    assert place is not None
    assert place.read() == data
    file.close()
