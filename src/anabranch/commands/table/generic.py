"""The rows of the command table: commands for keys of any type and for databases."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = [
    *rows(
        "generic",
        "anabranch.commands.generic",
        """
del -2 keys.delete 1.0.0 write
    key [key ...]
    does: Deletes keys and counts those that existed.
    cost: O(N), N being the keys and what they hold.
    keys: @1..-1 RM delete
    tips: request_policy:multi_shard response_policy:agg_sum
unlink -2 keys.delete 4.0.0 write fast
    key [key ...]
    does: Deletes keys and counts those that existed. The same as DEL here.
    cost: O(N), N being the keys and what they hold.
    keys: @1..-1 RM delete
    tips: request_policy:multi_shard response_policy:agg_sum
exists -2 keys.exists 1.0.0 readonly fast
    key [key ...]
    does: Counts which of the given keys exist.
    cost: O(N), N being the keys.
    keys: @1..-1 RO
    tips: request_policy:multi_shard response_policy:agg_sum
touch -2 keys.touch 3.2.1 readonly fast
    key [key ...]
    does: Marks keys as used now and counts those that exist.
    cost: O(N), N being the keys.
    keys: @1..-1 RO
    tips: request_policy:multi_shard response_policy:agg_sum
type 2 keys.type_of 1.0.0 readonly fast
    key
    does: Names the type of a key's value.
    keys: RO
rename 3 keys.rename 1.0.0 write
    key newkey
    does: Renames a key and replaces a key of the new name.
    cost: O(1), besides what a replaced value takes to delete.
    keys: RW access delete; @2 OW update
renamenx 3 keys.renamenx 1.0.0 write fast
    key newkey
    does: Gives a key another name unless that name is taken.
    keys: RW access delete; @2 OW insert
copy -3 keys.copy 6.2.0 write denyoom
    source destination [DB destination-db] [REPLACE]
    does: Copies a value, with groups and deadline, to another key.
    cost: O(N), N being the size of the value.
    keys: RO access; @2 OW update
move 3 keys.move 1.0.0 write fast
    key db
    does: Moves a key to another database.
    keys: RW access update
object -2 - 2.2.3
    does: Commands that look into how a key is kept.
    help: 6.2.0 keyspace
object|encoding 3 keys.object_encoding 2.2.3 readonly
    key
    does: Names the internal representation of a value.
    keys: @2 RO
    tips: nondeterministic_output
object|freq 3 keys.object_freq 4.0.0 readonly
    key
    does: Would return how often a key is used; not counted by this server.
    keys: @2 RO
    tips: nondeterministic_output
object|idletime 3 keys.object_idletime 2.2.3 readonly
    key
    does: Returns the seconds since a key was last used.
    keys: @2 RO
    tips: nondeterministic_output
object|refcount 3 keys.object_refcount 2.2.3 readonly
    key
    does: Counts the references to a value.
    keys: @2 RO
    tips: nondeterministic_output
keys 2 databases.keys 1.0.0 readonly
    pattern
    does: Lists all keys that match a pattern. Prefer SCAN.
    cost: O(N), N being the keys of the database.
    acl: dangerous keyspace
    tips: nondeterministic_output_order request_policy:all_shards
scan -2 databases.scan 2.8.0 readonly
    cursor [MATCH pattern] [COUNT count] [TYPE type]
    does: Lists keys page by page. Keys that are there all the time come exactly once.
    cost: O(N) for each page, N being the keys on it.
    tips: nondeterministic_output request_policy:special response_policy:special
dbsize 1 databases.dbsize 1.0.0 readonly fast
    does: Counts the keys of the selected database.
    tips: request_policy:all_shards response_policy:agg_sum
randomkey 1 databases.randomkey 1.0.0 readonly
    does: Picks a key at random.
    cost: O(log N), N being the keys of the database.
    tips: nondeterministic_output request_policy:all_shards response_policy:special
swapdb 3 databases.swapdb 4.0.0 write fast
    index1 index2
    does: Exchanges the contents of two databases.
    cost: O(N), N being the watched and waited-for keys of both.
    acl: dangerous keyspace
    group: server
flushdb -1 databases.flushdb 1.0.0 write
    [ASYNC | SYNC]
    does: Deletes all keys of the selected database.
    cost: O(N), N being the keys of the database.
    acl: dangerous keyspace
    group: server
    tips: request_policy:all_shards response_policy:all_succeeded
flushall -1 databases.flushall 1.0.0 write
    [ASYNC | SYNC]
    does: Deletes all keys of all databases.
    cost: O(N), N being the keys of all databases.
    acl: dangerous keyspace
    group: server
    tips: request_policy:all_shards response_policy:all_succeeded
expire -3 expiry.expire 1.0.0 write fast
    key seconds [NX | XX | GT | LT]
    does: Lets a key live for some more seconds.
    keys: RW update
    history: 7.0.0 Takes NX, XX, GT and LT.
pexpire -3 expiry.pexpire 2.6.0 write fast
    key milliseconds [NX | XX | GT | LT]
    does: Lets a key live for some more milliseconds.
    keys: RW update
    history: 7.0.0 Takes NX, XX, GT and LT.
expireat -3 expiry.expireat 1.2.0 write fast
    key unix-time-seconds [NX | XX | GT | LT]
    does: Lets a key live until a Unix time in seconds.
    keys: RW update
    history: 7.0.0 Takes NX, XX, GT and LT.
pexpireat -3 expiry.pexpireat 2.6.0 write fast
    key unix-time-milliseconds [NX | XX | GT | LT]
    does: Lets a key live until a Unix time in milliseconds.
    keys: RW update
    history: 7.0.0 Takes NX, XX, GT and LT.
ttl 2 expiry.ttl 1.0.0 readonly fast
    key
    does: Tells how many seconds a key has left.
    tips: nondeterministic_output
pttl 2 expiry.pttl 2.6.0 readonly fast
    key
    does: Tells how many milliseconds a key has left.
    tips: nondeterministic_output
expiretime 2 expiry.expiretime 7.0.0 readonly fast
    key
    does: Tells until which Unix time in seconds a key lives.
pexpiretime 2 expiry.pexpiretime 7.0.0 readonly fast
    key
    does: Tells until which Unix time in milliseconds a key lives.
persist 2 expiry.persist 2.2.0 write fast
    key
    does: Lets a key live for ever.
    keys: RW update
""",
        is_hot=True,
    ),
    *rows(
        "generic",
        "anabranch.commands.generic",
        """
dump 2 dump.dump 2.6.0 readonly
    key
    does: Gives the value of a key as a payload for RESTORE.
    cost: O(N), N being the size of the value.
    tips: nondeterministic_output
restore -4 dump.restore 2.6.0 write denyoom
    key ttl serialized-value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
    does: Makes a key of a payload that DUMP gave, here or on another server.
    cost: O(N), N being the size of the payload.
    keys: OW update
    acl: dangerous keyspace
    history: 3.0.0 Takes REPLACE.
    history: 5.0.0 Takes ABSTTL, IDLETIME and FREQ.
""",
    ),
]
