"""Where a server's CPU goes: samples of Linux's perf, by part of the program.

A row is played again after its rounds, so that the samples do not enter its figures. `perf record`
is attached to the server and counts only while the timed requests run. The share of a part times
the CPU of the row gives microseconds per unit, which can be compared between the servers.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .servers import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .measure import Bench, Row
    from .workloads import Plan, Workload

SAMPLES_PER_SECOND = 4999
"""Not a round number, so that the samples do not keep step with a timer of the server."""
ENOUGH_CPU_NS = 700_000_000
MOST_PLAYS = 200
HOTTEST = 8
STOP_TIMEOUT_S = 30.0
PARTS = ("kernel", "C library", "itself", "interpreter", "libraries")
"""``itself`` is redis-server, or the compiled modules; the libraries are uvloop, hiredis, zstd."""

_PATTERNS = (
    ("kernel", re.compile(r"\[")),
    ("C library", re.compile(r"lib(c|m|jemalloc|pthread)[.-]|ld-linux")),
    ("itself", re.compile(r"redis|valkey|.*__mypyc")),
    ("interpreter", re.compile(r"(lib)?python")),
)


@dataclass(frozen=True, slots=True)
class Profile:
    """The CPU of one server in one row."""

    workload: str
    server: str
    unit: str
    cpu_us: dict[str, float]
    """Microseconds per unit, by part."""
    hottest: dict[str, float]
    """The functions with most samples, and their share of all."""


def check() -> None:
    """Raise ServerError if perf is missing or may not be used."""
    if shutil.which("perf") is None:
        raise ServerError(
            "--profile needs the program perf (Debian: linux-perf, Ubuntu: linux-tools-generic)"
        )
    tried = subprocess.run(
        ["perf", "record", "-q", "-o", "/dev/null", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        raise ServerError(f"perf does not work here: {tried.stderr.strip()}")


def take(workload: Workload, row: Row, scale: float, theirs: Bench, ours: Bench) -> list[Profile]:
    """Play a row again on both servers with perf attached; none if the row was not measured."""
    if row.outcome is None:
        return []
    subject_plan = workload.build(scale)
    baseline_plan = workload.build_baseline(scale) if workload.build_baseline else subject_plan
    return [
        _profile(row, bench, plan, figures.cpu_us.median)
        for bench, plan, figures in (
            (theirs, baseline_plan, row.outcome.baseline),
            (ours, subject_plan, row.outcome.subject),
        )
    ]


def _profile(row: Row, bench: Bench, plan: Plan, cpu_us: float) -> Profile:
    with tempfile.TemporaryDirectory(prefix="versus-redis-perf-") as scratch:
        recorded = Path(scratch) / "perf.data"
        with _Recorder(bench.server.pid, Path(scratch), recorded) as recorder:
            spent = 0
            for _ in range(MOST_PLAYS):
                spent += bench.sample(plan, recorder.counting).cpu_ns
                if spent >= ENOUGH_CPU_NS:
                    break
        shares = read(_run("perf", "report", "-i", str(recorded), *_REPORT))
    parts: Counter[str] = Counter(dict.fromkeys(PARTS, 0.0))
    for (program, _), share in shares.items():
        parts[part_of(program)] += share
    hottest = {name: round(share, 4) for (_, name), share in shares.most_common(HOTTEST)}
    times = {part: round(share * cpu_us, 3) for part, share in parts.items()}
    return Profile(row.name, bench.server.name, row.unit, times, hottest)


_REPORT = ("--stdio", "--no-children", "-g", "none", "-s", "dso,symbol", "--field-separator", "\t")


def read(report: str) -> Counter[tuple[str, str]]:
    """Return the share of all samples, by program or library and function, of perf's report."""
    found: Counter[tuple[str, str]] = Counter()
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("\t")]
        if line.startswith("#") or len(fields) < 3:
            continue
        share, program, symbol = fields[:3]
        # "[k] name" or "[.] name": in the kernel, or in the process.
        found[program, symbol[4:]] += float(share.rstrip("%")) / 100
    return found


def part_of(program: str) -> str:
    """Return which part of a server a program or library belongs to, by perf's name for it."""
    for part, pattern in _PATTERNS:
        if pattern.match(program):
            return part
    return "libraries"


class _Recorder:
    """A running `perf record` that counts only when it is told to; a context manager."""

    def __init__(self, pid: int, scratch: Path, recorded: Path) -> None:
        self._pid = pid
        self._recorded = recorded
        self._orders = scratch / "orders"
        self._answers = scratch / "answers"
        self._stack = ExitStack()

    def __enter__(self) -> _Recorder:
        for path in (self._orders, self._answers):
            _run("mkfifo", str(path))
        self._process = subprocess.Popen(
            [
                *("perf", "record", "-q", "-F", str(SAMPLES_PER_SECOND), "-p", str(self._pid)),
                *("-D", "-1", "--control", f"fifo:{self._orders},{self._answers}"),
                *("-o", str(self._recorded)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Open for reading as well, so that neither end waits for the other one to be opened.
        self._to = self._stack.enter_context(self._orders.open("r+b", buffering=0))
        self._back = self._stack.enter_context(self._answers.open("r+b", buffering=0))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(STOP_TIMEOUT_S)
        self._stack.close()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs."""
        self._tell(b"enable\n")
        try:
            yield
        finally:
            self._tell(b"disable\n")

    def _tell(self, order: bytes) -> None:
        if self._process.poll() is not None:
            raise ServerError("perf has ended")
        self._to.write(order)
        self._back.read(len(b"ack\n"))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
