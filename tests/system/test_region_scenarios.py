"""The acceptance scenarios on real processes, asked through redis-py.

Nothing may travel before a scenario says so, so all links are paused from the start; to settle is
to let go of some of them until their regions have applied the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import hiredis
import pytest
import redis

from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.transcript import REGION_NAMES, Scenario, read_scenarios, run_scenario

SCENARIOS: Final = read_scenarios(
    (Path(__file__).parents[1] / "active_active" / "scenarios.txt").read_text("utf-8")
)

SETTLE_S: Final = 60.0


class ProcessCluster:
    """See :class:`tests.support.transcript.Cluster`."""

    has_clock = False

    def __init__(self, processes: RegionProcesses) -> None:
        self.processes = processes
        self.clients = {
            server.region: redis.Redis(port=server.fixed_port, socket_timeout=60, protocol=2)
            for server in processes.servers
        }
        for client in self.clients.values():
            client.response_callbacks.clear()  # replies as they come
        self._cut: set[frozenset[str]] = set()
        self._acknowledged = dict.fromkeys(REGION_NAMES, 0)

    # -- between scenarios --------------------------------------------------------------------

    def begin(self, mode: str) -> None:
        """Empty regions that have heard everything, then no link."""
        self._cut.clear()
        self._let(combinations(REGION_NAMES, 2), "RESUME")
        for region in REGION_NAMES:
            self.do(region, "FLUSHALL")
            self.do(region, "CONFIG", "SET", "xadd-id-uniqueness-mode", mode)
            self.do(region, "CONFIG", "SET", "oplog-max-bytes", "1gb")
        self._wait(REGION_NAMES)
        self._let(combinations(REGION_NAMES, 2), "PAUSE")
        self._acknowledged = dict.fromkeys(REGION_NAMES, 0)

    # -- for transcripts ----------------------------------------------------------------------

    def do(self, region: str, *args: str | bytes) -> Any:
        before = self._own_number(region) if args[0] == "XACK" else 0
        try:
            reply = self.clients[region].execute_command(*args)  # type: ignore[no-untyped-call]
        except redis.ResponseError as problem:
            raise hiredis.ReplyError(str(problem)) from None
        if args[0] == "XACK":  # all that it does for other regions is to acknowledge
            self._acknowledged[region] += self._own_number(region) - before
        return reply

    def settle(self, regions: Sequence[str]) -> None:
        pairs = [pair for pair in combinations(regions, 2) if frozenset(pair) not in self._cut]
        self._let(pairs, "RESUME")
        self._wait(regions)
        self._let(pairs, "PAUSE")

    def clock(self, region: str, ms: int) -> None:
        raise AssertionError("the clock is the machine's")

    def cut(self, one: str, other: str) -> None:
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        self._cut.clear()

    def forget(self, region: str) -> None:
        self.do(region, "CONFIG", "SET", "oplog-max-bytes", "1")
        before = self._info(region, "persistence")["rdb_saves"]
        self.do(region, "BGREWRITEAOF")
        wait_until(
            lambda: self._info(region, "persistence")["rdb_saves"] > before,
            "a snapshot",
            SETTLE_S,
        )

    def count_effects(self, region: str, kind: str) -> int:
        assert kind == "ack"
        return self._acknowledged[region]

    # -- inside -------------------------------------------------------------------------------

    def _info(self, region: str, section: str) -> dict[str, Any]:
        text = self.clients[region].execute_command("INFO", section).decode()  # type: ignore[no-untyped-call]
        pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
        return {name: int(value) if value.isdigit() else value for name, value in pairs}

    def _vector(self, region: str) -> list[Any]:
        reply = self.do(region, "AB.INFO")
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        return sorted(facts[b"vector"])

    def _own_number(self, region: str) -> int:
        number = REGION_NAMES.index(region) + 1
        return sum(row[-1] for row in self._vector(region) if row[0] == number)

    def _let(self, pairs: Any, verb: str) -> None:
        for one, other in pairs:
            self.do(one, "AB.LINK", other, verb)
            self.do(other, "AB.LINK", one, verb)

    def _wait(self, regions: Sequence[str]) -> None:
        wait_until(
            lambda: len({str(self._vector(region)) for region in regions}) == 1,
            f"{regions} have applied the same",
            SETTLE_S,
        )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("regions")
    # Nearly no effects in memory, so that a log that was cut is noticed.
    with RegionProcesses(directory, REGION_NAMES, "--region-cache-bytes", "1") as processes:
        yield ProcessCluster(processes)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.name for each in SCENARIOS])
def test_real_regions_do_what_the_transcript_shows(
    cluster: ProcessCluster, scenario: Scenario
) -> None:
    cluster.begin(scenario.mode)
    run_scenario(scenario, cluster)
