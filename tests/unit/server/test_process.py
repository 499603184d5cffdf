"""What the system allows the process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from anabranch.errors import ConfigError
from anabranch.server.process import enter_directory, files_of_redis, raise_file_limit


@pytest.mark.parametrize(
    ("soft", "hard", "allowed"), [(8, 8, None), (8, 79, None), (8, 80, 16), (96, 96, 32)]
)
def test_too_few_open_files_are_refused_with_the_limit_to_raise(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int | None
) -> None:
    def set_limit(_kind: int, limits: tuple[int, int]) -> None:
        if limits[1] > hard:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    if allowed is not None:
        assert raise_file_limit(10_000) == allowed
        return
    with pytest.raises(ConfigError, match=rf"{hard} open files, and it needs at least 80; raise"):
        raise_file_limit(10_000)


def test_a_directory_that_is_not_there_can_be_created_and_a_file_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="No such file or directory; create it or set dir"):
        enter_directory(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="Not a directory; set dir"):
        enter_directory(str(tmp_path / "file"))


def test_files_of_redis_are_found_until_there_are_own_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("kept")
    assert files_of_redis("kept") == files_of_redis("nowhere") == []
    for name in ("dump.rdb", "kept/appendonly.aof.manifest", "kept/appendonly.aof.1.base.rdb"):
        Path(name).touch()
    assert files_of_redis("nowhere") == ["dump.rdb"]
    assert files_of_redis("kept") == ["dump.rdb", "kept/appendonly.aof.manifest"]
    Path("kept/manifest").touch()
    assert files_of_redis("kept") == []
