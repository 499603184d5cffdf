"""The rows of the command table: string commands."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
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
    keys: RO access
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
    keys: @1..-1 RO access
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
    keys: RO access
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
)
