"""Packs what regions remember at once, so that short tests meet packed streams and keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anabranch.keyspace import last_effects, remembered

__all__ = ["packing_at_once"]


@contextmanager
def packing_at_once() -> Iterator[None]:
    """Only the stream that was used last is an object, and only the last changed key is not packed.

    It concerns keyspaces that are made meanwhile.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "OBJECTS_MAX", 1)
        patch.setattr(remembered, "BATCH", 1)
        patch.setattr(last_effects, "UNPACKED_MAX", 1)
        patch.setattr(last_effects, "BATCH", 1)
        yield
