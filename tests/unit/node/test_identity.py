"""Notes beside the log: a region that has yet to get what the others have."""

from __future__ import annotations

import pytest

from anabranch.node.identity import forget_newcomer, is_newcomer, write_newcomer
from anabranch.simulator.disk import MemoryStorage


def test_a_newcomer_is_one_until_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    write_newcomer(storage)
    assert is_newcomer(storage)

    def fails() -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as trouble:
        trouble.setattr(storage, "sync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            forget_newcomer(storage)
    forget_newcomer(storage)  # the name may be gone by then
    assert not is_newcomer(storage)
