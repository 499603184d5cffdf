"""``/metrics``: every documented series appears, and moves when it should. No sockets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from msgspec.structs import fields

from anabranch.metrics.counters import Counters
from anabranch.metrics.peers import PeerFigures
from anabranch.server.process import volume_facts
from tests.support.servers import REPOSITORY
from tests.support.streams import Streams

pytest.importorskip("prometheus_client", reason="the extra web is not installed")

from prometheus_client.parser import text_string_to_metric_families

from anabranch.web.metric_rows import METRICS
from anabranch.web.metrics import PREFIX, Metrics
from anabranch.web.stream_metrics import shown

LABELS = {row.name: row.labels for row in METRICS}


class Persistence:
    """A server that keeps nothing."""

    exchange = None

    def facts(self) -> dict[str, int | str]:
        return {
            "aof_last_write_status": "ok",
            "rdb_last_save_time": 0,
            "rdb_last_bgsave_status": "ok",
            "aof_enabled": 0,
        }


class Process:
    """A region without disk and sockets, and what a scrape of it says."""

    persistence = Persistence()

    def __init__(self) -> None:
        self.streams = Streams()
        self.region = self.streams.region
        self.metrics = Metrics(cast("Any", self))
        self.user = self.region.acl.users[b"default"]

    def steps(self) -> Iterator[None]:
        self.chunks = yield from self.metrics.text(self.user)

    def scrape(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by label values, by name without the prefix."""
        for _ in self.steps():
            pass
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(b"".join(self.chunks).decode()):
            for sample in family.samples:
                name = sample.name.removeprefix(PREFIX)
                values = found.setdefault(name, {})
                family = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                bound = (sample.labels["le"],) if "le" in sample.labels else ()
                known = LABELS.get(name) or LABELS.get(family, ())
                labels = (*(sample.labels[label] for label in known), *bound)
                assert labels not in values, "a series appears once"
                values[labels] = sample.value
        return found

    def value(self, name: str, *labels: str) -> float:
        by_labels = self.scrape()[name]
        found = [value for key, value in by_labels.items() if set(labels) <= set(key)]
        assert len(found) == 1, (name, labels, by_labels)
        return found[0]


@pytest.fixture
def process() -> Process:
    return Process()


def test_figures_of_a_stream_move_with_it(process: Process) -> None:
    run = process.streams.run
    run("XADD s IDMP p1 a * f v", "XADD s IDMP p1 a * f v", "XADD s 9999999999999-1 f v")
    run("XADD s 9999999999999-2 f v", "XDEL s 9999999999999-2", "XGROUP CREATE s g 0")
    found = process.scrape()
    labels = ("0", "s")
    assert found["stream_length"][labels] == 2
    assert found["stream_entries_added_total"][labels] == 3
    assert found["stream_groups"][labels] == 1
    assert found["stream_producers"][labels] == 1
    assert found["stream_idempotent_ids"][labels] == 1
    assert found["stream_duplicates_total"][labels] == 1
    assert found["stream_dedup_duration_seconds"][labels] == 100
    assert found["stream_dedup_window_seconds"][labels] == 100
    assert found["stream_bytes"][labels] > 0


def test_the_window_is_shorter_where_a_producer_is_at_its_limit(process: Process) -> None:
    run = process.streams.run
    run("XADD s 1-1 f v", "XCFGSET s IDMP-MAXSIZE 2")
    run("XADD s IDMP p1 a * f v")
    process.streams.advance(5_000)
    run("XADD s IDMP p1 b * f v")
    assert process.value("stream_dedup_window_seconds", "s") == 5


def test_figures_of_a_group_move_with_it(process: Process) -> None:
    run = process.streams.run
    run("XADD s 1-1 f v", "XADD s 2-1 f v", "XADD s 3-1 f v", "XDEL s 2-1", "XGROUP CREATE s g 0")
    labels = ("0", "s", "g")
    found = process.scrape()
    assert found["stream_group_lag"][labels] == 2, "counted, although XINFO answers null"
    assert found["stream_group_oldest_pending_seconds"][labels] == 0
    run("XREADGROUP GROUP g c STREAMS s >")
    process.streams.advance(3_000)
    found = process.scrape()
    assert found["stream_group_lag"][labels] == 0
    assert found["stream_group_messages_pending"][labels] == 2
    assert found["stream_group_consumers"][labels] == 1
    assert found["stream_group_entries_read"][labels] == 3
    assert found["stream_group_oldest_pending_seconds"][labels] == 3
    assert found["stream_group_redelivered_total"][labels] == 0
    run("XCLAIM s g other 0 1-1", "XNACK s g FAIL IDS 1 1-1", "XACK s g 3-1")
    found = process.scrape()
    assert found["stream_group_redelivered_total"][labels] == 1
    assert found["stream_group_released_total"][labels] == 1
    assert found["stream_group_acked_total"][labels] == 1


def test_consumers_have_series_only_if_they_are_wanted(process: Process) -> None:
    run = process.streams.run
    run("XADD s 1-1 f v", "XGROUP CREATE s g 0", "XREADGROUP GROUP g c STREAMS s >")
    assert "stream_group_consumer_messages_pending" not in process.scrape()
    process.region.settings.metrics_per_consumer = True
    process.streams.advance(2_000)
    labels = ("0", "s", "g", "c")
    found = process.scrape()
    assert found["stream_group_consumer_messages_pending"][labels] == 1
    assert found["stream_group_consumer_idle_seconds"][labels] == 2


def test_commands_and_errors_are_counted(process: Process) -> None:
    process.streams.run("XADD s 1-1 f v")
    process.streams.fails("XADD s 1-1 f v")
    process.streams.fails("XLEN")
    assert process.value("commands_total", "xadd") == 2
    assert process.value("commands_duration_seconds_total", "xadd") > 0
    assert process.value("commands_failed_calls_total", "xadd") == 1
    assert process.value("commands_rejected_calls_total", "xlen") == 1
    assert process.value("errors_total", "ERR") == 2
    assert process.value("db_keys", "0") == 1
    assert process.value("db_keys_expiring", "0") == 0


@pytest.mark.parametrize(
    ("cause", "policies"),
    [
        ("connection", "lease connection:0"),
        ("heartbeat", "lease heartbeat:100ms"),
        ("time", "lease time:100ms"),
        ("consumer-ttl", "consumer-ttl 100ms"),
    ],
)
def test_entries_that_policies_release_are_counted_by_the_policy(
    process: Process, cause: str, policies: str
) -> None:
    s = process.streams
    s.run("XADD s 1-0 f v", "XGROUP CREATE s g 0", f"AB.POLICY SET s {policies}")
    ann = s.connect()
    s.run("XREADGROUP GROUP g ann STREAMS s >", session=ann)
    s.region.close_session(ann)
    for _ in range(4):
        s.advance(100)
    released = process.scrape()["policy_released_total"]
    assert {key: value for key, value in released.items() if value} == {(cause,): 1}


def test_names_of_any_bytes_are_labels(process: Process) -> None:
    alike = [b"k" * 1000, b"k" * 1001, b"q\xff", rb"q\xff"]
    alike += [shown(name).encode() for name in alike]
    whole = ['"\\\n\r', "", "\u2028\x00", "k" * 200]
    names = {name.encode() for name in whole} | set(alike)
    for name in names:
        process.streams.do("XADD", name, "1-1", "f", "v")
        process.streams.do("XGROUP", "CREATE", name, name, "0")
    found = process.scrape()
    labels = {label for _, label in found["stream_length"]}
    assert len(labels) == len(found["stream_group_lag"]) == len(names), "no two names are the same"
    assert labels >= {*whole, r"q\xff"}
    assert max(map(len, labels)) == 200
    assert any(label.startswith("k" * 183 + "…") for label in labels)


def test_the_number_of_series_is_limited(process: Process) -> None:
    for number in range(20):
        process.streams.run(*[f"XADD s{number} * f v"] * (number + 1))
    process.region.settings.metrics_max_streams = 3
    found = process.scrape()
    assert set(found["stream_length"]) == {("0", "s17"), ("0", "s18"), ("0", "s19")}
    assert process.value("metrics_streams_left_out") == 17
    process.region.settings.metrics_max_streams = 0
    assert "stream_length" not in process.scrape()
    for number in range(102):
        process.streams.run(f"XGROUP CREATE s1 g{number} 0")
    process.region.settings.metrics_max_streams = 20
    found = process.scrape()
    assert len([key for key in found["stream_group_lag"] if key[1] == "s1"]) == 100
    assert process.value("metrics_groups_left_out") == 2


def test_a_user_sees_the_streams_of_its_rules(process: Process) -> None:
    process.streams.run("XADD mine:1 1-1 f v", "XADD other 1-1 f v")
    process.streams.run("ACL SETUSER ann on nopass ~mine:* +@all")
    process.user = process.region.acl.users[b"ann"]
    assert set(process.scrape()["stream_length"]) == {("0", "mine:1")}


def test_every_metric_is_documented() -> None:
    page = (REPOSITORY / "docs/metrics.md").read_text("utf-8")
    for row in METRICS:
        labels = ", ".join(f"`{label}`" for label in row.labels) or "\N{EN DASH}"
        line = f"| `{row.name}` | {row.kind} | {labels} | {row.meaning} |"
        assert line in page, line


class Exchange:
    """Another region of which every figure is a different number."""

    numbers: ClassVar = {field.name: number for number, field in enumerate(fields(PeerFigures), 1)}
    counted: ClassVar = {name: number for number, name in enumerate(Counters.__slots__, 100)}
    told: ClassVar = {
        name: number
        for number, name in enumerate(
            (
                *("full_catch_ups", "partial_catch_ups", "duplicates", "unstable_marks"),
                *("forgotten_marks", "divergences", "differing_keys", "unstable_effects"),
            ),
            200,
        )
    }

    def facts(self) -> dict[str, int]:
        return self.told

    def peers(self) -> list[PeerFigures]:
        given: dict[str, Any] = {**self.numbers, "name": "us", "state": "catching_up"}
        counters = Counters()
        for name, number in self.counted.items():
            setattr(counters, name, number)
        return [PeerFigures(**{**given, "counters": counters})]


def test_figures_of_regions_and_of_the_log_are_those_of_info(process: Process) -> None:
    exchange = Exchange()
    logged = {
        name: number
        for number, name in enumerate(
            (
                *("aof_current_size", "oplog_unsynced_bytes", "aof_delayed_fsync"),
                *("oplog_segments", "oplog_unsafe_keys", "oplog_refused_reads"),
            ),
            300,
        )
    }
    process.persistence = cast("Any", SimpleNamespace(
        exchange=exchange,
        facts=lambda: {
            "aof_last_write_status": "err",
            "rdb_last_save_time": 400,
            "rdb_last_bgsave_status": "err",
            "aof_enabled": 1,
            "oplog_last_fsync_usec": 2_000_000,
            **logged,
        },
    ))  # fmt: skip
    found = {name: values for name, values in process.scrape().items() if len(values) == 1}
    shown = {name: value for name, ((_, value),) in ((n, v.items()) for n, v in found.items())}
    peer, counted, told = exchange.numbers, exchange.counted, exchange.told
    expected = {
        "peer_state": 1,
        "peer_lag_seconds": peer["lag_seconds"],
        "peer_lag_effects": peer["lag_effects"],
        "peer_lag_bytes": peer["lag_bytes"],
        "peer_durable_lag_effects": peer["durable_lag_effects"],
        "peer_receive_lag_seconds": peer["receive_lag_seconds"],
        "peer_receive_lag_effects": peer["receive_lag_effects"],
        "peer_sent_bytes_total": counted["sent_bytes"],
        "peer_received_bytes_total": counted["received_bytes"],
        "peer_sent_bytes_uncompressed_total": counted["sent_raw_bytes"],
        "peer_received_bytes_uncompressed_total": counted["received_raw_bytes"],
        "peer_refusals_total": counted["refusals"],
        "peer_round_trip_seconds": peer["round_trip_ms"] / 1000,
        "clock_skew_seconds": peer["skew_ms"] / 1000,
        "sync_full_total": told["full_catch_ups"],
        "sync_partial_total": told["partial_catch_ups"],
        "effects_filtered_total": told["duplicates"],
        "tombstones": told["unstable_marks"],
        "tombstones_collected_total": told["forgotten_marks"],
        "divergences_total": told["divergences"],
        "differing_keys": told["differing_keys"],
        "unstable_effects": told["unstable_effects"],
        "oplog_up": 0,
        "oplog_size_bytes": logged["aof_current_size"],
        "oplog_unsynced_bytes": logged["oplog_unsynced_bytes"],
        "oplog_delayed_fsync_total": logged["aof_delayed_fsync"],
        "oplog_segments": logged["oplog_segments"],
        "oplog_unsafe_keys": logged["oplog_unsafe_keys"],
        "oplog_refused_reads_total": logged["oplog_refused_reads"],
        "oplog_fsync_seconds": 2,
        "snapshot_last_timestamp_seconds": 400,
        "snapshot_last_ok": 0,
    }
    assert {name: shown[name] for name in expected} == expected


def test_the_volume_of_a_directory_is_that_of_the_system(tmp_path: Path) -> None:
    found, usage = volume_facts(str(tmp_path)), shutil.disk_usage(tmp_path)
    assert found["volume_bytes"] == usage.total
    assert found["volume_free_bytes"] == pytest.approx(usage.free, rel=0.1)
    assert volume_facts(str(tmp_path / "none")) == {}


def test_latencies_of_a_family_are_a_histogram(process: Process) -> None:
    entries = process.region.dispatcher.entries
    for name, spent_ns in ((b"xadd", 5_000), (b"xlen", 40_000), (b"xadd", 3_000_000), (b"set", 1)):
        entries[name].histogram[spent_ns.bit_length()] += 1
        entries[name].total_ns += spent_ns
    found = process.scrape()
    buckets = found["command_latency_seconds_bucket"]
    counts = {bound: count for (family, bound), count in buckets.items() if family == "stream"}
    assert counts["8.192e-06"] == 1
    assert counts["3.2768e-05"] == 1
    assert counts["0.000131072"] == 2
    assert counts["0.002097152"] == 2
    assert counts["0.008388608"] == counts["+Inf"] == 3
    assert found["command_latency_seconds_count"]["stream",] == 3
    assert found["command_latency_seconds_sum"]["stream",] == pytest.approx(3_045_000 / 1e9)
    assert found["command_latency_seconds_count"]["string",] == 1
    assert ("list",) not in found["command_latency_seconds_count"]
