"""The rows of the command table: strings, lists and sets."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = [
    *rows(
        "string",
        "anabranch.commands.string",
        """
set -3 strings.set_string 1.0.0 write denyoom
    key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds
        | PXAT unix-time-milliseconds | KEEPTTL]
    does: Sets a key to a string and replaces its value.
    keys: RW access update variable_flags
    find: strings.keys_of_set
get 2 strings.get 1.0.0 readonly fast
    key
    does: Gives the string of a key.
getset 3 strings.getset 1.0.0 write denyoom fast
    key value
    does: Binds a key to a string and gives the old one.
    keys: RW access update
getdel 2 strings.getdel 6.2.0 write fast
    key
    does: Gives the string of a key and deletes the key.
    keys: RW access delete
getex -2 strings.getex 6.2.0 write fast
    key [EX seconds | PX milliseconds | EXAT unix-time-seconds
        | PXAT unix-time-milliseconds | PERSIST]
    does: Gives the string of a key and changes the key's deadline.
    keys: RW access update (RW and UPDATE because it changes the TTL)
setnx 3 strings.setnx 1.0.0 write denyoom fast
    key value
    does: Binds a key that does not exist.
    keys: OW insert
setex 4 strings.setex 2.0.0 write denyoom
    key seconds value
    does: Binds a key to a string for some seconds.
    keys: OW update
psetex 4 strings.psetex 2.6.0 write denyoom
    key milliseconds value
    does: Binds a key to a string for some milliseconds.
    keys: OW update
mget -2 strings.mget 1.0.0 readonly fast
    key [key ...]
    does: Gives the strings of several keys.
    cost: O(N), N being the keys given.
    tips: request_policy:multi_shard
mset -3 strings.mset 1.0.1 write denyoom
    key value [key value ...]
    does: Binds several keys.
    cost: O(N), N being the keys given.
    keys: @1..-1/2 OW update
    tips: request_policy:multi_shard response_policy:all_succeeded
msetnx -3 strings.msetnx 1.0.1 write denyoom
    key value [key value ...]
    does: Binds several keys if none of them exists.
    cost: O(N), N being the keys given.
    keys: @1..-1/2 OW insert
    tips: request_policy:multi_shard response_policy:agg_min
strlen 2 strings.strlen 2.2.0 readonly fast
    key
    does: Counts the bytes of a string.
    keys: RO
append 3 strings.append 2.0.0 write denyoom fast
    key value
    does: Puts bytes at the end of a string and gives its length.
    cost: O(N), N being the bytes of the string.
    keys: RW insert
getrange 4 strings.getrange 2.4.0 readonly
    key start end
    does: Gives the bytes of a string between two positions.
    cost: O(N), N being the bytes wanted.
setrange 4 strings.setrange 2.2.0 write denyoom
    key offset value
    does: Puts bytes over a string from a position on and gives its length.
    cost: O(N), N being the bytes of the string.
    keys: RW update
incr 2 numbers.incr 1.0.0 write denyoom fast
    key
    does: Adds one to the number in a string.
    keys: RW access update
decr 2 numbers.decr 1.0.0 write denyoom fast
    key
    does: Subtracts one from the number in a string.
    keys: RW access update
incrby 3 numbers.incrby 1.0.0 write denyoom fast
    key increment
    does: Adds to the number in a string.
    keys: RW access update
decrby 3 numbers.decrby 1.0.0 write denyoom fast
    key decrement
    does: Subtracts from the number in a string.
    keys: RW access update
incrbyfloat 3 numbers.incrbyfloat 2.6.0 write denyoom fast
    key increment
    does: Adds to the decimal number in a string.
    keys: RW access update
""",
        is_hot=True,
    ),
    *rows(
        "list",
        "anabranch.commands.list",
        """
lpush -3 lists.lpush 1.0.0 write denyoom fast
    key element [element ...]
    does: Puts items one after the other at the head of a list.
    cost: O(N), N being the items given.
    keys: RW insert
rpush -3 lists.rpush 1.0.0 write denyoom fast
    key element [element ...]
    does: Puts items one after the other at the tail of a list.
    cost: O(N), N being the items given.
    keys: RW insert
lpushx -3 lists.lpushx 2.2.0 write denyoom fast
    key element [element ...]
    does: Puts items one after the other at the head of a list that exists.
    cost: O(N), N being the items given.
    keys: RW insert
rpushx -3 lists.rpushx 2.2.0 write denyoom fast
    key element [element ...]
    does: Puts items one after the other at the tail of a list that exists.
    cost: O(N), N being the items given.
    keys: RW insert
lpop -2 lists.lpop 1.0.0 write fast
    key [count]
    does: Takes items off the head of a list.
    cost: O(N), N being the items taken.
    keys: RW access delete
rpop -2 lists.rpop 1.0.0 write fast
    key [count]
    does: Takes items off the tail of a list.
    cost: O(N), N being the items taken.
    keys: RW access delete
llen 2 lists.llen 1.0.0 readonly fast
    key
    does: Counts the items of a list.
    keys: RO
lrange 4 lists.lrange 1.0.0 readonly
    key start stop
    does: Lists the items between two positions of a list.
    cost: O(N), N being the items up to the last one wanted.
lindex 3 lists.lindex 1.0.0 readonly
    key index
    does: Gives the item at a position of a list.
    cost: O(N), N being the items of the list.
lpos -3 lists.lpos 6.0.6 readonly
    key element [RANK rank] [COUNT num-matches] [MAXLEN len]
    does: Finds the positions of equal items in a list.
    cost: O(N), N being the items of the list.
lset 4 lists.lset 1.0.0 write denyoom
    key index element
    does: Puts an item in the place of another in a list.
    cost: O(N), N being the items of the list.
    keys: RW update
linsert 5 lists.linsert 2.2.0 write denyoom
    key <BEFORE | AFTER> pivot element
    does: Puts an item before or after another in a list.
    cost: O(N), N being the items of the list.
    keys: RW insert
lrem 4 lists.lrem 1.0.0 write
    key count element
    does: Takes equal items out of a list.
    cost: O(N), N being the items of the list.
    keys: RW delete
ltrim 4 lists.ltrim 1.0.0 write
    key start stop
    does: Keeps only the items between two positions of a list.
    cost: O(N), N being the items that go.
    keys: RW delete
blpop -3 moves.blpop 2.0.0 write blocking
    key [key ...] timeout
    does: Takes the head of the first of some lists that has one, or waits for it.
    cost: O(N), N being the keys given.
    keys: @1..-2 RW access delete
brpop -3 moves.brpop 2.0.0 write blocking
    key [key ...] timeout
    does: Takes the tail of the first of some lists that has one, or waits for it.
    cost: O(N), N being the keys given.
    keys: @1..-2 RW access delete
lmove 5 moves.lmove 6.2.0 write denyoom
    source destination <LEFT | RIGHT> <LEFT | RIGHT>
    does: Moves an item from one end of a list to an end of another.
    keys: RW access delete; @2 RW insert
blmove 6 moves.blmove 6.2.0 write denyoom blocking
    source destination <LEFT | RIGHT> <LEFT | RIGHT> timeout
    does: Moves an item from one end of a list to an end of another, or waits for it.
    keys: RW access delete; @2 RW insert
rpoplpush 3 moves.rpoplpush 1.2.0 write denyoom
    source destination
    does: Moves the tail of a list to the head of another.
    keys: RW access delete; @2 RW insert
brpoplpush 4 moves.brpoplpush 2.2.0 write denyoom blocking
    source destination timeout
    does: Moves the tail of a list to the head of another, or waits for it.
    keys: RW access delete; @2 RW insert
""",
    ),
    *rows(
        "set",
        "anabranch.commands.set",
        """
sadd -3 sets.sadd 1.0.0 write denyoom fast
    key member [member ...]
    does: Adds members to a set and counts the new ones.
    cost: O(N), N being the members given.
    keys: RW insert
srem -3 sets.srem 1.0.0 write fast
    key member [member ...]
    does: Removes members from a set and counts them.
    cost: O(N), N being the members given.
    keys: RW delete
smove 4 sets.smove 1.0.0 write fast
    source destination member
    does: Moves a member from one set to another.
    keys: RW access delete; @2 RW insert
smembers 2 sets.smembers 1.0.0 readonly
    key
    does: Lists the members of a set.
    cost: O(N log N), N being the members.
    tips: nondeterministic_output_order
sscan -3 sets.sscan 2.8.0 readonly
    key cursor [MATCH pattern] [COUNT count]
    does: Lists the members of a set, all on one page.
    cost: O(N log N), N being the members.
    tips: nondeterministic_output
scard 2 sets.scard 1.0.0 readonly fast
    key
    does: Counts the members of a set.
    keys: RO
sismember 3 sets.sismember 1.0.0 readonly fast
    key member
    does: Says whether something is a member of a set.
    keys: RO
smismember -3 sets.smismember 6.2.0 readonly fast
    key member [member ...]
    does: Says which of some are members of a set.
    cost: O(N), N being the members given.
spop -2 sets.spop 1.0.0 write fast
    key [count]
    does: Takes members out of a set by chance.
    cost: O(N log N), N being the members.
    keys: RW access delete
    tips: nondeterministic_output
srandmember -2 sets.srandmember 1.0.0 readonly
    key [count]
    does: Gives members of a set by chance.
    cost: O(N log N), N being the members.
    tips: nondeterministic_output
sinter -2 sets.sinter 1.0.0 readonly
    key [key ...]
    does: Gives the members that all of some sets have.
    cost: O(N log N), N being the members of all sets.
    tips: nondeterministic_output_order
sunion -2 sets.sunion 1.0.0 readonly
    key [key ...]
    does: Gives the members that any of some sets has.
    cost: O(N log N), N being the members of all sets.
    tips: nondeterministic_output_order
sdiff -2 sets.sdiff 1.0.0 readonly
    key [key ...]
    does: Gives the members of a set that no other has.
    cost: O(N log N), N being the members of all sets.
    tips: nondeterministic_output_order
""",
    ),
]
