"""The services of docker/compose.yaml, as processes of this machine.

What stands in the file is run: commands, environments, ports, health checks, in the order that
`depends_on` asks for. Only what containers would give is put in its place: names of hosts become
127.0.0.1, and each service's ports become free ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, AnabranchServer, free_port
from tests.support.wire import RespClient

FILE = REPOSITORY / "docker" / "compose.yaml"
PORT = 6379
GOSSIP_PORT = 16379
HTTP_PORT = 8080
REGIONS = ("eu", "us", "ap")
SECONDS = 60.0


class Service:
    """One of them, and the process that it is here."""

    def __init__(self, stack: Stack, name: str, row: dict[str, Any]) -> None:
        self.stack = stack
        self.name = name
        self.row = row
        self.home = stack.directory / name
        self.home.mkdir()
        self.output = self.home / "output"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def is_server(self) -> bool:
        return "command" not in self.row

    def environment(self) -> dict[str, str]:
        """As in the container, with what the image sets."""
        own = {name: self.stack.local(text or "") for name, text in self.row["environment"].items()}
        if self.is_server:
            ports = self.stack.ports[self.name]
            own |= {
                "ANABRANCH_BIND": "127.0.0.1",
                "ANABRANCH_PROTECTED_MODE": "no",
                "ANABRANCH_DIR": str(self.home),
                "ANABRANCH_PORT": str(ports[PORT]),
            }
            assert own["ANABRANCH_GOSSIP_PORT"] == str(GOSSIP_PORT)
            own["ANABRANCH_GOSSIP_PORT"] = str(ports[GOSSIP_PORT])
            assert own["ANABRANCH_HTTP_PORT"] == str(HTTP_PORT)
            own["ANABRANCH_HTTP_PORT"] = str(ports[HTTP_PORT])
            assert own["ANABRANCH_GOSSIP_ANNOUNCE"] == self.name
            own["ANABRANCH_GOSSIP_ANNOUNCE"] = "127.0.0.1"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**AnabranchServer(self.home).environment(), **own, "PATH": path}

    def command(self) -> list[str]:
        """The image's own, unless there is another."""
        if self.is_server:
            return ["anabranch", "serve"]
        return [self.mounted(word) for word in self.row["command"]]

    def mounted(self, word: str) -> str:
        """A path in the container as the path of this machine that is mounted there."""
        for volume in self.row["volumes"]:
            source, target, mode = volume.split(":")
            assert mode == "ro"
            if word.startswith(target + "/"):
                return str(FILE.parent / source) + word.removeprefix(target)
        return word

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.home,
                env=self.environment(),
            )

    def is_healthy(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.text()
        kind, *command = self.row["healthcheck"]["test"]
        assert kind == "CMD"
        result = subprocess.run(
            command, env=self.environment(), capture_output=True, timeout=SECONDS, check=False
        )
        return result.returncode == 0

    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(SECONDS)
            finally:
                self.process.kill()
                self.process.wait()

    def client(self) -> RespClient:
        return RespClient(self.stack.ports[self.name][PORT])


class Stack:
    """All services of the file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        rows = self.rows()
        self.ports: dict[str, dict[int, int]] = {}
        for name, row in rows.items():
            if "command" not in row:
                self.ports[name] = {each: free_port() for each in (PORT, GOSSIP_PORT, HTTP_PORT)}
        self.services = {name: Service(self, name, row) for name, row in rows.items()}

    @staticmethod
    def rows() -> dict[str, Any]:
        """What is started without a profile."""
        whole = yaml.safe_load(variables_filled_in(FILE.read_text()))["services"]
        return {name: row for name, row in whole.items() if "profiles" not in row}

    def local(self, text: str) -> str:
        """Names and ports of other containers as they are here."""
        for name, ports in self.ports.items():
            for port, here in ports.items():
                text = re.sub(rf"\b{name}:{port}\b", f"127.0.0.1:{here}", text)
        return text

    def up(self) -> None:
        """In the order that `depends_on` asks for."""
        started: set[str] = set()
        while len(started) < len(self.services):
            ready = [
                service
                for name, service in self.services.items()
                if name not in started and started >= service.row.get("depends_on", {}).keys()
            ]
            assert ready, "depends_on goes round in a circle"
            for service in ready:
                for name, what in service.row.get("depends_on", {}).items():
                    assert what == {"condition": "service_healthy"}
                    wait_until(self.services[name].is_healthy, f"{name} is healthy", SECONDS)
                service.start()
                started.add(service.name)


def variables_filled_in(text: str) -> str:
    """With nothing set: ``${NAME:-default}`` is its default."""
    text = re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)
    assert "$" not in text
    return text


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    stack = Stack(tmp_path)
    yield stack
    for service in reversed(stack.services.values()):
        service.end()


def test_orders_of_all_producers_reach_all_consumers(stack: Stack) -> None:
    assert set(stack.services) == {
        *REGIONS, *(f"{r}-producer" for r in REGIONS), *(f"{r}-consumer" for r in REGIONS)
    }  # fmt: skip
    stack.up()
    try:
        for region in REGIONS:
            wait_until(lambda r=region: has_orders_of_all(stack, r), "orders are there", SECONDS)  # type: ignore[misc]
            wait_until(lambda r=region: has_processed(stack, r), "orders are processed", SECONDS)  # type: ignore[misc]
    except AssertionError:
        raise AssertionError({name: each.text()[-600:] for name, each in stack.services.items()})  # noqa: B904

    # A producer whose region dies turns to another one, and goes on with its numbers.
    us, producer = stack.services["us"], stack.services["us-producer"]
    assert us.process is not None
    us.process.kill()
    us.process.wait()
    wait_until(lambda: taken_elsewhere(producer), "it goes on")
    us.start()
    wait_until(us.is_healthy, "us is healthy again", SECONDS)
    entry_id = taken_elsewhere(producer)
    for region in REGIONS:
        wait_until(lambda r=region: has_order(stack, r, entry_id), "it is there", SECONDS)  # type: ignore[misc]
    with stack.services["eu"].client() as client:
        rows = [row[1] for row in client.call("XRANGE", "orders", "-", "+")[1]]
    numbers = [(row[1][1][1][1], row[1][1][3][1]) for row in rows]
    assert len(numbers) == len(set(numbers)), "an order is there twice"


def taken_elsewhere(producer: Service) -> bytes:
    """The order that a producer's own region did not take, under the ID that it got then."""
    after = producer.text().partition("Error")[2]
    found = re.search(r"order \d+ is (\S+) in ", after)
    return found[1].encode() if found else b""


def has_orders_of_all(stack: Stack, region: str) -> bool:
    with stack.services[region].client() as client:
        rows = client.call("XRANGE", "orders", "-", "+")[1]
    return {row[1][1][1][1][1].decode() for row in rows} == set(REGIONS)


def has_order(stack: Stack, region: str, entry_id: bytes) -> bool:
    with stack.services[region].client() as client:
        return bool(client.call("XRANGE", "orders", entry_id, entry_id)[1])


def has_processed(stack: Stack, region: str) -> bool:
    text = stack.services[f"{region}-consumer"].text()
    return all(re.search(rf"order \d+ of {each}\n", text) for each in REGIONS)


def test_every_published_port_leads_to_a_listener() -> None:
    services = Stack.rows()
    published = [port for row in services.values() for port in row.get("ports", ())]
    assert len(published) == 2 * len(REGIONS)
    assert len({port.rsplit(":", 1)[0] for port in published}) == len(published)
    assert all(port.endswith((f":{PORT}", f":{HTTP_PORT}")) for port in published)
    for name, row in services.items():
        if name not in REGIONS:
            assert row["healthcheck"] == {"disable": True}
