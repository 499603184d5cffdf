"""A step with a policy: a worker that dies, and one that only takes long."""

from __future__ import annotations

import time
from typing import Any, Final

import redis

from anabranch.cli.cluster_files import Member
from anabranch.cli.cluster_servers import connect
from anabranch.cli.demo.cluster import TEXTS, DemoCluster
from anabranch.cli.demo.story import DemoClaim, Scene, StoryStep

TASKS: Final = "tasks"
WORKERS: Final = "packers"
LEASE: Final = "connection:200ms"
BLOCK_MS: Final = 10_000


def dying_worker(cluster: DemoCluster, member: Member) -> StoryStep:
    """The server hands out what a dead worker had, and nothing that a living one works on."""
    yield Scene(
        "A worker dies, another one only takes long",
        f"A group in {member.name} has the policy 'lease {LEASE}': what a worker took is its own "
        "as long as its connection is open. Two workers take a task each. The first one dies; the "
        "second one goes on working, and a third one waits for work.",
    )
    do = cluster.do
    do(member, "XGROUP", "CREATE", TASKS, WORKERS, "0", "MKSTREAM")
    cluster.until(lambda: _has_policy(cluster, member), "every region knows of policies")
    for name in ("first", "second"):
        do(member, "XADD", TASKS, "*", "task", name)
    dying, slow, third = (connect(member, BLOCK_MS / 500, **TEXTS) for _ in range(3))
    with slow, third:
        left = _read(dying, "w1")
        (long_task,) = _read(slow, "w2")
        dying.close()
        began = time.monotonic()
        taken = _read(third, "w3", block=BLOCK_MS)
        waited_ms = (time.monotonic() - began) * 1000
        reply: Any = third.xautoclaim(TASKS, WORKERS, "w3", min_idle_time=1, justid=True)
        claimed = [each for each in reply if each not in taken]
        acknowledged = int(slow.xack(TASKS, WORKERS, long_task))
    yield f"redis-cli -p {member.port} XPENDING {TASKS} {WORKERS} - + 10"
    yield DemoClaim(
        "the task of the worker that died is given to the one that waits",
        taken == left != [],
        f"after {waited_ms:.0f} ms, by a plain XREADGROUP",
    )
    yield DemoClaim(
        "the task that only takes long stays with its worker, whatever is claimed",
        not claimed and acknowledged == 1,
    )


def _has_policy(cluster: DemoCluster, member: Member) -> bool:
    try:
        cluster.do(member, "AB.POLICY", "SET", TASKS, "lease", LEASE)
    except redis.ResponseError:  # it has not heard of another region yet
        return False
    return True


def _read(client: redis.Redis, consumer: str, block: int | None = None) -> list[str]:
    """The IDs that a worker is given."""
    reply: Any = client.xreadgroup(WORKERS, consumer, {TASKS: ">"}, count=1, block=block)
    return [entry_id for _, entries in reply or [] for entry_id, _ in entries]
