"""A long siege: strangers come, misbehave and go on every listener, with ``maxmemory`` set.

    python -m tests.system.soak --minutes 60

Resident memory, descriptors, threads and tasks of the server must return to where they were, and
an honest client's writes must never fail. A line with figures is printed every minute, and the
verdict at the end. ``test_soak.py`` runs the same for some seconds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support import region_certificates
from tests.support.inspection import mistakes, number, open_files, rss_bytes, wait_until
from tests.support.servers import AnabranchServer, free_port
from tests.support.strangers import Ports, visit
from tests.support.wire import RespClient

__all__ = ["Figures", "Siege"]

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Figures:
    """What a server takes of the machine, at rest."""

    resident_bytes: int
    used_bytes: int
    files: int
    threads: int
    tasks: int

    def __str__(self) -> str:
        return (
            f"resident {self.resident_bytes / MEGABYTE:.1f} MiB, "
            f"used {self.used_bytes / MEGABYTE:.2f} MiB, files {self.files}, "
            f"threads {self.threads}, tasks {self.tasks}"
        )


class Siege:
    """A region with every listener, and those who besiege it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._tls, self._gossip, self._http = free_port(), free_port(), free_port()
        authority = trustme.CA()
        region_certificates.write(directory / "data", authority, authority, "localhost")
        self.server = AnabranchServer(
            directory,
            (
                *("--tls-port", str(self._tls), "--tls-auth-clients", "no"),
                *("--tls-cert-file", "cert.pem", "--tls-key-file", "key.pem"),
                *("--region-id", "1", "--cluster-create", "yes", "--handshake-timeout", "2"),
                *("--gossip-port", str(self._gossip), "--oplog-max-bytes", "32mb"),
                *("--region-cache-bytes", "1mb"),  # which would fill for hours
                *("--availability-api", "yes", "--http-port", str(self._http)),
                *("--enable-debug-command", "yes", "--auto-aof-rewrite-min-size", "32mb"),
            ),
        )
        self.client: RespClient
        self.strangers = self.refused = self.writes = 0

    def begin(self) -> None:
        """Start the server; from here on strangers need a password."""
        self.server.start()
        self.server.wait_for_writes()
        self.client = self.server.client(timeout=60)
        self.client.call("CONFIG", "SET", "requirepass", "secret")
        used = number(self.client, "used_memory")
        # Room for what a hundred strangers hold at a time, and no more.
        self.client.call("CONFIG", "SET", "maxmemory", used + 128 * MEGABYTE)

    def wave(self, count: int = 60, stay_s: float = 0.2) -> None:
        """Strangers come and go, while an honest client writes."""
        ports = Ports(self.server.port, self._tls, self._gossip, self._http)
        inside = visit(self._rng, ports, count, stay_s)
        self.strangers += count
        self.refused += count - inside
        for _ in range(20):
            reply = self.client.call("XADD", "honest", "MAXLEN", 1000, "*", "f", "v" * 100)
            assert reply[0] == "$", reply
            self.writes += 1

    def rest(self) -> Figures:
        """Wait until all of them are gone, and look."""
        wait_until(lambda: number(self.client, "connected_clients") == 1, "they are gone", 60)
        wait_until(self._quiet, "it is quiet", 60)
        self.client.call("DEL", "k", "s")
        self.client.call("MEMORY", "PURGE")
        return self.look()

    def _quiet(self) -> bool:
        before = open_files(self.server)
        time.sleep(2.5)  # longer than any handshake may take
        return open_files(self.server) == before

    def look(self) -> Figures:
        """The figures now."""
        assert self.server.process is not None
        threads = len(os.listdir(f"/proc/{self.server.process.pid}/task"))
        return Figures(
            rss_bytes(self.server),
            number(self.client, "used_memory"),
            open_files(self.server),
            threads,
            number(self.client, "event_loop_tasks"),
        )

    def end(self) -> None:
        """Stop; there must be no trace of a mistake."""
        self.client.__exit__(None, None, None)
        found = mistakes(self.server)
        self.server.kill()
        assert not found, found[:5]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        siege = Siege(Path(directory), options.seed)
        siege.begin()
        try:
            return _besiege(siege, options.minutes * 60)
        finally:
            siege.end()


def _besiege(siege: Siege, seconds: float) -> int:
    # Caches, arenas and the log have their usual size after some waves.
    for _ in range(40):
        siege.wave()
    first = siege.rest()
    print(f"start: {first}", flush=True)  # noqa: T201
    began = told = time.monotonic()
    while (now := time.monotonic()) - began < seconds:
        siege.wave()
        if now - told >= 60:
            told = now
            print(  # noqa: T201
                f"{(now - began) / 60:.0f} min: {siege.strangers} strangers, "
                f"{siege.refused} found no place, {siege.writes} writes; {siege.look()}",
                flush=True,
            )
        time.sleep(0.3)
    last = siege.rest()
    print(f"end:   {last}", flush=True)  # noqa: T201
    grown = last.resident_bytes - first.resident_bytes
    returned = (
        grown < 0.1 * first.resident_bytes + 8 * MEGABYTE
        and last.files <= first.files + 2
        and last.threads <= first.threads + 1
        and last.tasks <= first.tasks
        and last.used_bytes <= first.used_bytes + MEGABYTE
    )
    print("everything returned" if returned else "SOMETHING STAYED", flush=True)  # noqa: T201
    return 0 if returned else 1


if __name__ == "__main__":
    sys.exit(main())
