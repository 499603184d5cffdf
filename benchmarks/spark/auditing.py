"""`audit` of two regions that have the same."""

from __future__ import annotations

from anabranch.spark.jobs.audit import audit
from benchmarks.regions.cluster import Cluster
from benchmarks.shared.figures import Figure

from .data import fill
from .local import everywhere, spark, timed

KEY = "bench:audit"
ENTRIES, QUICK_ENTRIES = 1_000_000, 50_000


def audit_of_two(*, quick: bool) -> list[Figure]:
    """The second of two audits: session and workers are there."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    spark()
    with Cluster(2) as cluster:
        everywhere()
        fill(cluster.regions[0].connection, KEY, entries)
        cluster.converge()
        urls = {
            str(each.number): f"redis://127.0.0.1:{each.server.port}" for each in cluster.regions
        }
        taken = [timed(lambda: _audited(urls, entries)) for _ in range(2)]
    note = f"2 x {entries:,} entries; the first took {taken[0]:.1f} s"
    return [Figure("audit of two regions", taken[1], "s", note=note, is_less=quick)]


def _audited(urls: dict[str, str], entries: int) -> None:
    found = audit(spark(), region_urls=urls, streams=[KEY])
    if not found.converged or found.entries != (entries, entries):
        raise RuntimeError(f"the audit did not see two equal regions: {found}")
