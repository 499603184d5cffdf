"""Every metric of ``/metrics``: name, kind, labels, meaning. ``docs/metrics.md`` lists the same.

Where redis_exporter has a figure, the name is its name with ``anabranch_`` for ``redis_``: so a
dashboard is moved by replacing the prefix.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    """One family of series; ``name`` is without the prefix."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    meaning: str


def _rows(labels: str, text: str) -> list[Metric]:
    """Lines ``name meaning``; a name that ends with _total is a counter."""
    found = []
    for line in text.strip().splitlines():
        name, _, meaning = line.strip().partition(" ")
        kind: Literal["counter", "gauge"] = "counter" if name.endswith("_total") else "gauge"
        found.append(Metric(name, kind, tuple(labels.split()), meaning))
    return found


METRICS: Final = [
    *_rows(
        "version redis_version region region_name",
        "server_info always 1; the labels say what runs here",
    ),
    *_rows(
        "",
        """
        uptime_in_seconds time since the start
        connected_clients connections of clients
        blocked_clients clients that wait in a blocking command
        connections_received_total connections accepted
        rejected_connections_total connections refused because of maxclients or protected-mode
        commands_processed_total commands run
        net_input_bytes_total bytes received from clients
        net_output_bytes_total bytes sent to clients
        memory_used_bytes what data and buffers hold; maxmemory compares with this
        memory_used_dataset_bytes what the keys hold
        memory_used_peak_bytes the most that memory_used_bytes has been
        memory_used_rss_bytes size of the process
        memory_max_bytes maxmemory; 0 is no limit
        cpu_sys_seconds_total processor time in the system
        cpu_user_seconds_total processor time in the process
        expired_keys_total keys that have expired
        keyspace_hits_total lookups that found a key
        keyspace_misses_total lookups that found none
        slowlog_length entries of the slow log
        memory_used_vm_eval_bytes what Lua holds for scripts; a part of memory_used_bytes
        memory_used_scripts_eval_bytes texts of the scripts in the cache
        number_of_cached_scripts scripts in the cache
        number_of_functions functions
        number_of_libraries libraries of functions
        stream_compressed_blocks_total nodes of streams compressed
        stream_opened_blocks_total compressed nodes opened for readers
        stream_opened_bytes what opened nodes hold; a part of memory_used_dataset_bytes
        stream_offloaded_blocks_total nodes moved to the file of stream-tiering
        stream_offloaded_bytes size of the nodes that are in that file now
        policy_settings policies that are set, on keys and patterns
        policy_consumers_watched consumers whose connections matter to a lease or a consumer-ttl
        policy_dead_lettered_total entries given up, with a copy in a dead-letter stream
        policy_given_up_total entries given up without a copy
        policy_halted_total keys that an entry has stopped, because of on-poison halt
        policy_redelivered_total released entries that plain reads got, because of a policy
        trimmed_by_policy_total entries that retention removed, because of a policy
        policy_created_groups_total groups that readers made, because of a policy
        scheduled_entries entries that wait for their time (AB.SCHEDULE)
        scheduled_late_seconds how late the one was that was added, or tried, last
        scheduled_added_total scheduled entries that were added
        scheduled_failed_total attempts to add one that failed, and are made again
        metrics_streams_left_out streams without series of their own: more than metrics-max-streams
        metrics_groups_left_out groups without series of their own: more than 100 in a stream
        """,
    ),
    *_rows("err", "errors_total error replies, by the first word"),
    *_rows(
        "cause", "policy_released_total entries that a lease (by its mode) or consumer-ttl released"
    ),
    *_rows(
        "cmd",
        """
        commands_total calls of a command
        commands_duration_seconds_total time that they took
        commands_failed_calls_total calls that ended with an error
        commands_rejected_calls_total calls refused before they ran
        """,
    ),
    Metric(
        "command_latency_seconds",
        "histogram",
        ("family",),
        "how long commands took to run, by family (stream, string, generic ...)",
    ),
    *_rows(
        "db",
        """
        db_keys keys
        db_keys_expiring keys with a deadline
        """,
    ),
    *_rows(
        "",
        """
        oplog_up 1 while the log can be written
        oplog_size_bytes size of log and snapshot
        oplog_unsynced_bytes bytes of the log that are not known to be on the disk
        oplog_fsync_seconds how long the latest sync of the log took
        oplog_delayed_fsync_total how often replies had to wait for a slow sync
        oplog_segments files of the log
        oplog_unsafe_keys keys that cannot be read because the log cannot be written; -1 is all
        oplog_refused_reads_total reads refused for that reason
        oplog_volume_bytes size of the volume that the log is on
        oplog_volume_free_bytes room that is left there
        snapshot_last_timestamp_seconds when the latest snapshot was taken
        snapshot_last_ok 1 if the latest snapshot was written
        """,
    ),
    *_rows(
        "peer",
        """
        peer_state 0 in sync, 1 catching up, 2 unreachable or cut off on purpose
        peer_lag_seconds age of the oldest own effect that the peer has not applied
        peer_lag_effects how many such effects there are
        peer_lag_bytes their size in the log
        peer_durable_lag_effects own effects that the peer does not have on its disk
        peer_receive_lag_seconds for how long effects of the peer have been known of and not applied
        peer_receive_lag_effects how many such effects there are
        peer_sent_bytes_total bytes sent to the peer
        peer_received_bytes_total bytes received from the peer
        peer_sent_bytes_uncompressed_total the same before compression
        peer_received_bytes_uncompressed_total the same after decompression
        peer_refusals_total links with the peer that one side has ended on purpose
        peer_round_trip_seconds time for a message there and back
        clock_skew_seconds by how much the clock of the peer is ahead
        """,
    ),
    *_rows(
        "",
        """
        sync_full_total catch-ups from a snapshot
        sync_partial_total catch-ups from the log
        effects_filtered_total effects received that were known already
        tombstones deletions that some member may not have on its disk
        tombstones_collected_total deletions forgotten, as every member has them
        divergences_total comparisons that found keys that differ
        differing_keys keys that differed when digests were compared last
        unstable_effects effects that some member may not have on its disk
        held_tags tags of idempotent producers that some member may not have on its disk
        held_tag_bytes what they hold; a part of memory_used_dataset_bytes
        held_tags_dropped_total tags dropped because of max-held-tags
        idmp_conflicts_total idempotent IDs that several regions accepted; the same in all regions
        idmp_collapsed_total losing entries that were removed from what this region shows
        """,
    ),
    *_rows(
        "db stream",
        """
        stream_length entries
        stream_bytes estimate of the memory that the key takes
        stream_entries_added_total entries ever added
        stream_groups consumer groups
        stream_producers idempotent producers that are remembered
        stream_idempotent_ids idempotent IDs that are remembered
        stream_duplicates_total entries not added, because their idempotent ID was known
        stream_dedup_duration_seconds how long an idempotent ID is to be remembered
        stream_dedup_window_seconds how long it really is: less if a producer has reached its limit
        """,
    ),
    *_rows(
        "db stream group",
        """
        stream_group_lag entries that the group has still to be given, counted
        stream_group_messages_pending entries delivered and not acknowledged
        stream_group_consumers consumers
        stream_group_entries_read entries that the group has been given; left out where unknown
        stream_group_oldest_pending_seconds time since the oldest delivery that is pending
        stream_group_redelivered_total deliveries of entries that were pending, since the start
        stream_group_released_total entries released (XNACK, XGROUP DELCONSUMER), since the start
        stream_group_acked_total entries acknowledged, since the start
        """,
    ),
    *_rows(
        "db stream group consumer",
        """
        stream_group_consumer_messages_pending entries that the consumer has to acknowledge
        stream_group_consumer_idle_seconds time since its last command
        """,
    ),
]
"""In the order in which they are shown."""
