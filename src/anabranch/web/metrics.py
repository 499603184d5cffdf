"""``/metrics`` in the text format of Prometheus.

Nothing is counted for it: a scrape reads the plain integers that INFO reads. It works in slices, so
that clients are served meanwhile, and streams beyond ``metrics-max-streams`` are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from anabranch.scheduling import Steps
from anabranch.version import REDIS_VERSION, __version__
from anabranch.web.identity import identify
from anabranch.web.metric_rows import METRICS, Metric
from anabranch.web.slices import in_slices
from anabranch.web.stream_metrics import collect, largest
from anabranch.web.view import may_see, require

if TYPE_CHECKING:
    from starlette.requests import Request

    from anabranch.commands.acl.users import User
    from anabranch.metrics.peers import PeerFigures
    from anabranch.node.node import Node

__all__ = ["PREFIX", "Metrics"]

PREFIX: Final = "anabranch_"

SAMPLES_PER_STEP: Final = 100
"""Written as text in one step: less than a millisecond."""

FREED_PER_STEP: Final = 2000
"""Samples that are forgotten in one step."""

PARTS_OF_CHUNK: Final = 8
"""So many of these are sent at a time."""

PEER_STATES: Final = {"in_sync": 0, "unreachable": 2, "cut": 2, "removed": 2}
"""Every other state is catching up: 1."""


class _Series:
    """The samples of one family: label values, and beside them the values.

    Two plain lists, and the label values of a stream are one object for all its families: a scrape
    makes few objects that the collector of the interpreter must visit.
    """

    __slots__ = ("labels", "values")

    def __init__(self) -> None:
        self.labels: list[tuple[str, ...]] = []
        self.values: list[float] = []

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """One more sample."""
        self.labels.append(labels)
        self.values.append(value)


_Samples = dict[str, _Series]


class Metrics:
    """The figures of one server as families of series."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._region = node.region
        self._turn = asyncio.Lock()
        self.routes = [Route("/metrics", self._metrics)]

    async def _metrics(self, request: Request) -> Response:
        viewer = await identify(self._node, request)
        require(self._region, viewer.user, b"INFO")
        async with self._turn:  # several at a time would only share the slices
            chunks = await in_slices(self.text(viewer.user))
        return StreamingResponse(_in_turns(chunks), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def text(self, user: User) -> Steps[list[bytes]]:
        """What a user may see, in pieces of moderate size."""
        samples: _Samples = {row.name: _Series() for row in METRICS}

        def add(name: str, labels: tuple[str, ...], value: float) -> None:
            samples[name].add(labels, value)

        for name, value in self._server().items():
            add(name, (), value)
        yield
        self._of_the_rest(samples)
        yield
        region = self._region
        keyspace, settings = region.keyspace, region.settings
        visible = may_see(region, user)
        chosen, left_out = yield from largest(keyspace, settings.metrics_max_streams, visible)
        groups_left_out = yield from collect(
            keyspace,
            chosen,
            lambda: region.clock.now_us() // 1000,
            add,
            per_consumer=settings.metrics_per_consumer,
        )
        add("metrics_streams_left_out", (), left_out)
        add("metrics_groups_left_out", (), groups_left_out)
        chunks: list[bytes] = []
        parts: list[bytes] = []
        for row in METRICS:
            for text in _written(row, samples[row.name]):
                parts.append(text)
                if len(parts) >= PARTS_OF_CHUNK:
                    chunks.append(b"".join(parts))
                    parts.clear()
                yield
        chunks.append(b"".join(parts))
        for series in samples.values():  # freed in steps, too
            while series.labels:
                del series.labels[-FREED_PER_STEP:], series.values[-FREED_PER_STEP:]
                yield
        return chunks

    # -- one server ---------------------------------------------------------------------------

    def _server(self) -> dict[str, float]:
        region = self._region
        stats = region.stats
        process: Mapping[str, Any] = region.host.process_info()
        used = region.dispatcher.used_memory()
        return {
            "uptime_in_seconds": max(region.clock.now_us() // 1000 - stats.started_ms, 0) / 1000,
            "connected_clients": len(region.sessions),
            "blocked_clients": len(region.keyspace.waiters.active),
            "connections_received_total": stats.connections_received,
            "rejected_connections_total": stats.rejected_connections,
            "commands_processed_total": stats.commands_processed,
            "net_input_bytes_total": stats.net_input_bytes,
            "net_output_bytes_total": stats.net_output_bytes,
            "memory_used_bytes": used,
            "memory_used_dataset_bytes": region.keyspace.account.used_bytes,
            "memory_used_peak_bytes": max(stats.used_memory_peak, used),
            "memory_used_rss_bytes": process.get("rss_bytes", 0),
            "memory_max_bytes": region.settings.maxmemory,
            "cpu_sys_seconds_total": process.get("cpu_sys", 0.0),
            "cpu_user_seconds_total": process.get("cpu_user", 0.0),
            "expired_keys_total": stats.expired_keys,
            "keyspace_hits_total": stats.keyspace_hits,
            "keyspace_misses_total": stats.keyspace_misses,
            "slowlog_length": len(region.slowlog.entries),
            **self._durability(),
        }

    def _durability(self) -> dict[str, float]:
        facts: Mapping[str, Any] = self._node.persistence.facts()
        found: dict[str, float] = {
            "oplog_up": int(facts["aof_last_write_status"] == "ok"),
            "snapshot_last_timestamp_seconds": facts["rdb_last_save_time"],
            "snapshot_last_ok": int(facts["rdb_last_bgsave_status"] == "ok"),
        }
        if facts["aof_enabled"]:
            found |= {
                "oplog_size_bytes": facts["aof_current_size"],
                "oplog_unsynced_bytes": facts["oplog_unsynced_bytes"],
                "oplog_fsync_seconds": facts["oplog_last_fsync_usec"] / 1e6,
                "oplog_delayed_fsync_total": facts["aof_delayed_fsync"],
                "oplog_segments": facts["oplog_segments"],
            }
        return found

    def _of_the_rest(self, samples: _Samples) -> None:
        """Series with labels whose number is limited by what exists."""
        region, settings = self._region, self._region.settings
        name = settings.region_name or f"region{settings.region_id}"
        about = (__version__, REDIS_VERSION, str(settings.region_id), name)
        samples["server_info"].add(about, 1)
        for code, count in region.stats.errors.items():
            samples["errors_total"].add((code,), count)
        for entry in region.dispatcher.all_entries():
            calls = entry.calls
            if calls or entry.rejected or entry.failed:
                label = (entry.command.full_name,)
                samples["commands_total"].add(label, calls)
                samples["commands_duration_seconds_total"].add(label, entry.total_ns / 1e9)
                samples["commands_failed_calls_total"].add(label, entry.failed)
                samples["commands_rejected_calls_total"].add(label, entry.rejected)
        for database in region.keyspace.databases:
            if database.values:
                label = (str(database.index),)
                samples["db_keys"].add(label, len(database.values))
                samples["db_keys_expiring"].add(label, len(database.deadlines))
        exchange = self._node.persistence.exchange
        if exchange is not None:
            for peer in exchange.peers():
                for metric, value in _peer(peer).items():
                    if value is not None:
                        samples[metric].add((peer.name or str(peer.region),), value)
            for metric, value in _cluster(exchange.facts()).items():
                samples[metric].add((), value)


def _peer(peer: PeerFigures) -> dict[str, float | None]:
    counters = peer.counters
    return {
        "peer_state": PEER_STATES.get(peer.state, 1),
        "peer_lag_seconds": peer.lag_seconds,
        "peer_lag_effects": peer.lag_effects,
        "peer_lag_bytes": peer.lag_bytes,
        "peer_receive_lag_seconds": peer.receive_lag_seconds,
        "peer_receive_lag_effects": peer.receive_lag_effects,
        "peer_sent_bytes_total": counters.sent_bytes,
        "peer_received_bytes_total": counters.received_bytes,
        "peer_sent_bytes_uncompressed_total": counters.sent_raw_bytes,
        "peer_received_bytes_uncompressed_total": counters.received_raw_bytes,
        "peer_round_trip_seconds": _seconds(peer.round_trip_ms),
        "clock_skew_seconds": _seconds(peer.skew_ms),
    }


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _cluster(facts: Mapping[str, Any]) -> dict[str, float]:
    return {
        "sync_full_total": facts["full_catch_ups"],
        "sync_partial_total": facts["partial_catch_ups"],
        "effects_filtered_total": facts["duplicates"],
        "tombstones": facts["unstable_marks"],
        "tombstones_collected_total": facts["forgotten_marks"],
        "divergences_total": facts["divergences"],
        "differing_keys": facts["differing_keys"],
    }


# -- as text ------------------------------------------------------------------------------------


class _Piece:
    """A collector of some samples of one family."""

    def __init__(self, row: Metric, series: _Series, start: int) -> None:
        kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
        self._family = kind(PREFIX + row.name, row.meaning, labels=row.labels)
        end = start + SAMPLES_PER_STEP
        for labels, value in zip(series.labels[start:end], series.values[start:end], strict=True):
            self._family.add_metric(labels, value)

    def collect(self) -> Iterator[Any]:
        """The family."""
        yield self._family


def _written(row: Metric, series: _Series) -> Iterator[bytes]:
    """The text of one family in short pieces; without samples there is none."""
    for at in range(0, len(series.values), SAMPLES_PER_STEP):
        text: bytes = generate_latest(_Piece(row, series, at))
        if at:  # the lines of HELP and TYPE stand there already
            text = text.split(b"\n", 2)[2]
        yield text


async def _in_turns(chunks: list[bytes]) -> AsyncIterator[bytes]:
    """Hand over one chunk in a turn of the event loop."""
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)
