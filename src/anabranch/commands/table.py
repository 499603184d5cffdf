"""All families' rows as one table."""

from __future__ import annotations

from itertools import chain

from anabranch.commands import (
    stream_group,
    stream_info,
    stream_pending,
    stream_producer,
    stream_read,
    stream_readgroup,
    stream_write,
)
from anabranch.commands.spec import Command

__all__ = ["COMMANDS"]

COMMANDS: list[Command] = list(
    chain(
        stream_write.COMMANDS,
        stream_read.COMMANDS,
        stream_readgroup.COMMANDS,
        stream_group.COMMANDS,
        stream_pending.COMMANDS,
        stream_info.COMMANDS,
        stream_producer.COMMANDS,
    )
)
