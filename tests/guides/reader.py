"""Somebody who follows a page: types its commands, runs its code, and compares what they print."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import redis

from tests.support.inspection import wait_until
from tests.support.servers import READY_SECONDS, free_port

SERVED = "6379"
CLUSTER = ("7379", "7380", "7381")
PREPARATION = ("pip install", "make ")
"""What the environment of the tests has already."""

_VARIES = re.compile(
    r"\b\d{13}-\d+\b|\(pid \d+\)|\[::1\]:\d+|(?<= )/\S+(?=/data)|\b\d+\.\d+ s\b|(?<=anabranch )\S+"
)


class Reader:
    """Somebody who follows a page on this machine, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {SERVED: free_port()}
        self.servers: list[subprocess.Popen[bytes]] = []
        self.names: dict[str, object] = {}
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        }

    def here(self, text: str) -> str:
        """The text with ports that are free on this machine."""
        for shown, real in self.ports.items():
            text = re.sub(rf"\b{shown}\b", str(real), text)
        return text

    def shell(self, script: str) -> str:
        """What the lines print; the ready line for a server."""
        printed = ""
        commands = ""
        script = re.sub(r"redis-cli (?!-p)", f"redis-cli -p {SERVED} ", script)
        for line in script.replace("\\\n", " ").splitlines():
            if line.startswith("anabranch serve"):
                printed += self.run(self.here(commands)) + self.serve(self.here(line))
                commands = ""
                continue
            if line.startswith("anabranch cluster up"):
                first = first_of_free_ports(len(CLUSTER))
                self.ports |= {shown: first + number for number, shown in enumerate(CLUSTER)}
                line += f" --port {CLUSTER[0]} --http-port 0"
            if not line.startswith(PREPARATION):
                commands += f"{line}\n"
        return printed + self.run(self.here(commands))

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", commands],
            check=False,
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=READY_SECONDS,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    def serve(self, command: str) -> str:
        """Start a server, as in another terminal, and wait until it answers."""
        for earlier in self.servers:
            earlier.wait(READY_SECONDS)
        output = self.directory / f"output-{len(self.servers)}"
        port = self.ports[SERVED]
        if "--port" not in command:
            command += f" --port {port}"
        with output.open("wb") as file:
            server = subprocess.Popen(
                command.split(), cwd=self.directory, env=self.environment, stdout=file
            )
        self.servers.append(server)

        def shown() -> str:
            text = output.read_text()
            return text[: text.rfind("\n") + 1]  # whole lines

        def ready() -> bool:
            assert server.poll() is None, shown()
            return '"server.ready"' in shown()

        wait_until(ready, "the server is ready", READY_SECONDS)
        # On a terminal the server prints this message alone; this is a file.
        events = [json.loads(line) for line in shown().splitlines()]
        return "".join(f"{row['message']}\n" for row in events if row["event"] == "server.ready")

    def python(self, code: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(self.here(code), self.names)
        return printed.getvalue()

    def close(self) -> None:
        for value in self.names.values():
            if isinstance(value, redis.Redis):
                value.close()
        if len(self.ports) > 1:
            with contextlib.suppress(AssertionError):
                self.run("anabranch cluster down")
        for server in self.servers:
            if server.poll() is None:
                server.send_signal(signal.SIGKILL)
            server.wait(READY_SECONDS)


def first_of_free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    ports = [free_port()]
    while len(ports) < count:
        port = free_port()
        ports = [*ports, port] if port == ports[-1] + 1 else [port]
    return ports[0]


def same(text: str) -> str:
    """A text without what differs from run to run."""
    return re.sub(" +", " ", _VARIES.sub("...", text)).rstrip("\n")
