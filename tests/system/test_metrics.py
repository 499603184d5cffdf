"""Metrics of a live cluster: all that are documented, and all that dashboard and alerts use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.http import ask
from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, free_port

pytest.importorskip("prometheus_client", reason="the extra web is not installed")

import yaml
from prometheus_client.parser import text_string_to_metric_families

from anabranch.web.metric_rows import METRICS
from anabranch.web.metrics import PREFIX

OBSERVABILITY = REPOSITORY / "docker/observability"

_METRIC = re.compile(r"\banabranch_\w+")
_SELECTOR = re.compile(r"(\banabranch_\w+)\s*\{([^}]*)\}")
_BY = re.compile(r"\bby \(([^)]*)\)")


class Pair:
    """Two regions; the first has an HTTP port."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.port = port
        self.eu = redis.Redis(port=cluster.eu.port, protocol=3)

    def scrape(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Values by labels, by full name."""
        answer = ask(self.port, "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(answer.body.decode()):
            for sample in family.samples:
                is_histogram = family.type == "histogram"
                labels = {key: value for key, value in sample.labels.items() if key != "le"}
                key = tuple(sorted(labels.items()))
                name = family.name if is_histogram else sample.name
                found.setdefault(name, {})[key] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.scrape()[PREFIX + name][tuple(sorted(labels.items()))]


@contextmanager
def pair_at(port: int) -> Iterator[Pair]:
    """Two regions with some data; the first one answers HTTP at this port."""
    with Cluster("eu", "us", metrics_per_consumer=True) as cluster:
        made = Pair(cluster, port)
        with made.eu as eu:
            eu.config_set("http-port", made.port)
            eu.xadd("s", {"f": "v"})
            eu.execute_command("XADD", "s", "IDMP", "p", "a", "*", "f", "v")
            eu.xgroup_create("s", "g", "0")
            eu.xreadgroup("g", "c", {"s": ">"})
            yield made


def test_metrics_of_a_live_cluster() -> None:
    """One cluster for all, as a start takes longer than the rest."""
    with pair_at(free_port()) as pair:
        every_documented_metric_is_there(pair)
        dashboard_and_alerts_ask_for_what_there_is(pair)
        figures_of_another_region_move_with_the_link(pair)
        deletions_are_remembered_and_forgotten(pair)


def every_documented_metric_is_there(pair: Pair) -> None:
    with pytest.raises(redis.ResponseError):
        pair.eu.execute_command("NOTHING")
    wait_until(lambda: f"{PREFIX}clock_skew_seconds" in pair.scrape(), "the clocks are compared")
    found = pair.scrape()
    for row in METRICS:
        labels = {key for sample in found[PREFIX + row.name] for key, _ in sample}
        assert labels == set(row.labels), row.name
    assert set(found) == {PREFIX + row.name for row in METRICS}


def figures_of_another_region_move_with_the_link(pair: Pair) -> None:
    wait_until(lambda: pair.value("peer_state", peer="us") == 0, "in sync")
    sent = pair.value("peer_sent_bytes_total", peer="us")
    pair.eu.execute_command("AB.LINK", "us", "PAUSE")
    for _ in range(5):
        pair.eu.xadd("s", {"f": "v"})
    wait_until(lambda: pair.value("peer_state", peer="us") == 2, "unreachable")
    assert pair.value("peer_lag_effects", peer="us") >= 5
    assert pair.value("peer_lag_bytes", peer="us") > 0
    assert pair.value("peer_lag_seconds", peer="us") > 0
    pair.eu.execute_command("AB.LINK", "us", "RESUME")
    wait_until(lambda: pair.value("peer_state", peer="us") == 0, "in sync again")
    wait_until(lambda: pair.value("peer_lag_effects", peer="us") == 0, "it has all")
    assert pair.value("peer_sent_bytes_total", peer="us") > sent
    assert pair.value("peer_received_bytes_uncompressed_total", peer="us") > 0


def deletions_are_remembered_and_forgotten(pair: Pair) -> None:
    forgotten = pair.value("tombstones_collected_total")
    pair.eu.xadd("gone", {"f": "v"})
    pair.eu.delete("gone")
    wait_until(lambda: pair.value("tombstones_collected_total") > forgotten, "it is")


def expressions() -> list[str]:
    """All of the dashboard and of the alert rules."""
    board: dict[str, Any] = json.loads((OBSERVABILITY / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += [each.get("definition", "") for each in board["templating"]["list"]]
    rules = yaml.safe_load((OBSERVABILITY / "alerts.yml").read_text())
    found += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    return found


def dashboard_and_alerts_ask_for_what_there_is(pair: Pair) -> None:
    found = pair.scrape()
    labels = {name: {key for each in found[name] for key, _ in each} for name in found}
    checked = 0
    for expression in filter(None, expressions()):
        names = _METRIC.findall(expression)
        assert names or expression.startswith("up{"), expression
        for name in names:
            assert name in found, expression
            checked += 1
        for name, selector in _SELECTOR.findall(expression):
            for part in selector.split(","):
                label = re.split("[=!~]", part.strip())[0]
                assert label in labels[name] | {"instance"}, expression
        for words in _BY.findall(expression):
            for label in words.split(","):
                assert all(label.strip() in labels[name] for name in names), expression
        assert expression.count("(") == expression.count(")")
    assert checked > 30


def test_alerts_are_documented() -> None:
    page = (REPOSITORY / "docs/metrics.md").read_text("utf-8")
    rules = yaml.safe_load(Path(OBSERVABILITY / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert f"`{rule['alert']}`" in page
