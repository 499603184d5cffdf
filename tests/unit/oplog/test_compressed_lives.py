"""Whatever is done to streams: compressed blocks at random moments change no reply and no state."""

from __future__ import annotations

import random

import pytest

from anabranch.keyspace.digest import keyspace_digest
from anabranch.oplog.snapshot import Contents, Snapshot
from tests.support.compressing import compress_all, whatever_it_gains
from tests.support.random_lines import random_lines
from tests.support.recorder import OTHER_LINES, Recorder, everything_in
from tests.support.streams import words

READS = """
XRANGE {k} - +
XRANGE {k} {i} + COUNT {n}
XREVRANGE {k} + - COUNT {i}
XREAD COUNT {i} STREAMS {k} {l} {n} 0
XINFO STREAM {k} FULL COUNT 0
XPENDING {k} {g} - + 10
XLEN {k}
DUMP {k}
AB.EXPORT {k} "" 0 100000
AB.OFFSETS STREAMS {k}
OBJECT ENCODING {k}
""".strip().splitlines()


@pytest.mark.parametrize("seed", range(25))
def test_a_life_with_compressed_blocks_is_the_same_life(seed: int) -> None:
    rng = random.Random(seed)
    plain, other = Recorder(), Recorder()
    keyspace = other.server.region.keyspace
    keyspace.block_cache.bytes_max = rng.choice((0, 200, 1 << 20))
    compressed = 0
    for line in random_lines(rng, *OTHER_LINES, *READS, count=150):
        if rng.random() < 0.3:
            with whatever_it_gains():
                compressed += compress_all(keyspace, keyspace.block_cache)
        assert replies(plain, line) == replies(other, line), line
    assert compressed
    assert other.effects == plain.effects
    theirs = plain.server.region.keyspace
    with whatever_it_gains():
        compress_all(keyspace, keyspace.block_cache)
    assert keyspace_digest(keyspace, exact=True) == keyspace_digest(theirs, exact=True)
    assert Snapshot(keyspace, Contents(1)).whole() == Snapshot(theirs, Contents(1)).whole()
    assert everything_in(keyspace) == everything_in(theirs)
    other.server.check()


def replies(recorder: Recorder, line: str) -> object:
    """What a line is answered with; most lines only have to do what the effects say."""
    name, *rest = words(line)
    if any(line.startswith(each.split()[0]) for each in READS):
        return recorder.server.raw(name, *rest)
    recorder.run(line)
    return None
