"""The rows of the command table: ACL."""

from __future__ import annotations

from typing import Final

from anabranch.commands.table.rows import rows
from anabranch.engine.spec import Command

COMMANDS: Final[list[Command]] = rows(
    "server",
    "anabranch.commands.acl",
    """
acl -2 - 6.0.0
    does: Commands about users and their rules.
    help: 6.0.0
acl|cat -2 acl.cat 6.0.0 noscript loading stale
    [category]
    does: Lists the categories, or the commands of one.
    cost: O(N), N being the commands
acl|deluser -3 acl.deluser 6.0.0 admin noscript loading stale
    username [username ...]
    does: Removes users and closes their connections.
    cost: O(N), N being the connections
    tips: request_policy:all_nodes response_policy:all_succeeded
acl|dryrun -4 acl.dryrun 7.0.0 admin noscript loading stale
    username command [arg [arg ...]]
    does: Returns whether a user may run a command, without running it.
acl|genpass -2 acl.genpass 6.0.0 noscript loading stale
    [bits]
    does: Makes a random password.
acl|getuser 3 acl.getuser 6.0.0 admin noscript loading stale
    username
    does: Returns the flags, password hashes and rules of a user.
    cost: O(N), N being the rules
    history: 6.2.0 Added channel patterns.
    history: 7.0.0 Added selectors; patterns became text.
acl|list 2 acl.list_ 6.0.0 admin noscript loading stale
    does: Lists the users as lines of configuration.
    cost: O(N), N being the users
acl|load 2 acl.load 6.0.0 admin noscript loading stale
    does: Reads the users from the ACL file again.
    cost: O(N), N being the users
acl|log -2 acl.log 6.0.0 admin noscript loading stale
    [count | RESET]
    does: Returns recent denials, or deletes them.
    cost: O(N), N being the entries returned
    history: 7.2.0 Added entry ID and timestamps.
acl|save 2 acl.save 6.0.0 admin noscript loading stale
    does: Writes the users to the ACL file.
    cost: O(N), N being the users
    tips: request_policy:all_nodes response_policy:all_succeeded
acl|setuser -3 acl.setuser 6.0.0 admin noscript loading stale
    username [rule [rule ...]]
    does: Makes or changes a user.
    cost: O(N), N being the rules
    tips: request_policy:all_nodes response_policy:all_succeeded
    history: 6.2.0 Added channel patterns.
    history: 7.0.0 Added selectors and key permissions.
acl|users 2 acl.users 6.0.0 admin noscript loading stale
    does: Lists the names of the users.
    cost: O(N), N being the users
acl|whoami 2 acl.whoami 6.0.0 noscript loading stale
    does: Returns the user of this connection.
""",
)
