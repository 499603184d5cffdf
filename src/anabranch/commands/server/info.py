"""INFO: the figures of the server as ``name:value`` lines in sections.

Names are those of Redis, so that exporters and dashboards read them; a figure that has no meaning
here (replicas, forks) is given as Redis gives it on a server without them. What the operating
system knows comes from ``Host.process_info``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

from anabranch.config.policies import POLICIES
from anabranch.engine.context import Context
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.metrics.latency import percentile_usec
from anabranch.metrics.stats import Stats
from anabranch.resp.values import Verbatim
from anabranch.version import REDIS_VERSION, __version__

_DEADLINES_SAMPLED_MAX = 1000
"""Deadlines looked at for avg_ttl, per database."""

_Facts = dict[str, Any]
_Lines = list[tuple[str, object]]


def info(ctx: Context, args: list[bytes]) -> bytes:
    """INFO [section ...]: sections come in a fixed order, each once."""
    asked = {name.lower().decode("latin-1") for name in args[1:]} or {"default"}
    names = set(asked)
    for word, group in _GROUPS.items():
        if word in asked:
            names |= group
    if "replication" in names:
        names.add("active-active")
    facts = cast("_Facts", ctx.server.host.process_info())
    sections = []
    for name, section in _SECTIONS.items():
        if name in names and (name not in _OF_REGIONS or ctx.server.host.regions is not None):
            lines = "".join([f"{key}:{value}\r\n" for key, value in section(ctx, facts)])
            sections.append(f"# {_TITLES.get(name) or name.capitalize()}\r\n{lines}")
    return ctx.reply(Verbatim("\r\n".join(sections)))


def human_bytes(count: float) -> str:
    """A size for people: ``1.16M``."""
    if count < 1024:
        return f"{count:.0f}B"
    for unit in "KMGTP":
        count /= 1024
        if count < 1024 or unit == "P":
            break
    return f"{count:.2f}{unit}"


def _zero(names: str) -> _Lines:
    """Figures of Redis that are always 0 here."""
    return [(name, 0) for name in names.split()]


# -- one function a section -------------------------------------------------------------------


def _server(ctx: Context, facts: _Facts) -> _Lines:
    uptime_s = max(ctx.now_ms - ctx.stats.started_ms, 0) // 1000
    return [
        ("redis_version", REDIS_VERSION),
        ("anabranch_version", __version__),
        ("redis_git_sha1", "00000000"),
        ("redis_git_dirty", 0),
        ("redis_build_id", f"anabranch-{__version__}"),
        ("redis_mode", "standalone"),
        ("os", facts.get("os", "unknown")),
        ("arch_bits", facts.get("arch_bits", 64)),
        ("python_version", facts.get("python_version", "unknown")),
        ("compiled", int(bool(facts.get("compiled", False)))),
        ("multiplexing_api", facts.get("loop", "asyncio")),
        ("monotonic_clock", "POSIX clock_gettime"),
        ("atomicvar_api", "none"),
        ("gcc_version", facts.get("gcc_version", "0.0.0")),
        ("event_loop_tasks", facts.get("event_loop_tasks", 0)),
        ("process_id", facts.get("pid", 0)),
        ("process_supervised", "systemd" if facts.get("supervised") else "no"),
        ("run_id", _run_id(facts)),
        ("tcp_port", facts.get("tcp_port", 0)),
        ("server_time_usec", ctx.clock.now_us()),
        ("uptime_in_seconds", uptime_s),
        ("uptime_in_days", uptime_s // 86400),
        ("hz", ctx.settings.hz),
        ("configured_hz", ctx.settings.hz),
        ("io_threads_active", 0),
        ("lru_clock", ctx.now_ms // 1000 % (1 << 24)),
        ("executable", facts.get("executable", "")),
        ("config_file", facts.get("config_file", "")),
    ]


def _run_id(facts: _Facts) -> str:
    return str(facts.get("run_id") or "0" * 40)


def _clients(ctx: Context, _facts: _Facts) -> _Lines:
    sessions = ctx.server.sessions.values()
    waiters = ctx.keyspace.waiters
    blocking_keys, on_nokey = waiters.blocking_keys()
    # A client of which a watched key has changed watches nothing any more.
    watched = sum(sum(map(bool, each.watchers.values())) for each in ctx.keyspace.databases)
    return [
        ("connected_clients", len(sessions)),
        ("cluster_connections", 0),
        ("maxclients", ctx.settings.maxclients),
        *_zero("client_recent_max_input_buffer client_recent_max_output_buffer"),
        ("blocked_clients", waiters.blocked),
        ("tracking_clients", 0),
        ("pubsub_clients", sum(1 for each in sessions if each.listens)),
        ("watching_clients", sum(1 for each in sessions if each.watched and not each.watch_broken)),
        (
            "clients_in_timeout_table",
            sum(1 for each in waiters.active.values() if each.deadline_ms),
        ),
        ("total_watched_keys", watched),
        ("total_blocking_keys", blocking_keys),
        ("total_blocking_keys_on_nokey", on_nokey),
    ]


def _memory(ctx: Context, facts: _Facts) -> _Lines:
    """Memory of data and buffers, as ``maxmemory`` counts it, and the size of the process."""
    ctx.count_memory()
    cache = ctx.keyspace.block_cache
    used = ctx.server.dispatcher.used_memory()
    dataset = ctx.keyspace.account.used_bytes
    buffers = facts.get("client_buffer_bytes", 0)
    peak, peak_ms = ctx.stats.used_memory_peak, ctx.stats.used_memory_peak_ms
    if used >= peak or not peak_ms:
        peak, peak_ms = max(used, peak), ctx.now_ms
    resident = facts.get("rss_bytes", 0)
    program = min(facts.get("startup_rss_bytes", 0), resident)  # no part of ``used``
    total = facts.get("total_system_memory", 0)
    maxmemory = ctx.settings.maxmemory
    return [
        ("used_memory", used),
        ("used_memory_human", human_bytes(used)),
        ("used_memory_rss", resident),
        ("used_memory_rss_human", human_bytes(resident)),
        ("used_memory_peak", peak),
        ("used_memory_peak_human", human_bytes(peak)),
        ("used_memory_peak_time", peak_ms // 1000),
        ("used_memory_peak_perc", f"{100 * used / max(peak, 1):.2f}%"),
        ("used_memory_overhead", used - dataset),
        ("used_memory_startup", 0),  # nothing is counted at the start
        ("used_memory_dataset", dataset),
        ("stream_compressed_blocks_total", cache.compressions),
        ("stream_opened_blocks_total", cache.opens),
        ("stream_opened_bytes", cache.held),
        ("stream_offloaded_blocks_total", cache.offloads),
        ("stream_offloaded_bytes", 0 if cache.file is None else cache.file.held),
        ("used_memory_dataset_perc", f"{100 * dataset / max(used, 1):.2f}%"),
        ("total_system_memory", total),
        ("total_system_memory_human", human_bytes(total)),
        *_scripts(ctx, facts.get("script_machine_bytes", 0)),
        ("maxmemory", maxmemory),
        ("maxmemory_human", human_bytes(maxmemory)),
        ("maxmemory_policy", ctx.settings.maxmemory_policy),
        *_heap(used + program, resident),
        *_zero(
            "mem_overhead_db_hashtable_rehashing mem_not_counted_for_evict "
            "mem_replication_backlog mem_total_replication_buffers mem_cluster_links "
            "mem_clients_slaves"
        ),
        ("mem_clients_normal", buffers),
        ("mem_aof_buffer", 0),
        ("mem_allocator", facts.get("allocator", "python")),
        *_zero("active_defrag_running lazyfree_pending_objects lazyfreed_objects"),
    ]


def _scripts(ctx: Context, machine: int) -> _Lines:
    """The memory of the machine, which is one for scripts and functions, and of their sources."""
    scripts = ctx.server.scripts
    libraries = ctx.keyspace.libraries.values()
    return [
        ("used_memory_lua", machine),
        ("used_memory_vm_eval", machine),
        ("used_memory_lua_human", human_bytes(machine)),
        ("used_memory_scripts_eval", scripts.used_bytes),
        ("number_of_cached_scripts", len(scripts)),
        ("number_of_functions", sum(len(each.functions) for each in libraries)),
        ("number_of_libraries", len(libraries)),
        ("used_memory_vm_functions", 0),
        ("used_memory_vm_total", machine),
        ("used_memory_vm_total_human", human_bytes(machine)),
        ("used_memory_functions", 0),
        ("used_memory_scripts", scripts.used_bytes),
        ("used_memory_scripts_human", human_bytes(scripts.used_bytes)),
    ]


def _heap(counted: int, resident: int) -> _Lines:
    """Of the heap only its whole size is known, and what is counted of it."""
    return [
        ("allocator_allocated", counted),
        ("allocator_active", resident),
        ("allocator_resident", resident),
        ("allocator_muzzy", 0),
        ("allocator_frag_ratio", "1.00"),
        ("allocator_frag_bytes", 0),
        ("allocator_rss_ratio", "1.00"),
        ("allocator_rss_bytes", 0),
        ("rss_overhead_ratio", "1.00"),
        ("rss_overhead_bytes", 0),
        ("mem_fragmentation_ratio", f"{resident / max(counted, 1):.2f}"),
        ("mem_fragmentation_bytes", resident - counted),
    ]


def _persistence(ctx: Context, facts: _Facts) -> _Lines:
    return [
        ("loading", int(ctx.server.dispatcher.is_loading)),
        *_zero("async_loading current_cow_peak current_cow_size current_cow_size_age"),
        ("rdb_changes_since_last_save", ctx.changes),
        *ctx.server.host.persistence.facts().items(),
        ("oplog_volume_bytes", facts.get("volume_bytes", 0)),
        ("oplog_volume_free_bytes", facts.get("volume_free_bytes", 0)),
        *_zero("module_fork_in_progress module_fork_last_cow_size"),
    ]


def _threads(ctx: Context, _facts: _Facts) -> _Lines:
    """One thread reads and writes for all clients."""
    stats = ctx.stats
    figures = f"clients={len(ctx.server.sessions)},reads={stats.reads},writes={stats.writes}"
    return [("io_thread_0", figures)]


def _stats(ctx: Context, _facts: _Facts) -> _Lines:
    stats = ctx.stats
    ctx.server.rates.sample(ctx.now_ms, ctx.stats)
    rates = ctx.server.rates.per_second()
    return [
        ("total_connections_received", stats.connections_received),
        ("total_commands_processed", stats.commands_processed),
        ("instantaneous_ops_per_sec", round(rates.commands)),
        ("total_net_input_bytes", stats.net_input_bytes),
        ("total_net_output_bytes", stats.net_output_bytes),
        *_zero("total_net_repl_input_bytes total_net_repl_output_bytes"),
        ("instantaneous_input_kbps", f"{rates.input_bytes / 1024:.2f}"),
        ("instantaneous_output_kbps", f"{rates.output_bytes / 1024:.2f}"),
        ("instantaneous_input_repl_kbps", "0.00"),
        ("instantaneous_output_repl_kbps", "0.00"),
        ("rejected_connections", stats.rejected_connections),
        *_zero("sync_full sync_partial_ok sync_partial_err expired_subkeys"),
        ("expired_keys", stats.expired_keys),
        ("expired_stale_perc", "0.00"),
        *_zero(
            "expired_time_cap_reached_count expire_cycle_cpu_milliseconds "
            "total_eviction_exceeded_time current_eviction_exceeded_time evicted_keys"
        ),
        ("evicted_clients", stats.evicted_clients),
        ("evicted_scripts", 0),
        ("keyspace_hits", stats.keyspace_hits),
        ("keyspace_misses", stats.keyspace_misses),
        ("pubsub_channels", len(ctx.server.channels.channels)),
        ("pubsub_patterns", len(ctx.server.channels.patterns)),
        ("pubsubshard_channels", len(ctx.server.channels.shards)),
        *_zero(
            "latest_fork_usec total_forks migrate_cached_sockets slave_expires_tracked_keys "
            "active_defrag_hits active_defrag_misses active_defrag_key_hits "
            "active_defrag_key_misses total_active_defrag_time current_active_defrag_time"
        ),
        *_input_and_output(stats),
        *_zero(
            "tracking_total_keys tracking_total_items tracking_total_prefixes "
            "unexpected_error_replies"
        ),
        ("total_error_replies", stats.error_replies),
        *_slow_requests(ctx),
        ("dump_payload_sanitizations", stats.payloads_checked),
        ("acl_access_denied_auth", stats.acl_denied_auth),
        ("acl_access_denied_cmd", stats.acl_denied_cmd),
        ("acl_access_denied_key", stats.acl_denied_key),
        ("acl_access_denied_channel", stats.acl_denied_channel),
    ]


def _input_and_output(stats: Stats) -> _Lines:
    return [
        ("total_reads_processed", stats.reads),
        ("total_writes_processed", stats.writes),
        *_zero("io_threaded_reads_processed io_threaded_writes_processed"),
        ("client_query_buffer_limit_disconnections", stats.query_limit_closed),
        ("client_output_buffer_limit_disconnections", stats.output_limit_closed),
        *_zero("reply_buffer_shrinks reply_buffer_expands"),
    ]


def _slow_requests(ctx: Context) -> _Lines:
    entries = list(ctx.server.dispatcher.all_entries())
    slow_ms = sum(entry.slow_total_ns for entry in entries) / 1e6
    slowest_ms = max(entry.slow_longest_ns for entry in entries) / 1e6
    return [
        ("slowlog_commands_count", sum(entry.slow_count for entry in entries)),
        ("slowlog_commands_time_ms_sum", f"{slow_ms:.2f}"),
        ("slowlog_commands_time_ms_max", f"{slowest_ms:.2f}"),
    ]


def _replication(ctx: Context, facts: _Facts) -> _Lines:
    return [
        ("role", "master"),
        ("connected_slaves", 0),
        ("master_failover_state", "no-failover"),
        ("master_replid", _run_id(facts)),
        ("master_replid2", "0" * 40),
        ("master_repl_offset", 0),
        ("second_repl_offset", -1),
        *_zero(
            "repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset "
            "repl_backlog_histlen"
        ),
    ]


_OF_PEER = (
    *("region", "name", "state", "lag_effects", "lag_bytes", "lag_seconds", "durable_lag_effects"),
    *("receive_lag_effects", "receive_lag_seconds", "round_trip_ms", "skew_ms"),
)


def _active_active(ctx: Context, _facts: _Facts) -> _Lines:
    """This region, then each of the others in a line of its own, as Redis shows its replicas."""
    regions, replica = ctx.server.host.regions, ctx.replica
    assert regions is not None
    facts = regions.facts()
    me = replica.members.get(replica.region)
    lines: _Lines = [
        ("region", facts.pop("region")),
        ("region_name", me.name if me is not None else ctx.settings.region_name),
        *((name, _rounded(value)) for name, value in facts.items()),
        ("applied", _vector(replica.vector)),
        ("stable", _vector(replica.watermark)),
        ("marked_keys", ctx.keyspace.marked_keys),
        ("idmp_collapsed", ctx.stats.idmp_collapsed),
        ("idmp_conflicts", replica.conflicts.total),
        ("held_tags", len(replica.conflicts)),
        ("held_tag_bytes", replica.conflicts.size),
        ("held_tags_dropped", replica.conflicts.dropped),
        ("duplicate_ids", ctx.stats.duplicate_ids),
        ("ids_ahead_ms", ctx.stats.ids_ahead_ms),
    ]
    for index, peer in enumerate(regions.peers()):
        figures = {name: getattr(peer, name) for name in _OF_PEER} | {
            "held_batches": peer.held_count,
            "sent_bytes": peer.counters.sent_bytes,
            "received_bytes": peer.counters.received_bytes,
        }
        known = {name: _rounded(value) for name, value in figures.items() if value is not None}
        text = ",".join(f"{name}={value}" for name, value in known.items())
        lines.append((f"peer{index}", text))
    return lines


def _rounded(value: object) -> object:
    return round(value, 3) if isinstance(value, float) else value


def _vector(vector: Mapping[int, int]) -> str:
    """``region.epoch=number`` of each replica ID."""
    rows = sorted((region_of(each), epoch_of(each), last) for each, last in vector.items())
    return ",".join(f"{region}.{epoch}={last}" for region, epoch, last in rows)


def _crdt(ctx: Context, process: _Facts) -> _Lines:
    """Comparable figures under the names of Redis Enterprise."""
    regions, replica = ctx.server.host.regions, ctx.replica
    assert regions is not None
    facts, stats = regions.facts(), ctx.stats
    removals = sum(epoch + 1 for epoch in replica.removed.values())
    lines: _Lines = [
        # Each admission and each removal makes it greater, also that of a region that came again.
        ("crdt_config_version", len(replica.members) + 2 * removals),
        ("crdt_guid", facts["cluster_id"]),
        ("crdt_replica_id", replica.region),
        ("crdt_replid", _run_id(process)),
        ("crdt_clock", replica.vector.get(replica.own, 0)),
        ("crdt_ovc", _vector(replica.vector)),
        ("crdt_sync_full", facts["full_catch_ups"]),
        ("crdt_sync_partial_ok", facts["partial_catch_ups"]),
        ("crdt_sync_partial-err", facts["failed_partial_catch_ups"]),
        ("crdt_effect_reqs", stats.merged_effects),
        ("crdt_merge_reqs", stats.merged_states),
        ("crdt_ovc_filtered_effect_reqs", facts["duplicates"]),
        ("crdt_gc_pending", ctx.keyspace.marked_keys),
        ("crdt_gc_attempted", stats.prunes),
        ("crdt_gc_collected", replica.tombstones_forgotten),
        ("crdt_gc_gvc_min", _vector(replica.watermark)),
    ]
    for peer in regions.peers():
        lag = "unknown" if peer.lag_effects is None else peer.lag_effects
        text = f"name={peer.name},state={peer.state},shards=1,max_ops_lag={lag},min_ops_lag={lag}"
        lines.append((f"crdt_replica_{peer.region}", text))
    return lines


def _cpu(_ctx: Context, facts: _Facts) -> _Lines:
    names = "sys user sys_children user_children sys_main_thread user_main_thread".split()
    return [(f"used_cpu_{name}", f"{facts.get(f'cpu_{name}', 0.0):.6f}") for name in names]


def _nothing(_ctx: Context, _facts: _Facts) -> _Lines:
    return []


def _commandstats(ctx: Context, _facts: _Facts) -> _Lines:
    lines: _Lines = []
    for entry in ctx.server.dispatcher.all_entries():
        calls = entry.calls
        if calls or entry.rejected or entry.failed:
            usec = entry.total_ns // 1000
            figures = (
                f"calls={calls},usec={usec},usec_per_call={usec / max(calls, 1):.2f},"
                f"rejected_calls={entry.rejected},failed_calls={entry.failed}"
            )
            if entry.slow_count:
                slow_ms, longest_ms = entry.slow_total_ns / 1e6, entry.slow_longest_ns / 1e6
                figures += (
                    f",slowlog_count={entry.slow_count},slowlog_time_ms_sum={slow_ms:.2f},"
                    f"slowlog_time_ms_max={longest_ms:.2f}"
                )
            lines.append((f"cmdstat_{entry.command.full_name}", figures))
    return lines


def _errorstats(ctx: Context, _facts: _Facts) -> _Lines:
    errors = ctx.stats.errors
    return [(f"errorstat_{code}", f"count={errors[code]}") for code in sorted(errors)]


def _latencystats(ctx: Context, _facts: _Facts) -> _Lines:
    lines: _Lines = []
    if not ctx.settings.latency_tracking:
        return lines
    percentiles = [float(word) for word in ctx.settings.latency_tracking_info_percentiles.split()]
    for entry in ctx.server.dispatcher.all_entries():
        if entry.calls:
            figures = [
                f"p{percentile:g}={percentile_usec(entry.histogram, percentile):.3f}"
                for percentile in percentiles
            ]
            lines.append((f"latency_percentiles_usec_{entry.command.full_name}", ",".join(figures)))
    return lines


_OF_POLICIES = (
    *("policy_released", "policy_dead_lettered", "policy_given_up", "policy_halted"),
    *("policy_redriven", "policy_removed_consumers", "policy_redelivered", "policy_trimmed"),
    "policy_created_groups",
)


def _policies(ctx: Context, _facts: _Facts) -> _Lines:
    tables = [each.policies for each in ctx.keyspace.databases]
    subjects = [texts for each in tables for _, texts in each.live()]
    unknown = sum(name.decode("latin-1") not in POLICIES for texts in subjects for name in texts)
    return [
        ("policy_rules", len(subjects)),
        ("policy_settings", sum(map(len, subjects))),
        ("policy_unknown_settings", unknown),
        ("policy_consumers_watched", len(ctx.server.leases.holds)),
        *((name, getattr(ctx.stats, name)) for name in _OF_POLICIES),
        ("scheduled_entries", sum(each.timetables.live for each in ctx.keyspace.databases)),
        ("scheduled_late_ms", ctx.stats.scheduled_late_ms),
        ("scheduled_added", ctx.stats.scheduled_added),
        ("scheduled_failed", ctx.stats.scheduled_failed),
    ]


def _cluster(_ctx: Context, _facts: _Facts) -> _Lines:
    return [("cluster_enabled", 0)]


def _keyspace(ctx: Context, _facts: _Facts) -> _Lines:
    lines: _Lines = []
    withheld = ctx.server.dispatcher.withheld
    for database in ctx.keyspace.databases:
        keys, expires = len(database.values), len(database.deadlines)
        is_shown = keys > 0
        if withheld is not None and withheld.hides_some_of(database.index):
            keys, expires = withheld.keys_left(database)
            is_shown = True  # otherwise the reply would be empty
        if is_shown:
            sample = list(islice(database.deadlines.values(), _DEADLINES_SAMPLED_MAX))
            left_ms = sum(max(at_ms - ctx.now_ms, 0) for at_ms in sample)
            figures = (
                f"keys={keys},expires={expires},"
                f"avg_ttl={left_ms // max(len(sample), 1)},subexpiry=0"
            )
            lines.append((f"db{database.index}", figures))
    return lines


_SECTIONS: dict[str, Callable[[Context, _Facts], _Lines]] = {
    "server": _server,
    "clients": _clients,
    "memory": _memory,
    "persistence": _persistence,
    "threads": _threads,
    "stats": _stats,
    "replication": _replication,
    "active-active": _active_active,
    "crdt": _crdt,
    "cpu": _cpu,
    "modules": _nothing,
    "commandstats": _commandstats,
    "errorstats": _errorstats,
    "latencystats": _latencystats,
    "cluster": _cluster,
    "policies": _policies,
    "keyspace": _keyspace,
    "keysizes": _nothing,
}

_OF_REGIONS = frozenset({"active-active", "crdt"})
"""Sections that a server on its own does not have."""

_TITLES = {"cpu": "CPU", "active-active": "Active-Active", "crdt": "CRDT"}

_EVERYTHING = frozenset(_SECTIONS)
_GROUPS = {
    "default": _EVERYTHING - {"commandstats", "latencystats", "crdt"},
    "all": _EVERYTHING - {"modules"},
    "everything": _EVERYTHING,
}
