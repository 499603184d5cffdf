"""Bytes between regions: of entries, and of what keeps them in causal order.

AB.PEERS counts what was sent with everything around it: frames, batch headers, rows.
"""

from __future__ import annotations

import msgspec

from anabranch.oplog.batch import batch_size, decode_batch
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES
from benchmarks.shared.figures import Figure
from benchmarks.versus_redis.load import windows

from .cluster import Cluster, Region
from .load import BATCH, Content, add, contents, sensor_adds

ENTRIES, SINGLES = 25_000, 2_000
MESH_ENTRIES = 60_000
KEY = "bench:wire"
QUICK_SHARE = 5


def wire(*, quick: bool) -> list[Figure]:
    """Bytes sent per entry, in batches as a share of the content, one by one beyond it."""
    figures = []
    entries, singles = (size // QUICK_SHARE if quick else size for size in (ENTRIES, SINGLES))
    with Cluster(2) as cluster:
        for content in contents():
            sent, size = _sent(cluster, content, entries, BATCH)
            name = f"wire, {content.name}, batches of {BATCH}"
            note = f"{sent / entries:.1f} bytes per entry"
            figures.append(Figure(name, sent / size, "of the content", note=note))
        for content in contents():
            sent, size = _sent(cluster, content, singles, 1)
            name = f"wire beyond content, {content.name}, one by one"
            figures.append(Figure(name, (sent - size) / singles, "bytes/entry"))
    return figures


def _sent(cluster: Cluster, content: Content, entries: int, depth: int) -> tuple[int, int]:
    """Add entries; the bytes that were sent to the other region, and those of their contents."""
    writer, reader = cluster.regions
    before = writer.count(reader.number, "sent-bytes")
    size = add(writer.connection, f"{KEY}:{content.name}", content, entries, depth)
    reader.wait_for(writer.token())
    return writer.count(reader.number, "sent-bytes") - before, size


def causal_order(*, quick: bool) -> list[Figure]:
    """Three regions write at once: what is relayed, and what batches say of their causes."""
    entries = MESH_ENTRIES // (QUICK_SHARE if quick else 1) // 3
    with Cluster(3) as cluster:
        script = windows(sensor_adds(KEY, entries), BATCH)
        for window in script:
            for region in cluster.regions:
                region.connection.send(window.payload)
            for region in cluster.regions:
                region.connection.drain(window.lines)
        cluster.converge()
        received = relayed = 0
        for region in cluster.regions:
            for other in cluster.regions:
                if other is not region:
                    received += region.count(other.number, "received-bytes")
                    relayed += region.count(other.number, "relayed-bytes")
        share = max(_dependencies_share(region) for region in cluster.regions)
    note = f"{relayed / received:.2%} relayed, {share:.2%} dependencies"
    return [
        Figure(
            "extra traffic for causal order, three regions writing",
            relayed / received + share,
            "of the traffic",
            note=note,
        )
    ]


def _dependencies_share(region: Region) -> float:
    """The share of the dependencies in a region's own batches, by what its log holds."""
    whole = dependencies = 0
    for path in sorted(region.server.data.rglob("log-*")):
        data = path.read_bytes()
        at = SEGMENT_HEADER_BYTES
        while (size := batch_size(data, at)) is not None and at + size <= len(data):
            batch = decode_batch(data, at)
            if batch.region == region.number and not batch.is_local:
                whole += size
                dependencies += len(msgspec.msgpack.encode(batch.context))
            at += size
    return dependencies / whole
