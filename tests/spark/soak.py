"""A reader that moves between three regions while they are trimmed, parted and killed.

    python -m tests.spark.soak --minutes 60 --seed 1 [--spark-every 20] [--only regions]

Each run of the query is a process of its own (`soaking_job`) that reads from one region or another,
and many are killed. Beside them a server of its own is read, killed, and set back to older states
of its disk. At last everything is healed and read to the end, and the outputs of all batches are
held against what was written, row by row: no entry is there twice, and each one that is missing
lies in positions that some run said were lost, as many of them as it said.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis

from tests.spark import soaking_job
from tests.spark.cutting import ReturningServer
from tests.spark.processes import kill_session
from tests.support import servers
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import REPOSITORY, AnabranchServer

KEPT = 1_500
LIMIT = 400
_TRIMMED = re.compile(
    r"stream s(?:, region (\S+))?: (\d+) entr(?:y|ies) after \S+ \(positions (\d+)\D(\d+)\)"
)
_UNDER_WAY = re.compile(
    r"stream s(?:, region (\S+))?: (\d+) entries between positions (\d+) and (\d+) were trimmed"
)
# Spark gives a process of Python ten seconds to start, and a busy machine may take longer.
_NOT_STARTED = "Python worker failed to connect back"


class Producer:
    """Writes numbers from 0 on to one server, each once, whatever happens to it."""

    def __init__(self, server: AnabranchServer, name: str) -> None:
        """`name` is that of the producer, and of the region in outputs."""
        self.server = server
        self.name = name
        self.written = 0
        self.paused = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; what is written then is all."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            with self.paused, suppress(redis.RedisError, OSError):
                port = self.server.port
                with redis.Redis(port=port, protocol=2, socket_timeout=5) as client:
                    pipe = client.pipeline(transaction=False)
                    for n in range(self.written, self.written + 15):
                        words = ("IDMP", f"p{self.name}", str(n), "*", "n", str(n))
                        pipe.execute_command("XADD", "s", *words)
                    pipe.execute()
                    self.written += 15


@dataclass
class Query:
    """All runs with one checkpoint."""

    place: Path
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
        lines = log.read_text(errors="replace").splitlines()
        self.said += lines
        last = lines[-1] if lines else ""
        if job.returncode == 0:
            end = "done"
        elif any(_NOT_STARTED in each for each in lines):
            end = "not started"
        elif job.returncode < 0:
            end = "killed"
        elif found := re.search(r"(\w+): ", last):
            end = found[1].rpartition(".")[2]
        else:
            end = f"exit {job.returncode}"
        self.ends[end] += 1
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

    def lost(self) -> dict[str, set[tuple[int, int, int]]]:
        """What the runs said was lost: first and last position, and how many between them."""
        found: dict[str, set[tuple[int, int, int]]] = defaultdict(set)
        for line in self.said:
            for pattern in (_TRIMMED, _UNDER_WAY):
                for region, count, first, last in pattern.findall(line):
                    found[region].add((int(first), int(last), int(count)))
        return found


def explain(query: Query, region: str, base: int, written: int) -> tuple[int, int]:
    """Hold the outputs of one region against what was written; how many were read, and lost."""
    read = query.read().get(region, {})
    wrong = [(at, n) for at, n in read.items() if n != at - base]
    assert not wrong, f"{region}: {wrong[:5]} are not what was written there"
    missing = set(range(base, base + written)) - read.keys()
    told: set[int] = set()
    for first, last, count in query.lost()[region]:
        there = {at for at in range(first, last + 1) if at not in read}
        assert len(there) == count, f"{region}: {count} lost of {first} to {last}, not {len(there)}"
        told |= there
    unexplained = sorted(missing - told)
    assert not unexplained, f"{region}: {unexplained[:5]} are missing, and nobody said so"
    return len(read), len(missing)


def position_base(server: AnabranchServer, region: str) -> int:
    """The first position of a log."""
    with redis.Redis(port=server.port, protocol=2) as client:
        (rows,) = client.execute_command("AB.OFFSETS", "STREAMS", "s")
    (base,) = (row[1] for row in rows if row[0].decode() == region)
    return int(base)


def trim(server: AnabranchServer) -> None:
    """Keep so many entries."""
    client = redis.Redis(port=server.port, protocol=2, socket_timeout=5)
    with suppress(redis.RedisError, OSError), client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", KEPT)


def soak_regions(place: Path, seconds: float, rng: random.Random, how: Callable[[], str]) -> str:
    """The reader that moves."""
    query = Query(place)
    with RegionProcesses(place / "regions", ("eu", "us", "ap"), "--appendfsync", "always") as all_:
        producers = [Producer(each, str(each.number)) for each in all_.servers]
        for each in producers:
            each.start()
        end = time.monotonic() + seconds
        events: Counter[str] = Counter()
        while time.monotonic() < end:
            event = rng.choice(("trim", "trim", "part", "heal", "kill", "nothing"))
            events[event] += 1
            if event == "trim":
                trim(rng.choice(all_.servers))
            elif event == "part":
                one, other = rng.sample(all_.servers, 2)
                for here, there in ((one, other), (other, one)):
                    all_.call(here, "AB.LINK", there.number, "PAUSE")
            elif event == "heal":
                all_.heal()
            elif event == "kill":
                victim = rng.choice(all_.servers)
                victim.kill()
                victim.start()
            killed_after = rng.choice((None, rng.uniform(0.5, 3.0)))
            query.run(rng.choice(all_.servers), how(), killed_after, catchUpTimeout="3s")
        for each in producers:
            each.stop()
        all_.heal()
        wait_until(all_.converged, "all have applied the same", 120)
        assert query.run(all_.servers[0], "alone", None) == "done"
        lines = []
        for each in producers:
            base = position_base(all_.servers[0], each.name)
            read, lost = explain(query, each.name, base, each.written)
            lines.append(f"region {each.name}: {each.written} written, {read} read, {lost} lost")
    return "\n".join([*lines, f"runs: {dict(query.ends)}; events: {dict(events)}"])


class SetBackServer(ReturningServer):
    """A server of its own, which goes back to older states of its disk."""

    def back_up(self, place: Path) -> None:
        """Copy its disk while it does not run."""
        self.kill()
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.directory / "data", place)
        self.come_back()

    def set_back(self, place: Path) -> None:
        """Run with that copy."""
        self.kill()
        shutil.rmtree(self.directory / "data")
        shutil.copytree(place, self.directory / "data")
        self.come_back()


def soak_restores(place: Path, seconds: float, rng: random.Random, how: Callable[[], str]) -> str:
    """The server that is set back. Its numbers go on from those that it ever had."""
    query = Query(place)
    restores = 0
    with SetBackServer(place / "server", ["--appendfsync", "always"]) as server:
        producer = Producer(server, "")
        producer.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            event = rng.choice(("back up", "set back", "kill", "nothing", "nothing"))
            with producer.paused:  # so that it is known what is on disk
                if event == "back up":
                    server.back_up(place / "backup")
                elif event == "set back" and (place / "backup").exists():
                    server.set_back(place / "backup")
                    restores += 1
                elif event == "kill":
                    server.crash()
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
        f"{restores} restores; runs: {dict(query.ends)}"
    )


def main() -> None:
    """Soak both for half of the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spark-every", type=int, default=0, help="Let Spark do each n-th run.")
    parts = {"restores": soak_restores, "regions": soak_regions}
    parser.add_argument("--only", choices=parts, help="One half, for half of the time.")
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
        with tempfile.TemporaryDirectory() as place:
            rng = random.Random(f"{given.seed} {name}")
            print(soak(Path(place), given.minutes * 30, rng, how), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
