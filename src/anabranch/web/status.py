"""``/status.json``: what this region knows of itself and of the others, and how old it is.

A region knows of other regions what gossip reports, so each figure of another region has an age.
The figures are those of INFO and AB.PEERS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.engine.host import LinkFault
from anabranch.keyspace.replica import region_of
from anabranch.metrics.peers import PeerFigures
from anabranch.node.exchange import Exchange
from anabranch.node.node import Node
from anabranch.version import REDIS_VERSION, __version__


def status(node: Node, why_not_ready: str | None) -> dict[str, Any]:
    """All figures except those of streams; takes a fraction of a millisecond."""
    region = node.region
    settings, stats = region.settings, region.stats
    process: Mapping[str, Any] = region.host.process_info()
    now_ms = region.clock.now_us() // 1000
    exchange = node.persistence.exchange
    regions = region.host.regions
    faults: Mapping[int, LinkFault] = {} if regions is None else regions.links.faults
    rates = region.rates.per_second()
    cache = region.keyspace.block_cache
    number = settings.region_id
    name = settings.region_name or f"region{number}"
    return {
        "now_ms": now_ms,
        "version": __version__,
        "redis_version": REDIS_VERSION,
        "region": number,
        "name": name,
        "port": settings.port or settings.tls_port,
        "uptime_s": max(now_ms - stats.started_ms, 0) // 1000,
        "pid": process.get("pid"),
        "not_ready": why_not_ready,
        "refuses_writes": region.dispatcher.write_refusal,
        "links_can_be_cut": settings.enable_debug_command != "no",
        "clients": len(region.sessions),
        "blocked": region.keyspace.waiters.blocked,
        "commands": stats.commands_processed,
        "error_replies": stats.error_replies,
        "per_second": {
            "commands": round(rates.commands),
            "input_bytes": round(rates.input_bytes),
            "output_bytes": round(rates.output_bytes),
        },
        "keys": sum(len(database.values) for database in region.keyspace.databases),
        "durability": _durability(node),
        "memory": {
            "used_bytes": region.dispatcher.used_memory(),
            "keys_bytes": region.keyspace.account.used_bytes,
            "opened_bytes": cache.held,
            "held_tag_bytes": region.replica.conflicts.size,
            "buffer_bytes": process.get("client_buffer_bytes", 0),
            "script_bytes": process.get("script_machine_bytes", 0),
            "offloaded_bytes": 0 if cache.file is None else cache.file.held,
            "rss_bytes": process.get("rss_bytes", 0),
            "max_bytes": settings.maxmemory,
        },
        **({} if exchange is None else _regions(exchange, faults, number, name)),
    }


def _durability(node: Node) -> dict[str, Any]:
    facts = dict(node.persistence.facts())
    known = (
        *("aof_enabled", "aof_last_write_status", "aof_current_size", "oplog_unsynced_bytes"),
        *("oplog_segments", "oplog_last_fsync_usec", "aof_delayed_fsync", "rdb_last_save_time"),
        *("rdb_last_bgsave_status", "recovery_effects", "recovery_cut_bytes"),
    )
    found: dict[str, Any] = {name: facts[name] for name in known if name in facts}
    found["appendfsync"] = node.region.settings.appendfsync
    found["trouble"] = node.durability.trouble
    return found


def _regions(
    exchange: Exchange, faults: Mapping[int, LinkFault], number: int, name: str
) -> dict[str, Any]:
    facts = exchange.facts()
    peers = exchange.peers()
    progress = exchange.peer_progress()
    own = dict(exchange.replica.vector)
    vectors = {number: own} | {region: each.applied for region, each in progress.items()}
    newest: dict[int, int] = {}
    for vector in vectors.values():
        for replica_id, last in vector.items():
            newest[replica_id] = max(newest.get(replica_id, 0), last)
    names = {number: name} | {peer.region: peer.name or str(peer.region) for peer in peers}
    present = [number, *(peer.region for peer in peers if peer.state != "removed")]
    return {
        "cluster": {
            "id": facts["cluster_id"],
            "caught_up": bool(facts["caught_up"]),
            "joining_from": facts["joining_from"],
            "tombstones": facts["unstable_marks"],
            "divergences": facts["divergences"],
            "differing_keys": facts["differing_keys"],
            "idmp_conflicts": exchange.replica.conflicts.total,
            "hidden_values": len(exchange.replica.hidden_values),
        },
        "regions": [{"region": each, "name": names[each]} for each in sorted(present)],
        "peers": [
            _peer(peer, faults.get(peer.region)) for peer in peers if peer.state != "removed"
        ],
        "links": [
            {"region": region, "with": sorted(each.links), "age_ms": round(each.age_ms)}
            for region, each in sorted(progress.items())
        ],
        "matrix": [
            {
                "holder": holder,
                "age_ms": 0 if holder == number else _age(progress, holder),
                "missing": _missing(vectors.get(holder), newest, present),
            }
            for holder in sorted(present)
        ],
    }


def applied(node: Node) -> list[dict[str, Any]]:
    """How far each other region says to have applied effects: its version vector."""
    exchange = node.persistence.exchange
    progress = {} if exchange is None else exchange.peer_progress()
    return [
        {"region": region, "vector": sorted(each.applied.items())}
        for region, each in sorted(progress.items())
    ]


def _age(progress: Mapping[int, Any], holder: int) -> int | None:
    known = progress.get(holder)
    return None if known is None else round(known.age_ms)


def _missing(
    vector: Mapping[int, int] | None, newest: Mapping[int, int], present: list[int]
) -> dict[str, int] | None:
    """Effects of each region that the holder lacks; None if it has reported nothing."""
    if vector is None:
        return None
    found = dict.fromkeys(sorted(present), 0)
    for replica_id, last in newest.items():
        of = region_of(replica_id)
        if of in found:
            found[of] += max(last - vector.get(replica_id, 0), 0)
    return {str(region): count for region, count in found.items()}


def _peer(peer: PeerFigures, fault: LinkFault | None) -> dict[str, Any]:
    return {
        "region": peer.region,
        "name": peer.name or str(peer.region),
        "state": peer.state,
        "via": peer.via,
        "lag_effects": peer.lag_effects,
        "lag_bytes": peer.lag_bytes,
        "lag_s": peer.lag_seconds,
        "receive_lag_effects": peer.receive_lag_effects,
        "receive_lag_s": peer.receive_lag_seconds,
        "round_trip_ms": peer.round_trip_ms,
        "skew_ms": peer.skew_ms,
        "heard_ms": peer.row_age_ms,
        "sent_bytes": peer.counters.sent_bytes,
        "received_bytes": peer.counters.received_bytes,
        "delay_ms": 0 if fault is None else fault.delay_ms,
        "refusal": peer.refusal,
    }
