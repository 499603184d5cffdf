"""The page under load: 10,000 streams, 1,000 groups, 10,000 entries a second.

Runs with ``-m long``, as it needs a machine that does nothing else: it measures time. Without load
the page is measured first, and the bounds are wide.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from tests.browser.visitor import TOKEN, Visit
from tests.support.servers import AnabranchServer, free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

STREAMS, GROUPS, RATE = 10_000, 1_000, 10_000
LOOK_S = 12.0

ANSWER_MS = 100.0
"""What people take for at once: half of all presses of a button are seen within this."""

STILL_MS = 500.0
"""The page never stands still for longer."""

WATCHING = """
window.longTasks = []; window.gaps = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries().map((each) => each.duration)))
  .observe({type: "longtask"});
let last = performance.now();
const frame = () => {
  const now = performance.now(); gaps.push(now - last); last = now; requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""

PRESS = """() => new Promise((done) => {
  const began = performance.now();
  document.getElementById("theme").click();
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
})"""

LOAD = """
import sys, time, redis
port, rate, streams = map(int, sys.argv[1:])
client, began, sent = redis.Redis(port=port), time.monotonic(), 0
while True:
    pipe = client.pipeline(transaction=False)
    for number in range(100):
        key = "s0" if number % 2 else f"s{(sent + number) % streams}"
        pipe.xadd(key, {"sensor": "t1", "celsius": "21.5", "n": number}, maxlen=100_000)
    pipe.execute()
    sent += 100
    time.sleep(max(0.0, sent / rate - (time.monotonic() - began)))
"""


@contextmanager
def load(server: AnabranchServer) -> Iterator[None]:
    """Entries at a rate, half of them to one stream."""
    words = (str(server.port), str(RATE), str(STREAMS))
    process = subprocess.Popen([sys.executable, "-c", LOAD, *words])
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def look(page: Any) -> tuple[list[float], float, list[float]]:
    """Milliseconds: answers to presses of a button, the longest gap of frames, long tasks."""
    page.evaluate("() => { gaps.length = longTasks.length = 0; }")
    until_s = time.monotonic() + LOOK_S
    answers = []
    while time.monotonic() < until_s:
        answers.append(page.evaluate(PRESS))
        page.wait_for_timeout(400)
    gaps, tasks = page.evaluate("() => [gaps, longTasks]")
    return sorted(answers), max(gaps), sorted(tasks)


def test_the_page_stays_responsive(visit: Visit) -> None:
    port = free_port()
    server = AnabranchServer(extra=["--http-port", str(port), "--http-token", TOKEN])
    with server as started, redis.Redis(port=started.port) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(STREAMS):
            pipe.xadd(f"s{number}", {"f": "v"})
            if number < GROUPS:
                pipe.xgroup_create(f"s{number}", "g", "0")
        pipe.execute()
        visitor = visit(port, script=WATCHING)
        page = visitor.page
        visitor.until("() => document.querySelectorAll('#busy tbody a').length >= 8")
        page.fill("#watch-key", "s0")
        page.press("#watch-key", "Enter")
        visitor.until("() => document.querySelectorAll('#entries tbody tr').length === 1")
        for place in ("timeline", "entries"):
            page.evaluate("(id) => document.getElementById(id).scrollIntoView()", place)
            idle = look(page)
            with load(server):
                visitor.until("() => /passed over/.test("
                              "document.getElementById('timeline-say').textContent)"
                              if place == "timeline" else "() => true")  # fmt: skip
                answers, still_ms, tasks = look(page)
                rate = client.info("stats")["instantaneous_ops_per_sec"]
            median = answers[len(answers) // 2]
            print(  # noqa: T201 - for pytest -rP
                f"{place}: {rate} commands a second; answers {median:.0f} ms, at most "
                f"{answers[-1]:.0f} (idle {idle[0][len(idle[0]) // 2]:.0f} and "
                f"{idle[0][-1]:.0f}); longest gap {still_ms:.0f} ms (idle {idle[1]:.0f}); "
                f"{len(tasks)} long tasks, {sum(tasks):.0f} ms (idle {len(idle[2])})"
            )
            assert median < ANSWER_MS
            assert still_ms < STILL_MS
        assert visitor.complaints == []
