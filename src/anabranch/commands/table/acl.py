"""The rows of the command table: ACL."""

from __future__ import annotations

from functools import partial

from anabranch.commands.acl import acl
from anabranch.commands.request.help import help_row
from anabranch.commands.request.spec import Command

__all__ = ["COMMANDS"]

Row = partial(Command, group="server")

_ANYBODY = "noscript loading stale"
_ADMIN = "admin noscript loading stale"
_ALL_NODES = ("request_policy:all_nodes", "response_policy:all_succeeded")


COMMANDS: list[Command] = [
    Row(
        "acl",
        None,
        arity=-2,
        since="6.0.0",
        summary="Commands about users and their rules.",
        subcommands=[
            Row(
                "cat",
                acl.cat,
                arity=-2,
                flags=_ANYBODY,
                since="6.0.0",
                summary="Lists the categories, or the commands of one.",
                complexity="O(N), N being the commands",
                syntax="[category]",
            ),
            Row(
                "deluser",
                acl.deluser,
                arity=-3,
                flags=_ADMIN,
                since="6.0.0",
                summary="Removes users and closes their connections.",
                complexity="O(N), N being the connections",
                syntax="username [username ...]",
                tips=_ALL_NODES,
            ),
            Row(
                "dryrun",
                acl.dryrun,
                arity=-4,
                flags=_ADMIN,
                since="7.0.0",
                summary="Returns whether a user may run a command, without running it.",
                syntax="username command [arg [arg ...]]",
            ),
            Row(
                "genpass",
                acl.genpass,
                arity=-2,
                flags=_ANYBODY,
                since="6.0.0",
                summary="Makes a random password.",
                syntax="[bits]",
            ),
            Row(
                "getuser",
                acl.getuser,
                arity=3,
                flags=_ADMIN,
                since="6.0.0",
                summary="Returns the flags, password hashes and rules of a user.",
                complexity="O(N), N being the rules",
                syntax="username",
                history=(
                    ("6.2.0", "Added channel patterns."),
                    ("7.0.0", "Added selectors; patterns became text."),
                ),
            ),
            Row(
                "list",
                acl.list_,
                arity=2,
                flags=_ADMIN,
                since="6.0.0",
                summary="Lists the users as lines of configuration.",
                complexity="O(N), N being the users",
            ),
            Row(
                "load",
                acl.load,
                arity=2,
                flags=_ADMIN,
                since="6.0.0",
                summary="Reads the users from the ACL file again.",
                complexity="O(N), N being the users",
            ),
            Row(
                "log",
                acl.log,
                arity=-2,
                flags=_ADMIN,
                since="6.0.0",
                summary="Returns recent denials, or deletes them.",
                complexity="O(N), N being the entries returned",
                syntax="[count | RESET]",
                history=(("7.2.0", "Added entry ID and timestamps."),),
            ),
            Row(
                "save",
                acl.save,
                arity=2,
                flags=_ADMIN,
                since="6.0.0",
                summary="Writes the users to the ACL file.",
                complexity="O(N), N being the users",
                tips=_ALL_NODES,
            ),
            Row(
                "setuser",
                acl.setuser,
                arity=-3,
                flags=_ADMIN,
                since="6.0.0",
                summary="Makes or changes a user.",
                complexity="O(N), N being the rules",
                syntax="username [rule [rule ...]]",
                history=(
                    ("6.2.0", "Added channel patterns."),
                    ("7.0.0", "Added selectors and key permissions."),
                ),
                tips=_ALL_NODES,
            ),
            Row(
                "users",
                acl.users,
                arity=2,
                flags=_ADMIN,
                since="6.0.0",
                summary="Lists the names of the users.",
                complexity="O(N), N being the users",
            ),
            Row(
                "whoami",
                acl.whoami,
                arity=2,
                flags=_ANYBODY,
                since="6.0.0",
                summary="Returns the user of this connection.",
            ),
            help_row("6.0.0"),
        ],
    ),
]
