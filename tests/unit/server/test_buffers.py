"""What buffers hold, as ``maxmemory`` counts it."""

from __future__ import annotations

from types import SimpleNamespace

from anabranch.server.buffers import Buffers


def test_what_waits_elsewhere_is_sampled_apart_from_connections() -> None:
    buffers = Buffers([])
    unwritten = SimpleNamespace(size=5)
    buffers.others += [lambda: unwritten.size, lambda: 7]
    assert buffers.others_bytes == 0
    buffers.sample()
    assert buffers.others_bytes == 12
    unwritten.size = 1 << 30
    buffers.sample()
    assert buffers.others_bytes == (1 << 30) + 7
    assert buffers.used_bytes == 0
