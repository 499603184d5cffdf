"""Compresses blocks at once, however small they are, so that short tests meet compressed blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from anabranch.keyspace.keyspace import Keyspace
from anabranch.stream import compression
from anabranch.stream.block import Block
from anabranch.stream.compression import BlockCache
from anabranch.stream.stream import Stream

__all__ = ["compress_all", "compress_blocks", "whatever_it_gains"]


@contextmanager
def whatever_it_gains() -> Iterator[None]:
    """Blocks are compressed also where that makes them larger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_GAIN_MIN", 0)
        patch.setattr(compression, "_LIGHT_GAIN_MIN", 0)
        yield


def compress_blocks(blocks: Iterable[Block], cache: BlockCache) -> int:
    """Compress those that are closed; returns how many are compressed now."""
    return sum(block.compress(cache) for block in blocks)


def compress_all(keyspace: Keyspace, cache: BlockCache) -> int:
    """The same of all streams."""
    return sum(
        compress_blocks(log.blocks, cache)
        for database in keyspace.databases
        for value in [*database.values.values(), *database.remembered.objects.values()]
        if isinstance(value, Stream)
        for log in value.logs.values()
    )
