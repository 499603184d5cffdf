"""What the system allows the process."""

from __future__ import annotations

import resource

import pytest

from anabranch.errors import ConfigError
from anabranch.server.process import raise_file_limit


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
