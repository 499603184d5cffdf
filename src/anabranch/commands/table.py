"""All families' rows as one table."""

from __future__ import annotations

from itertools import chain

from anabranch.commands import (
    acl,
    bulk,
    catalogue,
    client,
    config,
    connection,
    databases,
    debug,
    dump,
    expiry,
    info,
    keys,
    latency,
    lists,
    memory,
    pubsub,
    regional_info,
    regional_read,
    regions,
    saving,
    scripting,
    server,
    slowlog,
    stream_add,
    stream_group,
    stream_info,
    stream_pending,
    stream_producer,
    stream_read,
    stream_readgroup,
    stream_write,
    transaction,
    values,
)
from anabranch.commands.spec import Command

__all__ = ["COMMANDS"]

COMMANDS: list[Command] = list(
    chain(
        acl.COMMANDS,
        bulk.COMMANDS,
        catalogue.COMMANDS,
        client.COMMANDS,
        config.COMMANDS,
        connection.COMMANDS,
        databases.COMMANDS,
        debug.COMMANDS,
        dump.COMMANDS,
        expiry.COMMANDS,
        info.COMMANDS,
        keys.COMMANDS,
        latency.COMMANDS,
        lists.COMMANDS,
        memory.COMMANDS,
        pubsub.COMMANDS,
        regional_info.COMMANDS,
        regional_read.COMMANDS,
        regions.COMMANDS,
        saving.COMMANDS,
        scripting.COMMANDS,
        server.COMMANDS,
        slowlog.COMMANDS,
        stream_add.COMMANDS,
        stream_write.COMMANDS,
        stream_read.COMMANDS,
        stream_readgroup.COMMANDS,
        stream_group.COMMANDS,
        stream_pending.COMMANDS,
        stream_info.COMMANDS,
        stream_producer.COMMANDS,
        transaction.COMMANDS,
        values.COMMANDS,
    )
)
