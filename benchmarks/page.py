"""What the HTTP port costs the server: ``python -m benchmarks.page``.

The server is idle but for what is measured. An open page that shows one of many streams: its cost
as a share of a core; the goal is below 1 % at 1,000 streams with a group each. Scrapes of
``/metrics`` with the series of 10,000 streams and 1,000 groups: the longest time that the server
works between a PING and its answer; the goal is 10 ms.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import click
import redis

from benchmarks.shared.form import measured_form
from benchmarks.versus_redis.canary import Canary
from tests.support.servers import AnabranchServer, free_port

SETTLE_S = 8.0
GROUPS = 1_000


@contextmanager
def filled(streams: int, port: int) -> Iterator[AnabranchServer]:
    """A server with many streams, of which up to 1,000 have a group."""
    words = ["--http-port", str(port), "--metrics-max-streams", str(streams)]
    with AnabranchServer(extra=words) as server:
        with redis.Redis(port=server.port) as client:
            pipe = client.pipeline(transaction=False)
            for number in range(streams):
                pipe.xadd(f"s{number}", {"f": "v"})
                if number < GROUPS:
                    pipe.xgroup_create(f"s{number}", "g", "0")
            pipe.execute()
        yield server


def processor_s(pid: int) -> float:
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def share(pid: int, seconds: float) -> float:
    """The share of a core that it uses, in percent."""
    before = processor_s(pid)
    time.sleep(seconds)
    return 100 * (processor_s(pid) - before) / seconds


def read_on(port: int, stop: threading.Event) -> None:
    """Be an open page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/events?key=s1")
    response = connection.getresponse()
    while not stop.is_set():
        response.readline()
    connection.close()


def page_cost(streams: int, seconds: float) -> str:
    """Measure without and with a page."""
    port = free_port()
    with filled(streams, port) as server:
        assert server.process is not None
        time.sleep(SETTLE_S)
        without = share(server.process.pid, seconds)
        stop = threading.Event()
        page = threading.Thread(target=read_on, args=(port, stop), daemon=True)
        page.start()
        time.sleep(SETTLE_S)
        with_page = share(server.process.pid, seconds)
        stop.set()
        page.join(5)
    goal = " (goal: below 1 %)" if streams <= GROUPS else ""
    return (
        f"{streams} streams: {without:.2f} % of a core without a page, {with_page:.2f} % with one; "
        f"the page costs {with_page - without:.2f} %{goal}"
    )


def scrape_cost(streams: int, scrapes: int) -> str:
    """Measure how long clients wait while metrics are scraped."""
    port = free_port()
    with filled(streams, port) as server:
        assert server.process is not None
        pid = server.process.pid
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        waits, costs = [], []
        with Canary(server.port, pid) as canary:
            for _ in range(scrapes):
                before_s = processor_s(pid)
                connection.request("GET", "/metrics")
                size = len(connection.getresponse().read())
                costs.append(processor_s(pid) - before_s)
                waits.append(canary.look().worst_cpu_ms)
        connection.close()
    return (
        f"{scrapes} scrapes of {streams} streams, {size / 1e6:.1f} MB and "
        f"{statistics.median(costs):.2f} s of processor time each: the server works for "
        f"{statistics.median(waits):.1f} ms at a time in half of them, for {max(waits):.1f} ms "
        "at most (goal: 10 ms)"
    )


@click.command(help=__doc__)
@click.option("--streams", default=1000, show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
@click.option("--scraped-streams", default=10_000, show_default=True)
@click.option("--scrapes", default=100, show_default=True)
def main(streams: int, seconds: float, scraped_streams: int, scrapes: int) -> None:
    """Measure, and print."""
    print(f"anabranch {measured_form()}")
    for count in (streams, scraped_streams):
        if count and seconds:
            print(page_cost(count, seconds))
    if scrapes:
        print(scrape_cost(scraped_streams, scrapes))


if __name__ == "__main__":
    main()
