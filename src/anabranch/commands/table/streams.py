"""The rows of the command table: stream commands."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "stream",
    "anabranch.commands.stream",
    """
xadd -5 add.xadd 5.0.0 write denyoom fast
    key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [<IDMPAUTO pid | IDMP pid iid>]
        [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]
    does: Appends a new entry to a stream. Creates the key if it does not exist.
    cost: O(1) when adding, O(N) when trimming, N being the entries removed.
    keys: RW update (UPDATE instead of INSERT because of the optional trimming feature)
    tips: nondeterministic_output
xtrim -4 write.xtrim 5.0.0 write
    key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]
    does: Removes the oldest entries of a stream, by length or by ID.
    cost: O(N), N being the entries removed.
    keys: RW delete
    tips: nondeterministic_output
xdel -3 write.xdel 5.0.0 write fast
    key id [id ...]
    does: Deletes entries by ID and counts those that existed.
    cost: O(log N) for each ID.
    keys: RW delete
xdelex -5 write.xdelex 8.2.0 write fast
    key [KEEPREF | DELREF | ACKED] IDS numids id [id ...]
    does: Deletes entries by ID, with a choice for consumer groups' references.
    cost: O(log N) for each ID, times the groups with DELREF and ACKED.
    keys: RW delete
xackdel -6 write.xackdel 8.2.0 write fast
    key group [KEEPREF | DELREF | ACKED] IDS numids id [id ...]
    does: Acknowledges entries for a group and deletes them.
    cost: O(log N) for each ID, times the groups with DELREF and ACKED.
    keys: RW update delete
xsetid -3 write.xsetid 5.0.0 write denyoom fast
    key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]
    does: Sets the last-generated ID of a stream, and its counters.
    keys: RW update
xlen 2 write.xlen 5.0.0 readonly fast
    key
    does: Counts the entries of a stream.
    keys: RO
xrange -4 read.xrange_ 5.0.0 readonly
    key start end [COUNT count]
    does: Returns the entries of a stream within a range of IDs.
    cost: O(log N) to find the start, then a memory copy of what is returned.
    history: 6.2.0 Added exclusive ranges.
xrevrange -4 read.xrevrange 5.0.0 readonly
    key end start [COUNT count]
    does: Returns the entries of a stream within a range of IDs, newest first.
    cost: O(log N + M), M being the entries returned.
    history: 6.2.0 Added exclusive ranges.
xread -4 read.xread 5.0.0 readonly blocking movablekeys
    [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds] STREAMS key [key ...]
        id [id ...]
    does: Returns entries beyond the given IDs from several streams, waiting if asked to.
    cost: O(log N) for each stream, then a memory copy of what is returned.
    keys: @STREAMS+1..-1%2 RO access
xreadgroup -7 readgroup.xreadgroup 5.0.0 write blocking movablekeys
    GROUP group consumer [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds]
        [CLAIM min-idle-time] [NOACK] STREAMS key [key ...] id [id ...]
    does: Returns new or pending entries to a consumer of a group, waiting if asked to.
    cost: O(log N) for each stream, then O(1) for each entry returned.
    keys: @STREAMS+4..-1%2 RO access
xgroup -2 - 5.0.0
    does: Manages consumer groups.
    help: 5.0.0 stream
xgroup|create -5 group.create 5.0.0 write denyoom
    key group <id | $> [MKSTREAM] [ENTRIESREAD entries-read]
    does: Creates a consumer group.
    keys: @2 RW insert
    history: 7.0.0 Added ENTRIESREAD.
xgroup|setid -5 group.set_id 5.0.0 write
    key group <id | $> [ENTRIESREAD entries-read]
    does: Sets the last-delivered ID of a consumer group.
    keys: @2 RW update
    history: 7.0.0 Added ENTRIESREAD.
xgroup|destroy 4 group.destroy 5.0.0 write
    key group
    does: Destroys a consumer group.
    cost: O(N), N being the pending entries of the group.
    keys: @2 RW delete
xgroup|createconsumer 5 group.create_consumer 6.2.0 write denyoom
    key group consumer
    does: Creates a consumer in a group.
    keys: @2 RW insert
xgroup|delconsumer 5 group.delete_consumer 5.0.0 write
    key group consumer
    does: Deletes a consumer and its pending entries.
    cost: O(N), N being the pending entries of the consumer.
    keys: @2 RW delete
xack -4 pending.xack 5.0.0 write fast
    key group id [id ...]
    does: Acknowledges entries for a consumer group.
    cost: O(1) for each ID.
    keys: RW update
xnack -7 pending.xnack 8.8.0 write fast
    key group <SILENT | FAIL | FATAL> IDS numids id [id ...] [RETRYCOUNT count] [FORCE]
    does: Gives pending entries back to the group without processing them.
    cost: O(1) for each ID.
    keys: RW update
xclaim -6 pending.xclaim 5.0.0 write fast
    key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds]
        [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID lastid]
    does: Changes the owner of pending entries.
    cost: O(log N) for each ID.
    keys: RW update
    tips: nondeterministic_output
xautoclaim -6 pending.xautoclaim 6.2.0 write fast
    key group consumer min-idle-time start [COUNT count] [JUSTID]
    does: Changes the owner of pending entries that have been idle for long enough.
    cost: O(1) if COUNT is small.
    keys: RW delete
    tips: nondeterministic_output
    history: 7.0.0 Added the list of deleted entries to the reply.
xpending -3 pending_list.xpending 5.0.0 readonly
    key group [[IDLE min-idle-time] start end count [consumer]]
    does: Shows the pending entries of a consumer group.
    cost: O(N), N being the entries returned; O(consumers) for the summary.
    tips: nondeterministic_output
    history: 6.2.0 Added IDLE and exclusive ranges.
xinfo -2 - 5.0.0
    does: Shows streams, consumer groups and consumers.
    help: 5.0.0 stream
xinfo|stream -3 info.stream_info 5.0.0 readonly
    key [FULL [COUNT count]]
    does: Shows the figures of a stream.
    history: 6.0.0 Added FULL.
xinfo|groups 3 info.groups_info 5.0.0 readonly
    key
    does: Shows the consumer groups of a stream.
    cost: O(G log N), G being the groups.
xinfo|consumers 4 info.consumers_info 5.0.0 readonly
    key group
    does: Shows the consumers of a group.
    cost: O(C), C being the consumers.
    tips: nondeterministic_output
xcfgset -2 producer.xcfgset 8.6.0 write fast
    key [IDMP-DURATION seconds] [IDMP-MAXSIZE entries]
    does: Sets how long and how many idempotent IDs a stream remembers.
    keys: RW update
xidmprecord 5 producer.xidmprecord 8.6.2 write denyoom fast
    key pid iid id
    does: Attaches an idempotent ID to an existing entry.
    cost: O(log N)
    keys: RW update
xidmp -2 - 8.6.0
    does: Reads and sets a stream's idempotency limits.
    help: 8.6.0 stream
xidmp|cfgset -3 producer.xidmp_cfgset 8.6.0 write fast
    key [DURATION seconds] [MAXSIZE entries]
    does: Sets how long and how many idempotent IDs a stream remembers.
    keys: @2 RW update
xidmp|cfgget -3 producer.xidmp_cfgget 8.6.0 readonly fast
    key [DURATION] [MAXSIZE]
    does: Shows how long and how many idempotent IDs a stream remembers.
""",
    is_hot=True,
)
