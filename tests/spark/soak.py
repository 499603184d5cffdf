"""A reader that moves between three regions while they are trimmed, parted, killed and set back.

    python -m tests.spark.soak --minutes 60 --seed 1 [--spark-every 20] [--only regions]

Each run of the query is a process of its own (`soaking_job`) that reads from one region or another,
and many are killed. Meanwhile all regions write and are trimmed all the time; now and then one is
killed, or starts from an older copy of its disk. A server of its own is treated in the same way.
At last everything is healed and read to the end, and the outputs of all batches are compared with
what was written, row by row: no entry is there twice, and each one that is missing lies in
positions that some run reported as lost, as many of them as it reported, or was in none of the
regions after a restore.

Runs pause, so that they take a part of one core (`--share`). Each minute has a line of progress.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import redis

from tests.spark import soaking_job
from tests.spark.cutting import ReturningServer
from tests.spark.processes import kill_session
from tests.support import servers
from tests.support.inspection import info, wait_until
from tests.support.region_processes import RegionProcesses, RegionServer
from tests.support.servers import REPOSITORY, AnabranchServer

KEPT = 600
LIMIT = 400
ROUND = 15
ROUND_S = 0.2
TRIM_S = 2.0
_TRIMMED = re.compile(
    r"stream s(?:, region (\S+))?: (\d+) entr(?:y|ies) after \S+ \(positions (\d+)\D(\d+)\)"
)
_UNDER_WAY = re.compile(
    r"stream s(?:, region (\S+))?: (\d+) entries between positions (\d+) and (\d+) were trimmed"
)
_ENDS = re.compile(
    r"stream s, region (\S+) ends at position (\d+), and should be read up to (\d+)"
    r".*going on, because"
)
_GONE = re.compile(
    r"stream s, region (\S+) was deleted before all of positions (\d+) to (\d+) was read.*going on"
)
_BEHIND = "anabranch.spark.reading.losses.ServerBehindError: "
# Spark gives a process of Python ten seconds to start, and a busy machine may take longer.
_NOT_STARTED = "Python worker failed to connect back"


SETTINGS = ("--appendfsync", "always", "--stream-idmp-duration", "86400")
"""Of all servers: a producer repeats a round after minutes if the machine stands still so long."""


class Producer:
    """Writes numbers from 0 on to one server, each once, whatever happens to it."""

    def __init__(self, server: AnabranchServer, name: str) -> None:
        """`name` is that of the producer, and of the region in outputs."""
        self.server = server
        self.name = name
        self.written = 0
        self.paused = threading.Lock()
        self.logs: list[tuple[str, int, int]] = []
        """Name, first position and first number of the log of each epoch."""
        self.epoch = 0
        """The epoch of the latest log; 0 if the server is no region."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self.begin_log()
        self._thread.start()

    def stop(self) -> None:
        """End; what is written then is all."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def begin_log(self) -> None:
        """What comes now goes to another log than before: that of a new disk."""
        first = self.written
        self.epoch = self._settled(self._write)
        name = f"{self.name}.{self.epoch}" if self.logs else self.name
        self.logs.append((name, position_base(self.server, name), first))

    def settle(self) -> None:
        """Write until the server has taken all that it was ever sent."""
        self._settled(self._write_on)

    def _settled(self, write: Callable[[], int]) -> int:
        epochs: list[int] = []

        def wrote() -> bool:
            with suppress(redis.RedisError, OSError):
                epochs.append(write())
                return True
            return False

        wait_until(wrote, f"the server of {self.name or 's'} takes writes", 120)
        return epochs[0]

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            with self.paused, suppress(redis.RedisError, OSError):
                self._write_on()

    def _write_on(self) -> int:
        """Write; note the log of a new epoch. A region begins one when peers know more of it."""
        epoch = self._write()
        name = f"{self.name}.{epoch}"
        if epoch != self.epoch and (new := log_of(self.server, name)) is not None:
            before, base, first = self.logs[-1]
            old = log_of(self.server, before)
            assert old is not None
            self.logs.append((name, new[0], first + old[2] - base))
            self.epoch = epoch
        return epoch

    def _write(self) -> int:
        """Numbers that the server knows already are not written again; returns the epoch."""
        with redis.Redis(port=self.server.port, protocol=2, socket_timeout=5) as client:
            pipe = client.pipeline(transaction=True)
            for n in range(self.written, self.written + ROUND):
                words = ("IDMP", f"p{self.name}", str(n), "*", "n", str(n))
                pipe.execute_command("XADD", "s", *words)
            pipe.info("replication")
            *_, facts = pipe.execute()
            self.written += ROUND
            return int(facts.get("epoch", 0))


@dataclass
class Query:
    """All runs with one checkpoint."""

    place: Path
    share: float = 1.0
    """Of a core, that runs may take."""
    said: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def run(
        self, server: AnabranchServer, how: str, kill_after_s: float | None, **more: str
    ) -> str:
        """One run, to its end or to its death; how it ended."""
        options = {"failOnDataLoss": "false", "maxEntriesPerTrigger": str(LIMIT), **more}
        pairs = [f"{name}={value}" for name, value in options.items()]
        url = f"redis://127.0.0.1:{server.port}"
        log = self.place / "log"
        began, used = time.monotonic(), _processor_seconds()
        with log.open("wb") as out:
            job = subprocess.Popen(
                [sys.executable, soaking_job.__file__, url, str(self.place), how, *pairs],
                env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "PATH": "/usr/bin:/bin"},
                start_new_session=True,
                stdout=out,
                stderr=out,
            )
            try:
                job.wait(kill_after_s if kill_after_s is not None else 600)
            except subprocess.TimeoutExpired:
                kill_session(job.pid)
                job.wait()
                assert kill_after_s is not None, f"a run does not end; see {log}"
        lines = log.read_text(errors="replace").splitlines()
        with (self.place / "said").open("a") as all_said:
            all_said.writelines(f"{server.port}: {line}\n" for line in lines)
        self.said += lines
        last = lines[-1] if lines else ""
        if job.returncode == 0:
            end = "done"
        elif any(_NOT_STARTED in each for each in lines):
            end = "not started"
        elif job.returncode < 0:
            end = "killed"
        elif any(_BEHIND in each for each in lines):  # Spark says more behind that line
            end = "ServerBehindError"
        elif found := re.search(r"(\w+): ", last):
            end = found[1].rpartition(".")[2]
        else:
            end = f"exit {job.returncode}"
        self.ends[end] += 1
        took = _processor_seconds() - used
        time.sleep(max(took / self.share - (time.monotonic() - began), 0))
        if end not in ("done", "killed", "not started", "ServerBehindError", "ServerUnreachable"):
            raise AssertionError("\n".join(lines[-30:]))
        return end

    def outputs(self) -> list[list[tuple[str, int, int]]]:
        """Region, position and number of the rows of each batch."""
        paths = (self.place / "out").glob("[0-9]*.json")
        return [[tuple(row) for row in json.loads(path.read_text())] for path in paths]

    def read(self) -> dict[str, dict[int, int]]:
        """Numbers by region and position; raises `AssertionError` if one was read twice."""
        found: dict[str, dict[int, int]] = defaultdict(dict)
        for several in self.outputs():
            for region, position, n in several:
                assert position not in found[region], f"position {position} of {region} twice"
                found[region][position] = n
        for region, rows in found.items():
            numbers = Counter(rows.values())
            twice = [each for each, count in numbers.items() if count > 1]
            assert not twice, f"{region}: numbers {twice[:5]} twice"
        return found

    def lost(self) -> dict[str, set[tuple[int, int, int | None]]]:
        """What the runs reported as lost: first and last position, and how many if they said it."""
        found: dict[str, set[tuple[int, int, int | None]]] = defaultdict(set)
        for line in self.said:
            for pattern in (_TRIMMED, _UNDER_WAY):
                for region, count, first, last in pattern.findall(line):
                    found[region].add((int(first), int(last), int(count)))
            for region, first, stop in _ENDS.findall(line):
                found[region].add((int(first), int(stop) - 1, None))
            for region, first, last in _GONE.findall(line):
                found[region].add((int(first), int(last), None))
        return found


def explain(query: Query, name: str, base: int, numbers: range, stop: int) -> Counter[str]:
    """Hold the outputs of one log against what was written to it: how many were read, and so on.

    `base`: position of the first number. From position `stop` on no region has anything at last.
    """
    read = query.read().get(name, {})
    wrong = [(at, n) for at, n in read.items() if n - numbers.start != at - base]
    assert not wrong, f"{name}: {wrong[:5]} are not what was written there"
    written = set(range(base, base + len(numbers)))
    beyond = sorted(read.keys() - written)
    assert not beyond, f"{name}: positions {beyond[:5]} were read, and never written"
    missing = written - read.keys()
    told: set[int] = set()
    for first, last, count in query.lost()[name]:
        there = {at for at in range(first, last + 1) if at not in read}
        if count is not None:
            assert len(there) == count, f"{name}: {count} lost of {first} to {last}: {len(there)}"
        told |= there
    set_back = {at for at in missing if at >= stop}
    unexplained = sorted(missing - told - set_back)
    assert not unexplained, f"{name}: {unexplained[:5]} are missing, and nobody reported that"
    return Counter(
        written=len(written),
        read=len(read),
        reported_lost=len(missing & told),
        taken_by_restores=len(set_back - told),
    )


def log_of(server: AnabranchServer, name: str) -> list[int] | None:
    """The row of AB.OFFSETS for a log, without its name; None if it is not there."""
    with redis.Redis(port=server.port, protocol=2) as client:
        (rows,) = client.execute_command("AB.OFFSETS", "STREAMS", "s")
    return next((row[1:] for row in rows or () if row[0].decode() == name), None)


def position_base(server: AnabranchServer, name: str) -> int:
    """The first position of a log."""
    row = log_of(server, name)
    assert row is not None
    return row[0]


def _processor_seconds() -> float:
    """Of all processes that have ended, and were waited for."""
    found = os.times()
    return found.children_user + found.children_system


def trim(server: AnabranchServer) -> None:
    """Keep so many entries."""
    client = redis.Redis(port=server.port, protocol=2, socket_timeout=5)
    with suppress(redis.RedisError, OSError), client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", KEPT)


@contextmanager
def trimming(regions: list[RegionServer], rng: random.Random) -> Iterator[None]:
    """Trim at a region or another all the time."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(TRIM_S):
            trim(rng.choice(regions))

    trimmer = threading.Thread(target=run, daemon=True)
    trimmer.start()
    try:
        yield
    finally:
        over.set()
        trimmer.join(60)


class Progress:
    """A line each minute, and the checks that are possible then."""

    def __init__(self, query: Query, events: Counter[str]) -> None:
        self._query, self._events = query, events
        self._began = self._told = time.monotonic()

    def tell(self) -> None:
        """To be called between two runs."""
        now = time.monotonic()
        if now - self._told >= 60:
            self._told = now
            rows = sum(map(len, self._query.outputs()))
            print(  # noqa: T201
                f"{(now - self._began) / 60:.0f} min: {rows} rows, "
                f"runs {dict(self._query.ends)}, events {dict(self._events)}",
                flush=True,
            )


def copy_disk(server: AnabranchServer, place: Path) -> None:
    """Copy its files while it does not run."""
    server.kill()
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(server.directory / "data" / "appendonlydir", place)
    server.start()


def set_disk_back(server: AnabranchServer, place: Path, *, says_so: bool = True) -> None:
    """Let it start from that copy, as the documents say; else it does not know that it is one."""
    server.kill()
    files = server.directory / "data" / "appendonlydir"
    shutil.rmtree(files)
    shutil.copytree(place, files)
    if says_so:
        subprocess.run([sys.executable, "-m", "anabranch", "restore", str(files)], check=True)
    server.start()


def epoch_of(server: AnabranchServer) -> int:
    """The present epoch of a region."""
    with server.client() as client:
        return int(info(client, "replication")["epoch"])


def soak_regions(
    place: Path, seconds: float, rng: random.Random, how: Callable[[], str], share: float = 1.0
) -> str:
    """The reader that moves."""
    query = Query(place, share)
    with RegionProcesses(place / "regions", ("eu", "us", "ap"), *SETTINGS) as all_:
        producers = [Producer(each, str(each.number)) for each in all_.servers]
        for each in producers:
            each.start()
        events: Counter[str] = Counter()
        progress = Progress(query, events)
        # What is trimmed before a query begins is no loss of that query.
        assert query.run(all_.servers[0], "alone", None) == "done"
        end = time.monotonic() + seconds
        with trimming(all_.servers, random.Random(rng.random())):
            while time.monotonic() < end:
                progress.tell()
                event = rng.choice(("part", "part", "heal", "heal", "kill", "copy", "restore", ""))
                victim = rng.choice(producers)
                copy = place / f"copy-{victim.name}"
                if event == "restore" and not copy.exists():
                    event = "copy"
                if event == "part":
                    one, other = rng.sample(all_.servers, 2)
                    for here, there in ((one, other), (other, one)):
                        with suppress(OSError):  # a busy machine answers late
                            all_.call(here, "AB.LINK", there.number, "PAUSE")
                elif event == "heal":
                    with suppress(OSError):
                        all_.heal()
                elif event == "kill":
                    victim.server.kill()
                    victim.server.start()
                elif event == "copy":
                    copy_disk(victim.server, copy)
                elif event == "restore":
                    with victim.paused:
                        victim.settle()
                        set_disk_back(victim.server, copy)
                        victim.begin_log()
                else:
                    event = "nothing"
                events[event] += 1
                killed_after = rng.choice((None, rng.uniform(0.5, 3.0)))
                query.run(rng.choice(all_.servers), how(), killed_after, catchUpTimeout="3s")
        for each in producers:
            each.stop()
        all_.heal()
        wait_until(all_.converged, "all have applied the same", 120)
        assert query.run(all_.servers[0], "alone", None, catchUpTimeout="3s") == "done"
        known = {name for each in producers for name, _, _ in each.logs}
        unknown = {name: len(rows) for name, rows in query.read().items() if name not in known}
        assert not unknown, f"rows of logs that no producer wrote: {unknown}"
        lines = []
        for each in producers:
            firsts = [first for _, _, first in each.logs]
            found: Counter[str] = Counter()
            for (name, base, first), stop in zip(
                each.logs, [*firsts[1:], each.written], strict=True
            ):
                row = log_of(all_.servers[0], name)
                is_open = stop == each.written
                last = base + stop - first if is_open else base if row is None else row[2]
                found += explain(query, name, base, range(first, stop), last)
            lines.append(f"region {each.name}: {len(each.logs)} logs, {dict(found)}")
    return "\n".join([*lines, f"runs: {dict(query.ends)}; events: {dict(events)}"])


class SetBackServer(ReturningServer):
    """A server of its own, which always starts at the same address."""

    def start(self) -> Self:
        """For the first time, or again."""
        if self.port:
            self.come_back()
            return self
        return super().start()


def soak_restores(
    place: Path, seconds: float, rng: random.Random, how: Callable[[], str], share: float = 1.0
) -> str:
    """The server that is set back. Its numbers go on from those that it ever had."""
    query = Query(place, share)
    events: Counter[str] = Counter()
    progress = Progress(query, events)
    with SetBackServer(place / "server", SETTINGS) as server:
        producer = Producer(server, "")
        producer.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            progress.tell()
            event = rng.choice(("copy", "restore", "kill", "", ""))
            with producer.paused:  # so that it is known what is on disk
                if event == "copy":
                    copy_disk(server, place / "copy")
                elif event == "restore" and (place / "copy").exists():
                    set_disk_back(server, place / "copy")
                elif event == "kill":
                    server.crash()
                else:
                    event = "nothing"
            events[event] += 1
            killed_after = rng.choice((None, rng.uniform(0.5, 3.0)))
            query.run(server, how(), killed_after)
        # Until there is something new, a server that was set back has less than was read.
        while query.run(server, "alone", None) != "done":
            pass
        producer.stop()
        assert query.run(server, "alone", None) == "done"
        found = Counter(n for rows in query.outputs() for _, _, n in rows)
        twice = [n for n, count in found.items() if count > 1]
        assert not twice, f"numbers {twice[:5]} were read twice"
        with redis.Redis(port=server.port, protocol=2) as client:
            there = {int(fields[b"n"]) for _, fields in client.xrange("s")}
        unread = sorted(there - found.keys())
        assert not unread, f"numbers {unread[:5]} are there, and were never read"
        gone = len(found.keys() - there)
    return (
        f"{len(found)} read once, {len(there)} there at last, {gone} of those taken by restores; "
        f"runs: {dict(query.ends)}; events: {dict(events)}"
    )


def main() -> None:
    """Soak both, each for half of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.3, help="Of a core, that runs may take.")
    parser.add_argument("--spark-every", type=int, default=0, help="Let Spark do each n-th run.")
    parts = {"restores": soak_restores, "regions": soak_regions}
    parser.add_argument("--only", choices=parts, help="One of the two, for all of the time.")
    given = parser.parse_args()
    servers.READY_SECONDS = 300.0  # beside whatever else runs for an hour
    runs = 0

    def how() -> str:
        nonlocal runs
        runs += 1
        return "spark" if given.spark_every and runs % given.spark_every == 0 else "alone"

    for name, soak in parts.items():
        if given.only not in (None, name):
            continue
        seconds = given.minutes * (60 if given.only else 30)
        place = Path(tempfile.mkdtemp(prefix="soak-"))
        rng = random.Random(f"{given.seed} {name}")
        print(f"{name}: in {place}, which stays if this fails", flush=True)  # noqa: T201
        print(soak(place, seconds, rng, how, given.share), flush=True)  # noqa: T201
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
