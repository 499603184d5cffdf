"""Two regions that remove each other while a third lives: it decides, by what it hears first."""

from __future__ import annotations

from contextlib import suppress

import hiredis
import pytest

from tests.support.simulated_cluster import SimulatedCluster


def parted(*, third_hears_at_once: bool) -> SimulatedCluster:
    """Regions 1 and 2 have removed each other; the third one hears both at once, or one first."""
    cluster = SimulatedCluster(3)
    cluster.do(3, "XADD", "s", "*", "by", 3)
    cluster.run_until(cluster.have_converged)
    cluster.cut(1, 2, silently=True)
    if not third_hears_at_once:
        cluster.cut(2, 3, silently=True)
    cluster.run(6000)
    for remover, removed in ((1, 2), (2, 1)):
        process = cluster.process(remover)
        process.happen(
            lambda process=process, removed=removed: process.replicator.remove(removed, force=True)
        )
        cluster.do(remover, "XADD", "s", "*", "by", remover)
    cluster.run(3000)
    cluster.heal()
    cluster.run(30_000)
    return cluster


def writers(cluster: SimulatedCluster) -> list[int]:
    found = []
    for number in cluster.machines:
        with suppress(hiredis.ReplyError):
            cluster.do(number, "XADD", "s", "*", "by", number)
            found.append(number)
    return found


@pytest.mark.parametrize("third_hears_at_once", [False, True])
def test_who_goes_on_writing_is_one_cluster(third_hears_at_once: bool) -> None:
    cluster = parted(third_hears_at_once=third_hears_at_once)
    going_on = writers(cluster)
    assert going_on == ([3] if third_hears_at_once else [1, 3])
    cluster.run(2000)
    for number in going_on:
        replica = cluster.process(number).replica
        assert sorted(replica.members) == going_on
        assert cluster.do(number, "XRANGE", "s", "-", "+") == cluster.do(3, "XRANGE", "s", "-", "+")
    words = [fields[1] for _, fields in cluster.do(3, "XRANGE", "s", "-", "+")]
    assert words.count(b"1") >= 1, "what was said before the removal is there"
    for number in set(cluster.machines) - set(going_on):
        with pytest.raises(hiredis.ReplyError, match="was removed from the cluster"):
            cluster.do(number, "XADD", "s", "*", "by", number)
        assert b"by" in cluster.do(number, "XRANGE", "s", "-", "+")[0][1], "reads go on"
