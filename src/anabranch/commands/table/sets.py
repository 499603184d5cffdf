"""The rows of the command table: set commands."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
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
    keys: RO access
    tips: nondeterministic_output_order
sscan -3 sets.sscan 2.8.0 readonly
    key cursor [MATCH pattern] [COUNT count]
    does: Lists the members of a set, all on one page.
    cost: O(N log N), N being the members.
    keys: RO access
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
    keys: RO access
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
    keys: RO access
    tips: nondeterministic_output
sinter -2 sets.sinter 1.0.0 readonly
    key [key ...]
    does: Gives the members that all of some sets have.
    cost: O(N log N), N being the members of all sets.
    keys: @1..-1 RO access
    tips: nondeterministic_output_order
sunion -2 sets.sunion 1.0.0 readonly
    key [key ...]
    does: Gives the members that any of some sets has.
    cost: O(N log N), N being the members of all sets.
    keys: @1..-1 RO access
    tips: nondeterministic_output_order
sdiff -2 sets.sdiff 1.0.0 readonly
    key [key ...]
    does: Gives the members of a set that no other has.
    cost: O(N log N), N being the members of all sets.
    keys: @1..-1 RO access
    tips: nondeterministic_output_order
""",
)
