"""Three regions as real processes, found by each other through a proxy that misbehaves.

Every region listens for the others on one loopback address and announces another, where the proxy
stands. So all traffic between regions passes the proxy, whoever dials.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.inspection import number, wait_until
from tests.support.proxy import Proxy
from tests.support.servers import AnabranchServer, free_port
from tests.support.wire import ConnectionLost, Reply, RespClient

ENTER_S = 60.0


class Unreachable(Exception):
    """No answer: whether the command was carried out is not known."""


class RegionServer(AnabranchServer):
    """One region: the same ports and the same command line at every start."""

    def __init__(self, number: int, name: str, directory: Path, ports: tuple[int, int]) -> None:
        super().__init__(directory)
        self.number = number
        self.region = name
        self.fixed_port, self.gossip_port = ports

    @property
    def listens(self) -> tuple[str, int]:
        """Where it waits for other regions."""
        return f"127.0.1.{self.number}", self.gossip_port

    @property
    def announces(self) -> tuple[str, int]:
        """Where they look for it."""
        return f"127.0.2.{self.number}", self.gossip_port

    def start(self) -> Self:
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        self.port = self.fixed_port
        self._launch()
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        assert self.process is not None
        self.process.send_signal(number)


class RegionProcesses:
    """The cluster; use as a context manager."""

    def __init__(self, directory: Path, names: Sequence[str], *extra: str) -> None:
        """`extra`: further settings of all regions."""
        ports = [free_port() for _ in range(2 * len(names))]
        self.servers = [
            RegionServer(number, name, directory / name, (ports.pop(), ports.pop()))
            for number, name in enumerate(names, 1)
        ]
        self.names = list(names)
        self.proxy = Proxy(self._dialler)
        for server in self.servers:
            known = [f"{h}:{p}" for h, p in (o.announces for o in self.servers if o != server)]
            entry = ["--cluster-create", "yes"] if server.number == 1 else ["--join", *known]
            server.extra = [
                *("--region-id", str(server.number), "--region-name", server.region),
                *("--gossip-port", str(server.gossip_port), "--gossip-bind", server.listens[0]),
                *("--gossip-announce", server.announces[0], "--enable-debug-command", "yes"),
                *entry,
                *extra,
            ]

    def _dialler(self, first: bytes) -> str:
        """A HELLO has the name of its region in it."""
        return next((name for name in self.names if name.encode() in first), "?")

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        try:
            for server in self.servers:
                server.directory.mkdir(parents=True, exist_ok=True)
                self.proxy.stand_before(server.region, server.announces, server.listens)
            for server in self.servers:
                server.start()
            wait_until(self.is_whole, "all regions have entered", ENTER_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()
        self.proxy.__exit__()

    def is_whole(self) -> bool:
        """Whether every region knows of all, and takes writes."""
        for server in self.servers:
            with server.client(resp=3) as client:
                members = dict_of(client.call("AB.INFO"))[b"members"][1]
                if len(members) < len(self.servers) or not number(client, "caught_up"):
                    return False
        return True

    def call(self, server: RegionServer, *words: str | int | bytes) -> Reply:
        """One command on a connection of its own."""
        with server.client(resp=3) as client:
            return client.call(*words)

    def vectors(self) -> list[Reply]:
        """What each region has applied."""
        return [dict_of(self.call(server, "AB.INFO"))[b"vector"] for server in self.servers]

    def heal(self) -> None:
        """No fault any more, neither in the proxy nor in the servers."""
        self.proxy.clear()
        for server in self.servers:
            for other in self.servers:
                if other != server:
                    reply = self.call(server, "AB.LINK", other.number, "RESUME")
                    assert reply == ("+", b"OK"), reply

    def converged(self) -> bool:
        """Whether all have applied the same."""
        vectors = self.vectors()
        return all(each == vectors[0] for each in vectors)


def dict_of(reply: Reply) -> dict[bytes, Reply]:
    """A map of RESP3 by its names."""
    assert reply[0] == "%", reply
    return {name[1]: value for name, value in reply[1]}


class Caller:
    """A client that keeps connections to all regions, and gives up soon."""

    def __init__(self, servers: Sequence[RegionServer], timeout: float = 1.0) -> None:
        self._servers = servers
        self._timeout = timeout
        self._clients: dict[int, RespClient] = {}

    def call(self, region: int, *words: str | int | bytes) -> Reply:
        """Ask the region with this index.

        Raises :class:`Unreachable` if no answer comes, or if the region is loading its data.
        """
        try:
            client = self._clients.get(region)
            if client is None:
                port = self._servers[region].fixed_port
                client = self._clients[region] = RespClient(port, timeout=self._timeout)
            reply = client.call(*words)
            if reply[0] == "-" and reply[1].startswith(b"LOADING"):
                raise Unreachable("it is loading its data")
            return reply
        except (OSError, ConnectionLost) as problem:
            self.forget(region)
            raise Unreachable(str(problem)) from None

    def forget(self, region: int) -> None:
        """Connect anew next time."""
        client = self._clients.pop(region, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        """Close all connections."""
        for region in list(self._clients):
            self.forget(region)


def seed_of(variable: str, default: int) -> int:
    """A number from the environment."""
    return int(os.environ.get(variable, str(default)))
