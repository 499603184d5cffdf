"""A real Prometheus scrapes a live region: every expression of dashboard and alert rules holds.

Debian's package `prometheus` has the program; `make test` unpacks it into .venv-dev, without its
service. Without it the expressions are only compared with names and labels (test_metrics.py).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("prometheus_client", reason="the extra web is not installed")

import yaml

from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, free_port
from tests.system.test_metrics import OBSERVABILITY, Pair, pair_at

UNPACKED = REPOSITORY / ".venv-dev/prometheus/usr/bin/prometheus"
PROGRAM = shutil.which("prometheus") or (str(UNPACKED) if UNPACKED.exists() else None)

pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="prometheus is not installed: NO EXPRESSION IS EVALUATED"
)

EVERY = "500ms"


class Prometheus:
    """Scrapes one address, with our alert rules."""

    def __init__(self, directory: Path, target: int) -> None:
        assert PROGRAM is not None
        self.port = free_port()
        config = {
            "global": {
                "scrape_interval": EVERY,
                "scrape_timeout": EVERY,
                "evaluation_interval": EVERY,
            },
            "rule_files": [str(OBSERVABILITY / "alerts.yml")],
            "scrape_configs": [
                {
                    "job_name": "anabranch",
                    "static_configs": [{"targets": [f"127.0.0.1:{target}"]}],
                }
            ],
        }
        path = directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self._log = (directory / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={path}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--scrape.discovery-reload-interval=100ms",  # the default is 5 s
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, path: str) -> Any:
        """The data of an answer; an error of Prometheus is raised."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", f"/api/v1/{path}")
            answer = json.loads(connection.getresponse().read())
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        found: list[dict[str, Any]] = self.ask(f"query?query={quote(expression)}")["result"]
        return found

    def has_begun(self) -> bool:
        """Whether there have been some scrapes."""
        assert self.process.poll() is None, "it has ended"
        try:
            found = self.query("count_over_time(anabranch_server_info[1m])")
        except (OSError, ValueError):  # it has just begun
            return False
        return bool(found) and float(found[0]["value"][1]) >= 3

    def alerts(self) -> dict[str, list[dict[str, Any]]]:
        """Alerts that have begun, by name: one or more of each."""
        found: dict[str, list[dict[str, Any]]] = {}
        for each in self.ask("alerts")["alerts"]:
            found.setdefault(each["labels"]["alertname"], []).append(each)
        return found

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Prometheus, Pair]]:
    """Prometheus takes 5 s until its first scrape; the regions start meanwhile."""
    port = free_port()
    with closing(Prometheus(tmp_path, port)) as prometheus, pair_at(port) as pair:
        yield prometheus, pair


def panels() -> Iterator[tuple[str, str]]:
    """Title and expression of each panel, with every instance and stream chosen."""
    board = json.loads((OBSERVABILITY / "grafana-dashboard.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], re.sub(r"\$\w+", ".+", target["expr"])


def test_prometheus_evaluates_dashboard_and_alerts(both: tuple[Prometheus, Pair]) -> None:
    prometheus, pair = both
    wait_until(prometheus.has_begun, "it has scraped", seconds=120)
    wait_until(
        lambda: not [title for title, asked in panels() if not prometheus.query(asked)],
        "every panel has data",
    )
    wait_until(
        lambda: {rule["health"] for rule in rules(prometheus)} == {"ok"}, "all rules are evaluated"
    )
    disk = {"AnabranchLogVolumeNearlyFull"}  # that of this machine may be
    wait_until(lambda: set(prometheus.alerts()) <= disk, "all is well")

    # Now it is not.
    pair.eu.execute_command("AB.LINK", "us", "PAUSE")
    pair.eu.execute_command("XCFGSET", "s", "IDMP-MAXSIZE", "1")
    pair.eu.execute_command("XADD", "s", "IDMP", "p", "b", "*", "f", "v")
    entry_id = pair.eu.xrange("s", count=1)[0][0]
    pair.eu.execute_command("XCLAIM", "s", "g", "c", "0", entry_id, "IDLE", str(3_600_000))
    with pair.eu.pipeline(transaction=False) as pipe:
        pipe.xgroup_create("s", "late", "0")
        for _ in range(10_001):
            pipe.xadd("s", {"f": "v"})
        pipe.execute()
    pair.eu.config_set("maxmemory", str(pair.eu.info("memory")["used_memory"] + 1000))
    expected = {
        "AnabranchPeerNotInSync": "us is not in sync with 127.0.0.1",
        "AnabranchPeerLag": "wait for region us",
        "AnabranchOldPending": "Group g of s has an entry that is pending",
        "AnabranchDedupWindowShort": "Idempotent IDs of s are forgotten",
        "AnabranchMemoryNearLimit": "is nearly at maxmemory",
        "AnabranchGroupLag": "Group late of s lags by",
    }
    wait_until(lambda: set(prometheus.alerts()) >= set(expected), "alerts begin", seconds=120)
    began = prometheus.alerts()
    for name, text in expected.items():
        summaries = [alert["annotations"]["summary"] for alert in began[name]]
        assert any(text in summary for summary in summaries), (name, summaries)
    assert all(not rule.get("lastError") for rule in rules(prometheus))
    # What is down is told by Prometheus itself.
    pair.eu.config_set("http-port", 0)
    wait_until(lambda: "AnabranchDown" in prometheus.alerts(), "it is down", seconds=120)


def rules(prometheus: Prometheus) -> list[dict[str, Any]]:
    return [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
