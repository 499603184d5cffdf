"""The command table: what COMMAND, ACL, the docs and dispatch know of each command, as rows.

A row names its function, arity, flags, keys, syntax and summary; the functions, which decide, stand
in the packages beside this one. There is one file for each family.
"""

from __future__ import annotations

from itertools import chain

from anabranch.commands.table import (
    acl,
    cluster,
    connection,
    extensions,
    generic,
    lists,
    monitoring,
    pubsub,
    scripting,
    server,
    sets,
    streams,
    strings,
    transactions,
)
from anabranch.engine.spec import Command

__all__ = ["COMMANDS"]

COMMANDS: list[Command] = list(
    chain(
        streams.COMMANDS,
        strings.COMMANDS,
        lists.COMMANDS,
        sets.COMMANDS,
        generic.COMMANDS,
        connection.COMMANDS,
        cluster.COMMANDS,
        server.COMMANDS,
        monitoring.COMMANDS,
        acl.COMMANDS,
        scripting.COMMANDS,
        pubsub.COMMANDS,
        transactions.COMMANDS,
        extensions.COMMANDS,
    )
)
