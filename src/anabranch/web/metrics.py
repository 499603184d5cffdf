"""``/metrics`` in the text format of Prometheus.

Nothing is counted for it: a scrape reads the plain integers that INFO reads. It works in slices, so
that clients are served meanwhile, and streams beyond ``metrics-max-streams`` are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from operator import add
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.engine.acl.users import User
from anabranch.metrics.peers import PeerFigures
from anabranch.node.node import Node
from anabranch.region.region import Region
from anabranch.scheduling import Steps
from anabranch.version import REDIS_VERSION, __version__
from anabranch.web.identity import identify, may_see, require
from anabranch.web.samples import PREFIX, Samples
from anabranch.web.slices import Streamed, in_slices
from anabranch.web.stream_metrics import collect, largest

__all__ = ["PREFIX", "Metrics"]

LATENCY_BITS: Final = (13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
"""Bounds of the latency histograms: 2 to the power of these nanoseconds, 8 µs to 2.1 s."""

PEER_STATES: Final = {"in_sync": 0, "unreachable": 2, "cut": 2, "removed": 2}
"""Every other state is catching up: 1."""


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
        return Streamed(lambda gone: _in_turns(chunks, gone), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def text(self, user: User) -> Steps[list[bytes]]:
        """What a user may see, in chunks of moderate size."""
        samples = Samples()
        samples.add((), self._server())
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
            samples.add,
            per_consumer=settings.metrics_per_consumer,
        )
        counts = {"metrics_streams_left_out": left_out, "metrics_groups_left_out": groups_left_out}
        samples.add((), counts)
        return (yield from samples.written())

    # -- one server ---------------------------------------------------------------------------

    def _server(self) -> dict[str, float]:
        region = self._region
        stats = region.stats
        process: Mapping[str, Any] = region.host.process_info()
        used = region.dispatcher.used_memory()
        cache = region.keyspace.block_cache
        libraries = region.keyspace.libraries.values()
        return {
            "uptime_in_seconds": max(region.clock.now_us() // 1000 - stats.started_ms, 0) / 1000,
            "connected_clients": len(region.sessions),
            "blocked_clients": region.keyspace.waiters.blocked,
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
            "memory_used_vm_eval_bytes": process.get("script_machine_bytes", 0),
            "memory_used_scripts_eval_bytes": region.services.scripts.used_bytes,
            "number_of_cached_scripts": len(region.services.scripts),
            "number_of_functions": sum(len(each.functions) for each in libraries),
            "number_of_libraries": len(libraries),
            "stream_compressed_blocks_total": cache.compressions,
            "stream_opened_blocks_total": cache.opens,
            "stream_opened_bytes": cache.held,
            "stream_offloaded_blocks_total": cache.offloads,
            "stream_offloaded_bytes": 0 if cache.file is None else cache.file.held,
            **_policies(region),
            **self._durability(process),
        }

    def _durability(self, process: Mapping[str, Any]) -> dict[str, float]:
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
                "oplog_unsafe_keys": facts["oplog_unsafe_keys"],
                "oplog_refused_reads_total": facts["oplog_refused_reads"],
                "oplog_volume_bytes": process.get("volume_bytes", 0),
                "oplog_volume_free_bytes": process.get("volume_free_bytes", 0),
            }
        return found

    def _of_the_rest(self, samples: Samples) -> None:
        """Samples with labels whose number is limited by what exists."""
        region, settings = self._region, self._region.settings
        name = settings.region_name or f"region{settings.region_id}"
        about = (__version__, REDIS_VERSION, str(settings.region_id), name)
        samples.add(about, {"server_info": 1})
        for code, count in region.stats.errors.items():
            samples.add((code,), {"errors_total": count})
        for cause, count in region.stats.policy_released_by.items():
            samples.add((cause,), {"policy_released_total": count})
        for entry in region.dispatcher.all_entries():
            if entry.calls or entry.rejected or entry.failed:
                calls = {
                    "commands_total": entry.calls,
                    "commands_duration_seconds_total": entry.total_ns / 1e9,
                    "commands_failed_calls_total": entry.failed,
                    "commands_rejected_calls_total": entry.rejected,
                }
                samples.add((entry.command.full_name,), calls)
        for family, (histogram, total_ns) in sorted(_latencies(region).items()):
            buckets: list[tuple[str, float]] = [
                (str(2**bits / 1e9), sum(histogram[: bits + 1])) for bits in LATENCY_BITS
            ]
            buckets.append(("+Inf", sum(histogram)))
            samples.add_histogram("command_latency_seconds", (family,), buckets, total_ns / 1e9)
        for database in region.keyspace.databases:
            if database.values:
                keys = {
                    "db_keys": len(database.values),
                    "db_keys_expiring": len(database.deadlines),
                }
                samples.add((str(database.index),), keys)
        exchange = self._node.persistence.exchange
        if exchange is not None:
            for peer in exchange.peers():
                samples.add((peer.name or str(peer.region),), _peer(peer))
            samples.add((), _cluster(region, exchange.facts()))


def _policies(region: Region) -> dict[str, float]:
    tables = [each.policies for each in region.keyspace.databases]
    return {
        "policy_settings": sum(len(texts) for each in tables for _, texts in each.live()),
        "policy_consumers_watched": len(region.leases.holds),
        "policy_dead_lettered_total": region.stats.policy_dead_lettered,
        "policy_given_up_total": region.stats.policy_given_up,
        "policy_halted_total": region.stats.policy_halted,
        "policy_redelivered_total": region.stats.policy_redelivered,
        "trimmed_by_policy_total": region.stats.policy_trimmed,
        "policy_created_groups_total": region.stats.policy_created_groups,
        "scheduled_entries": sum(each.timetables.live for each in region.keyspace.databases),
        "scheduled_late_seconds": region.stats.scheduled_late_ms / 1000,
        "scheduled_added_total": region.stats.scheduled_added,
        "scheduled_failed_total": region.stats.scheduled_failed,
    }


def _latencies(region: Region) -> dict[str, tuple[list[int], int]]:
    """Of each family of commands that ran: calls by the bits of their nanoseconds, and the sum."""
    found: dict[str, tuple[list[int], int]] = {}
    for entry in region.dispatcher.all_entries():
        if entry.total_ns:
            histogram, total_ns = found.get(entry.command.group, ([0] * 64, 0))
            summed = list(map(add, histogram, entry.histogram))
            found[entry.command.group] = summed, total_ns + entry.total_ns
    return found


def _peer(peer: PeerFigures) -> dict[str, float | None]:
    counters = peer.counters
    return {
        "peer_state": PEER_STATES.get(peer.state, 1),
        "peer_lag_seconds": peer.lag_seconds,
        "peer_lag_effects": peer.lag_effects,
        "peer_lag_bytes": peer.lag_bytes,
        "peer_durable_lag_effects": peer.durable_lag_effects,
        "peer_receive_lag_seconds": peer.receive_lag_seconds,
        "peer_receive_lag_effects": peer.receive_lag_effects,
        "peer_sent_bytes_total": counters.sent_bytes,
        "peer_received_bytes_total": counters.received_bytes,
        "peer_sent_bytes_uncompressed_total": counters.sent_raw_bytes,
        "peer_received_bytes_uncompressed_total": counters.received_raw_bytes,
        "peer_refusals_total": counters.refusals,
        "peer_round_trip_seconds": _seconds(peer.round_trip_ms),
        "clock_skew_seconds": _seconds(peer.skew_ms),
    }


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _cluster(region: Region, facts: Mapping[str, Any]) -> dict[str, float]:
    conflicts = region.keyspace.replica.conflicts
    return {
        "sync_full_total": facts["full_catch_ups"],
        "sync_partial_total": facts["partial_catch_ups"],
        "effects_filtered_total": facts["duplicates"],
        "tombstones": facts["unstable_marks"],
        "tombstones_collected_total": facts["forgotten_marks"],
        "divergences_total": facts["divergences"],
        "differing_keys": facts["differing_keys"],
        "unstable_effects": facts["unstable_effects"],
        "held_tags": len(conflicts),
        "held_tag_bytes": conflicts.size,
        "held_tags_dropped_total": conflicts.dropped,
        "idmp_conflicts_total": conflicts.total,
        "idmp_collapsed_total": region.stats.idmp_collapsed,
    }


async def _in_turns(chunks: list[bytes], gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
    """Hand over one chunk in a turn of the event loop."""
    for chunk in chunks:
        if gone.done():
            return
        yield chunk
        await asyncio.sleep(0)
