"""Queries that die: what they left and what comes after hold every entry exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pytest

from tests.spark.processes import kill_session
from tests.spark.reading import fill, talking, url
from tests.support.servers import REPOSITORY

JOB = REPOSITORY / "tests" / "spark" / "reading_job.py"


def start(server, place, mode, *pairs):
    """The job, as the leader of a process group of its own; `pairs`: more options of the read."""
    where = (str(place / "out"), str(place / "check"))
    return subprocess.Popen(
        [sys.executable, str(JOB), url(server), *where, mode, *pairs],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_after(job, batches, seconds):
    """Let it finish some batches, go on for a moment, and die with all its processes."""
    seen = 0
    try:
        for line in job.stdout:
            seen += line.startswith("batch")
            if seen == batches:
                break
        try:
            job.wait(seconds)  # the moment is part of the experiment, not a wait for something
        except subprocess.TimeoutExpired:
            pass
    finally:
        kill_session(job.pid)
        job.wait()
        rest = job.stderr.read()
        job.stdout.close()
        job.stderr.close()
    assert seen == batches, rest


@pytest.mark.long
def test_kill_9_in_both_kinds_of_trigger_loses_and_doubles_nothing(spark, ours, tmp_path):
    rng = random.Random(20)
    numbers = 750
    fill(ours, "s1", numbers)
    fill(ours, "s2", numbers)
    stop = threading.Event()

    def produce():
        nonlocal numbers
        while not stop.is_set() and numbers < 3000:  # a slow machine must not have more to read
            fill(ours, "s1", 2, numbers)
            fill(ours, "s2", 2, numbers)
            numbers += 2
            stop.wait(0.1)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        kill_after(start(ours, tmp_path, "stream"), rng.randint(1, 4), rng.random())
        kill_after(start(ours, tmp_path, "now"), 1, rng.random())
    finally:
        stop.set()
        producer.join()
    job = start(ours, tmp_path, "now", "maxEntriesPerTrigger=1000")
    _, noise = job.communicate(timeout=600)
    assert job.returncode == 0, noise
    (line,) = noise.splitlines()  # it ends well, and says where it went on and nothing else
    assert line.startswith("anabranch: resuming from checkpoint at s1 behind ")
    found = sorted(
        row.id for row in spark.read.parquet(*map(str, (tmp_path / "out").iterdir())).collect()
    )
    with talking(ours) as client:
        wanted = sorted(
            entry_id.decode() for key in ("s1", "s2") for entry_id, _ in client.xrange(key)
        )
    assert len(wanted) == 2 * numbers
    assert found == wanted
