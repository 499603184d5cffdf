"""Celery with another broker, and this server for its results: tasks, groups and chords."""

from __future__ import annotations

import subprocess
import sys

from tests.support.packages import required
from tests.support.servers import AnabranchServer

required("celery")

SECONDS = 90
APPLICATION = f"""
import os, sys
from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker

app = Celery("test", broker="memory://", backend=sys.argv[1])
app.conf.result_backend_transport_options = {{"result_chord_ordered": False}}


@app.task(name="add")
def add(x, y):
    return x + y


@app.task(name="total")
def total(numbers):
    return sum(numbers)


with start_worker(app, perform_ping_check=False, pool="solo", loglevel="CRITICAL"):
    print(add.delay(1, 2).get(timeout={SECONDS}))
    print(sorted(group(add.s(n, n) for n in range(3))().get(timeout={SECONDS})))
    print(chord([add.s(n, n) for n in range(3)])(total.s()).get(timeout={SECONDS}), flush=True)
    os._exit(0)  # the worker's threads need seconds to end
"""


def test_results_groups_and_chords_without_order(server: AnabranchServer) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", APPLICATION, f"redis://127.0.0.1:{server.port}/0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=3 * SECONDS,
    )
    assert done.stdout.splitlines() == ["3", "[0, 2, 4]", "6"], done.stderr
