"""What one open page costs the server, as a share of a core: ``python -m benchmarks.page``.

The server is idle but for the page, which shows one of many streams. The goal is below 1 % at
1,000 streams with a group each.
"""

from __future__ import annotations

import os
import threading
import time
from http.client import HTTPConnection

import click
import redis

from tests.support.servers import AnabranchServer, free_port

SETTLE_S = 8.0


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


@click.command()
@click.option("--streams", default=1000, show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(streams: int, seconds: float) -> None:
    """Measure without and with a page."""
    port = free_port()
    with AnabranchServer(extra=["--http-port", str(port)]) as server:
        with redis.Redis(port=server.port) as client:
            pipe = client.pipeline(transaction=False)
            for number in range(streams):
                pipe.xadd(f"s{number}", {"f": "v"})
                pipe.xgroup_create(f"s{number}", "g", "0")
            pipe.execute()
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
    print(
        f"{streams} streams: {without:.2f} % of a core without a page, {with_page:.2f} % with one; "
        f"the page costs {with_page - without:.2f} % (goal: below 1 %)"
    )


if __name__ == "__main__":
    main()
