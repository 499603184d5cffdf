"""The two servers under test: start them, wait for them, read what they cost, stop them.

A `Recipe` says how a server is started, a `Server` is the running process. The cost is read
from the kernel and not from a clock: `/proc/PID/task/*/schedstat` counts the nanoseconds that
each thread of the server spent on a CPU, so the load generator, which competes for the same
cores, does not enter the figure. Where there are two cores or more, both servers run on the last
one and the load generator on the others: a wake-up costs twice as much between cores as within
one, and left to the scheduler either server would get now the one and now the other. The kernel
brings the counter of a thread up to date when the thread goes to sleep; every reading therefore
waits until all threads sleep.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .load import Connection, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
SOURCES = Path(__file__).resolve().parents[2] / "src"
IDLE_TIMEOUT_S = 1.0
IDLE_LOOK_S = 0.0005

CpuReading = dict[int, int]
"""A reading of the CPU counters: thread ID to nanoseconds."""


class ServerError(Exception):
    """A server did not start, or went away."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one server is started: a name for the tables and a command line."""

    name: str
    command: Callable[[int, Path], list[str]]


def redis_recipe(
    program: str = "redis-server", name: str = "redis", appendfsync: str | None = None
) -> Recipe:
    """Return the recipe of redis-server, or of a server that takes its options.

    Nothing is kept on disk unless ``appendfsync`` says how.
    """

    def command(port: int, directory: Path) -> list[str]:
        return [
            *(program, "--port", str(port), "--dir", str(directory), "--bind", "127.0.0.1"),
            *("--save", "", *_disk_options(appendfsync)),
        ]

    return Recipe(name, command)


def anabranch_recipe(appendfsync: str | None = None, options: Sequence[str] = ()) -> Recipe:
    """Return the same for Anabranch, in the interpreter running this, with more options."""

    def command(port: int, directory: Path) -> list[str]:
        serve = ["serve", "--port", str(port), "--dir", str(directory), *options]
        return [sys.executable, "-m", "anabranch", *serve, *_disk_options(appendfsync)]

    return Recipe("anabranch", command)


def interpreted_recipe(appendfsync: str | None = None, options: Sequence[str] = ()) -> Recipe:
    """Return the same for Anabranch from the sources of this clone, which are interpreted."""
    compiled = anabranch_recipe(appendfsync, options)

    def command(port: int, directory: Path) -> list[str]:
        return ["env", f"PYTHONPATH={SOURCES}", *compiled.command(port, directory)]

    return Recipe("interpreted", command)


def _disk_options(appendfsync: str | None) -> list[str]:
    if appendfsync is None:
        return ["--appendonly", "no"]
    # A log that is rewritten in the middle of a round would be measured with it.
    never = ["--auto-aof-rewrite-percentage", "0"]
    return ["--appendonly", "yes", "--appendfsync", appendfsync, *never]


class Server:
    """A running server process with a scratch directory of its own; a context manager."""

    def __init__(self, recipe: Recipe, *, port: int | None = None, core: int | None = None) -> None:
        """Start the process; entering the context waits until it answers.

        `core` is where it runs, if not on the core of the servers.
        """
        self.name = recipe.name
        self.port = port or free_port()
        self._core = _server_core() if core is None else core
        self._scratch = tempfile.TemporaryDirectory(prefix="versus-redis-")
        directory = Path(self._scratch.name)
        self._output = directory / "output.txt"
        self.data = directory / "data"
        self.data.mkdir()
        self._command = recipe.command(self.port, self.data)
        self.stop_s = 0.0
        """How long the process took to end before the last restart."""
        try:
            self._start()
        except OSError as error:
            self._scratch.cleanup()
            raise ServerError(f"{recipe.name} could not be started: {error}") from error

    def _start(self) -> None:
        with self._output.open("ab") as output, _on_core(self._core):
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._tasks = Path(f"/proc/{self._process.pid}/task")

    def restart(self) -> None:
        """Stop the process in an orderly way, start it on the same data, wait until it answers."""
        began = time.perf_counter()
        self.end()
        self.stop_s = time.perf_counter() - began
        self.begin()

    def begin(self) -> None:
        """Start the process again on the data it left, wait until it answers."""
        self._start()
        self.wait_until_ready()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def said(self) -> list[str]:
        """Return the lines that it has printed, in all its lives."""
        return self._output.read_text(errors="replace").splitlines()

    def __enter__(self) -> Server:
        """Wait until the server answers PING."""
        try:
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()

    def stop(self) -> None:
        """End the process, by force if it does not listen, and remove its files."""
        self.end()
        self._scratch.cleanup()

    def end(self) -> None:
        """End the process, by force if it does not listen; its data stay."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def check(self) -> None:
        """Raise ServerError if the process has ended."""
        if self._process.poll() is not None:
            raise ServerError(f"{self.name} has ended; {self._last_words()}")

    def cpu(self) -> CpuReading:
        """Return the nanoseconds each thread has run so far, read once all of them sleep."""
        self._wait_until_idle()
        reading = {}
        for task in self._tasks.iterdir():
            try:
                reading[int(task.name)] = int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue
        return reading

    def resident_bytes(self) -> int:
        """Return the memory of the process that is in RAM now (RSS)."""
        statm = Path(f"/proc/{self._process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait_until_ready(self) -> None:
        """Return when the server answers PING; ServerError if it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with Connection(self.port) as connection:
                    connection.ask("PING")
                return
            except (OSError, RefusedError):  # Redis answers LOADING while it loads
                time.sleep(0.005)
        raise ServerError(f"{self.name} did not become ready; {self._last_words()}")

    def _last_words(self) -> str:
        return "its last lines:\n  " + ("\n  ".join(self.said()[-5:]) or "(it printed nothing)")

    def _wait_until_idle(self) -> None:
        """Return when every thread was asleep at two looks in a row, or after a while anyway."""
        deadline = time.monotonic() + IDLE_TIMEOUT_S
        was_asleep = is_asleep = False
        while not (was_asleep and is_asleep) and time.monotonic() < deadline:
            time.sleep(IDLE_LOOK_S)
            was_asleep, is_asleep = is_asleep, self._is_asleep()

    def _is_asleep(self) -> bool:
        for task in self._tasks.iterdir():
            try:
                stat = (task / "stat").read_text()
            except FileNotFoundError:
                continue
            # "PID (name) state …"; the name may hold anything, so look behind its last bracket.
            if stat.rpartition(")")[2].split()[0] == "R":
                return False
        return True


def cpu_between(before: CpuReading, after: CpuReading) -> int:
    """Return the nanoseconds that the threads alive in `after` ran since `before`."""
    return sum(ran - before.get(task, 0) for task, ran in after.items())


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Let a process that is started here inherit a core; this one keeps all but the servers'."""
    cores = os.sched_getaffinity(0) | {_server_core()}
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores - {_server_core()} or cores)


@cache
def _server_core() -> int:
    return max(os.sched_getaffinity(0))


def free_port() -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
