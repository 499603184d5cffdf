"""Real servers as context managers: Debian's redis-server, and ours.

Readiness is found by connecting until a PING is answered; a process that dies meanwhile is
noticed at once. Nothing is waited for by a fixed time.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import ClassVar, Self

import anabranch
from anabranch.testing import Server
from tests.support.inspection import number, wait_until
from tests.support.wire import RespClient

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "src"
COMPILED = REPOSITORY / "build" / "compiled"
READY_SECONDS = 120.0
STOP_SECONDS = 60.0
PORTS = range(10_100, 16_300)
"""For servers; a gossip port that is not set is 10,000 above."""
_RETRY_SECONDS = 0.02  # between two attempts to connect; a death ends the wait at once


class ServerFailed(AssertionError):
    """A server did not start, or did not stop as it should."""


def redis_server_path() -> str | None:
    """The redis-server program, if this machine has one."""
    return shutil.which("redis-server")


def compiled_core() -> Path | None:
    """The directory of the core that `make compile` built; None unless it is of these sources."""
    built = COMPILED / ".built"
    if not built.exists():
        return None
    newest = max(path.stat().st_mtime for path in SOURCES.rglob("*.py"))
    return COMPILED / "core" if newest <= built.stat().st_mtime else None


def _ports() -> Iterator[int]:
    """Those of this process, again and again; each of pytest's workers has its own.

    They lie below those that the system gives to connections: a port of these that is free now may
    be the near end of somebody's connection by the time a server wants it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    share = len(PORTS) // 8
    first = int(worker) % 8 * share
    ports = PORTS[first : first + share]
    at = os.getpid() % share  # another run of the tests may be going on
    return cycle([*ports[at:], *ports[:at]])


_next_ports = _ports()


def free_port() -> int:
    """A TCP port that nobody listens on now, and that is not given out again soon."""
    for port in islice(_next_ports, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return port
    raise AssertionError(f"no port between {PORTS[0]} and {PORTS[-1]} is free")


class ServerProcess:
    """A server process on a port of this machine, with its directory and its log."""

    name = "server"

    def __init__(self, directory: Path | None = None) -> None:
        """Prepare; `start` starts. Without a directory a temporary one is made."""
        self._own_directory: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._own_directory = tempfile.TemporaryDirectory(prefix=f"{self.name}-")
            directory = Path(self._own_directory.name)
        self.directory = directory
        self.log_path = directory / f"{self.name}.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.ready_seconds = READY_SECONDS
        """How long a start may take."""

    def command(self) -> Sequence[str]:
        """The command line for the current port."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """The environment of the process."""
        return os.environ

    def start(self) -> Self:
        """Start and wait until it answers; a lost race for the port is tried again."""
        for attempt in range(3):
            self.port = free_port()
            try:
                self._launch()
            except ServerFailed:
                self.kill()
                if attempt == 2 or b"in use" not in self.log_path.read_bytes():
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def _launch(self) -> None:
        """Start on the current port and wait until it answers."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=dict(self.environment()),
            )
        self._wait_ready(self.process)

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.ready_seconds
        while time.monotonic() < deadline:
            try:
                with RespClient(self.port, timeout=2.0) as client:
                    if self._answers(client, process.pid):
                        return
            except OSError:
                pass
            try:
                status = process.wait(_RETRY_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            raise ServerFailed(f"{self.name} ended with status {status}\n{self.log_tail()}")
        seconds = self.ready_seconds
        raise ServerFailed(f"{self.name} did not answer in {seconds} s\n{self.log_tail()}")

    @staticmethod
    def _answers(client: RespClient, pid: int) -> bool:
        """Whether it is this process that answers, not another one that got the port first."""
        if client.call("PING") != ("+", b"PONG"):
            return False
        return b"process_id:%d\r\n" % pid in client.call("INFO", "server")[1]

    def log_text(self) -> str:
        """All that the process has written so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log, for messages."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def client(self, resp: int = 2, timeout: float = 60.0) -> RespClient:
        """A new connection."""
        return RespClient(self.port, resp=resp, timeout=timeout)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def stop(self) -> None:
        """Ask it to end (SIGTERM), and fail unless it ends well and in time."""
        process, self.process = self.process, None
        if process is None:
            return
        try:
            process.send_signal(signal.SIGTERM)
            try:
                status = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise ServerFailed(
                    f"{self.name} did not end in {STOP_SECONDS} s\n{self.log_tail()}"
                ) from None
            if status != 0:
                raise ServerFailed(f"{self.name} ended with status {status}\n{self.log_tail()}")
        finally:
            self._clean()

    def kill(self) -> None:
        """End it at once, as a crash would; the directory stays."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def _clean(self) -> None:
        if self._own_directory is not None:
            self._own_directory.cleanup()

    def __enter__(self) -> Self:
        """Started and ready."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop; when a test failed already, without judging how it ended."""
        if kind is None:
            self.stop()
        else:
            self.kill()
            self._clean()


class RedisServer(ServerProcess):
    """Redis as the machine has it, in memory only."""

    name = "redis-server"

    def __init__(self, directory: Path | None = None, extra: Sequence[str] = ()) -> None:
        """`extra`: further settings, as on the command line."""
        super().__init__(directory)
        self.extra = list(extra)

    def command(self) -> Sequence[str]:
        """redis-server without persistence."""
        path = redis_server_path()
        if path is None:
            raise ServerFailed("redis-server is not installed")
        return [
            path,
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(self.directory)),
            *self.extra,
        ]


class AnabranchServer(ServerProcess):
    """Our server, started from the sources of this repository."""

    name = "anabranch"
    core: ClassVar[Path] = Path(anabranch.__file__).resolve().parents[1]
    """Where the modules are: as here, or the compiled core (`compiled_form`)."""

    def __init__(self, directory: Path | None = None, extra: Sequence[str] = ()) -> None:
        """`extra`: further arguments of `anabranch serve`."""
        super().__init__(directory)
        self.extra = list(extra)
        self.program = [sys.executable, "-m", "anabranch"]

    def command(self) -> Sequence[str]:
        """`anabranch serve` with this interpreter."""
        return [
            *(*self.program, "serve"),
            *("--port", str(self.port), "--dir", str(self.directory / "data")),
            *self.extra,
        ]

    def environment(self) -> Mapping[str, str]:
        """The sources first, and no settings from outside."""
        paths = [str(self.core), os.environ.get("PYTHONPATH", "")]
        outside = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
        return {**outside, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def start(self) -> Self:
        """Start with an existing data directory."""
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        return super().start()

    def wait_for_writes(self) -> None:
        """Until this region, new or without its data, has got what another one had."""
        with self.client() as client:
            wait_until(lambda: number(client, "caught_up"), "the region takes writes")


class KitServer(Server):
    """The test kit's server with connections as those of a process: it starts in milliseconds.

    For tests of what commands do. Those of the process, of its memory, its processor time and its
    log need `AnabranchServer`; so do those of the fast path, as the kit watches every command.
    """

    def client(self, resp: int = 2, timeout: float = 60.0) -> RespClient:
        """A new connection."""
        return RespClient(self.port, resp=resp, timeout=timeout)


_in_directories: list[AnabranchServer] = []


def server_in(directory: Path, *extra: str) -> AnabranchServer:
    """A server that keeps its data in a directory of the test, and ends with the test."""
    server = AnabranchServer(directory, extra=("--enable-debug-command", "yes", *extra))
    _in_directories.append(server)
    return server


def regions_in(directory: Path, *names: str, extra: Sequence[str] = ()) -> list[AnabranchServer]:
    """Started servers, each a region of one cluster, that end with the test; numbered from 1.

    All of them take writes.
    """
    gossip_ports = [free_port() for _ in names]
    servers = []
    for region_id, (name, port) in enumerate(zip(names, gossip_ports, strict=True), 1):
        known = f"127.0.0.1:{gossip_ports[0]}"
        entry = ("--cluster-create", "yes") if region_id == 1 else ("--join", known)
        (directory / name).mkdir()
        servers.append(
            server_in(
                directory / name,
                *("--region-id", str(region_id), "--region-name", name),
                *("--gossip-port", str(port), *entry, *extra),
            ).start()
        )
    for server in servers:
        server.wait_for_writes()
    return servers


def kill_servers_in_directories() -> None:
    """End those that :func:`server_in` and :func:`regions_in` made, if they run."""
    for server in _in_directories:
        server.kill()
    _in_directories.clear()
