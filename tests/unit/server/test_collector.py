"""How many objects one collection of the interpreter visits; every client waits meanwhile."""

from __future__ import annotations

import subprocess
import sys

OBJECTS_MAX = 6_000
"""To visit so many takes 1 to 6 ms, depending on the machine and on what is in its caches."""

PROGRAM = """
import gc
from anabranch.server.memory import calm_collector

calm_collector()
visited = []

def note(phase, info):
    if phase == "start":
        young = range(info["generation"] + 1)
        visited.append(sum(len(gc.get_objects(generation=number)) for number in young))

gc.callbacks.append(note)
kept = [[] for _ in range(500_000)]
print(len(visited), max(visited))
"""


def test_no_collection_visits_many_objects() -> None:
    """Not even while the server makes objects that stay, for example pending entries."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    count, most = map(int, done.stdout.split())
    assert count > 5, "there are collections"
    assert most <= OBJECTS_MAX
