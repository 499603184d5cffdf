"""The rows of the command table: the commands that Redis does not have (AB.*)."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "stream",
    "anabranch.commands.extensions",
    """
ab.home -2 - 0.1.0
    does: Says in which region a consumer group is delivered, and moves it.
    help: 0.1.0 stream
ab.home|show 5 homes.home_show 0.1.0 readonly fast
    key GROUP group
    does: Shows the home of a group, and which entries were delivered twice when it was taken.
    cost: O(N), N being the entries that were delivered twice.
ab.home|move 6 homes.home_move 0.1.0 write admin
    key GROUP group region
    does: Lets another region deliver a group, which begins with what is pending here.
    cost: O(N) some moments later, N being the pending entries.
    keys: @2 RW update
    acl: stream
ab.home|take -5 homes.home_take 0.1.0 write admin blocking
    key GROUP group [FORCE]
    does: Lets this region deliver a group: the home hands over, or with FORCE is taken for dead.
    cost: O(1)
    keys: @2 RW update
    acl: stream
ab.offsets -3 bulk.offsets 0.1.0 readonly blocking
    [BLOCK milliseconds AFTER total] [FROM vector LIMIT entries] STREAMS key [key ...]
    does: Returns the positions of streams for each region, also of deleted streams.
    cost: O(1) for each region of each stream.
    keys: @STREAMS+1..-1 RO access
ab.export -5 bulk.export 0.1.0 readonly
    key region from to [MAXBYTES bytes] [CODEC <NONE | NODES | ZSTD>]
    does: Returns entries between two positions as the server keeps them.
    cost: O(log(N)+M), M being the bytes read.
ab.import -3 bulk.import_ 0.1.0 write denyoom
    key [PRODUCER pid BATCH batch EXPECT rows [CRC crc]] [<MAXLEN | MINID> [= | ~] threshold]
        payload
    does: Appends many entries at once; a producer's batch exactly once.
    cost: O(N), N being the entries added.
    keys: RW insert
ab.ledger 2 bulk.ledger 0.1.0 readonly
    key
    does: Lists the bulk producers of a stream and their newest batches.
    cost: O(N), N being the producers.
ab.producers 2 producer_info.producers 0.1.0 readonly
    key
    does: Shows the records of each producer, and what two regions accepted concurrently.
    cost: O(N), N being the idempotent IDs that are remembered.
ab.info -1 regional_info.info 0.1.0 readonly
    [key [GROUP group]]
    does: Shows what this region has applied, the state of a key by region, or leases of a group.
    cost: O(R+G), R being the regions, G the groups with their intervals.
    keys: RO access
    tips: nondeterministic_output
ab.lag -2 regional_info.lag 0.1.0 readonly
    key [group [group ...]]
    does: Counts the entries that consumer groups must still deliver, by region.
    cost: O(I log N) amortised for each group, I being its intervals of deliveries.
ab.equalids 2 regional_info.equal_ids 0.1.0 readonly
    key
    does: Counts the entries that get another ID where each ID can be there once: in the payload of
        DUMP, and by RENAME and COPY.
    cost: O(N) where several regions have entries, N being all; otherwise O(1).
ab.digest -2 regional_info.digest 0.1.0 readonly
    key [key ...]
    does: Returns digests of keys; equal in regions that have applied the same effects.
    cost: O(N), N being the entries.
ab.read -4 regional_read.read 0.1.0 readonly blocking movablekeys
    [NOTES] [COUNT count] [MAXCOUNT maxcount] [MAXSIZE maxsize] [BLOCK milliseconds]
        [WHERE field <= | ^> value]
        <STREAMS key [key ...] cursor [cursor ...] | FROM cursor <STREAMS key [key ...] |
        PATTERN pattern>>
    does: Returns entries that cursors do not cover, each once, in any region.
    cost: O(log N) for each region of each stream, then a memory copy of what is returned. With
        FROM O(1) for a stream without new entries. WHERE looks at a limited number of entries.
    keys: @STREAMS+1..-1%2 RO access
    find: reading.keys_of_read
ab.subscribe -6 subscribing.subscribe 0.1.0 write movablekeys noscript
    CREDIT credit <GROUP group consumer STREAMS key [key ...] | FROM cursor [NOTES]
        [WHERE field <= | ^> value] <STREAMS key [key ...] | PATTERN pattern>>
    does: Has entries pushed as they come, at most as many as the credit allows. Needs RESP3.
    cost: O(N), N being the streams; then as XREADGROUP or AB.READ for each stream with entries.
    keys: @STREAMS+1..-1 RO access
    find: reading.keys_of_read
ab.credit 2 subscribing.credit 0.1.0 readonly noscript
    credit
    does: Allows a subscription without a group to push more; returns the cursor so far.
    cost: O(N) on a server of its own, N being the streams.
ab.unsubscribe 1 subscribing.unsubscribe 0.1.0 readonly noscript
    does: Ends the subscription; returns the cursor so far, or OK with a group.
    cost: O(N), N being the streams.
ab.count 4 regional_read.count_ 0.1.0 readonly
    key start end
    does: Counts the entries of a stream within a range of IDs.
    cost: O(R log N) amortised, R being the regions.
ab.token 1 regional_read.token 0.1.0 readonly fast
    does: Returns a token of everything that this region has applied.
    cost: O(R), R being the regions.
    tips: nondeterministic_output
ab.waitfor 3 regional_read.waitfor 0.1.0 readonly blocking
    token milliseconds
    does: Waits until this region has applied everything that a token covers.
    cost: O(R), R being the regions.
    tips: nondeterministic_output
ab.policy -2 - 0.1.0
    does: Sets what the server does for streams and their consumer groups.
    help: 0.1.0 stream
ab.policy|set -5 policies.policy_set 0.1.0 write denyoom admin
    key | PATTERN glob [GROUP group] name value [name value ...]
    does: Sets policies of a key, of one of its groups, or of all names that match a pattern.
    cost: O(G) for a key, G being its groups; a pattern looks at every key, in slices.
    keys: @2 RW update
    find: policies.keys_of_policy
    acl: stream
ab.policy|get -3 policies.policy_get 0.1.0 readonly fast
    key [GROUP group]
    does: Shows every policy of a key or a group, with its value and where it comes from.
    cost: O(P), P being the patterns.
ab.policy|del -3 policies.policy_del 0.1.0 write admin
    key | PATTERN glob [GROUP group] [name ...]
    does: Deletes policies, and counts those that there were.
    cost: As AB.POLICY SET.
    keys: @2 RW update
    find: policies.keys_of_policy
    acl: stream
ab.policy|list -2 policies.policy_list 0.1.0 readonly admin
    [glob]
    does: Lists the keys and patterns that have policies.
    cost: O(N log N), N being the keys and patterns that have policies.
    acl: stream
ab.redrive -2 redriving.redrive 0.1.0 write denyoom admin
    key [IDS numids id [id ...] | COUNT count] [REASON reason] [RATE rate] [DRYRUN]
    does: Gives dead letters back to the group that gave them up.
    cost: O(N), N being the entries looked at.
    keys: RW delete
    acl: stream
ab.renew -5 renewing.renew 0.1.0 write fast
    key group consumer time [id ...]
    does: Extends the leases of a consumer's entries, and returns those that it still has.
    cost: O(1) for each entry.
    keys: RW update
ab.schedule -6 scheduled.schedule 0.1.0 write denyoom
    key <AT ms | IN time | CRON line [TZ zone] [MISSED <once | skip | all>]>
        [IDMP pid iid] [ID handle] field value [field value ...]
    does: Schedules an entry that is added later, once or again and again; returns its handle.
    cost: O(log N), N being the entries that are scheduled for the key.
    keys: RW insert
    help: 0.1.0 stream
    acl: stream
ab.schedule|list -3 scheduled.schedule_list 0.1.0 readonly
    key [COUNT count]
    does: Lists the scheduled entries of a key that are due first.
    cost: O(M log M), M being the entries that are listed.
ab.schedule|cancel -4 scheduled.schedule_cancel 0.1.0 write fast
    key handle [handle ...]
    does: Cancels scheduled entries, and counts those that there were.
    cost: O(log N) for each, N being the entries that are scheduled for the key.
    keys: @2 RW delete
ab.schedule|run 4 scheduled.schedule_run 0.1.0 write denyoom
    key handle
    does: Adds a scheduled entry now, and returns its ID; a cron line goes on as before.
    cost: O(log N), N being the entries that are scheduled for the key.
    keys: @2 RW insert
ab.seal 2 sealing.seal 0.1.0 write fast
    key
    does: Ends a stream: it takes no more entries, and readers see the end.
    cost: O(W), W being the clients that wait for the stream.
    keys: RW update
ab.skip -4 skipping.skip 0.1.0 write fast
    key group value [value ...]
    does: Lets keys go on that an entry has stopped (on-poison halt): acknowledges that entry.
    cost: O(N), N being the values.
    keys: RW update
    help: 0.1.0 stream
    acl: stream
ab.skip|list -4 skipping.skip_list 0.1.0 readonly
    key group [COUNT count]
    does: Lists the keys of a group that an entry has stopped, and the entry.
    cost: O(N), N being the keys that are listed.
ab.peers 1 regions.peers 0.1.0 stale
    does: Shows link and lag of every other region.
    cost: O(R), R being the regions.
    acl: dangerous
    group: server
    tips: nondeterministic_output
ab.region -2 - 0.1.0
    does: Commands about the members of an Active-Active cluster.
    group: server
    help: 0.1.0
ab.region|list 2 regions.region_list 0.1.0 stale
    does: Lists the members of the cluster, and regions that were removed.
    cost: O(R), R being the regions.
    acl: dangerous
    group: server
    tips: nondeterministic_output
ab.region|remove -3 regions.region_remove 0.1.0 admin noscript no_multi
    region [FORCE]
    does: Removes a region from the cluster, with FORCE one that is out of reach.
    cost: O(R), R being the regions.
    group: server
ab.region|features 2 regions.region_features 0.1.0 stale
    does: Shows every member's version of effects, and the oldest members.
    cost: O(R), R being the regions.
    acl: dangerous
    group: server
    tips: nondeterministic_output
ab.region|repair 5 regions.repair 0.1.0 admin noscript no_multi blocking
    key FROM region
    does: Takes over another region's version of a key that must not differ.
    cost: O(N), N being the entries.
    keys: @2 RW update
    group: server
    tips: nondeterministic_output
ab.link -3 regions.link 0.1.0 admin noscript stale
    region <PAUSE | RESUME | DELAY ms [jitter] | LOSS percent | RATE bytes-per-second>
    does: Injects faults into the link with another region, for tests.
    group: server
ab.verify -2 regions.verify 0.1.0 readonly noscript no_multi blocking
    region [key [key ...]]
    does: Compares keys, or everything, with another region.
    cost: O(N), N being the entries that changed since they were last looked at.
    keys: @2..-1 RO access
    group: server
    tips: nondeterministic_output
""",
)
