"""What regions ask each other to compare their keys, and what they answer."""

from __future__ import annotations

from collections import Counter

from anabranch.keyspace.last_effects import BUCKETS
from anabranch.replication.frames import KeysGet
from anabranch.replication.framing import FrameType
from anabranch.simulator.machine import DIGEST_INTERVAL_MS
from tests.support.simulated_cluster import SimulatedCluster


def test_a_question_about_a_database_that_is_not_there_is_answered() -> None:
    cluster = SimulatedCluster(2)
    cluster.do(1, "XADD", "k", "*", "f", "v")
    cluster.run_until(cluster.have_converged)
    replicator = cluster.process(1).replicator
    databases = len(cluster.process(1).region.keyspace.databases)
    session = replicator.links.session_of(2)
    assert session is not None
    answers: Counter[int] = Counter()
    cluster.on_frame = lambda source, _target, frame: answers.update([frame[4]]) or frame
    question = KeysGet(999, None, [(databases, b"k"), (databases + 5, b"k"), (0, b"k")])
    replicator.digest_exchange.asked(session, question, cluster.now_ms)
    cluster.run(DIGEST_INTERVAL_MS / 4)
    assert answers[FrameType.KEYS] == 1
    assert replicator.links.session_of(2) is session
    reply = cluster.do(2, "AB.VERIFY", 1)
    assert dict(zip(reply[::2], reply[1::2], strict=True))[b"equal"] == 1


def test_all_digests_are_fresh_before_a_region_is_asked() -> None:
    cluster = SimulatedCluster(2)
    for number in range(300):
        cluster.write(1, b"XADD", b"k%d" % number, b"*", b"f", b"v")
    cluster.run_until(cluster.have_converged)
    process = cluster.process(1)
    digests = process.replicator.links.local.digests
    digests.retake()
    exchange = process.replicator.digest_exchange
    session = process.replicator.links.session_of(2)
    assert session is not None
    asked: list[int] = []

    def look(source: int, _target: int, frame: bytes) -> bytes:
        if source == 1 and frame[4] == FrameType.DIGESTS:
            asked.append(digests.passed)
        return frame

    cluster.on_frame = look
    before = digests.passed
    exchange.verify(session, [], cluster.now_ms)
    exchange.tick(cluster.now_ms)
    assert digests.passed - before < BUCKETS, "one slice is not enough"
    assert asked == []
    cluster.run_until(lambda: asked)
    assert asked[0] - before >= BUCKETS
