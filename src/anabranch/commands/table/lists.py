"""The rows of the command table: list commands."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
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
    keys: RO access
lindex 3 lists.lindex 1.0.0 readonly
    key index
    does: Gives the item at a position of a list.
    cost: O(N), N being the items of the list.
    keys: RO access
lpos -3 lists.lpos 6.0.6 readonly
    key element [RANK rank] [COUNT num-matches] [MAXLEN len]
    does: Finds the positions of equal items in a list.
    cost: O(N), N being the items of the list.
    keys: RO access
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
)
